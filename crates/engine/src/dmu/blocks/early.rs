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
//! Where a program is expected to ask (`zil/soon.rs`), blocks that it has written whole are written by another thread before it does. A writer is not kept away from them: a
//! block that it changes meanwhile is another `Arc` (invariant 1), and its place is freed with the group. A writer that goes around the cache may write the same
//! blocks at the same time: that one's places count, in whichever order the two end.
//!
//! A program that goes around the cache ([`super::direct`]) has its blocks written so, too. What memory has of such a block is where it is ([`Contents::Placed`]).
//!
//! # Invariants
//! 1. The bytes that were written are known to be the newest of the group by their `Arc`: as long as it is held here, nobody changes them. Of those that memory
//!    has forgotten the version is the place.
//! 2. A group's early blocks are taken by the sync of the object in this group, which uses or frees each.
//!
//! # Path
//! called by `logged` for the intent log, before and when it asks, and for writes around the cache; taken by `dnode_sync`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;

use crate::dmu::blocks::dirty_block::Contents;
use crate::dmu::settings::{COMPRESS_OFF, write_policy};
use crate::error::Result;
use crate::dmu::{Dnode, Objset};
use crate::txg::Txg;
use crate::zio::{Seal, WriteRequest};

/// `ZIO_CHECKSUM_OFF`: nobody could tell whether such a block was really written.
const CHECKSUM_OFF: u8 = 2;

/// A block of a group that is not synced, and where it is.
#[derive(Debug, Clone)]
pub(in crate::dmu) struct EarlyBlock {
    /// What is there; none: memory has forgotten it ([`Contents::Placed`]).
    pub(in crate::dmu) data: Option<Arc<Vec<u8>>>,
    pub(in crate::dmu) pointer: BlkPtr,
}

impl EarlyBlock {
    /// Is this version of the block what was written?
    pub(in crate::dmu) fn is(&self, version: &Contents) -> bool {
        match (version, &self.data) {
            (Contents::Data(data), Some(own)) => Arc::ptr_eq(data, own),
            (Contents::Placed(pointer), None) => **pointer == self.pointer,
            _ => false,
        }
    }
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

    /// What `txg` made of a block, `data`, is at `pointer`; `forgets`: memory needs to know no more of it. `false`: another thread has changed the block meanwhile or
    /// had memory forget it, and this place is freed with the group. The versions stay locked until it is noted: else two threads that have written the same block
    /// could note their places in the wrong order.
    fn note_early(&self, txg: Txg, block: u64, data: Arc<Vec<u8>>, pointer: BlkPtr, forgets: bool) -> bool {
        let dirty = self.unsynced(block).unwrap_or_default();
        let mut versions = dirty.versions.lock();
        let mut early = self.early.lock();
        let is_it = |contents: &Contents| matches!(contents, Contents::Data(own) if Arc::ptr_eq(own, &data));
        let Some((_, contents)) = versions.iter_mut().find(|(own, contents)| *own == txg && is_it(contents)) else {
            early.stale.push((txg, pointer));
            return false;
        };
        let mut placed = EarlyBlock { data: Some(data), pointer };
        if forgets {
            *contents = Contents::Placed(Box::new(pointer));
            placed.data = None;
        }
        // If it had a place, nobody needs that any more.
        if let Some(old) = early.current.insert((txg, block), placed) {
            early.stale.push((txg, old.pointer));
        }
        true
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
            Contents::Patch(_) | Contents::Freed | Contents::Cloned(_) | Contents::Raw(_) | Contents::Placed(_) => None,
        }
    }

    /// Those of these blocks whose newest contents `txg` has written around the cache, and where they are.
    pub(crate) fn placed(&self, blocks: Range<u64>, txg: Txg) -> Vec<(u64, BlkPtr)> {
        let place = |block: u64| match self.unsynced(block)?.version(txg)? {
            Contents::Placed(pointer) => Some((block, *pointer)),
            _ => None,
        };
        blocks.filter_map(place).collect()
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
    /// The caller makes them durable.
    pub fn write_early(&self, dnode: &Arc<Dnode>, blocks: Range<u64>, txg: Txg) -> Vec<(u64, BlkPtr)> {
        let _turn = dnode.early_turn.lock();
        self.write_early_in_turn(dnode, blocks, txg)
    }

    /// As [`Objset::write_early`], by another thread and for nobody who waits: a caller of that finds them written, or waits for the rest only. Nothing is
    /// done if `txg` is closed by then, or blocks of `dnode` are just being written.
    pub fn write_soon(self: &Arc<Self>, dnode: &Arc<Dnode>, blocks: Range<u64>, txg: Txg) {
        let (objset, dnode) = (self.clone(), dnode.clone());
        self.context().io.writers().submit(move || {
            let Some(_hold) = objset.context().groups.try_hold().filter(|hold| hold.txg() == txg) else { return };
            if let Some(_turn) = dnode.early_turn.try_lock() {
                objset.write_early_in_turn(&dnode, blocks, txg);
            }
        });
    }

    fn write_early_in_turn(&self, dnode: &Arc<Dnode>, blocks: Range<u64>, txg: Txg) -> Vec<(u64, BlkPtr)> {
        let (mut placed, mut wanted) = (dnode.placed(blocks.clone(), txg), Vec::new());
        for block in blocks {
            let Some(data) = dnode.newest_of(block, txg) else { continue };
            match dnode.early.lock().current.get(&(txg, block)) {
                Some(early) if early.is(&Contents::Data(data.clone())) => placed.push((block, early.pointer)),
                _ => wanted.push((block, data)),
            }
        }
        for (block, data, pointer) in self.write_now(dnode, wanted, txg) {
            if dnode.note_early(txg, block, data, pointer, false) {
                placed.push((block, pointer));
            }
        }
        placed.sort_unstable_by_key(|(block, _)| *block);
        placed
    }

    /// Writes those of these blocks of `dnode` that `txg` has changed, as [`Objset::write_early`], and has memory forget them. The caller holds the group, and
    /// keeps all others away from the blocks but who writes them soon.
    pub(in crate::dmu) fn write_past(&self, dnode: &Arc<Dnode>, blocks: Range<u64>, txg: Txg) {
        let wanted = blocks.filter_map(|block| Some((block, dnode.newest_of(block, txg)?))).collect();
        for (block, data, pointer) in self.write_now(dnode, wanted, txg) {
            self.context().cache.note_written_past(1, data.len() as u64);
            dnode.note_early(txg, block, data, pointer, true);
        }
    }

    /// Writes blocks where they will stay, and returns those for which that was possible.
    fn write_now(&self, dnode: &Dnode, mut wanted: Vec<(u64, Arc<Vec<u8>>)>, txg: Txg) -> Vec<(u64, Arc<Vec<u8>>, BlkPtr)> {
        let header = dnode.state.read().header.clone();
        let policy = write_policy(&self.settings(), header.object_type, 0, false, header.checksum, header.compression);
        wanted.retain(|(_, data)| data.len() as u64 == header.block_bytes);
        let bytes = wanted.iter().map(|(_, data)| data.len() as u64).sum::<u64>() * u64::from(policy.copies.max(1));
        if bytes == 0 || policy.checksum == CHECKSUM_OFF || !self.context().has_log_room(txg, bytes) {
            return Vec::new();
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
        let results = self.context().io.try_write_many(wanted.iter().map(request).collect(), txg);
        let place = |((block, data), result): ((u64, Arc<Vec<u8>>), Result<BlkPtr>)| {
            // Zeros need no place.
            let mut pointer = result.ok().filter(|pointer| !pointer.is_hole() && !pointer.is_embedded())?;
            pointer.set_fill(1);
            Some((block, data, pointer))
        };
        wanted.into_iter().zip(results).filter_map(place).collect()
    }
}
