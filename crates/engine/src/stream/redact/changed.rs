//! What a descendant of a snapshot has changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::dnode::{DNODES_PER_BLOCK, Dnode};
use ondisk::object_type::ObjectType;
use ondisk::objset::ObjsetType;

use super::ranges::{Range, Ranges};
use crate::dmu::Objset;
use crate::dsl::{Dataset, Dsl};
use crate::error::Result;
use crate::stream::send::item::{Item, SPILL};
use crate::stream::send::walk::Walk;
use crate::zap::Zap;

/// The object that says where the others of a file system are.
const MASTER_NODE: u64 = 1;
/// What that calls files that are removed, and open.
const DELETE_QUEUE: &str = "DELETE_QUEUE";

/// The blocks that `snapshot` has changed since `txg`. Of what is removed, all.
#[doc(alias = "redact_cb")]
pub(super) fn changed(dsl: &Dsl, snapshot: &Arc<Dataset>, txg: u64) -> Result<Ranges> {
    let objset = dsl.objset(snapshot)?;
    let removed = removed(&objset)?;
    let mut ranges = Ranges::default();
    let mut gone = 0;
    let walk = Walk { context: objset.context(), presence: objset.presence(), objset: snapshot.object, after_txg: txg, resume: None, raw: false, is_over: &|| false };
    walk.run(&objset.pointer(), &mut |item| {
        match item {
            Item::Object { object, dnode, .. } => {
                let is_free = Dnode::peek_free(&dnode) || Dnode::decode(&dnode)?.object_type == ObjectType::NONE;
                if is_free || removed.contains(&object) {
                    gone = object;
                    ranges.push(Range::of_object(object, 0, u64::MAX));
                }
            }
            Item::Hole(blocks) if blocks.object == 0 => {
                let (first, end) = (blocks.first.saturating_mul(DNODES_PER_BLOCK), blocks.end.saturating_mul(DNODES_PER_BLOCK));
                ranges.push(Range { first: (first.max(1), 0), last: (end.wrapping_sub(1), u64::MAX) });
            }
            Item::Hole(blocks) if blocks.object != gone => ranges.push(Range::of_object(blocks.object, blocks.first, blocks.end.wrapping_sub(1))),
            Item::Data(data) if data.object != gone && data.block != SPILL => ranges.push(Range::of_object(data.object, data.block, data.block)),
            _ => {}
        }
        Ok(())
    })?;
    Ok(ranges)
}

/// Files that were removed while they were open are there, and are not to be.
#[doc(alias = "zfs_get_deleteq")]
fn removed(objset: &Arc<Objset>) -> Result<BTreeSet<u64>> {
    if objset.objset_type() != ObjsetType::FileSystem {
        return Ok(BTreeSet::new());
    }
    let Some(queue) = Zap::open(objset, MASTER_NODE)?.lookup_u64(DELETE_QUEUE)? else { return Ok(BTreeSet::new()) };
    Ok(Zap::open(objset, queue)?.entries()?.into_iter().map(|entry| entry.value.first()).collect())
}
