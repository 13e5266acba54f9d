//! What an administrator can do with scans: `zpool scrub`, `zpool resilver`.

use std::sync::Arc;

use ondisk::feature::Feature;
use ondisk::error_scrub::{ErrorScrubRecord, ErrorScrubState};
use ondisk::scan::{ScanFunction, ScanRecord};
use ondisk::time_log::Rounding;

use super::errors_sync;
use super::event::ScanEvent;
use super::begin_end_sync::{End, begin, end, load_running, store};
use super::caught_up_sync::is_any_needing;
use crate::bail;
use crate::dsl::SpaceCheck;
use crate::dsl::meta::key;
use crate::error::Result;
use crate::pool::error_log_sync;
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;

/// Blocks of the MOS that change, about.
const BLOCKS: u64 = 8;

/// What of a pool is scrubbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubOf {
    /// Everything.
    All,
    /// What was born since the last scrub that has seen all.
    SinceLast,
    /// What was written between these two times, in seconds since 1970; 0: from the beginning, or up to now.
    Between(u64, u64),
}

/// The groups between which blocks were born that are scrubbed; the second is 0: up to now.
fn groups_of(writer: &GroupWriter, what: ScrubOf) -> Result<(u64, u64)> {
    let find = |time: u64, rounding| if time == 0 { 0 } else { writer.times().find(time, rounding) };
    Ok(match what {
        ScrubOf::All => (0, 0),
        ScrubOf::SinceLast => (writer.layers().mos().zap_u64(key::DIRECTORY, key::LAST_SCRUBBED_TXG)?.unwrap_or(0), 0),
        ScrubOf::Between(start, end) => (find(start, Rounding::Down), find(end, Rounding::Up)),
    })
}

/// Begins a scrub, or goes on with one that is paused.
///
/// # Errors
/// `Busy`: a scan is under way; the pool is read-only or has stopped.
pub(in crate::pool) fn scrub(writer: &Arc<GroupWriter>, what: ScrubOf) -> Result<()> {
    let (checked, done) = (writer.clone(), writer.clone());
    let check = move |_: &Arc<crate::dsl::Dsl>| match load_running(checked.layers())? {
        _ if checked.rebuilds().is_active() => bail!(Busy, "currently resilvering"),
        None if is_scrubbing_errors(&checked) => refuse_errors(&checked),
        Some(running) if is_paused_scrub(&running) => Ok(()),
        running => refuse(running.as_ref()),
    };
    writer.layers().dsl.run_task(BLOCKS, SpaceCheck::ExtraReserved, check, move |_, tx| {
        let layers = done.layers();
        if let Some(mut paused) = load_running(layers)? {
            paused.set_paused(false);
            done.scans().set_paused(&paused, layers.context.host.wall_clock().0);
            return store(layers, &paused, tx);
        }
        let (after, before) = groups_of(&done, what)?;
        begin(&done, after, before, tx)
    })
}

fn is_scrubbing_errors(writer: &GroupWriter) -> bool {
    writer.scans().error_scrub().is_some_and(|record| record.is_running())
}

/// Says that an error scrub is under way, if it is.
fn refuse_errors(writer: &GroupWriter) -> Result<()> {
    match writer.scans().error_scrub().filter(|record| record.is_running()) {
        None => Ok(()),
        Some(running) if running.is_paused => bail!(Busy, "error scrub is paused; use 'zpool scrub -e' to resume error scrub"),
        Some(_) => bail!(Busy, "currently error scrubbing; use 'zpool scrub -s' to cancel error scrub"),
    }
}

/// Begins an error scrub, or goes on with one that is paused.
///
/// # Errors
/// `Busy`: a scan is under way; the pool is read-only or has stopped. `NotSupported`: the pool does not note the heads that damaged blocks are of.
pub(in crate::pool) fn scrub_errors(writer: &Arc<GroupWriter>) -> Result<()> {
    if !writer.layers().meta().features.is_enabled(Feature::HeadErrlog) {
        bail!(NotSupported, "an error scrub needs the feature head_errlog");
    }
    if !is_scrubbing_errors(writer) && error_log_sync::damaged(writer.layers())?.is_empty() {
        return refuse(load_running(writer.layers())?.as_ref());
    }
    let (checked, done) = (writer.clone(), writer.clone());
    let check = move |_: &Arc<crate::dsl::Dsl>| {
        if checked.rebuilds().is_active() {
            bail!(Busy, "currently resilvering");
        }
        refuse(load_running(checked.layers())?.as_ref())?;
        if checked.scans().error_scrub().is_some_and(|record| record.is_paused) { Ok(()) } else { refuse_errors(&checked) }
    };
    writer.layers().dsl.run_task(BLOCKS, SpaceCheck::ExtraReserved, check, move |_, tx| {
        match done.scans().error_scrub().filter(|record| record.is_running()) {
            Some(paused) => {
                done.scans().note_event(ScanEvent::of_scrub("errorscrub_resume"));
                errors_sync::store(&done, ErrorScrubRecord { is_paused: false, ..paused }, tx)
            }
            None => errors_sync::begin(&done, tx),
        }
    })?;
    writer.hasten();
    Ok(())
}

fn running_scrub(layers: &Layers) -> Result<Option<ScanRecord>> {
    Ok(load_running(layers)?.filter(|running| running.function == ScanFunction::Scrub))
}

fn is_paused_scrub(record: &ScanRecord) -> bool {
    record.function == ScanFunction::Scrub && record.is_paused()
}

/// Says what is under way, if something is.
fn refuse(running: Option<&ScanRecord>) -> Result<()> {
    match running {
        None => Ok(()),
        Some(running) if running.function == ScanFunction::Resilver => bail!(Busy, "currently resilvering"),
        Some(running) if running.is_paused() => bail!(Busy, "scrub is paused; use 'zpool scrub' to resume scrub"),
        Some(_) => bail!(Busy, "currently scrubbing; use 'zpool scrub -s' to cancel scrub"),
    }
}

/// Pauses the scrub that is under way; if there is none, nothing happens.
///
/// # Errors
/// `Busy`: it is paused already.
pub(in crate::pool) fn pause(writer: &Arc<GroupWriter>) -> Result<()> {
    if is_scrubbing_errors(writer) {
        return pause_errors(writer);
    }
    if running_scrub(writer.layers())?.is_none() {
        return Ok(());
    }
    let (checked, done) = (writer.clone(), writer.clone());
    let check = move |_: &Arc<crate::dsl::Dsl>| refuse(running_scrub(checked.layers())?.filter(ScanRecord::is_paused).as_ref());
    writer.layers().dsl.run_task(BLOCKS, SpaceCheck::Reserved, check, move |_, tx| {
        let layers = done.layers();
        let Some(mut running) = running_scrub(layers)? else { return Ok(()) };
        running.set_paused(true);
        done.scans().set_paused(&running, layers.context.host.wall_clock().0);
        store(layers, &running, tx)
    })
}

fn pause_errors(writer: &Arc<GroupWriter>) -> Result<()> {
    let (checked, done) = (writer.clone(), writer.clone());
    let check = move |_: &Arc<crate::dsl::Dsl>| if checked.scans().error_scrub().is_some_and(|record| record.is_paused) { refuse_errors(&checked) } else { Ok(()) };
    writer.layers().dsl.run_task(BLOCKS, SpaceCheck::Reserved, check, move |_, tx| {
        let Some(running) = done.scans().error_scrub().filter(|record| record.is_running()) else { return Ok(()) };
        done.scans().note_event(ScanEvent::of_scrub("errorscrub_paused"));
        errors_sync::store(&done, ErrorScrubRecord { is_paused: true, ..running }, tx)
    })
}

/// Gives up the scrub that is under way.
///
/// # Errors
/// `NotFound`: there is none; `Busy`: it is a resilver.
pub(in crate::pool) fn stop(writer: &Arc<GroupWriter>) -> Result<()> {
    let (checked, done) = (writer.clone(), writer.clone());
    let check = move |_: &Arc<crate::dsl::Dsl>| match load_running(checked.layers())? {
        _ if is_scrubbing_errors(&checked) => Ok(()),
        None => bail!(NotFound, "there is no active scrub"),
        Some(running) if running.function == ScanFunction::Resilver => refuse(Some(&running)),
        Some(_) => Ok(()),
    };
    writer.layers().dsl.run_task(BLOCKS, SpaceCheck::Reserved, check, move |_, tx| {
        if let Some(errors) = done.scans().error_scrub().filter(|record| record.is_running()) {
            return errors_sync::end(&done, errors, ErrorScrubState::Canceled, tx);
        }
        match load_running(done.layers())? {
            Some(running) => end(&done, running, End::Canceled, tx),
            None => Ok(()),
        }
    })
}

/// Begins anew what devices need (`zpool resilver`).
///
/// # Errors
/// `NotSupported`: the pool has not the feature for it; the pool is read-only or has stopped.
pub(in crate::pool) fn resilver(writer: &Arc<GroupWriter>) -> Result<()> {
    if !writer.layers().meta().features.is_enabled(Feature::ResilverDefer) {
        bail!(NotSupported, "this action requires the resilver_defer feature");
    }
    let done = writer.clone();
    writer.layers().dsl.run_task(BLOCKS, SpaceCheck::Reserved, |_| Ok(()), move |_, tx| {
        if !is_any_needing(done.layers()) || done.rebuilds().is_active() {
            return Ok(());
        }
        if let Some(running) = load_running(done.layers())? {
            end(&done, running, End::Restarting, tx)?;
        }
        begin(&done, 0, 0, tx)
    })
}
