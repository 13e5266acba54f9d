//! Which of the blocks that a scan comes by are to be read.

use std::ops::ControlFlow;

use ondisk::blkptr::{BlkPtr, BlockPointer};
use ondisk::bpobj::BlockBookmarkPhys;
use ondisk::dnode::DNODES_PER_BLOCK;
use ondisk::scan::{ScanFunction, ScanRecord};

use super::budget::Budget;
use super::scans::{READERS, Scans};
use super::window::{Ending, Read, Window};
use crate::dsl::{SPILL_BLOCK, Visited};
use crate::host::is_waited_for;
use crate::zio::{BlockIo, Bookmark};

/// A window should take so long: where nobody waits for the group, where somebody does, and where users can do nothing before it is written.
const WINDOW_IDLE_NS: u64 = 300_000_000;
const WINDOW_BUSY_NS: u64 = 50_000_000;
const WINDOW_STUCK_NS: u64 = 15_000_000;

/// A place in a dataset to which a scan can go back, and what it had found until then.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: Bookmark,
    examined: u64,
    skipped: u64,
}

/// Where windows begin, of the dataset that the scan is in.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Where the record said that the piece begins,
    begin: BlockBookmarkPhys,
    /// and its first place: the block of dnodes above that one is visited once more.
    first: Option<Bookmark>,
    /// The last one that the scan came to,
    last: Option<Place>,
    /// the last before the first block of what was found since,
    found: Option<Place>,
    /// and of what is being read.
    read: Option<Place>,
    /// What is left was put off.
    is_cut: bool,
}

impl Places {
    /// Those of a piece that goes on there.
    pub(super) fn after(begin: BlockBookmarkPhys) -> Self {
        Places { begin, ..Places::default() }
    }

    /// Does the piece begin there? Going back there it would have done nothing.
    fn is_begin(&self, at: &Bookmark) -> bool {
        let Bookmark { objset, object, block, .. } = *at;
        let begin = (self.begin.objset.get(), self.begin.object.get(), self.begin.block.get());
        Some(*at) == self.first || (objset, object, block) == begin
    }
}

/// Takes blocks, and has those read that need it.
pub(super) struct Collector<'a> {
    pub(super) record: ScanRecord,
    pub(super) budget: Budget<'a>,
    pub(super) scans: &'a Scans,
    pub(super) io: &'a BlockIo,
    pub(super) window: Window<'a>,
    pub(super) places: Places,
    /// Level-0 blocks and datasets that no piece before this one has done.
    pub(super) done: u64,
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
            self.places.first.get_or_insert(*at);
            self.places.last = Some(Place { at: *at, examined: self.record.examined, skipped: self.record.skipped });
        }
        self.examine(block.pointer, *at);
        ControlFlow::Continue(())
    }

    /// Is the piece over? Not before something is done, so that each group makes some progress.
    pub(super) fn is_over(&self) -> bool {
        let is_used_up = || self.budget.is_over(self.done) || self.budget.is_in_the_way() && !self.is_little();
        self.places.is_cut || self.done > 0 && is_used_up()
    }

    /// Where users can do nothing before the group is written: so few blocks take about as long as one does, as they are read at the same time. If there always are such users,
    /// the scan comes to its end as much sooner.
    fn is_little(&self) -> bool {
        is_waited_for() && self.window.blocks() < READERS && self.budget.passed() < WINDOW_STUCK_NS
    }

    /// A dataset is looked at, perhaps one that was before, for other groups: to what is found elsewhere the scan cannot go back.
    pub(super) fn enter_dataset(&mut self) {
        (self.places.last, self.places.found, self.places.read) = (None, None, None);
    }

    #[doc(alias = "dsl_scan_scrub_cb")]
    pub(super) fn examine(&mut self, pointer: &BlkPtr, at: Bookmark) {
        let Ok(BlockPointer::Data(data)) = pointer.decode() else { return };
        if self.places.is_cut {
            return;
        }
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
        let first = data.dvas().first().map(|dva| (dva.vdev, dva.offset));
        let is_known = data.dedup && first.is_some_and(|(vdev, offset)| !self.scans.is_new(vdev, offset));
        if is_known || record.function == ScanFunction::Resilver && !self.io.is_behind(&data) {
            record.skipped += allocated;
            return;
        }
        if self.window.blocks() == 0 {
            self.places.found = self.places.last;
        }
        if self.window.add(pointer, at, allocated) {
            self.turn();
        }
    }

    fn window_ns(&self) -> u64 {
        match self.budget.is_waited_for() {
            _ if is_waited_for() => WINDOW_STUCK_NS,
            true => WINDOW_BUSY_NS,
            false => WINDOW_IDLE_NS,
        }
    }

    /// Waits for what is being read, and lets what was found be read.
    fn turn(&mut self) {
        self.read();
        if !self.places.is_cut {
            self.places.read = self.places.found;
            self.window.begin();
        }
    }

    /// Waits for what is being read. If much of it is left when somebody waits for the group, the scan goes back to where that began.
    fn read(&mut self) {
        let is_near = self.is_near(self.places.read);
        let is_cut = || is_near && self.budget.is_in_the_way();
        let read = self.window.finish(&Ending { target_ns: self.window_ns(), is_waited_for: &|| self.budget.is_waited_for(), is_cut: &is_cut });
        match read {
            Read::Whole(bytes) => self.tell(bytes),
            Read::Cut => self.places.is_cut = true,
        }
    }

    /// Waits until everything that was found is read, or put off. `false`: some was put off, and the record says where the scan goes on.
    pub(super) fn finish(&mut self) -> bool {
        self.read();
        if !self.places.is_cut && self.window.blocks() > 0 {
            self.places.read = self.places.found;
            if self.is_near(self.places.read) && self.budget.is_in_the_way() {
                self.places.is_cut = true;
            } else {
                self.window.begin();
                self.read();
            }
        }
        self.scans.set_window(self.window.bytes_wanted());
        if self.places.is_cut {
            self.go_back();
        }
        !self.places.is_cut
    }

    /// Can the scan go back there? Not out of a dataset, as what comes after it is noted on disk when it is left; nor to where the piece began, so that each
    /// piece makes some progress.
    fn is_near(&self, place: Option<Place>) -> bool {
        place.is_some_and(|place| place.at.objset == self.record.dataset() && !self.places.is_begin(&place.at))
    }

    /// Was what is left of this piece put off?
    pub(super) fn is_cut(&self) -> bool {
        self.places.is_cut
    }

    fn go_back(&mut self) {
        self.window.forget(|block| self.scans.forget_seen(block));
        let Some(place) = self.places.read else { return };
        (self.record.examined, self.record.skipped) = (place.examined, place.skipped);
        let Bookmark { objset, object, block, .. } = place.at;
        self.record.bookmark = BlockBookmarkPhys { objset: objset.into(), object: object.into(), level: 0.into(), block: block.into() };
        self.scans.note_cut();
        self.tell(0);
    }

    fn tell(&mut self, read: u64) {
        self.scans.advance(&self.record, read, self.budget.now_ns());
    }
}
