//! The piece of an expansion that is done in one group.

use std::sync::Arc;

use ondisk::scan::{ScanFunction, ScanState};
use ondisk::uberblock::ScratchState;

use super::copy::Children;
use super::{begin_end_sync, key, scratch};
use crate::alloc::RangeTree;
use crate::bail;
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::pool::devices::dirty_time_log::moved::make_durable;
use crate::pool::scan::{self, ScanProgress};
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::Parameter;
use crate::vdev::map::Reflow;
use crate::vdev::{Moves, TopVdev};

/// A piece lasts no longer than this while somebody waits for the group, and in no case longer than that.
const WAITED_NS: u64 = 50_000_000;
const LONGEST_NS: u64 = 2_000_000_000;

/// Moves some sectors, in the first pass, when the datasets of the group are written.
///
/// # Errors
/// What stops the pool.
pub(in crate::pool) fn sync(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    let expansion = writer.expansion();
    let Some((top, moves)) = expansion.running() else { return Ok(()) };
    if expansion.state.lock().begun >= tx.txg() {
        return Ok(());
    }
    let Some(reflow) = moves.reflow() else { return Ok(()) };
    let end = top.metaslab_count() << top.metaslab_shift();
    let moved = if reflow.synced >= end {
        begin_end_sync::end(writer, &top, &moves, end, tx)?
    } else {
        step(writer, &top, &moves, (reflow, end), tx)?
    };
    expansion.state.lock().is_stuck = !moved;
    Ok(())
}

/// Whether sectors were moved.
fn step(writer: &GroupWriter, top: &Arc<TopVdev>, moves: &Moves, (reflow, end): (Reflow, u64), tx: &SyncTx<'_>) -> Result<bool> {
    let expansion = writer.expansion();
    let children = Children::whole(top);
    let Some(mut children) = children else {
        expansion.change_progress(|progress| progress.waits = true);
        return Ok(false);
    };
    if all_is_scrubbed(writer) {
        children.left_out_max = top.layout().columns().1;
    }
    let most = writer.layers().context.tunables.now(Parameter::ExpandBytesMax);
    let copied = || expansion.state.lock().progress.map_or(0, |progress| progress.moved);
    if most != 0 && copied() >= most {
        return Ok(false);
    }
    let moved = if reflow.moved == 0 {
        scratch::move_first(writer, top, moves, &children)?
    } else {
        Piece { writer, top, moves, children: &children, tx }.run(reflow, end)?
    };
    let waits = !moved && reflow.moved == reflow.synced;
    expansion.change_progress(|progress| progress.waits = waits);
    if waits {
        have_scrubbed(writer, tx)?;
    }
    if moved {
        make_durable(writer, top, &children.leaves)?;
        writer.layers().mos().zap_set_u64(top.zap(), key::BYTES_COPIED, copied(), tx)?;
    }
    // What is moved already waits for a group to be on disk.
    Ok(moved || reflow.moved > reflow.synced)
}

/// A sector that cannot be read may be one that no block has, as between the blocks of RAID-Z. Nothing is ever written there to mend it, and the expansion would
/// wait for ever. So a scrub decides, which begins by itself: what it has read since then, and mended, blocks have; what still cannot be read is left out.
fn all_is_scrubbed(writer: &GroupWriter) -> bool {
    let since = writer.expansion().state.lock().unreadable_since;
    let Some(ScanProgress { record, .. }) = writer.scans().progress() else { return false };
    let is_whole = record.function == ScanFunction::Scrub && record.min_txg == 0 && record.errors == 0;
    since > 0 && is_whole && record.state == ScanState::Finished && record.max_txg >= since
}

/// Nothing could be moved: a scrub is to look at all of it, once. What is under way comes first: the next group tries again.
fn have_scrubbed(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    let is_asked = writer.expansion().state.lock().unreadable_since != 0;
    if !is_asked && !scan::is_resilver_needed(writer.layers()) && scan::begin_scrub_if_idle(writer, tx)? {
        writer.expansion().state.lock().unreadable_since = tx.txg();
    }
    Ok(())
}

struct Piece<'a> {
    writer: &'a GroupWriter,
    top: &'a Arc<TopVdev>,
    moves: &'a Moves,
    children: &'a Children,
    tx: &'a SyncTx<'a>,
}

impl Piece<'_> {
    /// Moves sectors from where that was done last, one range after the other, as far as it may go. Whether it has.
    fn run(&self, reflow: Reflow, end: u64) -> Result<bool> {
        let ashift = self.top.ashift();
        let limit = (self.children.limit(reflow.synced >> ashift) << ashift).min(end);
        let metaslab = 1 << self.top.metaslab_shift();
        let began = self.now();
        let Some(maps) = &self.writer.layers().space_maps else { bail!(ReadOnly, "the space maps are not open") };
        let mut moved = reflow.moved;
        while moved < limit {
            // A metaslab at a time: its free space is looked at while nobody uses it.
            let until = limit.min((moved / metaslab + 1) * metaslab);
            // Before the range is kept free: its space map may lie there.
            if let Err(error) = maps.bring_in(self.top.id() as u32, moved) {
                tracing::warn!(%error, "what is free in a metaslab is not known: all of it is moved");
            }
            let Some(moving) = self.moves.begin(moved..until) else { break };
            let used = maps.not_free_in_memory(self.top.id() as u32, moved, until)?;
            let reached = self.move_all(&used, until, began)?;
            moving.set(Some(Reflow { moved: reached, ..reflow }));
            drop(moving);
            let stopped = reached < until;
            moved = reached;
            if stopped || self.is_over(began) {
                break;
            }
        }
        if moved > reflow.moved {
            self.writer.expansion().set_reflow(ScratchState::SyncedReflow, moved);
        }
        Ok(moved > reflow.moved)
    }

    /// Moves what is in use of a range, and returns how far it came: not to the end, if a device fails or it takes long.
    fn move_all(&self, used: &RangeTree, end: u64, began: u64) -> Result<u64> {
        let ashift = self.top.ashift();
        for (offset, size) in used.segments() {
            let (mut sector, last) = (offset >> ashift, (offset + size) >> ashift);
            while sector < last {
                let next = last.min(sector + self.children.chunk());
                if let Err(error) = self.children.copy(sector..next) {
                    tracing::warn!(%error, "sectors could not be moved: the expansion waits, for a scrub if they cannot be read");
                    return Ok(sector << ashift);
                }
                self.writer.expansion().change_progress(|progress| progress.moved += (next - sector) << ashift);
                sector = next;
                if self.is_over(began) {
                    return Ok(sector << ashift);
                }
            }
        }
        Ok(end)
    }

    fn now(&self) -> u64 {
        self.writer.layers().context.host.now_ns()
    }

    fn is_over(&self, began: u64) -> bool {
        let (passed, groups) = (self.now().saturating_sub(began), &self.writer.layers().context.groups);
        passed >= LONGEST_NS || passed >= WAITED_NS && groups.wanted_txg() >= self.tx.txg()
    }
}
