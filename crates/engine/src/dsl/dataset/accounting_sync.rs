//! Counting the space and the objects that each user, group and project has.
//!
//! # On disk
//! Three ZAPs of the object set with fixed numbers: by user, group and project. The id in hexadecimal names the bytes,
//! `obj-` and the id the number of objects. What is 0 has no entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::object_type::ObjectType;
use ondisk::objset::FLAG_PROJECT_QUOTA_COMPLETE;

use crate::dmu::{Objset, SyncTx, USED_BY_GROUP, USED_BY_PROJECT, USED_BY_USER};
use crate::error::{Error, ErrorKind, Result};
use crate::zap::{Zap, ZapSpec};

/// Names the number of objects.
const OBJECTS_PREFIX: &str = "obj-";

/// Writes down what [`Objset::sync`] found that files use more or less. `true`: something changed, to be synced again.
pub(in crate::dsl) fn count_used_space(objset: &Arc<Objset>, tx: &SyncTx<'_>) -> Result<bool> {
    let changes = objset.take_accounting();
    if changes.is_empty() {
        return Ok(false);
    }
    let by_project = objset.flags() & FLAG_PROJECT_QUOTA_COMPLETE != 0;
    let mut sums: BTreeMap<(u64, String), i64> = BTreeMap::new();
    for change in changes {
        let owner = change.owner;
        let projects = by_project.then_some((USED_BY_PROJECT, owner.project));
        for (object, id) in [(USED_BY_USER, owner.user), (USED_BY_GROUP, owner.group)].into_iter().chain(projects) {
            *sums.entry((object, format!("{id:x}"))).or_default() += change.bytes;
            *sums.entry((object, format!("{OBJECTS_PREFIX}{id:x}"))).or_default() += change.objects;
        }
    }
    let mut changed = false;
    // What cannot be read is not counted in, nor what finds no room as too many ids have its hash; files do not wait for that.
    let passed_over = |error: Error| {
        if !tx.context.io.is_lost(&error) && error.kind() != ErrorKind::NoSpace {
            return Err(error);
        }
        tracing::error!("{}: space used is not counted: {error}", objset.name());
        Ok(())
    };
    let mut zaps: BTreeMap<u64, Zap> = BTreeMap::new();
    for ((object, name), delta) in sums {
        if delta == 0 {
            continue;
        }
        let zap = match zaps.remove(&object) {
            Some(zap) => zap,
            None => match open_or_create(objset, object, tx) {
                Ok(zap) => zap,
                Err(error) => {
                    passed_over(error)?;
                    continue;
                }
            },
        };
        zap.increment(tx, name, delta).map(drop).or_else(passed_over)?;
        zaps.insert(object, zap);
        changed = true;
    }
    Ok(changed)
}

fn open_or_create(objset: &Arc<Objset>, object: u64, tx: &SyncTx<'_>) -> Result<Zap> {
    match Zap::open(objset, object) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Zap::create_at(objset, tx, object, &ZapSpec::new(ObjectType::USERGROUP_USED))
        }
        other => other,
    }
}
