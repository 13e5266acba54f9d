//! Scrubs and resilvers: every block is read, and what is wrong or missing is written again.
//!
//! # Theory
//! A scan walks through all datasets, from the oldest snapshot of each to its head, and looks at each block where it was born: so a block that several
//! snapshots have is looked at once. A *scrub* reads every copy of each block; a *resilver* looks at blocks that were born while a device was away, as its
//! dirty time log says, and writes them there. Subtrees in which nothing is young enough are left out without being read.
//!
//! The work is done in the sync thread, a piece in each group: there the datasets are at rest, and no block that they have is given out to another before
//! the piece is done. So what is found wrong can be written over at once, and everything that is to be known of the scan is on disk at the end of the
//! group: where it is, and which datasets are left. A crash, an export, a dataset that is destroyed change nothing of that (`dsl/dead/scan_sync.rs`). A piece
//! lasts as long as nobody waits for the group, and a moment at the least.
//!
//! Blocks are found in the order of the tree, and read in that of the disks: a *window* of them is sorted, and several threads read it
//! while the next one is being found. What of a window is not begun with when somebody waits for the group is not read: the record goes back to the place where the window
//! began, if that is in the same dataset and behind the place where the piece began.
//!
//! # Why a resilver is complete
//! It covers the groups that were missed before it began. A block of such a group that is in use stays where it is, in a tree that is walked, until it is
//! freed. If it is cloned meanwhile, where the resilver has been, the dataset that has it then is looked at once more, for what it got in that group
//! (`datasets_sync.rs`). What a device
//! misses later is in its log beyond the groups covered, which are all that is taken out of the log; and nothing is, of a
//! device that was away meanwhile, nor the groups of blocks that could not be read or written.
//!
//! # On disk
//! [`ondisk::scan`]: in the MOS, as OpenZFS has it, so that each goes on with what the other began.
//!
//! # Invariants
//! 1. Between groups the record on disk is the truth; [`Scans`] has what is shown, and whether there is something to do.
//! 2. The place in the record is before every block that was found and not read.
//! 3. A dirty time log is only made shorter after what was written instead has been flushed.

use std::sync::Arc;

use super::sync::writer::GroupWriter;

pub(in crate::pool) mod budget;
mod datasets_sync;
mod begin_end_sync;
mod collect;
mod errors_sync;
mod event;
mod caught_up_sync;
mod piece_sync;
mod scans;
pub(in crate::pool) mod verbs;
mod window;

pub(in crate::pool) use errors_sync::sync as sync_errors;
pub(in crate::pool) use piece_sync::sync;
pub use verbs::ScrubOf;
pub use event::ScanEvent;
pub use scans::{Pace as ScanPace, ScanProgress};
pub(in crate::pool) use scans::Scans;

/// Devices have something to catch up with: a resilver begins, or begins anew, in the next group.
pub(in crate::pool) fn want_resilver(writer: &Arc<GroupWriter>) {
    if !writer.layers().is_read_only() {
        writer.scans().want_resilver();
        writer.hasten();
    }
}

/// Groups in which a resilver that is wanted begins, or never.
const GROUPS_UNTIL_BEGUN: u64 = 8;

/// As [`want_resilver`], and waits until it has begun: from then on it is shown, and can be waited for.
///
/// # Errors
/// What stopped the pool.
pub(in crate::pool) fn begin_resilver(writer: &Arc<GroupWriter>) -> crate::error::Result<()> {
    want_resilver(writer);
    for _ in 0..GROUPS_UNTIL_BEGUN {
        if writer.scans().resilver_wanted().is_none() || writer.scans().is_ending() {
            break;
        }
        writer.write_group()?;
    }
    Ok(())
}

/// Begins a scrub, in the sync thread, if nothing else is under way. Whether it has.
///
/// # Errors
/// The MOS cannot be changed.
pub(in crate::pool) fn begin_scrub_if_idle(writer: &GroupWriter, tx: &crate::dmu::SyncTx<'_>) -> crate::error::Result<bool> {
    if begin_end_sync::load_running(writer.layers())?.is_some() {
        return Ok(false);
    }
    begin_end_sync::begin(writer, 0, 0, tx)?;
    Ok(true)
}

/// Gives up a scrub that is under way, in the sync thread: a device is being filled.
///
/// # Errors
/// The MOS cannot be changed.
pub(in crate::pool) fn cancel_scrub(writer: &GroupWriter, tx: &crate::dmu::SyncTx<'_>) -> crate::error::Result<()> {
    match begin_end_sync::load_running(writer.layers())? {
        Some(running) if !begin_end_sync::is_resilvering(&running) => begin_end_sync::end(writer, running, begin_end_sync::End::Canceled, tx),
        _ => Ok(()),
    }
}

/// Has a device missed something that a resilver can bring it?
pub(in crate::pool) fn is_resilver_needed(layers: &super::layers::Layers) -> bool {
    caught_up_sync::is_any_needing(layers)
}

/// Is a resilver under way, or about to be?
#[doc(alias = "dsl_scan_resilver_scheduled")]
pub(in crate::pool) fn is_resilvering(writer: &GroupWriter) -> bool {
    let running = writer.scans().progress().is_some_and(|progress| begin_end_sync::is_resilvering(&progress.record));
    running || writer.scans().resilver_wanted().is_some()
}

/// The devices whose resilver begins when the one that is under way is done.
pub(in crate::pool) fn deferred(writer: &GroupWriter) -> Vec<u64> {
    let scans = writer.scans();
    let is_resilver = scans.progress().is_some_and(|progress| begin_end_sync::is_resilvering(&progress.record));
    if !is_resilver {
        return Vec::new();
    }
    let needing = caught_up_sync::needing(writer.layers());
    let waits = |guid: u64| scans.coverage(|coverage| coverage.begun_here && !coverage.devices.contains_key(&guid));
    needing.iter().filter(|(top, leaf)| waits(leaf.guid()) || caught_up_sync::is_deferred(top, leaf)).map(|(_, leaf)| leaf.guid()).collect()
}

/// Goes on with what was under way when the pool was closed, and begins what devices need.
///
/// # Errors
/// The record cannot be read.
pub(in crate::pool) fn open(writer: &Arc<GroupWriter>) -> crate::error::Result<()> {
    let layers = writer.layers();
    let record = begin_end_sync::load(layers)?;
    let is_resilver = record.as_ref().is_some_and(begin_end_sync::is_resilvering);
    writer.scans().open(record, layers.context.host.wall_clock().0);
    if !is_resilver && caught_up_sync::is_any_needing(layers) {
        writer.scans().want_resilver();
    }
    writer.scans().set_error_scrub(errors_sync::load(layers)?);
    if writer.scans().is_active() || writer.scans().is_scrubbing_errors() {
        writer.hasten();
    }
    Ok(())
}
