//! The piece of a scan that is done in one group.

use std::sync::Arc;
use std::time::Duration;

use ondisk::feature::Feature;
use ondisk::scan::{ScanFunction, ScanRecord};

use super::begin_end_sync::{End, begin, end, is_resilvering, load_running, store};
use super::budget::Budget;
use super::caught_up_sync::{defer, is_served, missed_by_spares, needing, note_away};
use super::collect::{Collector, Places};
use super::datasets_sync::{Datasets, look_again_at_clones};
use super::window::Window;
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::pool::devices::caught_up::caught_up;
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::Parameter;
use crate::zio::ScanTally;

/// A scan that makes no progress, as a tunable says, takes so long in each group.
pub(super) const SUSPENDED: Duration = Duration::from_millis(50);

/// Does a piece of the scan that is under way, and begins the one that is wanted. In the first pass, when the datasets of the group are written.
#[doc(alias = "dsl_scan_sync")]
pub(in crate::pool) fn sync(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    let (layers, scans) = (writer.layers(), writer.scans());
    look_again_at_clones(layers, tx)?;
    if !scans.is_active() {
        return Ok(());
    }
    // A rebuild brings devices what they missed, and what it could not a resilver does, afterwards.
    if let Some(asked) = scans.resilver_wanted()
        && !writer.rebuilds().is_active()
        && begin_resilver(writer, tx)?
    {
        scans.answer(asked);
    }
    // What is being freed need not be looked at, and takes less time to free.
    let Some(record) = load_running(layers)?.filter(|record| !record.is_paused()) else { return Ok(()) };
    if scans.waits_for_frees(layers.dsl.has_background_frees()?) {
        return Ok(());
    }
    note_away(layers, scans);
    if layers.context.tunables.now(Parameter::ScanSuspendProgress) != 0 {
        layers.context.host.sleep(SUSPENDED);
        return Ok(());
    }
    let tally = Arc::new(ScanTally::new(record.function == ScanFunction::Scrub));
    let Some((mut record, is_done)) = go_through(writer, record, &tally, tx)? else { return Ok(()) };
    record.errors += tally.lost();
    record.processed += tally.repaired();
    note_wrong(writer, &tally);
    if !is_done {
        scans.advance(&record, 0, layers.context.host.now_ns());
        return store(layers, &record, tx);
    }
    end(writer, record, End::Complete, tx)
}

/// `None`: devices went away meanwhile; nothing that was found counts.
fn go_through(writer: &GroupWriter, record: ScanRecord, tally: &Arc<ScanTally>, tx: &SyncTx<'_>) -> Result<Option<(ScanRecord, bool)>> {
    let (layers, scans) = (writer.layers(), writer.scans());
    let (host, io) = (&layers.context.host, &layers.context.io);
    let collector = Collector {
        budget: Budget::new(layers, scans, tx.txg(), record.function),
        places: Places::after(record.bookmark),
        record,
        scans,
        io,
        window: Window::new(scans.readers(host), host, io, tally.clone(), scans.window()),
        done: 0,
    };
    let mut datasets = Datasets::new(layers, tx, collector)?;
    let is_walked = datasets.run()?;
    let is_done = datasets.collector.finish() && is_walked;
    note_away(layers, scans);
    if layers.vdevs.check_complete().is_err() {
        scans.forget_all_seen();
        return Ok(None);
    }
    Ok(Some((datasets.collector.record, is_done)))
}

fn note_wrong(writer: &GroupWriter, tally: &ScanTally) {
    let wrong = tally.wrong();
    writer.scans().coverage(|coverage| match wrong {
        Some(wrong) => {
            coverage.wrong.lost.extend(wrong.lost);
            coverage.wrong.refused.extend(wrong.refused);
        }
        None => coverage.too_many_wrong = true,
    });
}

/// Is so much of the scan done that another one waits for its end?
#[doc(alias = "zfs_resilver_defer_percent")]
fn is_far(writer: &GroupWriter) -> bool {
    let percent = u128::from(writer.layers().context.tunables.now(Parameter::ResilverDeferPercent));
    let progress = writer.scans().progress();
    progress.is_some_and(|progress| u128::from(progress.issued) * 100 >= u128::from(progress.record.to_examine.saturating_sub(progress.record.skipped)) * percent)
}

/// Devices need a resilver: it begins, instead of what is under way. Where one is under way already, it ends first, if the pool may wait for that.
/// `false`: it is put off.
fn begin_resilver(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<bool> {
    let (layers, scans) = (writer.layers(), writer.scans());
    let needing = needing(layers);
    let by_spares = missed_by_spares(layers);
    if needing.is_empty() && by_spares.is_empty() {
        caught_up(layers, writer.configuration(), tx)?;
        writer.configuration().sync(layers.meta(), tx)?;
        return Ok(true);
    }
    // What a device may have missed of groups that are not written yet.
    let last = needing.iter().flat_map(|(_, leaf)| leaf.missing_txgs()).chain(by_spares.iter().copied()).map(|(_, end)| end).max();
    if last.is_some_and(|last| last > tx.txg() + 1) && scans.postpone() {
        return Ok(false);
    }
    if let Some(running) = load_running(layers)? {
        let may_wait = layers.meta().features.is_enabled(Feature::ResilverDefer) && is_far(writer);
        let are_served = scans.coverage(|coverage| needing.iter().all(|(top, leaf)| is_served(top, leaf, coverage)));
        if is_resilvering(&running) && (may_wait || are_served) {
            // At its end the others are found to need another one.
            if layers.meta().features.is_enabled(Feature::ResilverDefer) {
                defer(writer, &running, tx)?;
            }
            return Ok(true);
        }
        end(writer, running, End::Restarting, tx)?;
    }
    begin(writer, 0, 0, tx).map(|()| true)
}
