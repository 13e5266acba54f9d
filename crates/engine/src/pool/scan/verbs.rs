//! What an administrator can do with scans: `zpool scrub`, `zpool resilver`.

use std::sync::Arc;

use ondisk::feature::Feature;
use ondisk::scan::{ScanFunction, ScanRecord};

use super::begin_end_sync::{End, begin, end, load_running, store};
use super::caught_up_sync::needing;
use crate::bail;
use crate::dsl::SpaceCheck;
use crate::dsl::meta::key;
use crate::error::Result;
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;

/// Blocks of the MOS that change, about.
const BLOCKS: u64 = 8;

/// Begins a scrub, or goes on with one that is paused. `from_last`: only what was born since the last one that has seen all.
///
/// # Errors
/// `Busy`: a scan is under way; the pool is read-only or has stopped.
pub(in crate::pool) fn scrub(writer: &Arc<GroupWriter>, from_last: bool) -> Result<()> {
    let (checked, done) = (writer.clone(), writer.clone());
    let check = move |_: &Arc<crate::dsl::Dsl>| match load_running(checked.layers())? {
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
        let after = if from_last { layers.mos().zap_u64(key::DIRECTORY, key::LAST_SCRUBBED_TXG)?.unwrap_or(0) } else { 0 };
        begin(&done, after, tx)
    })
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

/// Gives up the scrub that is under way.
///
/// # Errors
/// `NotFound`: there is none; `Busy`: it is a resilver.
pub(in crate::pool) fn stop(writer: &Arc<GroupWriter>) -> Result<()> {
    let (checked, done) = (writer.clone(), writer.clone());
    let check = move |_: &Arc<crate::dsl::Dsl>| match load_running(checked.layers())? {
        None => bail!(NotFound, "there is no active scrub"),
        Some(running) if running.function == ScanFunction::Resilver => refuse(Some(&running)),
        Some(_) => Ok(()),
    };
    writer.layers().dsl.run_task(BLOCKS, SpaceCheck::Reserved, check, move |_, tx| match load_running(done.layers())? {
        Some(running) => end(&done, running, End::Canceled, tx),
        None => Ok(()),
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
        if needing(done.layers()).is_empty() {
            return Ok(());
        }
        if let Some(running) = load_running(done.layers())? {
            end(&done, running, End::Restarting, tx)?;
        }
        begin(&done, 0, tx)
    })
}
