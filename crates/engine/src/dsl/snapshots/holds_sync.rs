//! Holds: what keeps a snapshot from being destroyed.
//!
//! # Theory
//! A hold is a tag with the time when it was set; a snapshot has each tag once. When the last one is released of a snapshot that is only
//! waiting to be destroyed, and it has no clones, it goes in the same group.
//!
//! Holds of OpenZFS's may be temporary: for as long as a send lasts. They are on a list of the pool, so that an import releases what a crash left of them. We
//! make none, but keep that list right.
//!
//! # On disk
//! `ondisk::dsl::DatasetPhys::user_holds`; [`key::TMP_USERREFS`]: an entry `OBJECT-TAG` for each that is temporary, with the object in hexadecimal digits
//!
//! # Path
//! [`SnapshotVerbs::hold_snapshots`](crate::dsl::SnapshotVerbs::hold_snapshots), [`SnapshotVerbs::release_snapshots`](crate::dsl::SnapshotVerbs::release_snapshots).

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::dsl::DATASET_FLAG_DEFER_DESTROY;
use ondisk::object_type::ObjectType;

use super::destroy_sync::{check_destroy_snapshot, destroy_snapshot_sync};
use super::snapshot_sync::Refusals;
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::dataset::Dataset;
use crate::dsl::dsl::Parts;
use crate::dsl::meta::key;
use crate::error::Result;

/// Snapshots can be held from this version on.
const HOLDS_VERSION: u64 = 18;
/// The longest tag.
const TAG_BYTES_MAX: usize = 255;

/// A tag, and the snapshots that it is about.
#[derive(Debug, Clone)]
pub(in crate::dsl) struct Tagged {
    pub(in crate::dsl) names: Vec<String>,
    pub(in crate::dsl) tag: String,
}

/// How many holds a snapshot has.
pub(in crate::dsl) fn count(parts: &Parts, snapshot: &Dataset) -> Result<u64> {
    match snapshot.phys().user_holds.get() {
        0 => Ok(0),
        holds => parts.meta.mos.zap_count(holds),
    }
}

impl Tagged {
    /// Refuses a tag that no dictionary can hold, of whichever snapshots. Found out by the sync thread, that would stop the pool.
    ///
    /// # Errors
    /// `Invalid`
    pub(in crate::dsl) fn check_tag(&self) -> Result<()> {
        if self.tag.is_empty() || self.tag.contains('\0') {
            bail!(Invalid, "a hold has a tag, without zero bytes");
        }
        Ok(())
    }

    fn each(&self, mut check: impl FnMut(&str) -> Result<()>) -> Refusals {
        self.names.iter().filter_map(|name| Some((name.clone(), check(name).err()?))).collect()
    }

    fn has_tag(&self, parts: &Parts, snapshot: &Dataset) -> Result<bool> {
        match snapshot.phys().user_holds.get() {
            0 => Ok(false),
            holds => parts.meta.mos.zap_contains(holds, &self.tag),
        }
    }

    /// Why some of them cannot be held.
    pub(in crate::dsl) fn hold_refusals(&self, parts: &Parts) -> Refusals {
        let mut seen = BTreeSet::new();
        self.each(|name| {
            let snapshot = parts.tree.dataset_by_name(name)?;
            if !snapshot.is_snapshot || parts.meta.version() < HOLDS_VERSION {
                bail!(NotSupported, "{name}: it cannot be held");
            }
            if self.tag.len() > TAG_BYTES_MAX {
                bail!(TooBig, "{name}: tag too long");
            }
            // One that is named twice would have the tag the second time.
            if self.has_tag(parts, &snapshot)? || !seen.insert(snapshot.object) {
                bail!(Exists, "{name}: tag already exists on this dataset");
            }
            match snapshot.phys().user_holds.get() {
                0 => Ok(()),
                holds => parts.meta.mos.zap_check_room(holds, &self.tag),
            }
        })
    }

    /// Holds them. Checked before.
    #[doc(alias = "dsl_dataset_user_hold_sync_one_impl")]
    pub(in crate::dsl) fn hold_sync(&self, parts: &Parts, tx: &SyncTx<'_>) -> Result<()> {
        let now = parts.meta.context.host.wall_clock().0;
        for name in &self.names {
            let snapshot = parts.tree.dataset_by_name(name)?;
            let holds = match snapshot.phys().user_holds.get() {
                0 => parts.meta.mos.zap_create(ObjectType::USERREFS, tx)?,
                there => there,
            };
            snapshot.change(|state| state.phys_mut().user_holds = holds.into());
            parts.meta.mos.zap_add_u64(holds, &self.tag, now, tx)?;
            let details = format!("tag={} temp=0 refs={}", self.tag, count(parts, &snapshot)?);
            parts.record_dataset_event(&snapshot, "hold", &details, tx)?;
        }
        Ok(())
    }

    /// Why some of them cannot be released.
    pub(in crate::dsl) fn release_refusals(&self, parts: &Parts) -> Refusals {
        self.each(|name| {
            let snapshot = parts.tree.dataset_by_name(name)?;
            if !snapshot.is_snapshot || !self.has_tag(parts, &snapshot)? {
                bail!(NoAttribute, "{name}: no such tag on this dataset");
            }
            if goes_with_last_hold(parts, &snapshot)? && parts.objsets.is_open(&snapshot) {
                bail!(Busy, "{name}: dataset is busy");
            }
            Ok(())
        })
    }

    /// Releases them. Checked before.
    #[doc(alias = "dsl_dataset_user_release_sync_one")]
    pub(in crate::dsl) fn release_sync(&self, parts: &Parts, tx: &SyncTx<'_>) -> Result<()> {
        let snapshots = self.names.iter().map(|name| parts.tree.dataset_by_name(name)).collect::<Result<Vec<Arc<Dataset>>>>()?;
        let mut released = BTreeSet::new();
        // One that is named twice is perhaps gone by then.
        for snapshot in snapshots.into_iter().filter(|snapshot| released.insert(snapshot.object)) {
            release_one(parts, &snapshot, &self.tag, tx)?;
        }
        Ok(())
    }
}

/// Releases a tag that the snapshot has.
fn release_one(parts: &Parts, snapshot: &Arc<Dataset>, tag: &str, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    let is_last = goes_with_last_hold(parts, snapshot)?;
    mos.zap_remove(snapshot.phys().user_holds.get(), tag, tx)?;
    if let Some(list) = mos.zap_u64(key::DIRECTORY, key::TMP_USERREFS)? {
        mos.zap_remove(list, &format!("{:x}-{tag}", snapshot.object), tx)?;
    }
    let details = format!("tag={tag} refs={}", count(parts, snapshot)?);
    parts.record_dataset_event(snapshot, "release", &details, tx)?;
    if is_last && check_destroy_snapshot(parts, snapshot, false).is_ok() {
        destroy_snapshot_sync(parts, snapshot, tx)?;
    }
    Ok(())
}

/// Whether the pool has temporary holds.
pub(super) fn has_temporary(parts: &Parts) -> Result<bool> {
    match parts.meta.mos.zap_u64(key::DIRECTORY, key::TMP_USERREFS)? {
        Some(list) => Ok(parts.meta.mos.zap_count(list)? != 0),
        None => Ok(false),
    }
}

/// The snapshot and the tag that an entry of the list is about; `None`: that hold is there no more, or never was.
fn temporary<'e>(parts: &Parts, entry: &'e str) -> Option<(Arc<Dataset>, &'e str)> {
    let (object, tag) = entry.split_once('-')?;
    let object = u64::from_str_radix(object, 16).ok()?;
    parts.meta.mos.info(object).ok().filter(|info| info.bonus_type == ObjectType::DSL_DATASET)?;
    let snapshot = parts.tree.dataset(object).ok().filter(|dataset| dataset.is_snapshot)?;
    let is_held = match snapshot.phys().user_holds.get() {
        0 => false,
        holds => parts.meta.mos.zap_contains(holds, tag).ok()?,
    };
    is_held.then_some((snapshot, tag))
}

/// Releases all temporary holds: whatever set them has ended.
#[doc(alias = "dsl_pool_clean_tmp_userrefs")]
pub(super) fn release_temporary_sync(parts: &Parts, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    let Some(list) = mos.zap_u64(key::DIRECTORY, key::TMP_USERREFS)? else { return Ok(()) };
    for (entry, _) in mos.zap_entries(list)? {
        if let Some((snapshot, tag)) = temporary(parts, &entry) {
            release_one(parts, &snapshot, tag, tx)?;
        }
        mos.zap_remove(list, &entry, tx)?;
    }
    Ok(())
}

/// Whether it waits to be destroyed for one hold alone.
fn goes_with_last_hold(parts: &Parts, snapshot: &Arc<Dataset>) -> Result<bool> {
    let phys = snapshot.phys();
    Ok(phys.flags.get() & DATASET_FLAG_DEFER_DESTROY != 0 && phys.children.get() == 1 && count(parts, snapshot)? == 1)
}
