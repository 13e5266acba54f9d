//! Taking snapshots.
//!
//! # Theory
//! A snapshot is a record with the head's pointer in it: what the head referred to when the group was written. It takes over the head's
//! deadlist, and goes between the head and the snapshot before. From then on nothing is the head's alone, and its new deadlist has one
//! key more. No file and no block is looked at.
//!
//! Snapshots are taken in pass 1, after all datasets have been written: so they have everything up to the end of the group, and of
//! several datasets the same moment. What is in the head's intent log is either of this group and those before, and so in the
//! snapshot, or of a later one, and is replayed on the head alone.
//!
//! # Invariants
//! 1. One dataset has at most one snapshot of one group: blocks are told apart by the group that they were born in.
//! 2. Nothing of a head is written in the group after its snapshot was taken: later passes write over what earlier ones have written.
//!
//! # Path
//! [`SnapshotVerbs::create_snapshots`](crate::dsl::SnapshotVerbs::create_snapshots), receiving, and cloning call these.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ondisk::dsl::{DATASET_FLAG_UNIQUE_ACCURATE, DatasetPhys, UsedKind, dataset_field, dir_field, number_key};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use zerocopy::IntoBytes;

use super::bookmarks_sync::counting_bookmarks;
use super::destroy_sync::remap_deadlist;
use crate::dmu::SyncTx;
use crate::dsl::counts::{Limited, adjust_count, check_limits, note_snapshots_changed};
use crate::dsl::dataset::Dataset;
use crate::dsl::dead::scan_sync;
use crate::dsl::dsl::Parts;
use crate::dsl::meta::{Meta, SpaceDelta};
use crate::dsl::props::prop_sync::{PropertyChange, change_property_sync, check_new_properties};
use crate::dsl::props::prop_table::is_user_property;
use crate::dsl::tasks::actor::actor;
use crate::dsl::tasks::sync_tasks::cannot;
use crate::dsl::tree::create_sync::{new_dataset_phys, snapshot_txgs_before};
use crate::dsl::tree::dir::{Dir, beyond_reservation};
use crate::dsl::tree::names::{DatasetName, split_parent};
use crate::error::{Error, ErrorKind, Result};
use crate::txg::Txg;
use crate::{bail, error};

/// Pools before this version have no log in a snapshot.
const LOG_IN_SNAPSHOT_VERSION: u64 = 27;
/// Snapshots have properties from this version on.
const PROPERTIES_VERSION: u64 = 12;

/// What is to be taken: all of them in one group, or none.
#[derive(Debug, Clone, Default)]
pub struct NewSnapshots {
    /// `pool/a/b@snapshot`, of each dataset one at the most.
    pub names: Vec<String>,
    /// Properties of users to set on each of them.
    pub properties: Vec<(String, PropertyChange)>,
}

/// Why some of what was asked for cannot be: by name. If there are any, nothing was done.
pub type Refusals = Vec<(String, Error)>;

impl NewSnapshots {
    /// What can be said without its datasets.
    pub(in crate::dsl) fn check(&self, meta: &Meta) -> Result<()> {
        if let Some((name, _)) = self.properties.iter().find(|(name, _)| !is_user_property(name)) {
            bail!(NotSupported, "the property '{name}' cannot be set on a snapshot");
        }
        check_new_properties(meta, &self.properties)?;
        let mut heads = BTreeSet::new();
        for name in &self.names {
            let parsed = DatasetName::parse(name)?;
            if parsed.snapshot.is_none() {
                return Err(cannot("create snapshot", name, "it is no name of a snapshot", ErrorKind::Invalid));
            }
            if !heads.insert(parsed.dir) {
                return Err(cannot("create snapshot", name, "multiple snapshots of same fs not allowed", ErrorKind::CrossDevice));
            }
        }
        Ok(())
    }

    /// Why some of them cannot be taken. `txg`: the group that is to have them, in the sync thread.
    pub(in crate::dsl) fn refusals(&self, parts: &Parts, txg: Option<Txg>) -> Refusals {
        let refusal = |name: &String| Some((name.clone(), self.refusal(parts, name, txg).err()?));
        let beyond_limit = self.beyond_limit(parts).err();
        let refusals: Refusals = beyond_limit.into_iter().chain(self.names.iter().filter_map(refusal)).collect();
        if refusals.is_empty() { self.beyond_room(parts).err().into_iter().collect() } else { refusals }
    }

    /// Refuses, under the name of the last in its way, what all of them together reserve anew beyond what a directory has: each alone may fit. The deepest directories
    /// first, as what they have reserved pays for a part.
    fn beyond_room(&self, parts: &Parts) -> Result<(), (String, Error)> {
        let mut wanted: BTreeMap<(Reverse<usize>, u64), (Arc<Dir>, u64, &str)> = BTreeMap::new();
        let place = |dir: &Arc<Dir>| (Reverse(dir.and_above().count()), dir.object);
        for name in &self.names {
            let head = DatasetName::parse(name).and_then(|parsed| parts.tree.dataset_by_name(parsed.dir)).map_err(|error| (name.clone(), error))?;
            let anew = reserved_anew(&head);
            if anew > 0 {
                wanted.insert(place(&head.dir), (head.dir.clone(), anew, name.as_str()));
            }
        }
        if wanted.len() < 2 {
            return Ok(());
        }
        while let Some((_, (dir, bytes, name))) = wanted.pop_first() {
            if bytes > parts.room.available(&dir, true) {
                return Err((name.to_owned(), cannot("create snapshot", name, "out of space", ErrorKind::NoSpace)));
            }
            let limits = dir.limits();
            let above = beyond_reservation(limits.used(), limits.reserved(), i64::try_from(bytes).unwrap_or(i64::MAX)).max(0) as u64;
            if let Some(parent) = dir.parent().filter(|_| above > 0) {
                let sum = wanted.entry(place(&parent)).or_insert((parent, 0, name));
                (sum.1, sum.2) = (sum.1.saturating_add(above), name);
            }
        }
        Ok(())
    }

    /// Refuses, under the name of the first file system for which it is so, what is more than a limit allows: of all of them together.
    fn beyond_limit(&self, parts: &Parts) -> Result<(), (String, Error)> {
        if actor().is_superuser {
            return Ok(());
        }
        let mut more: Vec<(&str, u64)> = Vec::new();
        for head in self.names.iter().filter_map(|name| Some(name.split_once('@')?.0)) {
            for dir in std::iter::successors(Some(head), |dir| split_parent(dir).map(|(parent, _)| parent)) {
                match more.iter_mut().find(|(known, _)| *known == dir) {
                    Some((_, count)) => *count += 1,
                    None => more.push((dir, 1)),
                }
            }
        }
        for (name, count) in more {
            // That one is missing is said of the snapshot.
            let Ok(dir) = parts.tree.dir_by_name(name) else { continue };
            check_limits(parts, &dir, count, Limited::Snapshots, None).map_err(|error| (name.to_owned(), error))?;
        }
        Ok(())
    }

    fn refusal(&self, parts: &Parts, name: &str, txg: Option<Txg>) -> Result<()> {
        if !self.properties.is_empty() && parts.meta.version() < PROPERTIES_VERSION {
            bail!(NotSupported, "{name}: snapshots have no properties in a pool of this version");
        }
        let parsed = DatasetName::parse(name)?;
        let head = parts.tree.dataset_by_name(parsed.dir)?;
        let snapshot = parsed.snapshot.unwrap_or_default();
        check_snapshot(parts, &head, snapshot, txg)?;
        if head.is_inconsistent() {
            return Err(cannot("create snapshot", name, "dataset is busy", ErrorKind::Busy));
        }
        Ok(())
    }

    /// Takes them. Checked before, in the same group.
    pub(in crate::dsl) fn take_sync(&self, parts: &Parts, tx: &SyncTx<'_>) -> Result<()> {
        let now = parts.meta.context.host.wall_clock().0;
        for name in &self.names {
            let parsed = DatasetName::parse(name)?;
            let head = parts.tree.dataset_by_name(parsed.dir)?;
            let snapshot = snapshot_sync(parts, &head, parsed.snapshot.unwrap_or_default(), now, tx)?;
            for (property, change) in &self.properties {
                change_property_sync(parts, &snapshot, property, change, tx)?;
            }
        }
        Ok(())
    }
}

/// Whether a snapshot of that name can be taken of `head`; one that is being received, too.
///
/// # Errors
/// `Conflict` (there is one of this group: try again in a later one), `Exists`, `NoSpace` (its refreservation has no room), `NotSupported`.
#[doc(alias = "dsl_dataset_snapshot_check_impl")]
pub(in crate::dsl) fn check_snapshot(parts: &Parts, head: &Arc<Dataset>, name: &str, txg: Option<Txg>) -> Result<()> {
    let full = || format!("{}@{name}", head.dir.full_name());
    if head.is_snapshot {
        return Err(cannot("create snapshot", &full(), "it is of a snapshot", ErrorKind::Invalid));
    }
    if parts.meta.version() < LOG_IN_SNAPSHOT_VERSION {
        bail!(NotSupported, "{}: this version of tarn takes no snapshots in pools from before version {LOG_IN_SNAPSHOT_VERSION}", full());
    }
    if txg.is_some_and(|txg| head.phys().prev_snapshot_txg.get() >= txg) {
        bail!(Conflict, "{}: another snapshot of it is of the same group", full());
    }
    if head.snapshot_object(name)?.is_some() {
        return Err(cannot("create snapshot", &full(), "dataset already exists", ErrorKind::Exists));
    }
    parts.meta.mos.zap_check_room(head.phys().snapshot_names.get(), name)?;
    let anew = reserved_anew(head);
    if anew > 0 && anew > parts.room.available(&head.dir, true) {
        return Err(cannot("create snapshot", &full(), "out of space", ErrorKind::NoSpace));
    }
    Ok(())
}

/// What a refreservation had paid for is the snapshot's when that is taken, and is reserved a second time.
fn reserved_anew(head: &Dataset) -> u64 {
    let limits = head.limits();
    limits.unique().min(limits.reserved())
}

/// Takes a snapshot of `head` as it is at the end of the group. Checked before. `now` is in seconds since 1970.
#[doc(alias = "dsl_dataset_snapshot_sync_impl")]
pub(in crate::dsl) fn snapshot_sync(parts: &Parts, head: &Arc<Dataset>, name: &str, now: u64, tx: &SyncTx<'_>) -> Result<Arc<Dataset>> {
    let (meta, mos) = (&parts.meta, &parts.meta.mos);
    write_whole(parts, head, tx)?;
    adjust_count(meta, &head.dir, dir_field::SNAPSHOT_COUNT, 1, tx)?;
    let object = mos.allocate(ObjectType::DSL_DATASET, 0, ObjectType::DSL_DATASET, size_of::<DatasetPhys>(), tx)?;
    mos.set_bonus(object, snapshot_phys(parts, head, now, tx.txg()).as_bytes(), tx)?;
    for feature in head.features() {
        copy_feature(parts, head.object, object, feature, tx)?;
    }
    link_after_previous(parts, head, object, tx)?;
    begin_deadlist(parts, head, tx)?;
    move_remap_deadlist(parts, head.object, object, tx)?;
    if head.dir.crypto_key != 0 && meta.features.is_enabled(Feature::BookmarkV2) {
        let guid = (meta.context.host.random() & ((1 << 56) - 1)).max(1);
        meta.zapify(object, tx)?;
        mos.zap_add_u64(object, dataset_field::IVSET_GUID, guid, tx)?;
    }
    let names = head.phys().snapshot_names.get();
    mos.zap_add_u64(names, name, object, tx)?;
    parts.tree.snapshot_names().remember(names, object, name);
    let snapshot = parts.tree.dataset(object)?;
    let reserved_anew = head.change(|state| {
        let reserved_anew = state.phys_mut().unique_bytes.get().min(state.reserved());
        let phys = state.phys_mut();
        phys.prev_snapshot = object.into();
        phys.prev_snapshot_txg = tx.txg().into();
        phys.unique_bytes = 0.into();
        phys.flags |= DATASET_FLAG_UNIQUE_ACCURATE;
        state.set_prev(Some(snapshot.clone()));
        reserved_anew
    });
    if reserved_anew > 0 {
        let delta = SpaceDelta { used: reserved_anew.cast_signed(), ..SpaceDelta::default() };
        parts.ledger.did_use(&head.dir, UsedKind::RefReservation, delta);
    }
    scan_sync::snapshotted(mos, head.object, object, tx)?;
    note_snapshots_changed(meta, &head.dir, tx)?;
    parts.record_dataset_event(&snapshot, "snapshot", " ", tx)?;
    Ok(snapshot)
}

/// Invariant 2: what another change of this group has made of the head is written now, not in the next pass.
fn write_whole(parts: &Parts, head: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    match parts.objsets.dirty_one(head.object, tx.txg()) {
        Some((dataset, objset)) => dataset.sync(&objset, tx).map(drop),
        None => Ok(()),
    }
}

fn snapshot_phys(parts: &Parts, head: &Dataset, now: u64, txg: Txg) -> DatasetPhys {
    let theirs = head.phys();
    DatasetPhys {
        prev_snapshot: theirs.prev_snapshot,
        prev_snapshot_txg: theirs.prev_snapshot_txg,
        next_snapshot: head.object.into(),
        children: 1.into(),
        creation_time: now.into(),
        creation_txg: txg.into(),
        deadlist: theirs.deadlist,
        referenced_bytes: theirs.referenced_bytes,
        compressed_bytes: theirs.compressed_bytes,
        uncompressed_bytes: theirs.uncompressed_bytes,
        flags: theirs.flags,
        block: theirs.block,
        ..new_dataset_phys(parts, &head.dir)
    }
}

/// The snapshot uses what its head uses; some features say with what.
fn copy_feature(parts: &Parts, from: u64, to: u64, feature: Feature, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    parts.meta.activate_feature(to, feature, tx)?;
    match mos.zap_get(from, feature.guid())?.map(|value| value.to_u64s()) {
        Some(numbers) if numbers.len() > 1 || numbers.first().is_some_and(|number| *number != 0) => {
            mos.zap_set_numbers(to, feature.guid(), &numbers, tx)
        }
        _ => Ok(()),
    }
}

/// The snapshot before has the new one as its next one, or as its clone.
fn link_after_previous(parts: &Parts, head: &Arc<Dataset>, object: u64, tx: &SyncTx<'_>) -> Result<()> {
    let Some(before) = head.prev() else { return Ok(()) };
    let theirs = before.phys();
    if theirs.next_snapshot.get() == head.object {
        before.change(|state| state.phys_mut().next_snapshot = object.into());
    } else if theirs.next_clones.get() != 0 {
        let mos = &parts.meta.mos;
        mos.zap_remove(theirs.next_clones.get(), &number_key(head.object), tx)?;
        mos.zap(theirs.next_clones.get())?.add_int(tx, object)?;
    }
    Ok(())
}

/// The head begins a deadlist with the old one's keys, one for the snapshot before, and those of bookmarks that count.
fn begin_deadlist(parts: &Parts, head: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    let meta = &parts.meta;
    let old_keys = || head.prev().map_or(Ok(Vec::new()), |before| snapshot_txgs_before(parts, &before));
    let deadlist = head.deadlist().clone_keys(meta, u64::MAX, &old_keys, tx)?;
    let since = head.phys().prev_snapshot_txg.get();
    let mut keys = BTreeSet::from([since]);
    for bookmark in counting_bookmarks(meta, head.object)?.into_iter().flat_map(|(_, bookmarks)| bookmarks) {
        if bookmark.creation_txg() > since {
            keys.insert(bookmark.creation_txg());
        }
    }
    keys.into_iter().try_for_each(|key| deadlist.add_key(meta, key, tx))?;
    head.change(|state| state.set_deadlist(Arc::new(deadlist)));
    Ok(())
}

/// What a device removal moved that only snapshots have is the new snapshot's matter.
fn move_remap_deadlist(parts: &Parts, head: u64, snapshot: u64, tx: &SyncTx<'_>) -> Result<()> {
    let Some(list) = remap_deadlist(parts, head)? else { return Ok(()) };
    let mos = &parts.meta.mos;
    if !mos.zap_remove(head, dataset_field::REMAP_DEADLIST, tx)? {
        return Err(error!(Corrupt, "dataset {head}: its list of moved blocks is gone"));
    }
    parts.meta.zapify(snapshot, tx)?;
    mos.zap_add_u64(snapshot, dataset_field::REMAP_DEADLIST, list, tx)
}
