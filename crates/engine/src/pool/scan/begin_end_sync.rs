//! How scans begin, pause and end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::scan::{ScanFunction, ScanRecord, ScanState};

use super::event::ScanEvent;
use super::{caught_up_sync, deferred};
use crate::alloc::ClassKind;
use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::error::Result;
use crate::pool::{error_log_sync, rebuild};
use crate::pool::layers::Layers;
use crate::pool::removal;
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::Leaf;

/// Pool version from which the queue of a scan has a type of its own.
#[doc(alias = "SPA_VERSION_DSL_SCRUB")]
const VERSION_SCRUB: u64 = 11;

/// The record on disk.
pub(super) fn load(layers: &Layers) -> Result<Option<ScanRecord>> {
    Ok(layers.mos().zap_get(key::DIRECTORY, key::SCAN)?.and_then(|record| ScanRecord::from_words(&record.to_u64s())))
}

/// The record of a scan that is under way, or paused.
pub(super) fn load_running(layers: &Layers) -> Result<Option<ScanRecord>> {
    Ok(load(layers)?.filter(|record| record.state == ScanState::Scanning))
}

pub(super) fn store(layers: &Layers, record: &ScanRecord, tx: &SyncTx<'_>) -> Result<()> {
    layers.mos().zap_set_numbers(key::DIRECTORY, key::SCAN, &record.words(), tx)
}

/// Is it a resilver that is under way?
pub(super) fn is_resilvering(record: &ScanRecord) -> bool {
    record.function == ScanFunction::Resilver && record.state == ScanState::Scanning
}

fn allocated(layers: &Layers) -> u64 {
    let allocator = layers.context.io.allocator();
    [ClassKind::Normal, ClassKind::Special, ClassKind::Dedup].into_iter().map(|class| allocator.space_use(class).allocated).sum()
}

/// Begins a scrub of what was born after the group `after` and before `before` (0: up to now), or the resilver that devices need.
#[doc(alias = "dsl_scan_setup_sync")]
pub(super) fn begin(writer: &GroupWriter, after: u64, before: u64, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    let needing = caught_up_sync::needing(layers);
    let mut missed: Vec<(u64, u64)> = needing.iter().flat_map(|(_, leaf)| leaf.missing_txgs()).collect();
    missed.extend(caught_up_sync::missed_by_spares(layers));
    caught_up_sync::clear_deferred(writer, tx)?;
    let first = missed.iter().map(|(start, _)| start.saturating_sub(1)).min();
    // What was moved to a device later than it was born may be as old as the pool.
    let first = match first {
        Some(first) if removal::was_copied_after(layers, first)? => Some(0),
        first => first,
    };
    let (function, min_txg) = first.map_or((ScanFunction::Scrub, after), |first| (ScanFunction::Resilver, first));
    // All of a group that is written already is in the trees.
    let max_txg = missed.iter().map(|(_, end)| (*end).min(tx.txg() + 1)).max().unwrap_or(if before == 0 { tx.txg() } else { before });
    let kind = if layers.meta().version() < VERSION_SCRUB { ObjectType::ZAP_OTHER } else { ObjectType::SCAN_QUEUE };
    let queue = layers.mos().zap_create(kind, tx)?;
    let mut record = ScanRecord::new(function, queue, min_txg, max_txg);
    record.start_time = layers.context.host.wall_clock().0;
    record.to_examine = allocated(layers);
    store(layers, &record, tx)?;
    layers.shared.iter().for_each(|shared| shared.begin_scan());
    layers.vdevs.leaves().iter().for_each(|leaf| leaf.stats.scan_processed.store(0, Ordering::Relaxed));
    layers.mos().zap_remove(key::DIRECTORY, key::ERROR_SCRUB, tx)?;
    writer.scans().set_error_scrub(None);
    // Damage may be there, too.
    writer.configuration().write_labels();
    let event = if function == ScanFunction::Resilver { ScanEvent::healing("resilver_start") } else { ScanEvent::of_scrub("scrub_start") };
    if function == ScanFunction::Resilver {
        rebuild::forget_ended(writer, tx)?;
    }
    let flushes = |leaf: &Arc<Leaf>| (leaf.guid(), leaf.failed_flushes());
    let of_needing = needing.iter().map(|(_, leaf)| flushes(leaf)).collect();
    writer.scans().begin(&record, (of_needing, layers.vdevs.leaves().iter().map(flushes).collect()), event);
    let details = format!("func={} mintxg={min_txg} maxtxg={max_txg}", function.number());
    layers.dsl.record_event("scan setup", &details, tx)
}

/// How a scan ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It has seen everything.
    Complete,
    /// An administrator has had enough.
    Canceled,
    /// Another one begins instead.
    Restarting,
}

/// Ends the scan of this record. If a device needs another resilver, that begins with the next group.
#[doc(alias = "dsl_scan_done")]
pub(super) fn end(writer: &GroupWriter, mut record: ScanRecord, how: End, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    if record.queue != 0 {
        layers.mos().free(record.queue, tx)?;
        record.queue = 0;
    }
    record.set_paused(false);
    let event = match how {
        End::Restarting => "scan aborted, restarting",
        End::Canceled => "scan cancelled",
        End::Complete => "scan done",
    };
    layers.dsl.record_event(event, &format!("errors={}", error_log_sync::count(layers)?), tx)?;
    let mut again = false;
    let is_complete = how == End::Complete;
    if is_complete {
        if record.function == ScanFunction::Scrub {
            let last = layers.mos().zap_u64(key::DIRECTORY, key::LAST_SCRUBBED_TXG)?.unwrap_or(0);
            // A scrub of some days may have left out what is between these and the last one.
            if record.min_txg <= last {
                layers.mos().zap_set_u64(key::DIRECTORY, key::LAST_SCRUBBED_TXG, record.max_txg.max(last), tx)?;
            }
        }
        // What was freed and a checkpoint keeps was not looked at.
        if !layers.meta().features.is_active(Feature::PoolCheckpoint) {
            again = caught_up_sync::settle(writer, &record, tx)?;
        }
    }
    error_log_sync::rotate(layers, tx)?;
    if layers.meta().features.is_enabled(Feature::ResilverDefer) && !deferred(writer).is_empty() {
        layers.dsl.record_event("starting deferred resilver", &format!("errors={}", error_log_sync::count(layers)?), tx)?;
    }
    caught_up_sync::clear_deferred(writer, tx)?;
    record.state = if is_complete { ScanState::Finished } else { ScanState::Canceled };
    record.end_time = layers.context.host.wall_clock().0;
    store(layers, &record, tx)?;
    let event = match (is_complete, record.function) {
        (true, ScanFunction::Scrub) => ScanEvent::of_scrub("scrub_finish"),
        (true, ScanFunction::Resilver) => ScanEvent::healing("resilver_finish"),
        (false, _) => ScanEvent::of_scrub("scrub_abort"),
    };
    // So nobody finds neither the one nor the other under way.
    if again {
        writer.scans().want_resilver();
    }
    writer.scans().end(&record, event);
    Ok(())
}
