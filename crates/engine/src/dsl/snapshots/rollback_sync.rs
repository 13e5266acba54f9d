//! Rolling a file system or volume back to its newest snapshot.
//!
//! # Theory
//! A clone of the snapshot is made below the head, they change places (`dataset/swap_sync.rs`), and the clone is destroyed with all that was written
//! since. All of that is in one group.
//!
//! A program may work on what comes after it before anybody sees it (`rolling_back.rs`). Then the clone is made in one group, hidden and marked inconsistent,
//! so that the next import destroys what a crash left of it; and the exchange is in another, with the clone as it is by then.
//!
//! # Path
//! [`Dsl::roll_back`](crate::dsl::Dsl::roll_back), [`SnapshotVerbs::begin_rollback`](crate::dsl::SnapshotVerbs::begin_rollback)

use std::sync::Arc;

use ondisk::dsl::DATASET_FLAG_INCONSISTENT;

use super::rolling_back::RollbackBegun;
use crate::dmu::SyncTx;
use crate::dsl::dataset::Dataset;
use crate::dsl::dataset::swap_sync::{check_quota_to_swap, check_room_to_swap, check_unused, swap_heads_sync};
use crate::dsl::dsl::Parts;
use crate::dsl::props::prop::PropertyValue;
use crate::dsl::props::prop_sync::{PropertyChange, change_property_sync};
use crate::dsl::snapshots::snapshot_sync::{check_snapshot, snapshot_sync};
use crate::dsl::tasks::sync_tasks::cannot;
use crate::dsl::tree::clone_sync::forget_log;
use crate::dsl::tree::create_sync::create_dataset_sync;
use crate::dsl::tree::destroy_sync::destroy_head_without_log_sync;
use crate::error::{ErrorKind, Result};
use crate::txg::{TXG_INITIAL, Txg};

/// What the clone is called: the one that has the old contents for an instant, and the one that a program works in.
pub(in crate::dsl) const ROLLBACK_NAME: &str = "%rollback";

/// The value of the property `sync` with which nothing is in an intent log.
const SYNC_DISABLED: u64 = 2;

/// The head, and its newest snapshot, if it can go back to the snapshot `to` (its name after the `@`; none: to the newest one, whichever that is).
fn check_newest(parts: &Parts, name: &str, to: Option<&str>, now: Option<Txg>) -> Result<(Arc<Dataset>, Arc<Dataset>)> {
    let refuse = |why: &str, kind| cannot("rollback", name, why, kind);
    let head = parts.tree.dataset_by_name(name)?;
    if head.is_snapshot {
        return Err(refuse("it is a snapshot", ErrorKind::Invalid));
    }
    let wanted = match to {
        Some(to) => Some(head.snapshot_object(to)?.ok_or_else(|| refuse("snapshot does not exist", ErrorKind::NotFound))?),
        None => None,
    };
    let Some(prev) = head.prev().filter(|prev| prev.phys().creation_txg.get() >= TXG_INITIAL && prev.dir.object == head.dir.object) else {
        return Err(refuse("it has no snapshot", ErrorKind::NotFound));
    };
    if wanted.is_some_and(|wanted| wanted != prev.object) {
        return Err(refuse("more recent snapshots or bookmarks exist", ErrorKind::Exists));
    }
    let txg = prev.phys().creation_txg.get();
    if super::bookmark_moves_sync::latest_txg(&parts.meta, head.object)? > txg {
        return Err(refuse("more recent snapshots or bookmarks exist", ErrorKind::Exists));
    }
    // What is written in the group of the snapshot is the snapshot's.
    if now.is_some_and(|now| txg >= now) {
        return Err(refuse("the snapshot is being made", ErrorKind::Busy));
    }
    Ok((head, prev))
}

/// The head, if it can go back now.
///
/// # Errors
/// `NotFound` (there is no such snapshot, or none at all), `Exists` (a snapshot or bookmark is newer), `Busy`, `Quota`, `NoSpace`.
#[doc(alias = "dsl_dataset_rollback_check")]
pub(in crate::dsl) fn check_rollback(parts: &Parts, name: &str, to: Option<&str>, now: Option<Txg>) -> Result<Arc<Dataset>> {
    let (head, prev) = check_newest(parts, name, to, now)?;
    check_not_begun(parts, &head)?;
    check_unused(parts, "rollback", &head, now)?;
    check_room_to_swap(parts, "rollback", &head, prev.referenced().used, 0)?;
    Ok(head)
}

/// Could the head go back to the snapshot `to`, if nothing were newer? How much room it makes to destroy that is not known yet. `is_open`: its intent log is
/// replayed, or will be before the rollback.
///
/// # Errors
/// `NotFound`, `Busy`, `Quota`.
pub(in crate::dsl) fn check_past_newer(parts: &Parts, name: &str, to: &str, is_open: bool) -> Result<()> {
    let head = parts.tree.dataset_by_name(name)?;
    if head.is_snapshot {
        return Err(cannot("rollback", name, "it is a snapshot", ErrorKind::Invalid));
    }
    let Some(to) = head.snapshot_object(to)? else {
        return Err(cannot("rollback", name, "snapshot does not exist", ErrorKind::NotFound));
    };
    check_not_begun(parts, &head)?;
    if !is_open {
        check_unused(parts, "rollback", &head, None)?;
    }
    check_quota_to_swap("rollback", &head, parts.tree.dataset(to)?.referenced().used)
}

/// Rolls back. Checked before.
#[doc(alias = "dsl_dataset_rollback_sync")]
pub(in crate::dsl) fn rollback_sync(parts: &Parts, head: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    let prev = head.prev();
    if !head.phys().block.is_hole() {
        parts.objsets.objset(head)?.destroy_log(tx)?;
    }
    let clone = create_dataset_sync(parts, &head.dir, ROLLBACK_NAME, prev.as_ref(), None, tx)?;
    swap_heads_sync(parts, &clone, head, tx)?;
    forget_log(parts, head, tx)?;
    destroy_head_without_log_sync(parts, &clone, tx)
}

fn check_not_begun(parts: &Parts, head: &Dataset) -> Result<()> {
    match parts.tree.find_child(&head.dir, ROLLBACK_NAME)? {
        Some(_) => Err(cannot("rollback", &head.dir.full_name(), "dataset is busy", ErrorKind::Busy)),
        None => Ok(()),
    }
}

/// The head and its newest snapshot, if a program may work on what comes after a rollback to that.
///
/// # Errors
/// As of [`check_rollback`]; that somebody uses the head does not matter yet.
pub(in crate::dsl) fn check_begin(parts: &Parts, name: &str, to: Option<&str>, now: Option<Txg>) -> Result<(Arc<Dataset>, Arc<Dataset>)> {
    let (head, prev) = check_newest(parts, name, to, now)?;
    check_not_begun(parts, &head)?;
    Ok((head, prev))
}

/// Makes the clone that a program works in. Checked before.
pub(in crate::dsl) fn begin_sync(parts: &Parts, (head, prev): &(Arc<Dataset>, Arc<Dataset>), tx: &SyncTx<'_>) -> Result<RollbackBegun> {
    let clone = create_dataset_sync(parts, &head.dir, ROLLBACK_NAME, Some(prev), None, tx)?;
    clone.change(|state| state.phys_mut().flags |= DATASET_FLAG_INCONSISTENT);
    let unlogged = PropertyChange::Set(PropertyValue::Number(SYNC_DISABLED));
    change_property_sync(parts, &clone, "sync", &unlogged, tx)?;
    forget_log(parts, &clone, tx)?;
    let begun = parts.receives.begin(clone.object);
    Ok(RollbackBegun::new(clone, begun))
}

/// The head, if the clone that a program worked in may take its place, and the snapshot `then` (its name after the `@`) be taken of that.
///
/// # Errors
/// `Exists` (a snapshot or bookmark is newer by now; there is a snapshot `then`), `NotFound` (the snapshot has gone), `Busy`, `Quota`, `NoSpace`.
pub(in crate::dsl) fn check_end(parts: &Parts, clone: &Arc<Dataset>, then: Option<&str>, now: Option<Txg>) -> Result<Arc<Dataset>> {
    let name = clone.dir.parent().map_or_else(String::new, |parent| parent.full_name());
    let (head, prev) = check_newest(parts, &name, None, now)?;
    if clone.prev().is_none_or(|origin| origin.object != prev.object) {
        return Err(cannot("rollback", &name, "more recent snapshots or bookmarks exist", ErrorKind::Exists));
    }
    check_unused(parts, "rollback", &head, now)?;
    check_unused(parts, "rollback", clone, now)?;
    // The clone goes, and with it a snapshot that was only kept by it.
    if super::destroy_sync::is_origin_in_use(parts, clone)? {
        return Err(cannot("rollback", &name, "its snapshot, which is destroyed then, is busy", ErrorKind::Busy));
    }
    check_room_to_swap(parts, "rollback", &head, clone.referenced().used, clone.phys().unique_bytes.get())?;
    then.map_or(Ok(()), |then| check_snapshot(parts, &head, then, now))?;
    Ok(head)
}

/// The clone takes the head's place, and what the head had is destroyed. `then`: the name of a snapshot, and its time in seconds since 1970. Checked before.
pub(in crate::dsl) fn end_sync(parts: &Parts, clone: &Arc<Dataset>, head: &Arc<Dataset>, then: Option<(&str, u64)>, tx: &SyncTx<'_>) -> Result<()> {
    if !head.phys().block.is_hole() {
        parts.objsets.objset(head)?.destroy_log(tx)?;
    }
    swap_heads_sync(parts, clone, head, tx)?;
    if let Some((name, now)) = then {
        snapshot_sync(parts, head, name, now, tx)?;
    }
    destroy_head_without_log_sync(parts, clone, tx)
}
