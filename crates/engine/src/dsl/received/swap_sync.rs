//! A head and its hidden child change places.
//!
//! # Theory
//! Nothing is copied: the two records change what they refer to, and what follows from that: space, deadlists, features. Both come from the same snapshot, so
//! the deadlists are about the same blocks. Names, properties and snapshots stay where they are.

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::dsl::{UsedKind, dataset_field};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use crate::dmu::SyncTx;
use crate::dsl::dataset::Dataset;
use crate::dsl::dead::livelist_sync::remove_livelist;
use crate::dsl::dead::scan_sync;
use crate::dsl::dsl::Parts;
use crate::dsl::meta::{Space, SpaceDelta};
use crate::dsl::snapshots::bookmarks_sync::next_changed;
use crate::error;
use crate::error::Result;

/// One transaction may go beyond a refquota by so much: so may what is received.
const QUOTA_SLACK: u64 = 64 << 20;
/// What a byte may take on disk at the most.
const INFLATION: u64 = 24;

/// Whether they can change places. `force`: changes of the head are given up.
#[doc(alias = "dsl_dataset_clone_swap_check_impl")]
pub(in crate::dsl) fn check_swap(clone: &Arc<Dataset>, head: &Arc<Dataset>, force: bool) -> Result<()> {
    let name = head.dir.full_name();
    let before = |dataset: &Dataset| dataset.prev().map(|prev| prev.object);
    if clone.is_snapshot || head.is_snapshot || clone.dir.parent().is_none_or(|parent| parent.object != head.dir.object) {
        return Err(error!(Invalid, "'{name}' and '{}' cannot change places", clone.dir.full_name()));
    }
    if !force && before(clone) != before(head) {
        return Err(error!(Modified, "destination {name} has been modified\nsince most recent snapshot"));
    }
    if !force && let Some(prev) = head.prev() && super::checks::modified_since(head, &prev)? {
        return Err(error!(Modified, "destination {name} has been modified\nsince most recent snapshot"));
    }
    let limits = head.limits();
    let claimed = |unique: u64| limits.reserved().min(unique);
    let more = claimed(limits.unique()).saturating_sub(claimed(clone.limits().unique()));
    if more > 0 && more > head.room().available(&head.dir, true) {
        return Err(error!(NoSpace, "'{name}': out of space"));
    }
    let slack = QUOTA_SLACK * INFLATION;
    if limits.quota() != 0 && clone.limits().referenced() > limits.quota().saturating_add(slack) {
        return Err(error!(Quota, "destination {name} space quota exceeded."));
    }
    Ok(())
}

/// They change places. Nobody uses the head's object set any more. Checked before.
#[doc(alias = "dsl_dataset_clone_swap_sync_impl")]
pub(in crate::dsl) fn swap_sync(parts: &Parts, clone: &Arc<Dataset>, head: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    swap_features(parts, clone, head, tx)?;
    parts.objsets.forget(clone.object);
    parts.objsets.forget(head.object);
    let claimed = |dataset: &Dataset| head.limits().reserved().min(dataset.limits().unique()).cast_signed();
    let unused = claimed(head) - claimed(clone);
    let (theirs, ours) = (clone.deadlist(), head.deadlist());
    if let Some(origin) = clone.prev() {
        let unique = theirs.space_born_in(&parts.meta, origin.phys().prev_snapshot_txg.get(), u64::MAX)?;
        origin.change(|state| state.phys_mut().unique_bytes = unique.used.into());
    }
    move_space(parts, clone, head)?;
    swap_records(clone, head);
    let delta = SpaceDelta { used: unused, ..SpaceDelta::default() };
    parts.ledger.did_use(&head.dir, UsedKind::RefReservation, delta);
    clone.change(|state| state.set_deadlist(ours));
    head.change(|state| state.set_deadlist(theirs));
    swap_remap_deadlists(parts, clone, head, tx)?;
    if let Some(prev) = head.prev() {
        next_changed(&parts.meta, head, &prev, tx)?;
    }
    scan_sync::swapped(&parts.meta.mos, head.object, clone.object, tx)?;
    remove_livelist(&parts.meta, clone.dir.object, tx)?;
    remove_livelist(&parts.meta, head.dir.object, tx)?;
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

/// What each refers to, and what of that snapshots keep, is the other's now.
fn move_space(parts: &Parts, clone: &Arc<Dataset>, head: &Arc<Dataset>) -> Result<()> {
    let meta = &parts.meta;
    let (theirs, ours) = (clone.deadlist(), head.deadlist());
    let all = |dataset: &Dataset, dead: Space| {
        let mut space = dataset.referenced();
        space.add(dead);
        space
    };
    let (there, here) = (all(clone, theirs.space(meta)?), all(head, ours.space(meta)?));
    let mut delta = there.positive();
    delta.add(here.negative());
    let back = SpaceDelta { used: -delta.used, compressed: -delta.compressed, uncompressed: -delta.uncompressed };
    parts.ledger.did_use(&head.dir, UsedKind::Head, delta);
    parts.ledger.did_use(&clone.dir, UsedKind::Head, back);
    let after = head.dir.origin_txg;
    let kept = theirs.space_born_in(meta, after, u64::MAX)?.positive().used - ours.space_born_in(meta, after, u64::MAX)?.positive().used;
    parts.ledger.transfer(&head.dir, kept, UsedKind::Head, UsedKind::Snapshot);
    Ok(())
}

/// Where the object sets are, and what they refer to.
fn swap_records(clone: &Arc<Dataset>, head: &Arc<Dataset>) {
    let (theirs, ours) = (clone.phys(), head.phys());
    for (dataset, from) in [(clone, ours), (head, theirs)] {
        dataset.change(|state| {
            let phys = state.phys_mut();
            phys.block = from.block;
            phys.referenced_bytes = from.referenced_bytes;
            phys.compressed_bytes = from.compressed_bytes;
            phys.uncompressed_bytes = from.uncompressed_bytes;
            phys.unique_bytes = from.unique_bytes;
        });
    }
}

/// What a device removal moved that only snapshots have.
fn swap_remap_deadlists(parts: &Parts, clone: &Dataset, head: &Dataset, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    let take = |dataset: u64| -> Result<Option<u64>> {
        if mos.info(dataset)?.object_type != ObjectType::ZAP_METADATA {
            return Ok(None);
        }
        let list = mos.zap_u64(dataset, dataset_field::REMAP_DEADLIST)?;
        mos.zap_remove(dataset, dataset_field::REMAP_DEADLIST, tx)?;
        Ok(list)
    };
    let (theirs, ours) = (take(clone.object)?, take(head.object)?);
    for (dataset, list) in [(head.object, theirs), (clone.object, ours)] {
        if let Some(list) = list {
            parts.meta.zapify(dataset, tx)?;
            mos.zap_add_u64(dataset, dataset_field::REMAP_DEADLIST, list, tx)?;
        }
    }
    Ok(())
}
