//! Blocks that a scan has found, on their way to being read in the order of the disks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ondisk::blkptr::{BlkPtr, BlockPointer};
use parking_lot::{Condvar, Mutex};

use crate::host::{self, HostRef};
use crate::sync::{Executor, Lent};
use crate::zio::{BlockIo, Bookmark, ScanTally};

/// Most blocks of a window: some 190 bytes each.
const BLOCKS_MAX: usize = 1 << 16;
/// Bytes of the first window, and the least and the most.
const BYTES_FIRST: u64 = 16 << 20;
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
    /// All were read.
    ended: Condvar,
    /// Somebody waits for the group, and so for the end of it.
    is_waited_for: AtomicBool,
    io: Arc<BlockIo>,
    tally: Arc<ScanTally>,
}

/// A block that is being read; dropped, it was.
struct Reading<'a>(&'a Batch);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut read = self.0.read.lock();
        *read += 1;
        if *read == self.0.blocks.len() {
            self.0.ended.notify_all();
        }
    }
}

impl Batch {
    /// Reads until nothing is left to begin with.
    fn work(&self) {
        while let Some(found) = self.blocks.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let _reading = Reading(self);
            host::set_waited_for(self.is_waited_for.load(Ordering::Relaxed));
            if let Ok(BlockPointer::Data(data)) = found.pointer.decode() {
                self.io.scan(&data, &found.at, &self.tally);
            }
        }
        host::set_waited_for(false);
    }

    fn wait(&self, is_waited_for: &dyn Fn() -> bool) {
        let mut read = self.read.lock();
        while *read < self.blocks.len() {
            self.is_waited_for.store(is_waited_for(), Ordering::Relaxed);
            self.ended.wait_for(&mut read, LOOK);
        }
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
}

struct Running {
    batch: Arc<Batch>,
    helpers: Lent<Step>,
    bytes: u64,
    began: u64,
}

impl<'a> Window<'a> {
    pub(super) fn new(readers: &'a Executor, host: &'a HostRef, io: &'a Arc<BlockIo>, tally: Arc<ScanTally>) -> Self {
        Window { readers, host, io, tally, found: Vec::new(), bytes: 0, bytes_wanted: BYTES_FIRST, running: None }
    }

    /// A block is to be read. `true`: the window is full, and [`Window::turn`] is due.
    pub(super) fn add(&mut self, pointer: &BlkPtr, at: Bookmark, allocated: u64) -> bool {
        self.found.push(Found { pointer: *pointer, at });
        self.bytes += allocated;
        self.found.len() >= BLOCKS_MAX || self.bytes >= self.bytes_wanted
    }

    /// Waits for what is being read, and lets what was found since be read, of which a window should take `target_ns`. Returns how many bytes have been read.
    pub(super) fn turn(&mut self, target_ns: u64, is_waited_for: &dyn Fn() -> bool) -> u64 {
        let read = self.finish(target_ns, is_waited_for);
        if self.found.is_empty() {
            return read;
        }
        let mut blocks = std::mem::take(&mut self.found);
        blocks.sort_by_key(|found| found.pointer.first_dva().map(|dva| (dva.vdev, dva.offset)));
        let batch = Arc::new(Batch { blocks, next: AtomicUsize::new(0), read: Mutex::new(0), ended: Condvar::new(), is_waited_for: AtomicBool::new(false), io: self.io.clone(), tally: self.tally.clone() });
        let helping = batch.clone();
        let step: Step = Box::new(move || helping.work());
        let bytes = std::mem::take(&mut self.bytes);
        self.running = Some(Running { helpers: self.readers.lend(self.readers.workers(), step), batch, bytes, began: self.host.now_ns() });
        read
    }

    /// Waits for what is being read, which leaves devices to nobody once somebody waits for the group. Returns how many bytes that was.
    pub(super) fn finish(&mut self, target_ns: u64, is_waited_for: &dyn Fn() -> bool) -> u64 {
        let Some(running) = self.running.take() else { return 0 };
        // The sync thread does not read beside them: they let others go first, and it does not.
        match self.readers.workers() {
            0 => running.batch.work(),
            _ => running.batch.wait(is_waited_for),
        }
        running.helpers.finish();
        let took = self.host.now_ns().saturating_sub(running.began).max(1);
        let wanted = u128::from(running.bytes) * u128::from(target_ns) / u128::from(took);
        // At once as little as is read while others use the devices: the group does not end before.
        self.bytes_wanted = u64::try_from(wanted).unwrap_or(BYTES_MAX).min(self.bytes_wanted * 2).clamp(BYTES_MIN, BYTES_MAX);
        running.bytes
    }
}
