//! RAID-Z that gets a device more: its sectors are moved, from the first to the last, over all devices.
//!
//! # Theory
//! How blocks lie then, and while sectors are being moved: `vdev/map/expanded.rs`. Sectors are copied as they are, whatever they belong to; only what is free is left out.
//! The new place of a sector is the old place of one before it. So sectors may only be moved as long as what they are written over was moved in a group that is on disk, whose
//! uberblock says so: from the offset `synced` on, until the new places reach the old ones of the row in front of it. Each group moves more than the last, as places grow apart.
//!
//! The work is done in the sync thread, a piece in each group. While a range is moved nobody reads or writes it (`vdev/members/moving.rs`); what is written to it afterwards goes to both
//! places, until the group is on disk. After a crash the last uberblock says where the sectors are, and what it does not know of is moved once more, from places that nothing was written over.
//!
//! The first sectors have no such distance. They are put into the *scratch area* in front of the data, in the places that they will have there; when that is on disk, an
//! uberblock says so; then they are written to their places; when that is on disk, another uberblock says so. Both uberblocks are that of the last group with another time:
//! nothing else has changed. If the power goes in between, the pool is read from the scratch area, and an import that may write begins with writing the places ([`scratch`]).
//!
//! When all is moved, blocks of the groups from then on are as wide as there are devices. Which devices hold what has not been looked at while it was copied: so a scrub begins.
//!
//! A device that cannot be read or written, or misses something, makes it wait: what it lacks nobody could copy. Where a sector cannot be read, a scrub begins by itself: it mends what blocks
//! have, and what no block has is left out.
//!
//! # On disk
//! The uberblock has the offset, and what has become of the scratch area; the description of the vdev `raidz_expanding` while it goes on, and afterwards the group from
//! which on blocks are wider; the vdev's ZAP what is shown to users.
//!
//! # Invariants
//! 1. A place is written over only when the uberblock on disk, of which every copy may be the one that is found, says that its sector is elsewhere.
//! 2. Nothing is moved, and no uberblock says anything of it, before a group is on disk whose description of the vdev has the new device.
//! 3. Every uberblock says how far sectors are moved, until one does that goes with a description which does not need it.

use std::sync::Arc;

use ondisk::uberblock::{RaidzReflow, ScratchState};
use parking_lot::Mutex;

use super::layers::Layers;
use super::sync::writer::GroupWriter;
use crate::error::Result;
use crate::vdev::{Moves, TopVdev, VdevKind};

pub(in crate::pool) mod begin_end_sync;
mod copy;
mod piece_sync;
mod scratch;

pub(in crate::pool) use piece_sync::sync;

/// Names in the ZAP of a vdev.
mod key {
    pub(super) const STATE: &str = "org.openzfs:raidz_expand_state";
    pub(super) const START_TIME: &str = "org.openzfs:raidz_expand_start_time";
    pub(super) const END_TIME: &str = "org.openzfs:raidz_expand_end_time";
    pub(super) const BYTES_COPIED: &str = "org.openzfs:raidz_expand_bytes_copied";
}

/// The states in which it may be.
const SCANNING: u64 = 1;
const FINISHED: u64 = 2;

/// What is shown of an expansion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "pool_raidz_expand_stat_t")]
pub struct ExpansionProgress {
    /// The vdev.
    pub vdev: u64,
    /// It is at its end.
    pub is_done: bool,
    /// When it began, in seconds since 1970.
    pub start_time: u64,
    /// When it ended; 0: it has not.
    pub end_time: u64,
    /// Bytes to move.
    pub to_move: u64,
    /// Bytes moved.
    pub moved: u64,
    /// It waits for devices to be repaired.
    pub waits: bool,
}

/// What is in memory of an expansion.
#[derive(Default)]
pub(in crate::pool) struct Expansion {
    /// guarded by: itself
    state: Mutex<State>,
}

#[derive(Default, Clone)]
struct State {
    /// The vdev that is being expanded.
    top: Option<Arc<TopVdev>>,
    /// What the next uberblock says.
    reflow: RaidzReflow,
    progress: Option<ExpansionProgress>,
    /// The last group could do nothing.
    is_stuck: bool,
    /// The group in which it began: what says so is not on disk before that is.
    begun: u64,
    /// The group in which a scrub began because sectors could not be read; 0: all could.
    unreadable_since: u64,
}

impl Expansion {
    /// The vdev that is being expanded, and where its sectors are.
    fn running(&self) -> Option<(Arc<TopVdev>, Arc<Moves>)> {
        let top = self.state.lock().top.clone()?;
        let moves = top.moves()?.clone();
        Some((top, moves))
    }

    /// Is there something to do in the next group?
    pub(in crate::pool) fn is_active(&self) -> bool {
        self.state.lock().top.is_some()
    }

    /// What the uberblock of the group that is being written has to say.
    pub(in crate::pool) fn reflow(&self) -> RaidzReflow {
        self.state.lock().reflow
    }

    fn set_reflow(&self, scratch: ScratchState, offset: u64) {
        self.state.lock().reflow = RaidzReflow::new(scratch, offset);
    }

    fn change_progress(&self, change: impl FnOnce(&mut ExpansionProgress)) {
        if let Some(progress) = &mut self.state.lock().progress {
            change(progress);
        }
    }

    /// What is to be shown: of the one under way, or the last.
    pub(in crate::pool) fn progress(&self, layers: &Layers) -> Option<ExpansionProgress> {
        let mut progress = self.state.lock().progress?;
        let maps = layers.space_maps.as_ref();
        progress.to_move = maps.and_then(|maps| maps.allocated(progress.vdev as u32).ok()).unwrap_or(progress.moved);
        Some(progress)
    }
}

/// Goes on with what was under way when the pool was closed. Before anything is written to the pool.
///
/// # Errors
/// What is in the scratch area cannot be put into its place.
pub(in crate::pool) fn open(writer: &Arc<GroupWriter>) -> Result<()> {
    let (layers, expansion) = (writer.layers(), writer.expansion());
    let mos = layers.mos();
    let mut last: Option<ExpansionProgress> = None;
    for top in layers.vdevs.data_tops().into_iter().filter(|top| top.kind() == VdevKind::Raidz && top.zap() != 0) {
        let number = |name| mos.zap_u64(top.zap(), name);
        let Some(state) = number(key::STATE)? else { continue };
        let [start_time, end_time, moved] = [key::START_TIME, key::END_TIME, key::BYTES_COPIED].map(|name| number(name).ok().flatten().unwrap_or(0));
        let found = ExpansionProgress { vdev: top.id(), is_done: state != SCANNING, start_time, end_time, to_move: 0, moved, waits: false };
        if last.is_none_or(|last| last.is_done && (!found.is_done || last.end_time < end_time)) {
            last = Some(found);
        }
    }
    let expanding = layers.vdevs.data_tops().into_iter().find(|top| top.config().is_expanding());
    *expansion.state.lock() = State { reflow: writer.uberblock().raidz_reflow, top: expanding.clone(), progress: last, ..State::default() };
    if let Some(top) = expanding
        && !layers.is_read_only()
    {
        if writer.uberblock().raidz_reflow.is_in_scratch() {
            scratch::restore(writer, &top)?;
        }
        writer.hasten();
    }
    Ok(())
}

/// The group is on disk, and so is what its uberblock says of the sectors that were moved.
pub(in crate::pool) fn committed(writer: &GroupWriter) {
    let expansion = writer.expansion();
    let Some((top, moves)) = expansion.running() else { return };
    let Some(reflow) = moves.reflow() else { return };
    let said = expansion.reflow().offset();
    if said > reflow.synced {
        // A row that ends behind what was known so far is read where it was.
        let row = top.leaves().len() as u64 * (1 << top.ashift());
        if let Some(moving) = moves.begin(reflow.synced.saturating_sub(row)..said) {
            moving.set(Some(crate::vdev::map::Reflow { synced: said, ..reflow }));
        }
    }
    if !expansion.state.lock().is_stuck {
        writer.hasten();
    }
}
