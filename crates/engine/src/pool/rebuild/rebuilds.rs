//! What is in memory of the rebuilds of a pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::rebuild::{KEY, RebuildRecord};
use parking_lot::Mutex;

use crate::error::Result;
use crate::pool::sync::writer::GroupWriter;

/// The last rebuild of a vdev, as it is at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "vdev_rebuild_stat_t")]
pub struct RebuildProgress {
    /// The number of the vdev.
    pub vdev: u64,
    /// What is on disk of it, or will be with this group.
    pub record: RebuildRecord,
    /// For how long it is under way since the pool was imported or it began, in milliseconds.
    pub pass_time_ms: u64,
    /// Allocated bytes that were passed in that time.
    pub pass_scanned: u64,
    /// Of these, bytes where a device needed something.
    pub pass_issued: u64,
    /// Bytes where none did.
    pub pass_skipped: u64,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rebuild {
    pub(super) record: RebuildRecord,
    /// When this pass began, by the host's clock.
    pub(super) pass_start_ns: u64,
    /// How long it was under way before.
    pub(super) time_before_ms: u64,
    pub(super) pass_scanned: u64,
    pub(super) pass_issued: u64,
    pub(super) pass_skipped: u64,
}

impl Rebuild {
    /// That of this record, at this time.
    pub(super) fn new(record: RebuildRecord, now_ns: u64) -> Rebuild {
        Rebuild { record, pass_start_ns: now_ns, time_before_ms: record.scan_time_ms, pass_scanned: 0, pass_issued: 0, pass_skipped: 0 }
    }

    /// How long this pass takes already.
    fn pass_time_ms(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.pass_start_ns) / 1_000_000
    }

    /// Notes how long it is under way.
    pub(super) fn note_time(&mut self, now_ns: u64) {
        self.record.scan_time_ms = self.time_before_ms + self.pass_time_ms(now_ns);
    }
}

/// See the module.
#[derive(Default)]
pub(in crate::pool) struct Rebuilds {
    /// By the number of the vdev. guarded by: itself
    state: Mutex<BTreeMap<u64, Rebuild>>,
}

impl Rebuilds {
    pub(super) fn get(&self, vdev: u64) -> Option<Rebuild> {
        self.state.lock().get(&vdev).copied()
    }

    pub(super) fn set(&self, vdev: u64, rebuild: Rebuild) {
        self.state.lock().insert(vdev, rebuild);
    }

    pub(super) fn forget(&self, vdev: u64) {
        self.state.lock().remove(&vdev);
    }

    /// The vdevs that are being rebuilt.
    pub(super) fn active(&self) -> Vec<u64> {
        self.state.lock().iter().filter(|(_, rebuild)| rebuild.record.is_active()).map(|(vdev, _)| *vdev).collect()
    }

    /// Is some vdev being rebuilt?
    #[doc(alias = "vdev_rebuild_active")]
    pub(in crate::pool) fn is_active(&self) -> bool {
        self.state.lock().values().any(|rebuild| rebuild.record.is_active())
    }

    /// The last of each vdev.
    #[doc(alias = "vdev_rebuild_get_stats")]
    pub(in crate::pool) fn progress(&self, now_ns: u64) -> Vec<RebuildProgress> {
        let of = |(vdev, rebuild): (&u64, &Rebuild)| {
            let Rebuild { record, pass_scanned, pass_issued, pass_skipped, .. } = *rebuild;
            RebuildProgress { vdev: *vdev, record, pass_time_ms: rebuild.pass_time_ms(now_ns), pass_scanned, pass_issued, pass_skipped }
        };
        self.state.lock().iter().map(of).collect()
    }
}

/// Reads the records; what was under way goes on.
///
/// # Errors
/// The ZAP of a vdev cannot be read.
#[doc(alias("vdev_rebuild_load", "vdev_rebuild_restart"))]
pub(in crate::pool) fn open(writer: &Arc<GroupWriter>) -> Result<()> {
    let layers = writer.layers();
    for top in layers.vdevs.data_tops().into_iter().filter(|top| top.zap() != 0) {
        let stored = layers.mos().zap_get(top.zap(), KEY)?;
        if let Some(record) = stored.and_then(|value| RebuildRecord::from_words(&value.to_u64s())) {
            writer.rebuilds().set(top.id(), Rebuild::new(record, layers.context.host.now_ns()));
        }
    }
    if writer.rebuilds().is_active() && !layers.is_read_only() {
        writer.hasten();
    }
    Ok(())
}
