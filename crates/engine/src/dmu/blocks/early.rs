//! Blocks that are written before their group is.
//!
//! # Theory
//! A program that needs a large write to be durable now can have its bytes in the intent log and, when the group is synced, in the file: twice on
//! disk. Or the file's blocks are written at once, where they will stay, and the log gets their pointers. When the group is
//! synced, a block that was not changed again needs no second write; one that was is written anew.
//!
//! A block that is written so belongs to the open group. Until that is on disk, a record of the log may lead to it: so a place that
//! turns out not to be the last one is freed with the group, never before.
//!
//! # Invariants
//! 1. The bytes that were written are known to be the newest of the group by their `Arc`: as long as it is held here, nobody changes them.
//! 2. A group's early blocks are taken by the sync of the object in this group, which uses or frees each.
//!
//! # Path
//! called by tarnfs::zpl for the intent log; taken by `dnode_sync`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;

use crate::dmu::blocks::dirty_block::Contents;
use crate::dmu::settings::{COMPRESS_OFF, write_policy};
use crate::dmu::{Dnode, Objset};
use crate::txg::Txg;
use crate::zio::{Seal, WriteRequest};

/// `ZIO_CHECKSUM_OFF`: nobody could tell whether such a block was really written.
const CHECKSUM_OFF: u8 = 2;

/// A block of a group that is not synced, and where it is.
#[derive(Debug, Clone)]
pub(in crate::dmu) struct EarlyBlock {
    pub(in crate::dmu) data: Arc<Vec<u8>>,
    pub(in crate::dmu) pointer: BlkPtr,
}

/// The early blocks of one object.
#[derive(Debug, Default)]
pub(in crate::dmu) struct EarlyBlocks {
    current: BTreeMap<(Txg, u64), EarlyBlock>,
    /// Places whose block was changed again in the same group.
    stale: Vec<(Txg, BlkPtr)>,
}

impl Dnode {
    /// Takes the early blocks of `txg`, and the places that are no longer needed.
    pub(in crate::dmu) fn take_early(&self, txg: Txg) -> (Vec<(u64, EarlyBlock)>, Vec<BlkPtr>) {
        let mut early = self.early.lock();
        if early.current.is_empty() && early.stale.is_empty() {
            return Default::default();
        }
        let (taken, left) = std::mem::take(&mut early.current).into_iter().partition(|((own, _), _)| *own == txg);
        let taken: BTreeMap<_, _> = taken;
        early.current = left;
        let (gone, left): (Vec<_>, Vec<_>) = std::mem::take(&mut early.stale).into_iter().partition(|(own, _)| *own == txg);
        early.stale = left;
        (taken.into_iter().map(|((_, block), early)| (block, early)).collect(), gone.into_iter().map(|(_, pointer)| pointer).collect())
    }

    /// The whole contents that `txg` gave a block, if they are its newest.
    pub(in crate::dmu) fn newest_of(&self, block: u64, txg: Txg) -> Option<Arc<Vec<u8>>> {
        let dirty = self.blocks.read().get(&block).cloned()?;
        let mut versions = dirty.versions.lock();
        let (_, contents) = versions.last_mut().filter(|(own, _)| *own == txg)?;
        if let Contents::Patch(patch) = contents {
            *contents = Contents::Data(Arc::new(patch.whole()));
        }
        match contents {
            Contents::Data(data) => Some(data.clone()),
            Contents::Patch(_) | Contents::Freed | Contents::Cloned(_) | Contents::Raw(_) => None,
        }
    }
}

impl Objset {
    /// Whether contents of zeros become holes when they are written: not where they are not compressed.
    pub fn makes_holes(&self, dnode: &Dnode) -> bool {
        let header = dnode.state.read().header.clone();
        write_policy(&self.settings(), header.object_type, 0, false, header.checksum, header.compression).compression != COMPRESS_OFF
    }

    /// Writes those of these blocks of `dnode` that `txg` has changed, which the caller holds, and returns where they are. Some may be missing: they
    /// have no data of this group, cannot be told from what was there, or could not be written: these are written with the group.
    /// The caller keeps writers away from them, and makes them durable.
    pub fn write_early(&self, dnode: &Arc<Dnode>, blocks: Range<u64>, txg: Txg) -> Vec<(u64, BlkPtr)> {
        let header = dnode.state.read().header.clone();
        let policy = write_policy(&self.settings(), header.object_type, 0, false, header.checksum, header.compression);
        if policy.checksum == CHECKSUM_OFF {
            return Vec::new();
        }
        let (mut placed, mut wanted) = (Vec::new(), Vec::new());
        for block in blocks {
            let Some(data) = dnode.newest_of(block, txg).filter(|data| data.len() as u64 == header.block_bytes) else { continue };
            match dnode.early.lock().current.get(&(txg, block)) {
                Some(early) if Arc::ptr_eq(&early.data, &data) => placed.push((block, early.pointer)),
                _ => wanted.push((block, data)),
            }
        }
        let request = |(block, data): &(u64, Arc<Vec<u8>>)| WriteRequest {
            data: data.clone(),
            object_type: header.object_type,
            level: 0,
            checksum: policy.checksum,
            compression: policy.compression,
            compression_level: policy.compression_level,
            copies: policy.copies,
            small_bytes: policy.small_bytes,
            previous: BlkPtr::ZERO,
            rewrite: false,
            no_embed: true,
            bookmark: dnode.bookmark(0, *block),
            packed: None,
            seal: Seal::Open,
        };
        let bytes = wanted.iter().map(|(_, data)| data.len() as u64).sum::<u64>() * u64::from(policy.copies.max(1));
        if bytes > 0 && !self.context().has_log_room(txg, bytes) {
            return placed;
        }
        let results = self.context().io.try_write_many(wanted.iter().map(request).collect(), txg);
        let mut early = dnode.early.lock();
        for ((block, data), result) in wanted.into_iter().zip(results) {
            // Zeros need no place.
            let Ok(mut pointer) = result else { continue };
            if pointer.is_hole() || pointer.is_embedded() {
                continue;
            }
            pointer.set_fill(1);
            placed.push((block, pointer));
            if let Some(old) = early.current.insert((txg, block), EarlyBlock { data, pointer }) {
                early.stale.push((txg, old.pointer));
            }
        }
        drop(early);
        placed.sort_unstable_by_key(|(block, _)| *block);
        placed
    }
}
