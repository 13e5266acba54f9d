//! The metaslabs of one top-level vdev.
//!
//! # Theory
//!
//! An allocation goes on in the metaslab where the last one went, so that what is written together lies together.  There is
//! one such metaslab for each *stream* (so that threads do not wait for each other) and each copy on this vdev (the second
//! copy of a block is kept away from the first).  When it is full or worn, the most promising of the others takes its place.
//!
//! One metaslab is for the intent log ([`LogArea`]). In a vdev with many it is set aside, and is no part of the space that users are told
//! of; in one with few it serves others as soon as all else is full.
//!
//! # Locks
//!
//! Each stream's slot is held while it allocates, across the load of a metaslab too; the metaslab's locks are taken inside.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use ondisk::dva::Dva;
use parking_lot::{Mutex, RwLock};

use super::log_area::{LogArea, Piece};
use super::metaslab::{Metaslab, SyncDone};
use super::{ClassKind, LoadSpaceMap};
use crate::bail;
use crate::error::Result;
use crate::vdev::map::deflated_size;

const TXG_SLOTS: usize = 4;
/// Copies of one block that may lie on one vdev.
const COPIES_MAX: usize = 3;
/// Metaslabs tried before an allocation gives up, unless it must succeed.
const TRIES_MAX: usize = 100;
/// From this many metaslabs on one is set aside for the intent log.
const LOG_METASLABS_MIN: usize = 64;
/// From this many on, of this size, one is for the intent log while there is room in the others.
const SHARED_LOG_METASLABS_MIN: usize = 8;
const SHARED_LOG_BYTES_MIN: u64 = 8 << 20;
/// When the vdev was made: how wide blocks were then is what space is counted by.
const FIRST_TXG: u64 = 0;
/// Bytes written to each disk before the next top-level vdev has its turn.
const ALIQUOT_BYTES: u64 = 512 << 10;

/// What a top-level vdev is to the allocator.
pub struct GroupConfig {
    /// Its id.
    pub vdev: u32,
    /// What it is for.
    pub class: ClassKind,
    /// Log2 of the smallest allocation.
    pub ashift: u8,
    /// Log2 of the size of its metaslabs.
    pub metaslab_shift: u8,
    /// Disks that hold data at one time (without parity).
    pub data_disks: u64,
    /// All that is allocated begins at a multiple of so many bytes.
    pub allocation_bytes: u64,
    /// Bytes that a block of so many physical bytes takes (PSIZE to ASIZE), by the group that allocates it.
    pub allocated_size: Box<dyn Fn(u64, u64) -> u64 + Send + Sync>,
}

impl GroupConfig {
    /// Where a metaslab begins, and its size: what does not begin at a multiple of [`GroupConfig::allocation_bytes`] is left out.
    #[doc(alias = "vdev_op_metaslab_init")]
    pub fn metaslab_area(&self, id: u64) -> (u64, u64) {
        let (start, end) = (id << self.metaslab_shift, (id + 1) << self.metaslab_shift);
        let first = start.next_multiple_of(self.allocation_bytes.max(1));
        (first, end.saturating_sub(first) / self.allocation_bytes.max(1) * self.allocation_bytes.max(1))
    }
}

/// How much of something is used, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceUse {
    /// All there is.
    pub space: u64,
    /// What is not available: in use, or waiting after a free.
    pub allocated: u64,
    /// The part of it that is waiting.
    pub deferred: u64,
}

impl SpaceUse {
    /// What can be allocated.
    pub const fn free(&self) -> u64 {
        self.space.saturating_sub(self.allocated)
    }

    /// The sum of two.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            space: self.space + other.space,
            allocated: self.allocated + other.allocated,
            deferred: self.deferred + other.deferred,
        }
    }
}

/// One allocation in a group.
#[derive(Clone, Copy)]
pub(super) struct GroupRequest<'a> {
    pub size: u64,
    pub txg: u64,
    pub stream: usize,
    pub copies_before: &'a [Dva],
    pub for_log: bool,
    pub must_succeed: bool,
}

/// The metaslabs of one top-level vdev.
pub struct Group {
    config: GroupConfig,
    metaslabs: RwLock<Vec<Arc<Metaslab>>>,
    /// The metaslab in use, by stream and copy.
    current: Vec<Mutex<[Option<Arc<Metaslab>>; COPIES_MAX]>>,
    /// The metaslab for the intent log, if there is one.
    log_area: RwLock<Option<Arc<LogArea>>>,
    /// Metaslabs that a txg has changed.
    dirty: [Mutex<BTreeSet<u64>>; TXG_SLOTS],
    /// All metaslabs together.
    space: AtomicU64,
    allocated: AtomicI64,
    /// What txgs that are not on disk have allocated: not in `allocated` yet.
    taken: [AtomicI64; TXG_SLOTS],
    deferred: AtomicI64,
    usable: AtomicBool,
    /// Sizes from which on there was no room, with an ordinary search and with one that must succeed: there is no need to
    /// search again until a txg has brought space back.
    refused: [AtomicU64; 2],
    /// How often these were forgotten.
    forgotten: AtomicU64,
    aliquot: AtomicU64,
}

impl Group {
    /// A group without metaslabs.
    pub fn new(config: GroupConfig, streams: usize) -> Self {
        let aliquot = ALIQUOT_BYTES * config.data_disks.max(1);
        Self {
            config,
            metaslabs: RwLock::default(),
            current: (0..streams.max(1)).map(|_| Mutex::default()).collect(),
            log_area: RwLock::default(),
            dirty: Default::default(),
            space: AtomicU64::new(0),
            allocated: AtomicI64::new(0),
            taken: Default::default(),
            deferred: AtomicI64::new(0),
            usable: AtomicBool::new(true),
            refused: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)],
            forgotten: AtomicU64::new(0),
            aliquot: AtomicU64::new(aliquot),
        }
    }

    /// What it was made with.
    pub const fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// Bytes that a block of `physical` bytes takes here, allocated in the group `txg`.
    pub fn allocated_size(&self, physical: u64, txg: u64) -> u64 {
        (self.config.allocated_size)(physical, txg)
    }

    /// What so many bytes here count without the share of parity.
    pub fn data_share(&self, allocated: u64) -> u64 {
        deflated_size(allocated, |physical| self.allocated_size(physical, FIRST_TXG))
    }

    /// The same of a block of so many bytes.
    pub fn data_share_of_block(&self, physical: u64) -> u64 {
        self.data_share(self.allocated_size(physical, FIRST_TXG))
    }

    /// What is used, without the share of parity.
    pub fn data_use(&self) -> SpaceUse {
        let SpaceUse { space, allocated, deferred } = self.space_use();
        SpaceUse { space: self.data_share(space), allocated: self.data_share(allocated), deferred: self.data_share(deferred) }
    }

    /// Adds the next metaslab: when the pool is opened, and when the vdev has grown.
    pub fn add_metaslab(&self, metaslab: Metaslab) -> Arc<Metaslab> {
        let mut metaslabs = self.metaslabs.write();
        assert_eq!(metaslab.id, metaslabs.len() as u64, "metaslabs of vdev {} out of order", self.config.vdev);
        self.allocated.fetch_add(metaslab.allocated().cast_signed(), Ordering::Relaxed);
        self.space.fetch_add(metaslab.size, Ordering::Relaxed);
        let metaslab = Arc::new(metaslab);
        metaslabs.push(Arc::clone(&metaslab));
        self.forget_refusals();
        metaslab
    }

    /// Chooses an empty metaslab for the intent log; once all are added.
    pub fn set_log_area(&self) {
        let metaslabs = self.metaslabs.read();
        let wanted = match self.config.class {
            ClassKind::Normal | ClassKind::Special if metaslabs.len() > LOG_METASLABS_MIN => true,
            ClassKind::Normal | ClassKind::Log => {
                metaslabs.len() >= SHARED_LOG_METASLABS_MIN && 1_u64 << self.config.metaslab_shift >= SHARED_LOG_BYTES_MIN
            }
            ClassKind::Special | ClassKind::Dedup => false,
        };
        if wanted {
            // The first of those that are as good as empty, so that it is the same one at the next import.
            let use_of = |metaslab: &Metaslab| u128::from(metaslab.allocated()) * 64 / u128::from(metaslab.size.max(1));
            *self.log_area.write() = metaslabs.iter().min_by_key(|metaslab| use_of(metaslab)).cloned().map(LogArea::new).map(Arc::new);
        }
    }

    /// The metaslab for the intent log, if there is one.
    pub fn log_area(&self) -> Option<Arc<LogArea>> {
        self.log_area.read().clone()
    }

    /// The next piece of the log's metaslab that is to be prepared ([`LogArea::take_piece`]). A committer that allocates there while it is out is not
    /// the first of `txg`, so that it is this that makes the sync come by.
    pub fn take_log_piece(&self, area: &LogArea, txg: u64) -> Option<Piece> {
        let piece = area.take_piece(txg)?;
        self.note_taken(txg, piece.size);
        self.mark_dirty(area.metaslab().id, txg);
        Some(piece)
    }

    /// The metaslab for the log is not to be used by others before the last moment.
    fn log_area_is_set_aside(&self) -> bool {
        self.metaslabs.read().len() > LOG_METASLABS_MIN
    }

    /// Whether new blocks may go here: not on a vdev that is broken or being removed.
    pub fn set_usable(&self, usable: bool) {
        self.usable.store(usable, Ordering::Relaxed);
    }

    /// See [`Group::set_usable`].
    pub fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Relaxed)
    }

    /// Its metaslabs, in order.
    pub fn metaslabs(&self) -> Vec<Arc<Metaslab>> {
        self.metaslabs.read().clone()
    }

    /// The metaslab in which the byte at `offset` is.
    pub fn metaslab_at(&self, offset: u64) -> Result<Arc<Metaslab>> {
        let id = offset >> self.config.metaslab_shift;
        match self.metaslabs.read().get(id as usize) {
            Some(metaslab) => Ok(Arc::clone(metaslab)),
            None => bail!(Corrupt, "vdev {}: offset {offset:#x} is beyond its end", self.config.vdev),
        }
    }

    /// Space has come back: there may be room again.
    pub(super) fn forget_refusals(&self) {
        // In this order, and the other way round in `note_refusal`: one of the two sees the other.
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.refused.iter().for_each(|refused| refused.store(u64::MAX, Ordering::SeqCst));
    }

    /// A search that began at that count of `forgotten` has found no room: it says nothing of what has come back since.
    fn note_refusal(&self, size: u64, must_succeed: bool, began: u64) {
        let refused = &self.refused[usize::from(must_succeed)];
        refused.fetch_min(size, Ordering::SeqCst);
        if self.forgotten.load(Ordering::SeqCst) != began {
            refused.store(u64::MAX, Ordering::SeqCst);
        }
    }

    pub(super) fn is_candidate(&self, size: u64, must_succeed: bool) -> bool {
        let refused = &self.refused[usize::from(must_succeed)];
        self.is_usable() && size < refused.load(Ordering::Relaxed)
    }

    /// Bytes to be written here before the next group has its turn.
    pub(super) fn aliquot(&self) -> u64 {
        self.aliquot.load(Ordering::Relaxed)
    }

    /// Sets this group's share of the turn by its size and by how empty it is, both compared with the class.
    pub(super) fn rebalance(&self, class: SpaceUse, groups: u64) {
        let own = self.space_use();
        let share = |part: u64, whole: u64| u128::from(part) * 256 / u128::from(whole.max(1));
        let by_size = share(own.space, class.space / groups.max(1));
        let by_free = share(own.free(), own.space) * 256 / share(class.free(), class.space).max(1);
        let base = u128::from(ALIQUOT_BYTES * self.config.data_disks.max(1));
        let aliquot = (base * by_size.max(1) * by_free.max(1)) >> 16;
        self.aliquot.store(aliquot.clamp(1, u128::from(u32::MAX)) as u64, Ordering::Relaxed);
    }

    pub(super) fn allocate(&self, request: GroupRequest<'_>, loader: &dyn LoadSpaceMap) -> Result<Option<u64>> {
        let began = self.forgotten.load(Ordering::SeqCst);
        let here = request.copies_before.iter().filter(|dva| dva.vdev == self.config.vdev).count();
        if request.for_log
            && let Some(area) = self.log_area()
            && let Some(offset) = self.try_log_area(&area, request, loader)?
        {
            return Ok(Some(offset));
        }
        let mut slots = self.current[request.stream % self.current.len()].lock();
        let slot = &mut slots[here.min(COPIES_MAX - 1)];
        if let Some(metaslab) = slot
            && (request.must_succeed || !metaslab.is_worn())
            && self.is_apart(metaslab, request)
            && let Some(offset) = self.try_metaslab(metaslab, request, loader)?
        {
            return Ok(Some(offset));
        }
        let previous = slot.take();
        let Some((metaslab, offset)) = self.find_metaslab(request, loader)? else {
            *slot = previous;
            if here == 0 {
                self.note_refusal(request.size, request.must_succeed, began);
            }
            return Ok(None);
        };
        metaslab.chosen();
        *slot = Some(metaslab);
        Ok(Some(offset))
    }

    /// No other copy of the block is in this metaslab.
    fn is_apart(&self, metaslab: &Metaslab, request: GroupRequest<'_>) -> bool {
        let inside = |dva: &Dva| dva.offset >> self.config.metaslab_shift == metaslab.id;
        request.must_succeed || !request.copies_before.iter().any(|dva| dva.vdev == self.config.vdev && inside(dva))
    }

    /// The lowest room in the metaslab of the log.
    fn try_log_area(&self, area: &LogArea, request: GroupRequest<'_>, loader: &dyn LoadSpaceMap) -> Result<Option<u64>> {
        self.try_with(area.metaslab(), request, loader, Metaslab::allocate_lowest)
    }

    fn try_metaslab(&self, metaslab: &Metaslab, request: GroupRequest<'_>, loader: &dyn LoadSpaceMap) -> Result<Option<u64>> {
        self.try_with(metaslab, request, loader, Metaslab::allocate)
    }

    fn try_with(
        &self,
        metaslab: &Metaslab,
        request: GroupRequest<'_>,
        loader: &dyn LoadSpaceMap,
        allocate: fn(&Metaslab, u64, u64) -> Option<(u64, bool)>,
    ) -> Result<Option<u64>> {
        if !metaslab.load_if_readable(loader, request.txg)? {
            return Ok(None);
        }
        let Some((offset, first)) = allocate(metaslab, request.size, request.txg) else { return Ok(None) };
        if first {
            self.mark_dirty(metaslab.id, request.txg);
        }
        Ok(Some(offset))
    }

    /// The most promising metaslab that no other stream uses and that has room.
    fn find_metaslab(
        &self,
        request: GroupRequest<'_>,
        loader: &dyn LoadSpaceMap,
    ) -> Result<Option<(Arc<Metaslab>, u64)>> {
        let class = request.size.ilog2() as usize;
        let mut candidates = self.metaslabs();
        candidates.retain(|metaslab| {
            metaslab.largest_class().is_some_and(|largest| largest >= class) && self.is_apart(metaslab, request)
        });
        candidates.sort_by_key(|metaslab| std::cmp::Reverse(metaslab.weight()));
        let in_use = self.in_use_elsewhere();
        let log_metaslab = self.log_area().map(|area| area.metaslab().id);
        let for_all = request.must_succeed || !self.log_area_is_set_aside();
        let is_free = |metaslab: &&Arc<Metaslab>| !in_use.contains(&metaslab.id);
        let is_ordinary = |metaslab: &&Arc<Metaslab>| log_metaslab != Some(metaslab.id);
        let best = candidates.iter().filter(is_free).filter(is_ordinary);
        let shared = candidates.iter().filter(|metaslab| !is_free(metaslab)).filter(is_ordinary);
        let last = candidates.iter().filter(|metaslab| for_all && !is_ordinary(metaslab));
        let tries = if request.must_succeed { usize::MAX } else { TRIES_MAX };
        for metaslab in best.chain(shared).chain(last).take(tries) {
            if let Some(offset) = self.try_metaslab(metaslab, request, loader)? {
                return Ok(Some((Arc::clone(metaslab), offset)));
            }
        }
        Ok(None)
    }

    /// Metaslabs that other streams are using; those whose slot is locked just now are missed, which only costs locality.
    fn in_use_elsewhere(&self) -> BTreeSet<u64> {
        let slots = self.current.iter().filter_map(Mutex::try_lock);
        slots.flat_map(|slot| slot.iter().flatten().map(|metaslab| metaslab.id).collect::<Vec<_>>()).collect()
    }

    pub(super) fn unallocate(&self, offset: u64, size: u64, txg: u64) -> Result<()> {
        self.metaslab_at(offset)?.unallocate(offset, size, txg)?;
        self.taken[txg as usize % TXG_SLOTS].fetch_sub(size.cast_signed(), Ordering::Relaxed);
        // Not before: a thread that looks in between and finds nothing would be right, and all after it wrong.
        self.forget_refusals();
        Ok(())
    }

    pub(super) fn free(&self, offset: u64, size: u64, txg: u64, keep: bool) -> Result<()> {
        let metaslab = self.metaslab_at(offset)?;
        if metaslab.free(offset, size, keep)? {
            self.mark_dirty(metaslab.id, txg);
        }
        Ok(())
    }

    pub(super) fn claim(&self, offset: u64, size: u64, txg: u64, loader: &dyn LoadSpaceMap) -> Result<()> {
        let metaslab = self.metaslab_at(offset)?;
        metaslab.load(loader)?;
        if metaslab.claim(offset, size, txg)? {
            self.mark_dirty(metaslab.id, txg);
        }
        self.note_taken(txg, size);
        Ok(())
    }

    /// `txg` has allocated so many bytes.
    pub(super) fn note_taken(&self, txg: u64, size: u64) {
        self.taken[txg as usize % TXG_SLOTS].fetch_add(size.cast_signed(), Ordering::Relaxed);
    }

    /// What txgs that are not on disk have allocated.
    pub fn taken(&self) -> u64 {
        self.taken.iter().map(|taken| taken.load(Ordering::Relaxed)).sum::<i64>().max(0).cast_unsigned()
    }

    /// The txg is on disk: what it has allocated has been counted ([`Group::count_sync_done`]).
    pub fn forget_taken(&self, txg: u64) {
        self.taken[txg as usize % TXG_SLOTS].store(0, Ordering::Relaxed);
    }

    /// Makes the sync of `txg` come by metaslab `id`.
    pub fn mark_dirty(&self, id: u64, txg: u64) {
        self.dirty[txg as usize % TXG_SLOTS].lock().insert(id);
    }

    /// The metaslabs that have changed since the last pass of `txg`.
    pub fn take_dirty(&self, txg: u64) -> BTreeSet<u64> {
        std::mem::take(&mut self.dirty[txg as usize % TXG_SLOTS].lock())
    }

    /// Something was allocated or freed here since the last pass of `txg`.
    pub fn has_changes(&self, txg: u64) -> bool {
        let dirty = self.dirty[txg as usize % TXG_SLOTS].lock().clone();
        let metaslabs = self.metaslabs.read();
        dirty.iter().filter_map(|id| metaslabs.get(*id as usize)).any(|metaslab| metaslab.has_changes(txg))
    }

    /// Counts what a txg has changed in metaslab `id`, and has the next txg come by if it must.
    pub fn count_sync_done(&self, id: u64, txg: u64, done: SyncDone) {
        self.allocated.fetch_add(done.allocated, Ordering::Relaxed);
        self.deferred.fetch_add(done.deferred, Ordering::Relaxed);
        self.forget_refusals();
        if done.waiting {
            self.mark_dirty(id, txg + 1);
        }
    }

    /// How much of it is used.
    pub fn space_use(&self) -> SpaceUse {
        SpaceUse {
            space: self.space.load(Ordering::Relaxed),
            allocated: self.allocated.load(Ordering::Relaxed).max(0).cast_unsigned(),
            deferred: self.deferred.load(Ordering::Relaxed).max(0).cast_unsigned(),
        }
    }

    /// Bytes set aside for the intent log, on a vdev that has other uses.
    pub fn embedded_log_bytes(&self) -> u64 {
        let is_shared = matches!(self.config.class, ClassKind::Normal | ClassKind::Special);
        self.log_area().filter(|_| is_shared && self.log_area_is_set_aside()).map_or(0, |area| area.metaslab().size)
    }

    /// Percent of fragmentation of its free space, weighted by how much is free where.
    pub fn fragmentation(&self) -> u64 {
        let (mut total, mut weighted) = (0_u128, 0_u128);
        for metaslab in self.metaslabs.read().iter() {
            let free = u128::from(metaslab.size.saturating_sub(metaslab.allocated()));
            total += free;
            weighted += free * u128::from(metaslab.fragmentation());
        }
        weighted.checked_div(total).unwrap_or(0) as u64
    }
}
