//! A received dataset becomes a snapshot.

use std::sync::Arc;

use ondisk::dsl::{DATASET_FLAG_INCONSISTENT, dataset_field as field};

use super::checks::{check_replayed, has_resume_state};
use super::swap_check::check_swap;
use super::target::{ReceiveTarget, StreamHead};
use crate::dmu::SyncTx;
use crate::dsl::counts::{Limited, check_limits};
use crate::dsl::dataset::Dataset;
use crate::dsl::dataset::swap_sync::swap_heads_sync;
use crate::dsl::dsl::Parts;
use crate::dsl::snapshots::destroy_sync::{check_lists, destroy_snapshot_sync, is_origin_in_use};
use crate::dsl::snapshots::snapshot_sync::{check_snapshot, snapshot_sync};
use crate::dsl::tree::destroy_sync::destroy_head_sync;
use crate::dsl::keys::keys_sync::store_key_sync;
use crate::dsl::keys::root_sync::place_root_sync;
use crate::error;
use crate::error::Result;
use crate::txg::Txg;

/// What is forgotten when all of it is there. (What may be sent stays, as it does with OpenZFS.)
const RESUME_FIELDS: [&str; 7] = [
    field::RESUME_FROM_GUID,
    field::RESUME_OBJECT,
    field::RESUME_OFFSET,
    field::RESUME_BYTES,
    field::RESUME_TO_GUID,
    field::RESUME_TO_NAME,
    field::RESUME_REDACT_SNAPSHOTS,
];

/// What is received, where, and into what.
pub(super) struct Ending<'a> {
    pub(super) target: &'a ReceiveTarget,
    pub(super) head: &'a StreamHead,
    pub(super) dataset: &'a Arc<Dataset>,
    pub(super) is_new: bool,
}

impl Ending<'_> {
    /// Whether it can end: the snapshot can be taken, and what is in the way can go. `txg`: in the sync thread.
    #[doc(alias = "dmu_recv_end_check")]
    pub(super) fn check(&self, parts: &Parts, txg: Option<Txg>) -> Result<()> {
        let snapshot = &self.target.snapshot;
        if self.is_new {
            check_limits(parts, &self.dataset.dir, 1, Limited::Snapshots, None)?;
            return check_snapshot(parts, self.dataset, snapshot, txg);
        }
        let head = parts.tree.dataset_by_name(&self.target.dataset)?;
        check_replayed(parts, &head)?;
        if self.target.force {
            for snapshot in self.newer_snapshots(parts, &head)? {
                check_may_go(parts, &snapshot)?;
            }
        }
        check_swap(self.dataset, &head, self.target.force)?;
        // The hidden child goes, and with it a snapshot that was only kept by it.
        if is_origin_in_use(parts, self.dataset)? {
            return Err(error!(Busy, "'{}': the snapshot that the stream is incremental from is to be destroyed then, and is busy", self.target.dataset));
        }
        // One in the table of open object sets; while a group is written, the sync thread has one too.
        let is_used = || parts.objsets.is_open(&head) || parts.objsets.is_changed_later(head.object, &parts.meta.context.groups);
        if txg.is_some() && is_used() {
            return Err(error!(Busy, "'{}': dataset is busy", self.target.dataset));
        }
        check_limits(parts, &head.dir, 1, Limited::Snapshots, None)?;
        check_snapshot(parts, &head, snapshot, txg)
    }

    /// Does it. Checked before.
    #[doc(alias = "dmu_recv_end_sync")]
    pub(super) fn end_sync(&self, parts: &Parts, tx: &SyncTx<'_>) -> Result<()> {
        parts.record_dataset_event(self.dataset, "finish receiving", &format!("snap={}", self.target.snapshot), tx)?;
        if self.is_new {
            self.take_snapshot(parts, self.dataset, tx)?;
            return self.forget_resume_state(parts, tx);
        }
        let head = parts.tree.dataset_by_name(&self.target.dataset)?;
        if self.target.force {
            for snapshot in self.newer_snapshots(parts, &head)? {
                destroy_snapshot_sync(parts, &snapshot, tx)?;
            }
        }
        swap_heads_sync(parts, self.dataset, &head, tx)?;
        if let Some(key) = self.head.key()? {
            store_key_sync(parts, head.dir.crypto_key, &key, tx)?;
            if let Some(inherits) = self.target.inherits_key {
                place_root_sync(parts, &head, inherits, self.target.key_location.as_deref(), tx)?;
            }
        }
        self.take_snapshot(parts, &head, tx)?;
        destroy_head_sync(parts, self.dataset, tx)
    }

    /// The snapshots of the head that are newer than what the stream is incremental from, newest first.
    fn newer_snapshots(&self, parts: &Parts, head: &Arc<Dataset>) -> Result<Vec<Arc<Dataset>>> {
        let base = self.dataset.phys().prev_snapshot.get();
        let (mut found, mut at) = (Vec::new(), head.phys().prev_snapshot.get());
        while at != base {
            let snapshot = if at == 0 { None } else { Some(parts.tree.dataset(at)?) };
            let Some(snapshot) = snapshot.filter(|snapshot| snapshot.dir.object == head.dir.object) else {
                return Err(error!(Invalid, "'{}' does not come from the snapshot that the stream is incremental from", self.target.dataset));
            };
            at = snapshot.phys().prev_snapshot.get();
            found.push(snapshot);
        }
        Ok(found)
    }

    fn take_snapshot(&self, parts: &Parts, head: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
        let begin = &self.head.begin;
        let snapshot = snapshot_sync(parts, head, &self.target.snapshot, begin.creation_time, tx)?;
        snapshot.change(|state| {
            state.phys_mut().guid = begin.to_guid.into();
            state.phys_mut().flags &= !DATASET_FLAG_INCONSISTENT;
        });
        head.change(|state| state.phys_mut().flags &= !DATASET_FLAG_INCONSISTENT);
        if let Some(key) = self.head.key()?.filter(|key| key.to_ivset_guid != 0) {
            parts.meta.zapify(snapshot.object, tx)?;
            parts.meta.mos.zap_set_u64(snapshot.object, field::IVSET_GUID, key.to_ivset_guid, tx)?;
        }
        Ok(())
    }

    fn forget_resume_state(&self, parts: &Parts, tx: &SyncTx<'_>) -> Result<()> {
        if has_resume_state(parts, self.dataset.object)? {
            for name in RESUME_FIELDS {
                parts.meta.mos.zap_remove(self.dataset.object, name, tx)?;
            }
        }
        Ok(())
    }
}

/// Whether a snapshot can be destroyed for what is received.
fn check_may_go(parts: &Parts, snapshot: &Arc<Dataset>) -> Result<()> {
    let phys = snapshot.phys();
    let busy = |why: &str| error!(Busy, "cannot destroy '{}': {why}", snapshot.name().unwrap_or_default());
    if phys.user_holds.get() != 0 && parts.meta.mos.zap_count(phys.user_holds.get())? != 0 {
        return Err(busy("dataset is busy"));
    }
    if phys.children.get() > 1 {
        return Err(busy("snapshot has dependent clones"));
    }
    check_lists(parts, snapshot)?;
    if parts.objsets.is_open(snapshot) {
        return Err(busy("dataset is busy"));
    }
    Ok(())
}
