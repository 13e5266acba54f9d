//! `zpool initialize`, `zpool trim`, on one device.

use std::sync::Arc;
use std::time::Duration;

use super::record::{Record, WorkState};
use super::work::{Work, WorkKind};
use super::works::begin;
use crate::bail;
use crate::error::Result;
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::Parameter;
use crate::txg::Txg;

/// How long a thread is waited for that is to end: for what is under way on its device.
const ENDS_MAX: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(5);
/// Groups until what was freed may be allocated: those that are open, closing and syncing, and the ones for which it is kept.
const GROUPS_UNTIL_FREE: Txg = 5;

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkCommand {
    /// It begins, or goes on.
    Start {
        /// Bytes in a second, at the most; 0: no matter. Of a trim.
        rate: u64,
    },
    /// It is given up.
    Cancel,
    /// It stands still until it is started again.
    Suspend,
    /// That it was ever done is forgotten.
    Forget,
}

/// Looks whether it can be done, and does it; it is written with the next group.
///
/// # Errors
/// `NotFound`: there is no such device. `Invalid`: it cannot be written. `Busy`: it is under way. `Conflict`: it is not. `NotSupported`: the device knows
/// nothing of what is needed.
#[doc(alias("spa_vdev_initialize_impl", "spa_vdev_trim_impl"))]
pub(in crate::pool) fn command(writer: &Arc<GroupWriter>, guid: u64, kind: WorkKind, command: WorkCommand) -> Result<()> {
    let layers = writer.layers();
    if layers.is_read_only() || layers.space_maps.is_none() {
        bail!(ReadOnly, "it is read-only");
    }
    let Some((top, leaf)) = layers.vdevs.find_leaf(guid) else { bail!(NotFound, "no such device in pool") };
    if !leaf.is_open() {
        bail!(Invalid, "{}: {}", leaf.name(), leaf.state());
    }
    if matches!(command, WorkCommand::Start { .. }) && top.is_removing() {
        bail!(Busy, "{}: what is on it is being moved to other devices", leaf.name());
    }
    if kind == WorkKind::Trim && !leaf.can_trim() {
        bail!(NotSupported, "trim operations are not supported by this device");
    }
    if matches!(command, WorkCommand::Start { .. }) && !top.layout().has_ranges() {
        bail!(NotSupported, "{}: what is free while RAID-Z gets a device is not known by device", leaf.name());
    }
    let work = writer.works().of(&top, &leaf, kind);
    let now = layers.context.host.wall_clock().0;
    let begins_after = writer.uberblock().txg + GROUPS_UNTIL_FREE;
    match change(&work, command, now, layers.context.tunables.now(Parameter::TrimMetaslabSkip) != 0)? {
        Some(word) => {
            let (event, details) = (kind.event(), format!("vdev={} {word}", leaf.name()));
            layers.dsl.queue_task(move |dsl, tx| dsl.record_event(event, &details, tx))?;
        }
        None => {
            let details = format!("vdev={}", leaf.name());
            layers.dsl.queue_task(move |dsl, tx| dsl.record_event("uninitialize", &details, tx))?;
        }
    }
    if kind == WorkKind::Trim && matches!(command, WorkCommand::Start { .. }) {
        work.state.lock().begins_after = begins_after;
    }
    begin(writer, &work);
    // What was ended has ended.
    for _ in 0..ENDS_MAX {
        if work.state.lock().record.state == WorkState::Active || !work.state.lock().running {
            break;
        }
        layers.context.host.sleep(PAUSE);
    }
    Ok(())
}

/// Changes the record; returns the word for the history, if there is one.
fn change(work: &Arc<Work>, command: WorkCommand, now: u64, partial: bool) -> Result<Option<&'static str>> {
    let is_trim = work.kind == WorkKind::Trim;
    let mut state = work.state.lock();
    let before = state.record;
    let is_there = matches!(before.state, WorkState::Active | WorkState::Suspended);
    let none = if is_trim { "there is no active trim" } else { "there is no active initialization" };
    let at_it = if is_trim { "currently trimming" } else { "currently initializing" };
    let is_running = state.running || (before.state == WorkState::Active && !state.stop);
    let (next, word) = match command {
        WorkCommand::Start { .. } if is_running => bail!(Busy, "{at_it}"),
        WorkCommand::Forget if is_running => bail!(Busy, "{at_it}"),
        WorkCommand::Cancel if !is_there => bail!(Conflict, "{none}"),
        WorkCommand::Suspend if before.state != WorkState::Active => bail!(Conflict, "{none}"),
        WorkCommand::Start { rate } => {
            // A trim that was done or given up begins anew; an initialization goes on where it was, until it is forgotten.
            let anew = is_trim && matches!(before.state, WorkState::Complete | WorkState::Canceled);
            let kept = if anew { Record::default() } else { before };
            let rate = if rate != 0 { rate } else { kept.rate };
            (Record { state: WorkState::Active, rate, partial: kept.partial || (is_trim && partial), ..kept }, Some("activated"))
        }
        WorkCommand::Cancel => (Record { state: WorkState::Canceled, ..before }, Some("canceled")),
        WorkCommand::Suspend => (Record { state: WorkState::Suspended, ..before }, Some("suspended")),
        WorkCommand::Forget => (Record::default(), None),
    };
    // What is suspended says when it began.
    let time = if before.state == WorkState::Suspended { before.time } else { now };
    state.record = Record { time, ..next };
    state.unsaved = true;
    state.stop = false;
    Ok(word)
}
