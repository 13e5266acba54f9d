//! How rebuilds begin and end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ondisk::feature::Feature;
use ondisk::rebuild::{KEY, RebuildRecord, RebuildState};

use super::missed;
use super::rebuilds::Rebuild;
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::pool::devices::caught_up::caught_up;
use crate::pool::devices::distributed;
use crate::pool::layers::Layers;
use crate::pool::scan::{self, ScanEvent};
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::Parameter;
use crate::vdev::TopVdev;

pub(super) fn store(layers: &Layers, top: &TopVdev, record: &RebuildRecord, tx: &SyncTx<'_>) -> Result<()> {
    layers.mos().zap_set_numbers(top.zap(), KEY, &record.words(), tx)
}

fn record_event(layers: &Layers, top: &TopVdev, what: &str, tx: &SyncTx<'_>) -> Result<()> {
    layers.dsl.record_event("rebuild", &format!("vdev_id={} vdev_guid={} {what}", top.id(), top.guid()), tx)
}

/// A device has come to a vdev: all that it has missed is rebuilt. A rebuild that is under way there begins anew.
///
/// # Errors
/// The MOS cannot be changed.
#[doc(alias("vdev_rebuild_initiate_sync", "vdev_rebuild_reset_sync"))]
pub(in crate::pool) fn begin(writer: &GroupWriter, top: &Arc<TopVdev>, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    scan::cancel_scrub(writer, tx)?;
    let before = writer.rebuilds().get(top.id()).filter(|before| before.record.is_active());
    let (first, end) = missed(layers, top).unwrap_or((tx.txg(), tx.txg() + 1));
    let start_time = before.map_or_else(|| layers.context.host.wall_clock().0, |before| before.record.start_time);
    let estimate = layers.context.io.allocator().group(top.id() as u32)?.space_use().allocated;
    let record = RebuildRecord { state: RebuildState::Active, min_txg: first.saturating_sub(1), max_txg: end, start_time, estimate, ..RebuildRecord::default() };
    if before.is_none() {
        layers.meta().features.increment(layers.mos(), Feature::DeviceRebuild, tx)?;
        writer.scans().note_event(ScanEvent::sequential("resilver_start"));
    }
    top.leaves().iter().for_each(|leaf| leaf.stats.rebuild_processed.store(0, Ordering::Relaxed));
    store(layers, top, &record, tx)?;
    writer.rebuilds().set(top.id(), Rebuild::new(record, layers.context.host.now_ns()));
    record_event(layers, top, if before.is_some() { "reset" } else { "started" }, tx)
}

/// How a rebuild ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// All that is in use was passed.
    Complete,
    /// There is nothing left to be filled.
    Canceled,
}

/// Ends the rebuild of a vdev. What devices have now is taken out of what they have missed, and a scrub begins when it was the last.
#[doc(alias("vdev_rebuild_complete_sync", "vdev_rebuild_cancel_sync"))]
pub(super) fn end(writer: &GroupWriter, top: &Arc<TopVdev>, mut rebuild: Rebuild, how: End, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    let is_complete = how == End::Complete;
    top.release_writes();
    rebuild.record.state = if is_complete { RebuildState::Complete } else { RebuildState::Canceled };
    rebuild.record.end_time = layers.context.host.wall_clock().0;
    store(layers, top, &rebuild.record, tx)?;
    layers.meta().features.decrement(layers.mos(), Feature::DeviceRebuild, tx)?;
    record_event(layers, top, if is_complete { "complete" } else { "canceled" }, tx)?;
    if is_complete {
        settle(writer, top, &rebuild.record, tx)?;
    }
    writer.rebuilds().set(top.id(), rebuild);
    writer.scans().note_event(ScanEvent::sequential("resilver_finish"));
    if writer.rebuilds().is_active() {
        return Ok(());
    }
    if is_complete && layers.context.tunables.now(Parameter::RebuildScrubEnabled) != 0 {
        // Where a device lacks something still, it is a resilver.
        return scan::begin_scrub_if_idle(writer, tx).map(drop);
    }
    if scan::is_resilver_needed(layers) {
        writer.scans().want_resilver();
    }
    Ok(())
}

/// Shortens the logs of devices that have everything.
#[doc(alias = "vdev_dtl_reassess")]
fn settle(writer: &GroupWriter, top: &Arc<TopVdev>, record: &RebuildRecord, tx: &SyncTx<'_>) -> Result<()> {
    let (layers, configuration) = (writer.layers(), writer.configuration());
    // With a checkpoint devices stay: the pool may go back to a time when they were there.
    if record.errors > 0 || layers.meta().features.is_active(Feature::PoolCheckpoint) {
        return Ok(());
    }
    // What was written is durable before it counts.
    layers.context.io.flush()?;
    for leaf in top.leaves() {
        let missing = leaf.missing_txgs();
        // What it missed since the rebuild began may be any part of what was copied.
        if leaf.is_open() && missing.last().is_some_and(|(_, end)| *end <= record.max_txg) {
            leaf.caught_up(record.max_txg, &BTreeSet::new());
            configuration.set_dirty();
        }
    }
    for spare in distributed::filling(layers, top) {
        if spare.missed.last().is_none_or(|(_, end)| *end <= record.max_txg) {
            distributed::has_everything(layers, configuration, top, spare.guid, tx)?;
        }
    }
    caught_up(layers, configuration, tx)?;
    configuration.sync(layers.meta(), tx)
}

/// A resilver begins: what is told of the last rebuilds would be taken for it.
///
/// # Errors
/// The MOS cannot be changed.
#[doc(alias = "vdev_rebuild_clear_sync")]
pub(in crate::pool) fn forget_ended(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    for top in layers.vdevs.data_tops() {
        if writer.rebuilds().get(top.id()).is_some_and(|rebuild| !rebuild.record.is_active()) {
            writer.rebuilds().forget(top.id());
            top.leaves().iter().for_each(|leaf| leaf.stats.rebuild_processed.store(0, Ordering::Relaxed));
            if top.zap() != 0 {
                store(layers, &top, &RebuildRecord::default(), tx)?;
            }
        }
    }
    Ok(())
}
