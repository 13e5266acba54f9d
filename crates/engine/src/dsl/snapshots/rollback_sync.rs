//! Rolling a file system or volume back to its newest snapshot.
//!
//! # Theory
//! A clone of the snapshot is made below the head, they change places (`dataset/swap_sync.rs`), and the clone is destroyed with all that was written
//! since. All of that is in one group.
//!
//! # Path
//! [`Dsl::roll_back`](crate::dsl::Dsl::roll_back)

use std::sync::Arc;

use crate::dmu::SyncTx;
use crate::dsl::dataset::Dataset;
use crate::dsl::dataset::swap_sync::{check_room_to_swap, check_unused, swap_heads_sync};
use crate::dsl::dsl::Parts;
use crate::dsl::tasks::sync_tasks::cannot;
use crate::dsl::tree::clone_sync::forget_log;
use crate::dsl::tree::create_sync::create_dataset_sync;
use crate::dsl::tree::destroy_sync::destroy_head_without_log_sync;
use crate::error::{ErrorKind, Result};
use crate::txg::{TXG_INITIAL, Txg};

/// What the clone is called that has the old contents for an instant.
const ROLLBACK_NAME: &str = "%rollback";

/// The head, if it can go back to the snapshot `to` (its name after the `@`; none: to the newest one, whichever that is).
///
/// # Errors
/// `NotFound` (there is no such snapshot, or none at all), `Exists` (a snapshot or bookmark is newer), `Busy`, `Quota`, `NoSpace`.
#[doc(alias = "dsl_dataset_rollback_check")]
pub(in crate::dsl) fn check_rollback(parts: &Parts, name: &str, to: Option<&str>, now: Option<Txg>) -> Result<Arc<Dataset>> {
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
    check_unused(parts, "rollback", &head, now)?;
    check_room_to_swap(parts, "rollback", &head, prev.referenced().used, 0)?;
    Ok(head)
}

/// Rolls back. Checked before.
#[doc(alias = "dsl_dataset_rollback_sync")]
pub(in crate::dsl) fn rollback_sync(parts: &Parts, head: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    let prev = head.prev();
    if !head.phys().block.is_hole() {
        parts.objsets.objset(head)?.destroy_log(tx)?;
    }
    let clone = create_dataset_sync(parts, &head.dir, ROLLBACK_NAME, prev.as_ref(), tx)?;
    swap_heads_sync(parts, &clone, head, tx)?;
    forget_log(parts, head, tx)?;
    destroy_head_without_log_sync(parts, &clone, tx)
}
