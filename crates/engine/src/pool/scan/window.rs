//! Blocks that a scan has found, on their way to being read in the order of the disks.
//!
//! A window is as large as is read in a moment. When users come meanwhile the moment becomes longer, and if they wait for the group, what is left of the window is
//! not read: the scan goes on at its beginning in the next group, with smaller ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer};
use parking_lot::{Condvar, Mutex};

use crate::host::{self, HostRef, Urgency};
use crate::sync::{Executor, Lent};
use crate::zio::{BlockIo, Bookmark, ScanTally, Tallied};

/// Most blocks of a window: some 190 bytes each.
const BLOCKS_MAX: usize = 1 << 16;
/// Bytes of the first window, and the least and the most.
pub(super) const BYTES_FIRST: u64 = 16 << 20;
const BYTES_MIN: u64 = 4 << 20;
const BYTES_MAX: u64 = 4 << 30;

/// How often is looked whether somebody waits for the group.
const LOOK: Duration = Duration::from_millis(10);

/// A block that is to be read.
struct Found {
    pointer: BlkPtr,
    at: Bookmark,
}

/// What is being read, by several threads.
struct Batch {
    /// By place.
    blocks: Vec<Found>,
    next: AtomicUsize,
    /// guards: how many were read
    read: Mutex<usize>,
    /// All were read that were begun with.
    ended: Condvar,
    /// Somebody waits for the group, and so for the end of it.
    urgency: Urgency,
    io: Arc<BlockIo>,
    tally: Arc<ScanTally>,
}

/// A block that is being read; dropped, it was.
struct Reading<'a>(&'a Batch);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut read = self.0.read.lock();
        *read += 1;
        if *read == self.0.begun() {
            self.0.ended.notify_all();
        }
    }
}

impl Batch {
    /// Reads until nothing is left to begin with.
    fn work(&self) {
        let _urgent = host::work_at(Some(self.urgency.clone()));
        while let Some(found) = self.blocks.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let _reading = Reading(self);
            if let Ok(BlockPointer::Data(data)) = found.pointer.decode() {
                self.io.scan(&data, &found.at, &self.tally);
            }
        }
    }

    /// How many were begun with.
    fn begun(&self) -> usize {
        self.next.load(Ordering::Relaxed).min(self.blocks.len())
    }

    /// Waits until all are read; or, once that may be, until those are that were begun with. `false`: not all are.
    fn wait(&self, ending: &Ending<'_>) -> bool {
        let mut read = self.read.lock();
        let mut wanted = self.blocks.len();
        while *read < wanted {
            self.urgency.set_waited_for((ending.is_waited_for)());
            if (ending.is_cut)() {
                // Nothing is left to begin with.
                wanted = wanted.min(self.next.fetch_add(self.blocks.len(), Ordering::Relaxed));
            }
            if *read < wanted {
                self.ended.wait_for(&mut read, LOOK);
            }
        }
        wanted == self.blocks.len()
    }
}

type Step = Box<dyn Fn() + Send + Sync>;

/// See the module.
pub(super) struct Window<'a> {
    readers: &'a Executor,
    host: &'a HostRef,
    io: &'a Arc<BlockIo>,
    tally: Arc<ScanTally>,
    found: Vec<Found>,
    bytes: u64,
    /// A window has so many bytes: as many as are read in the time that it should take.
    bytes_wanted: u64,
    running: Option<Running>,
    /// What was not read to its end.
    cut: Option<Arc<Batch>>,
}

struct Running {
    batch: Arc<Batch>,
    helpers: Lent<Step>,
    bytes: u64,
    began: u64,
    /// What was done before.
    before: Tallied,
}

/// How the reading of a window ends.
pub(super) struct Ending<'a> {
    /// It should take so long.
    pub(super) target_ns: u64,
    /// Does somebody wait for the group?
    pub(super) is_waited_for: &'a dyn Fn() -> bool,
    /// Is what was not begun with left unread?
    pub(super) is_cut: &'a dyn Fn() -> bool,
}

/// What was read.
pub(super) enum Read {
    /// All, so many bytes.
    Whole(u64),
    /// Not all.
    Cut,
}

impl<'a> Window<'a> {
    /// The first one has so many bytes.
    pub(super) fn new(readers: &'a Executor, host: &'a HostRef, io: &'a Arc<BlockIo>, tally: Arc<ScanTally>, bytes_wanted: u64) -> Self {
        Window { readers, host, io, tally, found: Vec::new(), bytes: 0, bytes_wanted: bytes_wanted.clamp(BYTES_MIN, BYTES_FIRST), running: None, cut: None }
    }

    /// The next one should have so many bytes.
    pub(super) fn bytes_wanted(&self) -> u64 {
        self.bytes_wanted
    }

    /// How many blocks have been found since the last turn.
    pub(super) fn blocks(&self) -> usize {
        self.found.len()
    }

    /// A block is to be read. `true`: the window is full, and [`Window::turn`] is due.
    pub(super) fn add(&mut self, pointer: &BlkPtr, at: Bookmark, allocated: u64) -> bool {
        self.found.push(Found { pointer: *pointer, at });
        self.bytes += allocated;
        self.found.len() >= BLOCKS_MAX || self.bytes >= self.bytes_wanted
    }

    /// Lets what was found be read. What was being read before has to be [finished](Window::finish).
    pub(super) fn begin(&mut self) {
        let mut blocks = std::mem::take(&mut self.found);
        blocks.sort_by_key(|found| found.pointer.first_dva().map(|dva| (dva.vdev, dva.offset)));
        let batch = Arc::new(Batch {
            blocks,
            next: AtomicUsize::new(0),
            read: Mutex::new(0),
            ended: Condvar::new(),
            urgency: Urgency::default(),
            io: self.io.clone(),
            tally: self.tally.clone(),
        });
        let helping = batch.clone();
        let step: Step = Box::new(move || helping.work());
        let bytes = std::mem::take(&mut self.bytes);
        self.running = Some(Running { helpers: self.readers.lend(self.readers.workers(), step), batch, bytes, began: self.host.now_ns(), before: self.tally.now() });
    }

    /// Waits for what is being read, which leaves devices to nobody once somebody waits for the group.
    pub(super) fn finish(&mut self, ending: &Ending<'_>) -> Read {
        let Some(running) = self.running.take() else { return Read::Whole(0) };
        // The sync thread does not read beside them: they let others go first, and it does not.
        let is_whole = match self.readers.workers() {
            0 => {
                running.batch.work();
                true
            }
            _ => running.batch.wait(ending),
        };
        running.helpers.finish();
        let took = self.host.now_ns().saturating_sub(running.began).max(1);
        let wanted = u128::from(running.bytes) * u128::from(ending.target_ns) / u128::from(took);
        let most = if is_whole { self.bytes_wanted * 2 } else { self.bytes_wanted / 2 };
        // At once as little as is read while others use the devices: the group does not end before.
        self.bytes_wanted = u64::try_from(wanted).unwrap_or(BYTES_MAX).min(most).clamp(BYTES_MIN, BYTES_MAX);
        if !is_whole {
            self.tally.go_back(running.before);
            self.cut = Some(running.batch);
            return Read::Cut;
        }
        Read::Whole(running.bytes)
    }

    /// What was found, or not read to its end, is not read; `each` is told of each block.
    pub(super) fn forget(&mut self, each: impl Fn(&DataPointer)) {
        let cut = self.cut.take();
        let blocks = cut.iter().flat_map(|batch| &batch.blocks).chain(&self.found);
        blocks.filter_map(|found| found.pointer.decode().ok()).for_each(|block| {
            if let BlockPointer::Data(data) = block {
                each(&data);
            }
        });
        self.found.clear();
        self.bytes = 0;
    }
}
