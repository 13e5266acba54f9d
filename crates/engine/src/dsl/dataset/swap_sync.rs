//! Two heads change contents: how a rollback and a receive over an existing file system are done.
//!
//! # Theory
//! What is new is made beside what is old, as a clone below it whose name begins with `%`. When it is complete the two change object sets,
//! deadlists and sums, in one group; and the clone, which has what was the head's, is destroyed. So the head keeps its name, its directory, its
//! object and its relatives, and no reader of the disk sees anything but the one or the other.
//!
//! Nobody may have either object set open, and neither has changes in later groups: the caller has seen to that
//! ([`check_unused`]).
//!
//! # Path
//! `snapshots/rollback_sync.rs`; receiving.

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::dsl::UsedKind;
use ondisk::feature::Feature;

use super::Dataset;
use super::livelist_sync::remove_livelist;
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::dead::scan_sync;
use crate::dsl::dsl::Parts;
use crate::dsl::meta::{Space, SpaceDelta};
use crate::dsl::snapshots::bookmark_moves_sync::next_changed;
use crate::dsl::tasks::sync_tasks::cannot;
use crate::error::{ErrorKind, Result};
use crate::txg::Txg;

/// Refuses a head that somebody uses. `now`: the group that is being written, in the sync thread, where nobody can open it meanwhile.
///
/// # Errors
/// `Busy`
pub(in crate::dsl) fn check_unused(parts: &Parts, verb: &str, head: &Arc<Dataset>, now: Option<Txg>) -> Result<()> {
    let busy = |why: &str| Err(cannot(verb, &head.dir.full_name(), why, ErrorKind::Busy));
    if head.phys().block.is_hole() {
        return Ok(());
    }
    let objset = parts.objsets.objset(head)?;
    if ondisk::zil::header_needs_replay(&objset.zil_header()) {
        return busy("its intent log is not replayed");
    }
    let Some(now) = now else { return Ok(()) };
    // One here, one in the table of open object sets.
    if Arc::strong_count(&objset) > 2 {
        return busy("dataset is busy");
    }
    let open = parts.meta.context.groups.open_txg();
    if (now..=open).any(|txg| objset.is_dirty(txg)) {
        return busy("dataset is busy");
    }
    Ok(())
}

/// Exchanges what two heads have, in the sync thread. `clone` is a clone of the head's newest snapshot (or of nothing, where the head has
/// none, or shall have none). Afterwards `clone` has what was the head's and is to be destroyed. The head's intent log must be gone.
///
/// # Errors
/// The MOS cannot be read or written.
#[doc(alias = "dsl_dataset_clone_swap_sync_impl")]
pub(in crate::dsl) fn swap_heads_sync(parts: &Parts, clone: &Arc<Dataset>, head: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    swap_features(parts, clone, head, tx)?;
    let (of_clone, of_head) = (clone.phys(), head.phys());
    let reserved = head.limits().reserved();
    let unused = |unique: u64| reserved.min(unique).cast_signed();
    let unclaimed = unused(of_head.unique_bytes.get()).wrapping_sub(unused(of_clone.unique_bytes.get()));
    if let Some(origin) = clone.prev() {
        let alone = clone.deadlist().space_born_in(&parts.meta, origin.phys().prev_snapshot_txg.get(), u64::MAX)?;
        origin.change(|state| state.phys_mut().unique_bytes = alone.used.into());
    }
    move_space(parts, clone, head)?;
    let (clone_list, head_list) = (clone.deadlist(), head.deadlist());
    for (dataset, theirs, deadlist) in [(head, of_clone, clone_list), (clone, of_head, head_list)] {
        dataset.change(|state| {
            state.phys_mut().block = theirs.block;
            state.phys_mut().referenced_bytes = theirs.referenced_bytes;
            state.phys_mut().compressed_bytes = theirs.compressed_bytes;
            state.phys_mut().uncompressed_bytes = theirs.uncompressed_bytes;
            state.phys_mut().unique_bytes = theirs.unique_bytes;
            state.set_deadlist(deadlist);
        });
        // What is opened from now on is opened at the new root.
        parts.objsets.forget(dataset.object);
    }
    parts.ledger.did_use(&head.dir, UsedKind::RefReservation, SpaceDelta { used: unclaimed, ..SpaceDelta::default() });
    swap_remap_deadlists(parts, clone, head, tx)?;
    if let Some(prev) = head.prev() {
        next_changed(parts, head, &prev, tx)?;
    }
    scan_sync::swapped(&parts.meta.mos, head.object, clone.object, tx)?;
    remove_livelist(clone, tx)?;
    remove_livelist(head, tx)?;
    parts.record_dataset_event(clone, "clone swap", &format!("parent={}", head.dir.name()), tx)
}

/// Features of datasets go with what needs them, and with what they say.
fn swap_features(parts: &Parts, clone: &Arc<Dataset>, head: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    let numbers = |dataset: &Dataset, feature: Feature| -> Result<Option<Vec<u64>>> { Ok(parts.meta.mos.zap_get(dataset.object, feature.guid())?.map(|value| value.to_u64s())) };
    let take = |dataset: &Arc<Dataset>| -> Result<Vec<(Feature, Option<Vec<u64>>)>> {
        let features: BTreeSet<Feature> = dataset.features();
        features.into_iter().map(|feature| {
            let said = numbers(dataset, feature)?;
            dataset.deactivate_feature(feature, tx)?;
            Ok((feature, said))
        }).collect()
    };
    let (theirs, ours) = (take(clone)?, take(head)?);
    for (dataset, features) in [(head, theirs), (clone, ours)] {
        for (feature, said) in features {
            dataset.activate_feature(feature, tx)?;
            if let Some(said) = said.filter(|said| said.len() > 1 || said.first().is_some_and(|number| *number != 0)) {
                parts.meta.mos.zap_set_numbers(dataset.object, feature.guid(), &said, tx)?;
            }
        }
    }
    Ok(())
}

/// What the two refer to, and what is on their deadlists, is counted for the other directory.
fn move_space(parts: &Parts, clone: &Dataset, head: &Dataset) -> Result<()> {
    let all = |dataset: &Dataset| -> Result<Space> {
        let mut sum = dataset.referenced();
        sum.add(dataset.deadlist().space(&parts.meta)?);
        Ok(sum)
    };
    let mut delta = all(clone)?.positive();
    delta.add(all(head)?.negative());
    let back = SpaceDelta { used: -delta.used, compressed: -delta.compressed, uncompressed: -delta.uncompressed };
    // Of what a deadlist has, what came after the head's own origin is its snapshots'.
    let since = head.dir.origin_txg();
    let dead = |dataset: &Dataset| dataset.deadlist().space_born_in(&parts.meta, since, u64::MAX).map(|space| space.used.cast_signed());
    let snapshots = dead(clone)?.wrapping_sub(dead(head)?);
    parts.ledger.did_use(&head.dir, UsedKind::Head, delta);
    parts.ledger.did_use(&clone.dir, UsedKind::Head, back);
    parts.ledger.transfer(&head.dir, snapshots, UsedKind::Head, UsedKind::Snapshot);
    Ok(())
}

/// What a device removal moved that only snapshots have belongs to the contents, too.
fn swap_remap_deadlists(parts: &Parts, clone: &Dataset, head: &Dataset, tx: &SyncTx<'_>) -> Result<()> {
    use ondisk::dsl::dataset_field::REMAP_DEADLIST;
    let (meta, mos) = (&parts.meta, &parts.meta.mos);
    let list = |dataset: &Dataset| match mos.info(dataset.object)?.object_type {
        ondisk::object_type::ObjectType::ZAP_METADATA => mos.zap_u64(dataset.object, REMAP_DEADLIST),
        _ => Ok(None),
    };
    for (dataset, new) in [(clone, list(head)?), (head, list(clone)?)] {
        match new {
            None if mos.info(dataset.object)?.object_type == ondisk::object_type::ObjectType::ZAP_METADATA => drop(mos.zap_remove(dataset.object, REMAP_DEADLIST, tx)?),
            None => {}
            Some(list) => {
                meta.zapify(dataset.object, tx)?;
                mos.zap_set_u64(dataset.object, REMAP_DEADLIST, list, tx)?;
            }
        }
    }
    Ok(())
}

/// Refuses a swap after which the head would refer to more than it may, or for which what its refreservation keeps is not there.
///
/// # Errors
/// `Quota`, `NoSpace`
pub(in crate::dsl) fn check_room_to_swap(parts: &Parts, verb: &str, head: &Dataset, referenced: u64, unique: u64) -> Result<()> {
    check_quota_to_swap(verb, head, referenced)?;
    let limits = head.limits();
    let unclaimed = limits.reserved().min(limits.unique()).saturating_sub(limits.reserved().min(unique));
    if unclaimed > 0 && unclaimed > parts.room.available(&head.dir, true) {
        bail!(NoSpace, "cannot {verb} '{}': out of space", head.dir.full_name());
    }
    Ok(())
}

/// Refuses a swap after which the head would refer to more than it may.
///
/// # Errors
/// `Quota`
pub(in crate::dsl) fn check_quota_to_swap(verb: &str, head: &Dataset, referenced: u64) -> Result<()> {
    let quota = head.limits().quota();
    if quota != 0 && referenced > quota {
        return Err(cannot(verb, &head.dir.full_name(), "refquota exceeded", ErrorKind::Quota));
    }
    Ok(())
}
