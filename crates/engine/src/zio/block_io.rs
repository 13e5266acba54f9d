//! What reads, writes and frees the blocks of one pool.

use std::sync::{Arc, Weak};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ondisk::blkptr::{BlkPtr, DataPointer};
use ondisk::dva::Dva;
use parking_lot::{Mutex, RwLock};

use super::stages::compress_stage::ShapeRules;
use super::devices::{BlockDevice, BlockDevices};
use super::free::BlockTables;
use super::lost::LostBlocks;
use crate::alloc::{Allocator, ClassKind, Request};
use crate::bail;
use crate::error::{Error, ErrorKind, Result};
use crate::host::HostRef;
use crate::stats::Counter;
use crate::sync::Executor;
use crate::vdev::{BIRTH_UNKNOWN, LogMark};

/// What the pool's features allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockFeatures {
    /// `embedded_data`: contents in pointers.
    pub embedded_data: bool,
    /// `hole_birth`: holes remember when they were punched.
    pub hole_birth: bool,
    /// `block_cloning`: blocks can be shared.
    pub block_cloning: bool,
    /// `dynamic_gang_header` is active: headers may fill a unit of allocation.
    pub dynamic_gang_header: bool,
    /// The pool is so old that log blocks end with their link.
    pub old_log: bool,
}

/// What was done, since the pool was opened.
#[derive(Debug, Default)]
pub struct BlockCounters {
    /// Blocks read from devices.
    pub reads: Counter,
    /// Their physical bytes.
    pub read_bytes: Counter,
    /// Copies written.
    pub writes: Counter,
    /// Their bytes.
    pub written_bytes: Counter,
    /// Copies with a wrong checksum.
    pub checksum_errors: Counter,
    /// Copies written over with what is right.
    pub healed: Counter,
    /// Blocks of which no copy was right.
    pub lost_blocks: Counter,
}

/// Threads that make I/Os of leaves beside those that wait for them.
const CREW: usize = 8;

/// How many threads a pool's block I/O has.
#[derive(Debug, Clone, Copy)]
pub struct BlockThreads {
    /// Threads that compress, checksum and write.
    pub writers: usize,
    /// Threads that read ahead.
    pub readers: usize,
}

/// Reads, writes and frees the blocks of one pool.
pub struct BlockIo {
    /// immutable
    devices: Arc<dyn BlockDevices>,
    /// immutable
    allocator: Arc<Allocator>,
    writers: Executor,
    crew: Arc<Executor>,
    readers: Executor,
    /// guarded by their locks, which are leaves
    salt: RwLock<[u8; 32]>,
    features: RwLock<BlockFeatures>,
    writable: AtomicBool,
    /// Weak, as the tables are objects that are read and written through this.
    tables: OnceLock<Weak<dyn BlockTables>>,
    /// What was done.
    pub counters: BlockCounters,
    /// Blocks of which no copy was right.
    pub lost: LostBlocks,
    /// Space of pieces of blocks that were freed and could not be found, since [`BlockIo::take_leaked`].
    leaked: AtomicU64,
    /// Log devices that failed and are not used. guarded by its lock, which is a leaf
    avoided: Mutex<Vec<u32>>,
    /// The txg that a checkpoint keeps; 0: none.
    checkpoint_txg: AtomicU64,
}

impl BlockIo {
    /// Block I/O on `devices`, with space from `allocator`. The pool may not be written before `set_writable`.
    pub fn new(host: &HostRef, devices: Arc<dyn BlockDevices>, allocator: Arc<Allocator>, threads: BlockThreads) -> Arc<Self> {
        let crew = Arc::new(Executor::new(host, "vdev-io", CREW));
        devices.set_crew(&crew);
        Arc::new(BlockIo {
            devices,
            allocator,
            writers: Executor::new(host, "zio-write", threads.writers),
            crew,
            readers: Executor::new(host, "zio-read", threads.readers),
            salt: RwLock::new([0; 32]),
            features: RwLock::default(),
            writable: AtomicBool::new(false),
            tables: OnceLock::new(),
            counters: BlockCounters::default(),
            lost: LostBlocks::default(),
            leaked: AtomicU64::new(0),
            avoided: Mutex::default(),
            checkpoint_txg: AtomicU64::new(0),
        })
    }

    /// Sets the salt of the keyed checksums, when it has been read from the MOS.
    pub fn set_salt(&self, salt: [u8; 32]) {
        *self.salt.write() = salt;
    }

    /// Says what the pool's features allow, when they are known and when they change.
    pub fn set_features(&self, features: BlockFeatures) {
        *self.features.write() = features;
    }

    /// What the pool's features allow.
    pub fn features(&self) -> BlockFeatures {
        *self.features.read()
    }

    /// Blocks up to this txg are kept by a checkpoint when they are freed from now on; 0: none is. Syncing context, before frees.
    pub fn set_checkpoint_txg(&self, txg: u64) {
        self.checkpoint_txg.store(txg, Ordering::Release);
    }

    /// The txg that a checkpoint keeps; 0: none.
    pub fn checkpoint_txg(&self) -> u64 {
        self.checkpoint_txg.load(Ordering::Acquire)
    }

    /// Says whether damaged copies may be repaired.
    pub fn set_writable(&self, writable: bool) {
        self.writable.store(writable, Ordering::Release);
    }

    /// Whether damaged copies may be repaired.
    pub fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Acquire)
    }

    /// Sets the tables that count references; once, when the pool is opened.
    ///
    /// # Panics
    /// When they were set before.
    pub fn set_tables(&self, tables: Weak<dyn BlockTables>) {
        assert!(self.tables.set(tables).is_ok(), "the reference tables were set twice");
    }

    pub(super) fn tables(&self) -> Option<Arc<dyn BlockTables>> {
        self.tables.get().and_then(Weak::upgrade)
    }

    pub fn salt(&self) -> [u8; 32] {
        *self.salt.read()
    }

    /// The pool's space.
    pub fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// The pool's vdevs.
    pub fn devices(&self) -> &Arc<dyn BlockDevices> {
        &self.devices
    }

    /// The threads that compress, checksum and write.
    pub fn writers(&self) -> &Executor {
        &self.writers
    }

    /// The threads that make I/Os of leaves, and mostly wait.
    pub(super) fn crew(&self) -> &Arc<Executor> {
        &self.crew
    }

    /// The threads that read ahead.
    pub fn readers(&self) -> &Executor {
        &self.readers
    }

    /// Makes durable what was written before.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn flush(&self) -> Result<()> {
        self.devices.flush()
    }

    /// Makes durable what a commit of the intent log wrote.
    ///
    /// # Errors
    /// Those of the devices, of the log's own too.
    pub fn flush_log(&self) -> Result<()> {
        self.devices.flush_with_logs()
    }

    /// For who is about to write what [`BlockIo::flush_log`] is to make durable.
    pub fn log_mark(&self) -> LogMark {
        self.devices.log_mark()
    }

    /// Is what one of the devices has written perhaps not durable before a flush?
    pub fn has_write_cache(&self) -> bool {
        self.devices.has_write_cache()
    }

    /// The vdev of an address that lies in it.
    pub(super) fn device(&self, dva: Dva) -> Result<Arc<dyn BlockDevice>> {
        let Some(device) = self.devices.device(dva.vdev) else { bail!(Corrupt, "address {dva}: there is no such vdev") };
        let end = dva.offset.checked_add(if dva.gang { 512 } else { dva.allocated });
        if end.is_none_or(|end| end > device.size_bytes()) {
            bail!(Corrupt, "address {dva}: beyond the end of the vdev");
        }
        Ok(device)
    }

    /// Bytes of the smallest allocation on the vdevs that hold data.
    pub fn unit(&self) -> usize {
        let data_classes = [ClassKind::Normal, ClassKind::Special, ClassKind::Dedup];
        let groups = data_classes.into_iter().flat_map(|class| {
            self.allocator.class_groups(class).iter().map(|group| group.config().ashift).collect::<Vec<u8>>()
        });
        1 << groups.min().unwrap_or(9).max(9)
    }

    /// The most that a block of so many bytes takes on a vdev that holds data, without the share of parity.
    pub fn worst_data_share(&self, block: u64) -> u64 {
        self.allocator.worst_data_share(block)
    }

    pub(super) fn shape_rules(&self, txg: u64) -> ShapeRules {
        let BlockFeatures { embedded_data, hole_birth, .. } = self.features();
        ShapeRules { embedded_data, hole_birth, unit: self.unit(), txg }
    }

    /// The space that a block takes as if there were no parity, which is how space is counted for users.
    #[doc(alias = "bp_get_dsize")]
    pub fn deflated_size(&self, bp: &BlkPtr) -> u64 {
        bp.dvas().map(|dva| self.deflated(dva)).sum()
    }

    /// Is what could not be read gone for good? Not if a device answers to nothing any more: it may come back, and what it has with it.
    pub fn is_lost(&self, error: &Error) -> bool {
        error.is_loss() && (error.kind() != ErrorKind::Io || self.devices.answer())
    }

    /// Space is allocated, and nobody can find any more what is in it.
    pub(super) fn note_leak(&self, dva: Dva) {
        self.leaked.fetch_add(self.deflated(dva), Ordering::Relaxed);
    }

    /// Has [`BlockIo::take_leaked`] something?
    pub fn has_leaked(&self) -> bool {
        self.leaked.load(Ordering::Relaxed) != 0
    }

    /// How much space was leaked since this was last asked, without the share of parity.
    pub fn take_leaked(&self) -> u64 {
        self.leaked.swap(0, Ordering::Relaxed)
    }

    fn deflated(&self, dva: Dva) -> u64 {
        self.devices.device(dva.vdev).map_or(dva.allocated, |device| device.deflated_size(dva.allocated))
    }

    /// Space for a block of the intent log of `physical` bytes, not written yet.
    ///
    /// # Errors
    /// `NoSpace`; log blocks are never gang blocks.
    pub fn allocate_log(&self, physical: u64, copies: usize, txg: u64) -> Result<Vec<Dva>> {
        let log = !self.allocator.class_groups(ClassKind::Log).is_empty();
        let class = if log { ClassKind::Log } else { ClassKind::Normal };
        self.allocator.allocate(&Request { for_log: true, ..Request::new(class, physical, copies, txg) })
    }

    /// How many vdevs share the blocks of the intent log.
    pub fn log_vdevs(&self) -> usize {
        let of = |class| self.allocator.class_groups(class).len();
        if of(ClassKind::Log) > 0 { of(ClassKind::Log) } else { of(ClassKind::Normal) }
    }

    /// Is it worth while to prepare places of the vdevs that hold data, or of one of them, for durable writes?
    pub fn gains_by_preparing(&self) -> bool {
        self.allocator.class_groups(ClassKind::Normal).iter().any(|group| self.vdev_gains_by_preparing(group.config().vdev))
    }

    /// Is it worth while to prepare places of a vdev for durable writes?
    pub fn vdev_gains_by_preparing(&self, vdev: u32) -> bool {
        self.devices.device(vdev).is_some_and(|device| device.gains_by_preparing())
    }

    /// Prepares a range of a vdev, of which nothing is needed, for durable writes.
    ///
    /// # Errors
    /// Those of the device.
    pub fn prepare(&self, vdev: u32, offset: u64, length: u64) -> Result<()> {
        let device = self.device(Dva::new(vdev, offset, length))?;
        let map = device.io_map(offset, length as usize, BIRTH_UNKNOWN)?;
        map.sides().try_for_each(|(_, column, side)| device.prepare_leaf(side.leaf, side.offset, column.length as u64))
    }

    /// Blocks of the intent log could not be written: if they are on a device for the log alone, the next ones go elsewhere.
    pub(super) fn avoid_log_device(&self, dvas: &[Dva]) {
        for dva in dvas {
            if let Ok(group) = self.allocator.group(dva.vdev)
                && group.config().class == ClassKind::Log
            {
                group.set_usable(false);
                self.avoided.lock().push(dva.vdev);
            }
        }
    }

    /// Somebody has repaired what there was to repair: log devices that failed are used again.
    pub fn try_log_devices_again(&self) {
        let avoided = std::mem::take(&mut *self.avoided.lock());
        for group in avoided.into_iter().filter_map(|vdev| self.allocator.group(vdev).ok()) {
            group.set_usable(true);
        }
    }

    /// A log device is on its way out: it is not tried again.
    pub fn give_up_log_device(&self, vdev: u32) {
        self.avoided.lock().retain(|avoided| *avoided != vdev);
    }

    /// Gives back the space of a block that this same txg allocated and that is in no tree.
    ///
    /// # Errors
    /// Those of the allocator.
    pub fn unallocate(&self, data: &DataPointer, txg: u64) -> Result<()> {
        data.dvas().iter().try_for_each(|dva| self.allocator.unallocate(*dva, txg))
    }
}
