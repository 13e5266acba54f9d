//! Destroying snapshots.
//!
//! # Theory
//! A snapshot that is destroyed while it has clones or is held may stay, marked, until the last of them goes; then it goes in the same txg.
//! What only the snapshot needs is on its successor's deadlist: the blocks born after the snapshot before it. They are freed in the
//! background. The rest of that list, and the snapshot's own, are then about the snapshot before it.
//!
//! # Path
//! [`SnapshotVerbs::destroy_snapshots`](crate::dsl::SnapshotVerbs::destroy_snapshots), [`Dsl::destroy_dataset`](crate::dsl::Dsl::destroy_dataset) of a clone, and
//! the release of a hold call this.

use std::cmp::Reverse;
use std::sync::Arc;

use ondisk::dsl::{DATASET_FLAG_DEFER_DESTROY, DATASET_FLAG_UNIQUE_ACCURATE, UsedKind, dataset_field, dir_field, number_key};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use super::bookmarks_sync::snapshot_destroyed;
use super::holds_sync;
use super::snapshot_sync::Refusals;
use crate::canary::Canary;
use crate::dmu::SyncTx;
use crate::dsl::counts::{adjust_count, note_snapshots_changed};
use crate::dsl::dataset::Dataset;
use crate::dsl::dead::deadlist::Deadlist;
use crate::dsl::dead::scan_sync;
use crate::dsl::dsl::Parts;
use crate::dsl::meta::{SpaceDelta, change};
use crate::dsl::tree::destroy_sync::clear_boot_dataset;
use crate::dsl::tree::dir::Dir;
use crate::error::{ErrorKind, Result};
use crate::{bail, error};

/// The pool version from which deadlists have keys, and unique bytes are exact.
const KEYED_VERSION: u64 = 26;
/// Why a snapshot that is held is not destroyed.
pub const BEING_HELD: &str = "it's being held";

/// Whether a snapshot goes when the clone goes that is to be destroyed. One that something else still counts on stays marked.
pub(in crate::dsl) fn goes_with_last_clone(parts: &Parts, snapshot: &Arc<Dataset>) -> Result<bool> {
    let phys = snapshot.phys();
    // The other child is the snapshot or head after it.
    if phys.flags.get() & DATASET_FLAG_DEFER_DESTROY == 0 || phys.children.get() != 2 || parts.meta.version() < KEYED_VERSION {
        return Ok(false);
    }
    Ok(holds_sync::count(parts, snapshot)? == 0 && !has_old_deadlist(parts, snapshot)?)
}

/// Whether somebody reads the snapshot that goes when the clone goes: then the clone has to stay for now.
pub(in crate::dsl) fn is_origin_in_use(parts: &Parts, clone: &Dataset) -> Result<bool> {
    match clone.prev() {
        Some(origin) if goes_with_last_clone(parts, &origin)? => Ok(parts.objsets.is_open(&origin)),
        _ => Ok(false),
    }
}

/// Snapshots to be destroyed.
#[derive(Debug, Clone)]
pub(in crate::dsl) struct Doomed {
    pub(in crate::dsl) names: Vec<String>,
    /// What is held or cloned goes later.
    pub(in crate::dsl) defer: bool,
}

impl Doomed {
    /// Those that are there, by name.
    fn find(&self, parts: &Parts, name: &str) -> Result<Option<Arc<Dataset>>> {
        match parts.tree.dataset_by_name(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// Why some of them cannot be destroyed.
    pub(in crate::dsl) fn refusals(&self, parts: &Parts) -> Refusals {
        let check = |name: &String| match self.find(parts, name)? {
            Some(snapshot) => check_destroy_snapshot(parts, &snapshot, self.defer),
            None => Ok(()),
        };
        self.names.iter().filter_map(|name| Some((name.clone(), check(name).err()?))).collect()
    }

    /// Destroys or marks them. Checked before.
    pub(in crate::dsl) fn destroy_sync(&self, parts: &Parts, tx: &SyncTx<'_>) -> Result<()> {
        let (mut near, mut doomed) = (Vec::new(), Vec::new());
        for name in &self.names {
            doomed.extend(self.find(parts, name)?);
        }
        // The newest first: what comes after a row of them stays the same, and its deadlist, which all of theirs go to, is read once.
        doomed.sort_by_key(|snapshot| (snapshot.dir.object, Reverse(snapshot.phys().creation_txg.get())));
        doomed.dedup_by_key(|snapshot| snapshot.object);
        for snapshot in doomed {
            // The deadlists of neighbours stay in memory for the next one: with many snapshots there, to read one takes a millisecond.
            let _before = std::mem::replace(&mut near, neighbours(parts, &snapshot)?);
            let is_kept = holds_sync::count(parts, &snapshot)? > 0 || snapshot.phys().children.get() > 1;
            if self.defer && is_kept {
                snapshot.change(|state| state.phys_mut().flags |= DATASET_FLAG_DEFER_DESTROY);
                parts.record_dataset_event(&snapshot, "defer_destroy", " ", tx)?;
            } else {
                destroy_snapshot_sync(parts, &snapshot, tx)?;
            }
        }
        Ok(())
    }
}

/// The two versions after a snapshot, as far as there are two.
fn neighbours(parts: &Parts, snapshot: &Dataset) -> Result<Vec<Arc<Dataset>>> {
    let next = parts.tree.dataset(snapshot.phys().next_snapshot.get())?;
    match next.phys().next_snapshot.get() {
        after if next.is_snapshot => Ok(vec![next, parts.tree.dataset(after)?]),
        _ => Ok(vec![next]),
    }
}

/// Whether a snapshot can be destroyed now, or (`defer`) when nothing keeps it any more.
///
/// # Errors
/// `Busy` (somebody looks at it, or it is held), `Exists` (it has clones), `NotSupported`.
#[doc(alias = "dsl_destroy_snapshot_check_impl")]
pub(in crate::dsl) fn check_destroy_snapshot(parts: &Parts, snapshot: &Arc<Dataset>, defer: bool) -> Result<()> {
    let named = || snapshot.dir.full_name();
    if !snapshot.is_snapshot {
        bail!(Invalid, "{}: it is no snapshot", named());
    }
    if parts.meta.version() < KEYED_VERSION {
        bail!(NotSupported, "{}: this version of tarn destroys no snapshots in pools from before version {KEYED_VERSION}", named());
    }
    check_lists(parts, snapshot)?;
    if parts.objsets.is_open(snapshot) {
        bail!(Busy, "{}: dataset is busy", named());
    }
    if defer {
        return Ok(());
    }
    if holds_sync::count(parts, snapshot)? > 0 {
        bail!(Busy, "{}: {BEING_HELD}", named());
    }
    if snapshot.phys().children.get() > 1 {
        bail!(Exists, "{}: snapshot is cloned", named());
    }
    Ok(())
}

/// Whether a list of dead blocks that would change with it has no keys: it, or its successor, is from before the pool was upgraded.
fn has_old_deadlist(parts: &Parts, snapshot: &Dataset) -> Result<bool> {
    let next = parts.tree.dataset(snapshot.phys().next_snapshot.get())?;
    Ok(snapshot.deadlist().is_old_format() || next.deadlist().is_old_format())
}

/// Whether we can change the lists of dead blocks as destroying the snapshot does.
///
/// # Errors
/// `NotSupported`: they are of a kind that we only read.
pub(in crate::dsl) fn check_lists(parts: &Parts, snapshot: &Arc<Dataset>) -> Result<()> {
    let named = || snapshot.dir.full_name();
    if has_old_deadlist(parts, snapshot)? {
        bail!(NotSupported, "{}: its blocks are listed as before pool version {KEYED_VERSION}: this version of tarn cannot destroy it", named());
    }
    Ok(())
}

/// The list of blocks that a device removal moved, and only snapshots have.
pub(super) fn remap_deadlist(parts: &Parts, dataset: u64) -> Result<Option<u64>> {
    let mos = &parts.meta.mos;
    if mos.info(dataset)?.object_type != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    mos.zap_u64(dataset, dataset_field::REMAP_DEADLIST)
}

fn open_remap_deadlist(parts: &Parts, dataset: u64) -> Result<Option<Deadlist>> {
    remap_deadlist(parts, dataset)?.map(|object| Deadlist::open(&parts.meta, object)).transpose()
}

#[doc(alias = "dsl_dataset_create_remap_deadlist")]
fn create_remap_deadlist(parts: &Parts, dataset: &Dataset, tx: &SyncTx<'_>) -> Result<Deadlist> {
    let meta = &parts.meta;
    let list = dataset.deadlist().clone_keys(meta, u64::MAX, &|| Ok(Vec::new()), tx)?;
    meta.zapify(dataset.object, tx)?;
    meta.mos.zap_add_u64(dataset.object, dataset_field::REMAP_DEADLIST, list.object, tx)?;
    meta.features.increment(&meta.mos, Feature::ObsoleteCounts, tx)?;
    Ok(list)
}

/// A block that a removal moved is known by its old address in a snapshot, and by the new one in what came after it. The old one is on the list of that: it is like a deadlist,
/// but of addresses instead of blocks. What only the snapshot found by the old ones nobody does now.
#[doc(alias = "dsl_destroy_snapshot_handle_remaps")]
fn unlink_moved(parts: &Parts, snapshot: &Dataset, next: &Dataset, tx: &SyncTx<'_>) -> Result<()> {
    let meta = &parts.meta;
    let theirs = open_remap_deadlist(parts, next.object)?;
    if let Some(list) = &theirs {
        list.move_born_after(meta, snapshot.phys().prev_snapshot_txg.get(), parts.frees.obsolete_list(tx)?, tx)?;
    }
    let Some(own) = open_remap_deadlist(parts, snapshot.object)? else { return Ok(()) };
    let theirs = theirs.map_or_else(|| create_remap_deadlist(parts, next, tx), Ok)?;
    theirs.absorb(meta, &own, tx)?;
    meta.mos.zap_remove(snapshot.object, dataset_field::REMAP_DEADLIST, tx)?;
    meta.features.decrement(&meta.mos, Feature::ObsoleteCounts, tx)
}

/// The lists of dead blocks of a head do not tell any more what was born before the snapshot of `txg` from what was born after it.
///
/// A list may have lost the key before: where a counting bookmark was copied to a clone, both the last of its own head and that of the clone take it out of the clone's.
pub(super) fn remove_key(parts: &Parts, head: &Dataset, txg: u64, tx: &SyncTx<'_>) -> Result<()> {
    let remove = |list: &Deadlist| if list.has_key(&parts.meta, txg)? { list.remove_key(&parts.meta, txg, tx) } else { Ok(()) };
    remove(&head.deadlist())?;
    open_remap_deadlist(parts, head.object)?.map_or(Ok(()), |list| remove(&list))
}

/// Destroys a snapshot without clones and holds. Checked before.
#[doc(alias = "dsl_destroy_snapshot_sync_impl")]
pub(in crate::dsl) fn destroy_snapshot_sync(parts: &Parts, snapshot: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    parts.record_dataset_event(snapshot, "destroy", " ", tx)?;
    let phys = snapshot.phys();
    let head = parts.tree.dataset(snapshot.dir.phys().head_dataset.get())?;
    let next = parts.tree.dataset(phys.next_snapshot.get())?;
    scan_sync::replace(mos, snapshot.object, next.object, tx)?;
    let keeps_key = snapshot_destroyed(&parts.meta, head.object, &phys, &next.deadlist(), tx)?;
    for feature in snapshot.features() {
        snapshot.deactivate_feature(feature, tx)?;
    }
    unlink_snapshot(parts, snapshot, &next, tx)?;
    unlink_moved(parts, snapshot, &next, tx)?;
    if !keeps_key {
        collapse_keys(parts, &snapshot.dir, phys.creation_txg.get(), tx)?;
    }
    if next.is_snapshot {
        // What the two alone had: it died after the next one, before the one after that.
        let after = parts.tree.dataset(next.phys().next_snapshot.get())?;
        let shared = after.deadlist().space_born_in(&parts.meta, phys.prev_snapshot_txg.get(), phys.creation_txg.get())?;
        next.change(|state| change(&mut state.phys_mut().unique_bytes, shared.positive().used));
        if !keeps_key {
            remove_key(parts, &head, phys.creation_txg.get(), tx)?;
        }
    } else {
        count_unique(parts, &next)?;
    }
    let name = snapshot.snapshot_name()?.ok_or_else(|| error!(Corrupt, "snapshot {} has no name", snapshot.object))?;
    mos.zap_remove(head.phys().snapshot_names.get(), &name, tx)?;
    adjust_count(&parts.meta, &snapshot.dir, dir_field::SNAPSHOT_COUNT, -1, tx)?;
    note_snapshots_changed(&parts.meta, &snapshot.dir, tx)?;
    clear_boot_dataset(parts, snapshot.object, tx)?;
    for zap in [phys.next_clones, phys.props, phys.user_holds] {
        if zap.get() != 0 {
            mos.free(zap.get(), tx)?;
        }
    }
    parts.forget_dataset(snapshot.object);
    parts.meta.free_zapified(snapshot.object, tx)
}

/// Takes the snapshot out of the row of snapshots, and its blocks out of the deadlists.
fn unlink_snapshot(parts: &Parts, snapshot: &Arc<Dataset>, next: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    let meta = &parts.meta;
    let phys = snapshot.phys();
    let since = phys.prev_snapshot_txg.get();
    let list = next.deadlist();
    let before = match phys.prev_snapshot.get() {
        0 => None,
        object => Some(parts.tree.dataset(object)?),
    };
    if let Some(before) = &before {
        let theirs = before.phys();
        if theirs.next_snapshot.get() == snapshot.object {
            let shared = list.space_born_in(meta, theirs.prev_snapshot_txg.get(), since)?;
            before.change(|state| {
                state.phys_mut().next_snapshot = next.object.into();
                change(&mut state.phys_mut().unique_bytes, shared.positive().used);
            });
        } else if theirs.next_clones.get() != 0 {
            // It is the first snapshot of a clone: now the one after it is.
            meta.mos.zap_remove(theirs.next_clones.get(), &number_key(snapshot.object), tx)?;
            meta.mos.zap_add_u64(theirs.next_clones.get(), &number_key(next.object), next.object, tx)?;
        }
    }
    next.change(|state| {
        state.phys_mut().prev_snapshot = phys.prev_snapshot;
        state.phys_mut().prev_snapshot_txg = phys.prev_snapshot_txg;
        if !next.is_snapshot {
            state.set_prev(before);
        }
    });
    let freed = list.space_born_in(meta, since, u64::MAX)?;
    let free_list = parts.frees.list().ok_or_else(|| error!(Corrupt, "the pool has no list of blocks to free"))?;
    parts.frees.take_over(&snapshot.dir, UsedKind::Snapshot, freed)?;
    if tx.context.tunables.canary != Some(Canary::DestroyedSnapshotKeepsBlocks) {
        list.move_born_after(meta, since, free_list, tx)?;
    }
    list.absorb(meta, &snapshot.deadlist(), tx)
}

/// The deadlists of clones of later snapshots no longer tell what was born before the snapshot of `txg` from what was born after it.
#[doc(alias = "dsl_dataset_remove_clones_key")]
pub(super) fn collapse_keys(parts: &Parts, dir: &Arc<Dir>, txg: u64, tx: &SyncTx<'_>) -> Result<()> {
    let mut waiting = vec![dir.clone()];
    while let Some(dir) = waiting.pop() {
        let clones = dir.phys().clones.get();
        if clones == 0 {
            continue;
        }
        for (_, clone) in parts.meta.mos.zap_entries(clones)? {
            let clone = parts.tree.dataset(clone.first())?;
            if clone.dir.origin_txg() > txg {
                remove_key(parts, &clone, txg, tx)?;
                waiting.push(clone.dir.clone());
            }
        }
    }
    Ok(())
}

/// What a head alone refers to, counted anew; what its refreservation had claimed for that is used now.
#[doc(alias = "dsl_dataset_recalc_head_uniq")]
fn count_unique(parts: &Parts, head: &Arc<Dataset>) -> Result<()> {
    let referenced_before = head.prev().map_or(0, |prev| prev.referenced().used);
    let dead = head.deadlist().space(&parts.meta)?.used;
    let (gained, reserved, before) = head.change(|state| {
        let before = state.phys_mut().unique_bytes.get();
        let shared = referenced_before.saturating_sub(dead);
        let unique = state.phys_mut().referenced_bytes.get().saturating_sub(shared);
        state.phys_mut().unique_bytes = unique.into();
        state.phys_mut().flags |= DATASET_FLAG_UNIQUE_ACCURATE;
        (unique.saturating_sub(before), state.reserved(), before)
    });
    if before < reserved {
        let claimed = gained.min(reserved - before).cast_signed();
        parts.ledger.did_use(&head.dir, UsedKind::RefReservation, SpaceDelta { used: -claimed, ..SpaceDelta::default() });
    }
    Ok(())
}
