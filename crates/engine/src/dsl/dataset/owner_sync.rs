//! Counting blocks that datasets write and free.
//!
//! # Theory
//! A block that is born adds to what the dataset refers to, to what only it refers to, and to its directory. A block that is
//! killed and was born after the last snapshot takes all that back, and its space goes to the pool. A block that the
//! last snapshot sees stays: it goes on the deadlist, and from now on it is a snapshot's space. If the snapshot before that one
//! does not see it, it is now the last snapshot's alone.
//!
//! With a refreservation, part of the space was accounted for in the directory before it was used.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::UsedKind;
use ondisk::feature::Feature;

use super::Dataset;
use super::accounting_sync::count_used_space;
use super::livelist_sync::sync_livelist;
use super::state::DatasetState;
use crate::dmu::{LostTree, Objset, Refusal, SpaceOwner, SyncTx};
use crate::dsl::meta::{Space, SpaceDelta, change};
use crate::dsl::snapshots::bookmarks_sync::{counting_bookmarks, write_bookmarks};
use crate::dsl::tree::dir::beyond_reservation;
use crate::error::Result;
use crate::txg::Txg;

/// So many blocks below a lost one are looked for in a snapshot.
const SHARED_BLOCKS_MAX: usize = 1 << 18;
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
        state.livelist_is_wrong();
        add_to_references(&mut state, less);
        if birth <= state.phys.prev_snapshot_txg.get() {
            drop(state);
            if birth > self.dir.origin_txg() {
                self.ledger().transfer(&self.dir, space.positive().used, UsedKind::Head, UsedKind::Snapshot);
            }
            return;
        }
        let seen = change_unique(&mut state, less.used);
        drop(state);
        let delta = SpaceDelta { used: seen, ..less };
        self.ledger().did_use_and_transfer(&self.dir, delta, less.used, UsedKind::RefReservation, UsedKind::Head);
        self.ledger().leak(space);
    }

    /// The last snapshot's blocks below a lost block of the head, but for those that the head has freed since. They are all that the two share there, as far
    /// as there is a way to them in the snapshot.
    fn shared_below(&self, lost: &LostTree) -> Result<Vec<BlkPtr>> {
        let Some(prev) = self.prev().filter(|prev| Some(prev.object) != self.tree().origin_snapshot()) else { return Ok(Vec::new()) };
        let dnode = prev.objset()?.hold(lost.object)?;
        let mut shared = dnode.blocks_within(&lost.blocks, lost.level, SHARED_BLOCKS_MAX);
        let identity = |bp: &BlkPtr| (bp.first_dva(), bp.birth());
        let mut known: HashSet<_> = shared.iter().map(identity).collect();
        let meta = self.meta();
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

    fn kill(&self, tx: &SyncTx<'_>, bp: &BlkPtr, space: Space) {
        let less = space.negative();
        let mut state = self.state.lock();
        state.note_for_livelist(bp, true, self.dir.origin_txg());
        state.bookmarks.iter_mut().for_each(|bookmark| bookmark.killed(bp.birth(), space));
        if bp.birth() > state.phys.prev_snapshot_txg.get() {
            tx.free(bp);
            let seen = change_unique(&mut state, less.used);
            add_to_references(&mut state, less);
            drop(state);
            let delta = SpaceDelta { used: seen, ..less };
            self.ledger().did_use_and_transfer(&self.dir, delta, less.used, UsedKind::RefReservation, UsedKind::Head);
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
        if bp.birth() > self.dir.origin_txg() {
            self.ledger().transfer(&self.dir, space.positive().used, UsedKind::Head, UsedKind::Snapshot);
        }
    }

    /// Writes what the txg changed in its object set, twice: what files use is known, and counted, only after the first time.
    pub fn sync(self: &Arc<Self>, objset: &Arc<Objset>, tx: &SyncTx<'_>) -> Result<()> {
        self.prepare_sync()?;
        objset.sync_log(tx)?;
        objset.sync(tx)?;
        if count_used_space(objset, tx)? {
            objset.sync(tx)?;
        }
        objset.sync_root(tx)?;
        self.synced(objset, tx)
    }

    /// Before the object set is written: what else has to know of the blocks that it frees.
    fn prepare_sync(&self) -> Result<()> {
        if let Some((_, mut bookmarks)) = counting_bookmarks(self.meta(), self.object)? {
            let mut state = self.state.lock();
            let newest = state.phys.prev_snapshot_txg.get();
            bookmarks.retain(|bookmark| bookmark.creation_txg() >= newest);
            state.bookmarks = bookmarks;
        }
        Ok(())
    }

    /// The object set has been written: its new place is noted, dead blocks go on the deadlist, features become active.
    pub(in crate::dsl) fn synced(self: &Arc<Self>, objset: &Objset, tx: &SyncTx<'_>) -> Result<()> {
        let pointer = objset.pointer();
        let (dead, deadlist, used_features, is_first) = self.change(|state| {
            let is_first = state.phys.block.logical_birth() < tx.txg();
            state.phys.block = pointer;
            let new: Vec<Feature> = std::mem::take(&mut state.new_features).difference(&state.features).copied().collect();
            (std::mem::take(&mut state.pending_dead), state.deadlist.clone(), new, is_first)
        });
        match deadlist.insert(self.meta(), &dead, tx) {
            // The snapshots have them; when those go they are not found.
            Err(error) if tx.context.io.is_lost(&error) => tracing::error!("{}: blocks of its snapshots are not noted: {error}", self.dir.full_name()),
            inserted => inserted?,
        }
        sync_livelist(self, is_first, tx)?;
        let bookmarks = std::mem::take(&mut self.state.lock().bookmarks);
        write_bookmarks(self.meta(), self.object, bookmarks, tx)?;
        for feature in used_features {
            self.activate_feature(feature, tx)?;
        }
        self.resume_points().write(&self.meta().mos, self.object, tx)
    }

    /// Says in the dataset's ZAP that it uses a feature.
    pub fn activate_feature(&self, feature: Feature, tx: &SyncTx<'_>) -> Result<()> {
        if self.state.lock().features.contains(&feature) {
            return Ok(());
        }
        self.meta().activate_feature(self.object, feature, tx)?;
        self.state.lock().features.insert(feature);
        Ok(())
    }

    /// Takes back what [`Dataset::activate_feature`] said.
    pub(in crate::dsl) fn deactivate_feature(&self, feature: Feature, tx: &SyncTx<'_>) -> Result<()> {
        self.meta().mos.zap_remove(self.object, feature.guid(), tx)?;
        self.meta().features.decrement(&self.meta().mos, feature, tx)?;
        self.state.lock().features.remove(&feature);
        Ok(())
    }
}

impl Dataset {
    /// The dataset has this much for itself alone.
    pub(in crate::dsl) fn set_refreservation(self: &Arc<Self>, value: u64) {
        let delta = self.change(|state| {
            let unique = state.phys.unique_bytes.get();
            let before = state.reserved.saturating_sub(unique);
            state.reserved = value;
            value.saturating_sub(unique) as i64 - before as i64
        });
        self.ledger().did_use(&self.dir, UsedKind::RefReservation, SpaceDelta { used: delta, ..SpaceDelta::default() });
    }

    /// The dataset may refer to this much; 0: to any amount.
    pub(in crate::dsl) fn set_refquota(&self, value: u64) {
        self.state.lock().quota = value;
    }
}

impl SpaceOwner for Dataset {
    fn reserve(&self, txg: Txg, bytes: u64) -> Result<(), Refusal> {
        self.promise(txg, bytes)
    }

    fn reserve_again(&self, txg: Txg, bytes: u64) -> Result<(), Refusal> {
        self.promise(txg, bytes).or_else(|_| self.promise_again(txg, bytes))
    }

    fn reserve_to_free(&self, _txg: Txg) -> Result<(), Refusal> {
        self.room().check_room_to_free(&self.dir)
    }

    fn room_left(&self) -> u64 {
        self.left_to_promise()
    }

    fn will_free(&self, txg: Txg, bytes: u64) {
        self.note_freeing(txg, bytes);
    }

    fn coming_free(&self) -> u64 {
        self.freeing.total()
    }

    fn settle(&self, txg: Txg, promised: u64, needed: u64) {
        if needed > promised {
            self.promise_more(txg, needed - promised);
        } else {
            self.take_back(txg, promised - needed);
        }
    }

    fn born(&self, tx: &SyncTx<'_>, bp: &BlkPtr) -> Result<()> {
        let _ = tx;
        if bp.is_hole() || bp.is_redacted() {
            return Ok(());
        }
        let more = self.meta().space_of(bp).positive();
        let seen = {
            let mut state = self.state.lock();
            state.new_features.extend(bp.features());
            state.note_for_livelist(bp, false, self.dir.origin_txg());
            add_to_references(&mut state, more);
            change_unique(&mut state, more.used)
        };
        let delta = SpaceDelta { used: seen, ..more };
        self.ledger().did_use_and_transfer(&self.dir, delta, more.used, UsedKind::RefReservation, UsedKind::Head);
        Ok(())
    }

    fn killed(&self, tx: &SyncTx<'_>, bp: &BlkPtr) -> Result<()> {
        if !bp.is_hole() && !bp.is_redacted() {
            self.kill(tx, bp, self.meta().space_of(bp));
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
        if feature == Feature::Zilsaxattr && !self.meta().features.is_enabled(feature) {
            return;
        }
        let mut state = self.state.lock();
        if !state.features.contains(&feature) {
            state.new_features.insert(feature);
        }
    }
}
