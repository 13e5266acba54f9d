//! Counting blocks that datasets write and free.
//!
//! # Theory
//! A block that is born adds to what the dataset refers to, to what only it refers to, and to its directory. A block that is
//! killed and was born after the last snapshot takes all that back, and its space goes to the pool. A block that the
//! last snapshot sees stays: it goes on the deadlist, and from now on it is a snapshot's space. If the snapshot before that one
//! does not see it, it is now the last snapshot's alone.
//!
//! With a refreservation, part of the space was accounted for in the directory before it was used.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::UsedKind;
use ondisk::feature::Feature;

use crate::dsl::space::accounting_sync::count_used_space;
use crate::dsl::tree::dataset::{Dataset, DatasetState};
use crate::dsl::tree::dir::beyond_reservation;
use crate::dsl::meta::{Space, SpaceDelta, change};
use crate::dsl::tree::tree::Dsl;
use crate::dmu::{LostTree, Objset, Refusal, SpaceOwner, SyncTx};
use crate::error::Result;
use crate::txg::Txg;

/// Blocks above this size need a feature.
const OLD_BLOCK_BYTES_MAX: u64 = 128 << 10;
/// So many blocks below a lost one are looked for in a snapshot.
const SHARED_BLOCKS_MAX: usize = 1 << 18;
/// Where a block pointer has the numbers of its algorithms.
const COMPRESSION_BYTE: usize = 0x34;
const CHECKSUM_BYTE: usize = 0x35;
/// The number of zstd.
const COMPRESSION_ZSTD: u8 = 16;

/// The features that one needs to know to read a block.
fn features_of(bp: &BlkPtr) -> impl Iterator<Item = Feature> {
    let large = (bp.logical_size() > OLD_BLOCK_BYTES_MAX).then_some(Feature::LargeBlocks);
    let word = bp.as_bytes();
    let checksum = match word[CHECKSUM_BYTE] {
        _ if bp.is_embedded() => None,
        11 => Some(Feature::Sha512),
        12 => Some(Feature::Skein),
        13 => Some(Feature::Edonr),
        14 => Some(Feature::Blake3),
        _ => None,
    };
    let compression = (word[COMPRESSION_BYTE] & 0x7f == COMPRESSION_ZSTD).then_some(Feature::ZstdCompress);
    [large, checksum, compression].into_iter().flatten()
}

fn add_to_references(state: &mut DatasetState, delta: SpaceDelta) {
    let phys = &mut state.phys;
    delta.apply(&mut phys.referenced_bytes, &mut phys.compressed_bytes, &mut phys.uncompressed_bytes);
}

/// How much of a change of the unique bytes the directory sees.
fn change_unique(state: &mut DatasetState, delta: i64) -> i64 {
    let seen = beyond_reservation(state.phys.unique_bytes.get(), state.reserved, delta);
    change(&mut state.phys.unique_bytes, delta);
    seen
}

impl Dataset {
    /// Blocks that nobody can find any more, `bytes` of them. If what led to them was born before the last snapshot, so were they, and they are that one's.
    fn leak(&self, bytes: u64, birth: Txg) {
        let space = Space { used: bytes, compressed: bytes, uncompressed: bytes };
        let less = space.negative();
        let mut state = self.state.lock();
        add_to_references(&mut state, less);
        if birth <= state.phys.prev_snapshot_txg.get() {
            drop(state);
            if birth > self.dir.origin_txg {
                self.dsl.transfer(&self.dir, space.positive().used, UsedKind::Head, UsedKind::Snapshot);
            }
            return;
        }
        let seen = change_unique(&mut state, less.used);
        drop(state);
        let delta = SpaceDelta { used: seen, ..less };
        self.dsl.did_use_and_transfer(&self.dir, delta, less.used, UsedKind::RefReservation, UsedKind::Head);
        self.dsl.leak(space);
    }

    /// The last snapshot's blocks below a lost block of the head, but for those that the head has freed since. They are all that the two share there, as far
    /// as there is a way to them in the snapshot.
    fn shared_below(&self, lost: &LostTree) -> Result<Vec<BlkPtr>> {
        let Some(prev) = self.prev().filter(|prev| Some(prev.object) != self.dsl.origin_snapshot()) else { return Ok(Vec::new()) };
        let dnode = self.dsl.objset(&prev)?.hold(lost.object)?;
        let mut shared = dnode.blocks_within(&lost.blocks, lost.level, SHARED_BLOCKS_MAX);
        let identity = |bp: &BlkPtr| (bp.first_dva(), bp.birth());
        let mut known: HashSet<_> = shared.iter().map(identity).collect();
        let meta = &self.dsl.meta;
        let (deadlist, pending) = {
            let state = self.state.lock();
            (state.deadlist.clone(), state.pending_dead.iter().map(identity).collect::<HashSet<_>>())
        };
        for list in deadlist.lists(meta)? {
            list.for_each(meta, |bp, _| {
                known.remove(&identity(bp));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        known.retain(|identity| !pending.contains(identity));
        shared.retain(|bp| !bp.is_embedded() && known.contains(&identity(bp)));
        Ok(shared)
    }

    /// Runs `work` on the record and remembers to write it.
    pub(in crate::dsl) fn change<T>(self: &Arc<Self>, work: impl FnOnce(&mut DatasetState) -> T) -> T {
        let mut state = self.state.lock();
        let result = work(&mut state);
        let first = !std::mem::replace(&mut state.dirty, true);
        drop(state);
        if first {
            self.dsl.dirty.lock().datasets.insert(self.object, self.clone());
        }
        result
    }

    fn kill(&self, tx: &SyncTx<'_>, bp: &BlkPtr, space: Space) {
        let less = space.negative();
        let mut state = self.state.lock();
        state.bookmarks.iter_mut().for_each(|bookmark| bookmark.killed(bp.birth(), space));
        if bp.birth() > state.phys.prev_snapshot_txg.get() {
            tx.free(bp);
            let seen = change_unique(&mut state, less.used);
            add_to_references(&mut state, less);
            drop(state);
            let delta = SpaceDelta { used: seen, ..less };
            self.dsl.did_use_and_transfer(&self.dir, delta, less.used, UsedKind::RefReservation, UsedKind::Head);
            return;
        }
        state.pending_dead.push(*bp);
        add_to_references(&mut state, less);
        let prev = state.prev.clone();
        drop(state);
        if let Some(prev) = prev {
            let theirs = prev.phys();
            if theirs.next_snapshot.get() == self.object && bp.birth() > theirs.prev_snapshot_txg.get() {
                prev.change(|state| change(&mut state.phys.unique_bytes, space.positive().used));
            }
        }
        if bp.birth() > self.dir.origin_txg {
            self.dsl.transfer(&self.dir, space.positive().used, UsedKind::Head, UsedKind::Snapshot);
        }
    }

    /// Writes what the txg changed in its object set, twice: what files use is known, and counted, only after the first time.
    pub fn sync(self: &Arc<Self>, objset: &Arc<Objset>, tx: &SyncTx<'_>) -> Result<()> {
        self.prepare_sync(tx)?;
        objset.sync_log(tx)?;
        objset.sync(tx)?;
        if count_used_space(objset, tx)? {
            objset.sync(tx)?;
        }
        objset.sync_root(tx)?;
        self.synced(objset, tx)
    }

    /// The object set has been written: its new place is noted, dead blocks go on the deadlist, features become active.
    pub(in crate::dsl) fn synced(self: &Arc<Self>, objset: &Objset, tx: &SyncTx<'_>) -> Result<()> {
        let pointer = objset.pointer();
        let (dead, deadlist, used_features) = self.change(|state| {
            state.phys.block = pointer;
            let new: Vec<Feature> = std::mem::take(&mut state.new_features).difference(&state.features).copied().collect();
            (std::mem::take(&mut state.pending_dead), state.deadlist.clone(), new)
        });
        match deadlist.insert(&self.dsl.meta, &dead, tx) {
            // The snapshots have them; when those go they are not found.
            Err(error) if tx.context.io.is_lost(&error) => tracing::error!("{}: blocks of its snapshots are not noted: {error}", self.dir.full_name()),
            inserted => inserted?,
        }
        self.finish_bookmarks(tx)?;
        for feature in used_features {
            self.activate_feature(feature, tx)?;
        }
        Ok(())
    }

    /// Says in the dataset's ZAP that it uses a feature.
    pub fn activate_feature(&self, feature: Feature, tx: &SyncTx<'_>) -> Result<()> {
        if self.state.lock().features.contains(&feature) {
            return Ok(());
        }
        self.dsl.activate_feature(self.object, feature, tx)?;
        self.state.lock().features.insert(feature);
        Ok(())
    }

    /// Takes back what [`Dataset::activate_feature`] said.
    pub(in crate::dsl) fn deactivate_feature(&self, feature: Feature, tx: &SyncTx<'_>) -> Result<()> {
        self.dsl.meta.mos.zap_remove(self.object, feature.guid(), tx)?;
        self.dsl.meta.features.decrement(&self.dsl.meta.mos, feature, tx)?;
        self.state.lock().features.remove(&feature);
        Ok(())
    }
}

impl crate::dsl::tree::tree::Dsl {
    /// Says in a dataset's ZAP that it uses a feature.
    pub(in crate::dsl) fn activate_feature(&self, object: u64, feature: Feature, tx: &SyncTx<'_>) -> Result<()> {
        self.meta.features.increment(&self.meta.mos, feature, tx)?;
        self.zapify(object, tx)?;
        self.meta.mos.zap_add_u64(object, feature.guid(), 0, tx)
    }
}

impl SpaceOwner for Dataset {
    fn reserve(&self, txg: Txg, bytes: u64) -> Result<(), Refusal> {
        self.promise(txg, bytes)
    }

    fn reserve_to_free(&self, _txg: Txg) -> Result<(), Refusal> {
        self.dsl.check_room_to_free()
    }

    fn will_free(&self, txg: Txg, bytes: u64) {
        self.note_freeing(txg, bytes);
    }

    fn coming_free(&self) -> u64 {
        self.freeing.total()
    }

    fn settle(&self, txg: Txg, promised: u64, needed: u64) {
        if needed > promised {
            Dsl::promise_more(&self.dir, txg, needed - promised);
        } else {
            self.take_back(txg, promised - needed);
        }
    }

    fn born(&self, tx: &SyncTx<'_>, bp: &BlkPtr) -> Result<()> {
        let _ = tx;
        if bp.is_hole() || bp.is_redacted() {
            return Ok(());
        }
        let more = self.dsl.meta.space_of(bp).positive();
        let seen = {
            let mut state = self.state.lock();
            let known: BTreeSet<Feature> = features_of(bp).collect();
            state.new_features.extend(known);
            add_to_references(&mut state, more);
            change_unique(&mut state, more.used)
        };
        let delta = SpaceDelta { used: seen, ..more };
        self.dsl.did_use_and_transfer(&self.dir, delta, more.used, UsedKind::RefReservation, UsedKind::Head);
        Ok(())
    }

    fn killed(&self, tx: &SyncTx<'_>, bp: &BlkPtr) -> Result<()> {
        if !bp.is_hole() && !bp.is_redacted() {
            self.kill(tx, bp, self.dsl.meta.space_of(bp));
        }
        Ok(())
    }

    fn known_below(&self, lost: &LostTree) -> Vec<BlkPtr> {
        self.shared_below(lost).unwrap_or_else(|error| {
            tracing::error!("{}: blocks of its snapshots are not noted: {error}", self.dir.full_name());
            Vec::new()
        })
    }

    fn leaked(&self, bytes: u64, birth: Txg) {
        tracing::error!("{}: {bytes} bytes are leaked: what led to them cannot be read", self.dir.full_name());
        self.leak(bytes, birth);
    }

    fn uses(&self, feature: Feature) {
        // A log is as good without extended attributes in it.
        if feature == Feature::Zilsaxattr && !self.dsl.meta.features.is_enabled(feature) {
            return;
        }
        let mut state = self.state.lock();
        if !state.features.contains(&feature) {
            state.new_features.insert(feature);
        }
    }
}
