//! The piece of a rebuild that is done in one group.

use std::sync::Arc;
use std::time::Duration;

use ondisk::scan::ScanFunction;

use super::begin_end_sync::{End, end, store};
use super::copy::{Copied, Copier};
use super::missed;
use super::pieces::Pieces;
use super::rebuilds::Rebuild;
use crate::alloc::Metaslab;
use crate::bail;
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::pool::scan::budget::Budget;
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::Parameter;
use crate::vdev::TopVdev;

/// A rebuild that makes no progress, as a tunable says, takes so long in each group.
const SUSPENDED: Duration = Duration::from_millis(50);
/// Writers wait for a window, which should take so long.
const WINDOW_NS: u64 = 50_000_000;
/// Bytes of the first window, and the least and the most.
const WINDOW_FIRST: u64 = 8 << 20;
const WINDOW_MIN: u64 = 1 << 20;
const WINDOW_MAX: u64 = 256 << 20;

/// Does a piece of each rebuild that is under way, in the first pass, when the datasets of the group are written.
///
/// # Errors
/// What stops the pool.
#[doc(alias = "vdev_rebuild_thread")]
pub(in crate::pool) fn sync(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    if writer.scans().is_ending() {
        return Ok(());
    }
    let layers = writer.layers();
    for vdev in writer.rebuilds().active() {
        match layers.vdevs.top(vdev).filter(|top| !top.is_placeholder()) {
            Some(top) => step(writer, &top, tx)?,
            None => writer.rebuilds().forget(vdev),
        }
    }
    Ok(())
}

fn step(writer: &GroupWriter, top: &Arc<TopVdev>, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    let Some(rebuild) = writer.rebuilds().get(top.id()) else { return Ok(()) };
    // Its devices have left, or are not there.
    if missed(layers, top).is_none() {
        return end(writer, top, rebuild, End::Canceled, tx);
    }
    // The groups that a device has missed are on disk now, or with this one.
    if tx.txg() < rebuild.record.max_txg {
        return Ok(());
    }
    if layers.context.tunables.now(Parameter::ScanSuspendProgress) != 0 {
        layers.context.host.sleep(SUSPENDED);
        return Ok(());
    }
    let budget = Budget::new(layers, writer.scans(), tx.txg(), ScanFunction::Resilver);
    let copier = Arc::new(Copier::new(top, rebuild.record.max_txg));
    let mut walk = Walk { writer, top, rebuild, budget, copier, counted: Copied::default(), window: WINDOW_FIRST, pieces: 0 };
    let is_done = walk.run()?;
    let mut rebuild = walk.rebuild;
    rebuild.note_time(layers.context.host.now_ns());
    if is_done {
        return end(writer, top, rebuild, End::Complete, tx);
    }
    writer.rebuilds().set(top.id(), rebuild);
    store(layers, top, &rebuild.record, tx)
}

struct Walk<'a> {
    writer: &'a GroupWriter,
    top: &'a Arc<TopVdev>,
    rebuild: Rebuild,
    budget: Budget<'a>,
    copier: Arc<Copier>,
    /// What of the copier's counts is in the record already.
    counted: Copied,
    /// Bytes of a window.
    window: u64,
    /// Pieces that were done in this group.
    pieces: u64,
}

impl Walk<'_> {
    /// Goes on where the record says. `true`: all is done.
    fn run(&mut self) -> Result<bool> {
        let allocator = self.writer.layers().context.io.allocator();
        let metaslabs = allocator.group(self.top.id() as u32)?.metaslabs();
        for (index, metaslab) in metaslabs.iter().enumerate() {
            let end = metaslab.start + metaslab.size;
            if end <= self.rebuild.record.done {
                continue;
            }
            if self.rebuild.record.done <= metaslab.start {
                self.estimate(&metaslabs[index..]);
            }
            if !self.metaslab(metaslab)? {
                return Ok(false);
            }
            self.rebuild.record.done = end;
        }
        Ok(true)
    }

    /// How much there is, with what is in use from this metaslab on.
    #[doc(alias = "vdev_rebuild_update_bytes_est")]
    fn estimate(&mut self, left: &[Arc<Metaslab>]) {
        self.rebuild.record.estimate = self.rebuild.record.scanned + left.iter().map(|metaslab| metaslab.allocated()).sum::<u64>();
    }

    /// What is left of a metaslab. `false`: the piece is over.
    fn metaslab(&mut self, metaslab: &Metaslab) -> Result<bool> {
        let (layout, tunables) = (self.top.layout().clone(), &self.writer.layers().context.tunables);
        let step = layout.allocation_bytes();
        let skipped = self.rebuild.record.done.saturating_sub(metaslab.start) / step * step;
        let Some(maps) = &self.writer.layers().space_maps else { bail!(ReadOnly, "the space maps are not open") };
        let used = maps.not_free(self.top.id() as u32, metaslab.start + skipped, metaslab.start + metaslab.size)?;
        let mut pieces = Pieces::new(layout, &used, tunables.now(Parameter::RebuildMaxSegment));
        loop {
            if self.pieces > 0 && self.budget.is_used_up(self.pieces) {
                return Ok(false);
            }
            let window = pieces.window(self.window, tunables.scan_blocks_max);
            let (Some(first), Some(last)) = (window.first().copied(), window.last().copied()) else { return Ok(true) };
            let (count, bytes) = (window.len() as u64, window.iter().map(|piece| piece.allocated).sum::<u64>());
            let began = self.now();
            let Some(held) = self.top.hold_writes(first.offset..last.end()) else { return Ok(false) };
            self.copier.copy_all(self.writer.scans().readers(&self.writer.layers().context.host), window);
            drop(held);
            if !self.is_there() {
                return Ok(false);
            }
            self.pieces += count;
            self.count(bytes, last.end());
            let wanted = u128::from(bytes) * u128::from(WINDOW_NS) / u128::from(self.now().saturating_sub(began).max(1));
            self.window = u64::try_from(wanted).unwrap_or(WINDOW_MAX).clamp(self.window / 2, self.window * 2).clamp(WINDOW_MIN, WINDOW_MAX);
        }
    }

    /// So many bytes are passed, up to there.
    fn count(&mut self, bytes: u64, end: u64) {
        let (now, before) = (self.copier.copied(), self.counted);
        self.counted = now;
        let (rebuild, issued) = (&mut self.rebuild, now.issued - before.issued);
        rebuild.record.done = end;
        rebuild.record.scanned += bytes;
        rebuild.record.issued += issued;
        rebuild.record.rebuilt += now.rebuilt - before.rebuilt;
        rebuild.record.errors += now.errors - before.errors;
        rebuild.pass_scanned += bytes;
        rebuild.pass_issued += issued;
        rebuild.pass_skipped += bytes.saturating_sub(issued);
        self.writer.rebuilds().set(self.top.id(), *rebuild);
    }

    /// Can everything be read? Else what failed says nothing.
    fn is_there(&self) -> bool {
        let vdevs = &self.writer.layers().vdevs;
        vdevs.check_complete().is_ok() && vdevs.gate().failure().is_none()
    }

    fn now(&self) -> u64 {
        self.writer.layers().context.host.now_ns()
    }
}
