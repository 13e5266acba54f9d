//! Which of the blocks that a scan comes by are to be read.

use std::ops::ControlFlow;

use ondisk::blkptr::{BlkPtr, BlockPointer};
use ondisk::dnode::DNODES_PER_BLOCK;
use ondisk::scan::{ScanFunction, ScanRecord};

use super::budget::Budget;
use super::scans::Scans;
use super::window::Window;
use crate::dsl::{SPILL_BLOCK, Visited};
use crate::zio::{BlockIo, Bookmark};

/// A window should take so long, where nobody waits for the group and where somebody does.
const WINDOW_IDLE_NS: u64 = 300_000_000;
const WINDOW_BUSY_NS: u64 = 50_000_000;

/// Takes blocks, and has those read that need it.
pub(super) struct Collector<'a> {
    pub(super) record: ScanRecord,
    pub(super) budget: Budget<'a>,
    pub(super) scans: &'a Scans,
    pub(super) io: &'a BlockIo,
    pub(super) window: Window<'a>,
    /// Level-0 blocks and datasets that no piece before this one has done.
    pub(super) done: u64,
    /// Bytes found that nobody was told of yet.
    pub(super) examined: u64,
}

impl Collector<'_> {
    /// Looks at a block, unless the piece is over: then the scan goes on with it later. Only between level-0 blocks of objects can be told where that was.
    pub(super) fn visit(&mut self, block: &Visited<'_>) -> ControlFlow<()> {
        let at = &block.at;
        let is_accounting = at.object.cast_signed() < 0;
        if at.level == 0 && !is_accounting && at.block != SPILL_BLOCK {
            if self.is_over() {
                return ControlFlow::Break(());
            }
            // What is above the place where it goes on is visited once more.
            let goes_on_below = at.object == 0 && at.block == self.record.bookmark.object.get() / DNODES_PER_BLOCK && at.objset == self.record.dataset();
            self.done += u64::from(!goes_on_below);
        }
        self.examine(block.pointer, *at);
        ControlFlow::Continue(())
    }

    /// Is the piece over? Not before something is done, so that each group makes some progress.
    pub(super) fn is_over(&self) -> bool {
        self.done > 0 && self.budget.is_used_up(self.done)
    }

    #[doc(alias = "dsl_scan_scrub_cb")]
    pub(super) fn examine(&mut self, pointer: &BlkPtr, at: Bookmark) {
        let Ok(BlockPointer::Data(data)) = pointer.decode() else { return };
        let allocated = data.dvas().iter().map(|dva| dva.allocated).sum::<u64>();
        let (birth, record) = (data.physical_birth, &mut self.record);
        if birth > record.dataset_max_txg {
            // It is of a later snapshot, and looked at there.
            return;
        }
        if birth <= record.min_txg || birth >= record.max_txg {
            record.skipped += allocated;
            return;
        }
        record.examined += allocated;
        self.examined += allocated;
        let first = data.dvas().first().map(|dva| (dva.vdev, dva.offset));
        let is_known = data.dedup && first.is_some_and(|(vdev, offset)| !self.scans.is_new(vdev, offset));
        if is_known || record.function == ScanFunction::Resilver && !self.io.is_behind(&data) {
            record.skipped += allocated;
            return;
        }
        if self.window.add(pointer, at, allocated) {
            self.turn();
        }
    }

    fn window_ns(&self) -> u64 {
        if self.budget.is_waited_for() { WINDOW_BUSY_NS } else { WINDOW_IDLE_NS }
    }

    fn turn(&mut self) {
        let read = self.window.turn(self.window_ns(), &|| self.budget.is_waited_for());
        self.tell(read);
    }

    /// Waits until everything that was found is read.
    pub(super) fn finish(&mut self) {
        self.turn();
        let read = self.window.finish(self.window_ns(), &|| self.budget.is_waited_for());
        self.tell(read);
    }

    fn tell(&mut self, read: u64) {
        self.scans.advance(&self.record, std::mem::take(&mut self.examined), read, self.budget.now_ns());
    }
}
