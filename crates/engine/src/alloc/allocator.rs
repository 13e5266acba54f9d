//! All the space of a pool: classes of groups, and the calls that zio makes.
//!
//! # Theory
//!
//! A class is the groups that serve one purpose.  Each stream of allocations has a *rotor*: the group whose turn it is, and
//! how much it has had of it.  Copies of a block go to the groups that follow, one each, as long as there are enough; a
//! class that is empty or full passes the request on to the ordinary one.
//!
//! The rotor is two atomics without a lock: an update lost now and then makes striping a little uneven.
//!
//! # Locks
//!
//! None: the list of groups is replaced as a whole.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use ondisk::dva::Dva;


use super::group::{Group, GroupRequest, SpaceUse};
use super::withheld::Withholding;
use super::{LoadSpaceMap, Metaslab};
use crate::bail;
use crate::error::{ErrorKind, Result};

/// What a top-level vdev is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClassKind {
    /// Everything.
    Normal,
    /// The intent log (a separate log device).
    Log,
    /// Metadata and small blocks.
    Special,
    /// The deduplication table.
    Dedup,
}

impl ClassKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Log, Self::Special, Self::Dedup];
}

/// One block to be allocated.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The class it should go to.
    pub class: ClassKind,
    /// Its physical size, in bytes; a gang header's size for a gang header.
    pub physical: u64,
    /// How many copies, 1 to 3.
    pub copies: usize,
    /// The txg that it belongs to.
    pub txg: u64,
    /// Requests with the same number follow each other on disk; others may be allocated at the same time.
    pub stream: u64,
    /// Copies should go to the same vdevs as these (the header, for members of a gang).
    pub near: &'a [Dva],
    /// Copies must not go where these are (copies allocated before).
    pub apart: &'a [Dva],
    /// It is a block of the intent log.
    pub for_log: bool,
    /// There is no smaller way to do it: look everywhere (gang headers and members, the smallest blocks).
    pub must_succeed: bool,
}

impl Request<'_> {
    /// A request without wishes.
    pub const fn new(class: ClassKind, physical: u64, copies: usize, txg: u64) -> Self {
        Self {
            class,
            physical,
            copies,
            txg,
            stream: 0,
            near: &[],
            apart: &[],
            for_log: false,
            must_succeed: false,
        }
    }
}

#[derive(Debug, Default)]
struct Rotor {
    group: AtomicUsize,
    bytes: AtomicU64,
}

#[derive(Default)]
struct Class {
    groups: ArcSwap<Vec<Arc<Group>>>,
    rotors: Vec<Rotor>,
}

/// Allocations that find no room although there is some: for tests of full pools.
#[derive(Debug, Default)]
pub struct AllocationFaults {
    armed: AtomicBool,
    count: AtomicU64,
    first: AtomicU64,
    end: AtomicU64,
    /// Larger ones than this fail; 0: no.
    largest: AtomicU64,
}

impl AllocationFaults {
    /// From now on the `nth` allocation fails (1 is the next), and `more` after it.
    pub fn fail(&self, nth: u64, more: u64) {
        self.first.store(self.count() + nth, Ordering::SeqCst);
        self.end.store((self.count() + nth).saturating_add(more).saturating_add(1), Ordering::SeqCst);
        self.armed.store(true, Ordering::SeqCst);
    }

    /// From now on there is no room for more than `bytes` in one piece.
    pub fn fragment(&self, bytes: u64) {
        self.largest.store(bytes, Ordering::SeqCst);
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Counts allocations; those that fail are counted too.
    pub fn watch(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// How many allocations were counted.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    fn strikes(&self, bytes: u64) -> bool {
        if !self.armed.load(Ordering::Relaxed) {
            return false;
        }
        let nth = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let largest = self.largest.load(Ordering::SeqCst);
        (largest != 0 && bytes > largest) || (self.first.load(Ordering::SeqCst)..self.end.load(Ordering::SeqCst)).contains(&nth)
    }
}

/// All the space of a pool.
pub struct Allocator {
    /// What shall go wrong.
    pub faults: AllocationFaults,
    classes: [Class; 4],
    loader: OnceLock<Arc<dyn LoadSpaceMap>>,
    streams: usize,
    pub(super) withholding: Withholding,
    /// What blocks of 512 bytes, 1 KiB and so on count on one of the ordinary vdevs, if parity and its padding make that more than a block for some; else 0.
    inflated: [AtomicU64; BLOCK_SIZES],
    /// What [`LARGE_BLOCK`] bytes take on one of the ordinary vdevs, parity and all.
    large_block: AtomicU64,
}

/// From 512 bytes to 16 MiB.
const BLOCK_SIZES: usize = 16;
const BLOCK_SHIFT_MIN: u32 = 9;
const LARGE_BLOCK: u64 = 128 << 10;

impl Allocator {
    /// An allocator without groups; `streams` is how many allocations may be under way at one time on one vdev.
    pub fn new(streams: usize) -> Self {
        let streams = streams.max(1);
        let class = || Class {
            groups: ArcSwap::default(),
            rotors: (0..streams).map(|_| Rotor::default()).collect(),
        };
        Self {
            faults: AllocationFaults::default(),
            classes: std::array::from_fn(|_| class()),
            loader: OnceLock::new(),
            streams,
            withholding: Withholding::default(),
            inflated: Default::default(),
            large_block: AtomicU64::new(LARGE_BLOCK),
        }
    }

    /// Sets who reads the space maps; once, before the first allocation.
    pub fn set_loader(&self, loader: Arc<dyn LoadSpaceMap>) {
        let again = self.loader.set(loader);
        assert!(again.is_ok(), "the loader of space maps was set twice");
    }

    pub(super) fn loader(&self) -> Result<&dyn LoadSpaceMap> {
        match self.loader.get() {
            Some(loader) => Ok(loader.as_ref()),
            None => bail!(ReadOnly, "the pool's space maps are not open"),
        }
    }

    /// How many streams each group has.
    pub const fn streams(&self) -> usize {
        self.streams
    }

    /// Adds a top-level vdev.
    pub fn add_group(&self, group: Arc<Group>) {
        let class = &self.classes[group.config().class as usize];
        class.groups.rcu(|groups| {
            let mut new = Vec::clone(groups);
            new.push(group.clone());
            new.sort_by_key(|group| group.config().vdev);
            new
        });
        self.note_inflation();
    }

    /// Removes a top-level vdev.
    pub fn remove_group(&self, vdev: u32) {
        for class in &self.classes {
            class.groups.rcu(|groups| {
                let mut new = Vec::clone(groups);
                new.retain(|group| group.config().vdev != vdev);
                new
            });
        }
        self.note_inflation();
    }

    /// The ordinary vdevs are others now. (A RAID-Z that gets wider has less parity.)
    fn note_inflation(&self) {
        let groups = self.class_groups(ClassKind::Normal);
        let unit = self.unit_max(ClassKind::Normal);
        let blocks: [u64; BLOCK_SIZES] = std::array::from_fn(|at| 1 << (at as u32 + BLOCK_SHIFT_MIN));
        let most = blocks.map(|block| groups.iter().map(|group| group.data_share_of_block(block)).max().unwrap_or(0));
        let is_any_more = blocks.iter().zip(&most).any(|(block, most)| *most > block.next_multiple_of(unit));
        for (inflated, most) in self.inflated.iter().zip(most) {
            inflated.store(if is_any_more { most } else { 0 }, Ordering::Relaxed);
        }
        let large = groups.iter().map(|group| group.allocated_size(LARGE_BLOCK, 0)).max().unwrap_or(LARGE_BLOCK);
        self.large_block.store(large, Ordering::Relaxed);
    }

    /// What so many bytes in large blocks take on the ordinary vdevs, parity and all.
    pub fn with_parity(&self, bytes: u64) -> u64 {
        let taken = u128::from(bytes) * u128::from(self.large_block.load(Ordering::Relaxed)) / u128::from(LARGE_BLOCK);
        u64::try_from(taken).unwrap_or(u64::MAX)
    }

    /// The most that a block of so many bytes counts on one of the ordinary vdevs. Space is counted without the share of parity that a large block has; a small
    /// block has more, and on dRAID a stripe for itself.
    pub fn worst_data_share(&self, block: u64) -> u64 {
        let shift = block.checked_next_power_of_two().map_or(0, u64::trailing_zeros);
        let inflated = self.inflated.get(shift.saturating_sub(BLOCK_SHIFT_MIN) as usize).map_or(0, |share| share.load(Ordering::Relaxed));
        block.next_multiple_of(self.unit_max(ClassKind::Normal)).max(inflated)
    }

    /// The groups of a class, by vdev.
    pub fn class_groups(&self, class: ClassKind) -> Arc<Vec<Arc<Group>>> {
        self.classes[class as usize].groups.load_full()
    }

    /// The largest unit of allocation of a class, in bytes.
    pub fn unit_max(&self, class: ClassKind) -> u64 {
        1 << self.classes[class as usize].groups.load().iter().map(|group| group.config().ashift).max().unwrap_or(9)
    }

    /// All groups.
    pub fn groups(&self) -> Vec<Arc<Group>> {
        ClassKind::ALL.iter().flat_map(|class| self.class_groups(*class).to_vec()).collect()
    }

    /// The group of a top-level vdev.
    pub fn group(&self, vdev: u32) -> Result<Arc<Group>> {
        for class in &self.classes {
            let groups = class.groups.load();
            if let Ok(at) = groups.binary_search_by_key(&vdev, |group| group.config().vdev) {
                return Ok(Arc::clone(&groups[at]));
            }
        }
        bail!(Corrupt, "there is no space on a vdev {vdev}")
    }

    /// The metaslab that holds a range.
    pub fn metaslab(&self, vdev: u32, offset: u64) -> Result<Arc<Metaslab>> {
        self.group(vdev)?.metaslab_at(offset)
    }

    /// Allocates all copies of a block, or none. The error is `NoSpace` if they do not fit (in pieces they may).
    pub fn allocate(&self, request: &Request<'_>) -> Result<Vec<Dva>> {
        assert!((1..=3).contains(&request.copies) && request.physical > 0, "cannot allocate {request:?}");
        if self.faults.strikes(request.physical) {
            bail!(NoSpace, "injected: no room for {} copies of {} bytes", request.copies, request.physical);
        }
        let ended = self.withholding.ended();
        match self.allocate_now(request) {
            Err(error) if error.kind() == ErrorKind::NoSpace => self.withholding.without(ended, || self.allocate_now(request)).unwrap_or(Err(error)),
            done => done,
        }
    }

    fn allocate_now(&self, request: &Request<'_>) -> Result<Vec<Dva>> {
        let mut dvas = Vec::with_capacity(request.copies);
        for _ in 0..request.copies {
            let found = self.allocate_copy(request, &dvas);
            if let Ok(Some(dva)) = found {
                dvas.push(dva);
                continue;
            }
            for dva in &dvas {
                self.unallocate(*dva, request.txg)?;
            }
            found?;
            bail!(NoSpace, "no room for {} copies of {} bytes", request.copies, request.physical);
        }
        Ok(dvas)
    }

    fn allocate_copy(&self, request: &Request<'_>, before: &[Dva]) -> Result<Option<Dva>> {
        if let Some(dva) = self.allocate_in(request.class, request, before)? {
            return Ok(Some(dva));
        }
        if request.class == ClassKind::Normal {
            return Ok(None);
        }
        self.allocate_in(ClassKind::Normal, request, before)
    }

    fn allocate_in(&self, kind: ClassKind, request: &Request<'_>, before: &[Dva]) -> Result<Option<Dva>> {
        let groups = self.class_groups(kind);
        if groups.is_empty() {
            return Ok(None);
        }
        let loader = self.loader()?;
        let copies_before: Vec<Dva> = request.apart.iter().chain(before).copied().collect();
        let rotor = &self.classes[kind as usize].rotors[(request.stream % self.streams as u64) as usize];
        let turn = rotor.group.load(Ordering::Relaxed) % groups.len();
        let at = |dva: &Dva| groups.iter().position(|group| group.config().vdev == dva.vdev);
        let near = request.near.get(before.len()).and_then(at);
        let after = copies_before.last().and_then(at).map(|index| (index + 1) % groups.len());
        let first = near.or(after).unwrap_or(turn);
        // The smallest blocks cannot be cut into smaller ones, so there is no second chance for them. And a copy that lies
        // near the others is better than all of them in pieces.
        let no_smaller = |group: &Group| group.allocated_size(request.physical, request.txg) <= group.allocated_size(1, request.txg);
        let has_second_chance = request.must_succeed || request.for_log || !copies_before.is_empty();
        for must_succeed in [false, true] {
            for step in 0..groups.len() {
                let index = (first + step) % groups.len();
                let group = &groups[index];
                if must_succeed && !has_second_chance && !no_smaller(group) {
                    continue;
                }
                if let Some(dva) = self.allocate_on(group, request, &copies_before, must_succeed, loader)? {
                    self.rotate(kind, rotor, turn, index, group, request.physical);
                    return Ok(Some(dva));
                }
                if index == turn {
                    self.rotate_on(rotor, turn, groups.len());
                }
            }
        }
        Ok(None)
    }

    fn allocate_on(
        &self,
        group: &Group,
        request: &Request<'_>,
        copies_before: &[Dva],
        must_succeed: bool,
        loader: &dyn LoadSpaceMap,
    ) -> Result<Option<Dva>> {
        let size = group.allocated_size(request.physical, request.txg);
        if !group.is_candidate(size, must_succeed) {
            return Ok(None);
        }
        let request = GroupRequest {
            size,
            txg: request.txg,
            stream: (request.stream % self.streams as u64) as usize,
            copies_before,
            for_log: request.for_log,
            must_succeed,
        };
        let offset = group.allocate(request, loader)?;
        if offset.is_some() {
            group.note_taken(request.txg, size);
        }
        Ok(offset.map(|offset| Dva::new(group.config().vdev, offset, size)))
    }

    /// The group whose turn it is has taken `physical` bytes; if that was its share, the next one has its turn.
    fn rotate(&self, kind: ClassKind, rotor: &Rotor, turn: usize, index: usize, group: &Group, physical: u64) {
        if index != turn {
            return;
        }
        let taken = rotor.bytes.fetch_add(physical, Ordering::Relaxed) + physical + physical / 2;
        if taken >= group.aliquot() || kind == ClassKind::Log {
            self.rotate_on(rotor, turn, self.class_groups(kind).len());
        }
    }

    fn rotate_on(&self, rotor: &Rotor, turn: usize, groups: usize) {
        rotor.group.store((turn + 1) % groups.max(1), Ordering::Relaxed);
        rotor.bytes.store(0, Ordering::Relaxed);
    }

    /// Gives back what `txg` allocated, before it was ever written.
    pub fn unallocate(&self, dva: Dva, txg: u64) -> Result<()> {
        self.group(dva.vdev)?.unallocate(dva.offset, dva.allocated, txg)
    }

    /// Gives back a range that is in use; syncing context only. Of a gang block, `dva.allocated` is the header's size.
    pub fn free(&self, dva: Dva, txg: u64) -> Result<()> {
        self.group(dva.vdev)?.free(dva.offset, dva.allocated, txg, false)
    }

    /// As [`Allocator::free`], of a range that a checkpoint has: it is noted down ([`Changes::kept`](super::Changes::kept)) and stays in use.
    pub fn free_and_keep(&self, dva: Dva, txg: u64) -> Result<()> {
        self.group(dva.vdev)?.free(dva.offset, dva.allocated, txg, true)
    }

    /// Takes a range that an intent log refers to, when the pool is opened.  `NotFound`: it is in use.
    pub fn claim(&self, dva: Dva, txg: u64) -> Result<()> {
        self.group(dva.vdev)?.claim(dva.offset, dva.allocated, txg, self.loader()?)
    }

    /// Some of the range is free: what a block pointer must not refer to.
    pub fn is_free(&self, dva: Dva) -> Result<bool> {
        let metaslab = self.metaslab(dva.vdev, dva.offset)?;
        metaslab.load(self.loader()?)?;
        Ok(metaslab.is_free(dva.offset, dva.allocated).unwrap_or(false))
    }

    /// How much of a class is used.
    pub fn space_use(&self, class: ClassKind) -> SpaceUse {
        self.class_groups(class).iter().fold(SpaceUse::default(), |sum, group| sum.plus(group.space_use()))
    }

    /// The same, without the share of parity.
    pub fn data_use(&self, class: ClassKind) -> SpaceUse {
        self.class_groups(class).iter().fold(SpaceUse::default(), |sum, group| sum.plus(group.data_use()))
    }

    /// As [`Allocator::space_use`], of the vdevs where new blocks may go.
    pub fn open_space(&self, class: ClassKind) -> SpaceUse {
        let groups = self.class_groups(class);
        groups.iter().filter(|group| group.is_usable()).fold(SpaceUse::default(), |sum, group| sum.plus(group.space_use()))
    }

    /// Bytes of the vdevs where new blocks may go, without what is set aside for the intent log, and without the share of parity.
    pub fn data_bytes(&self, class: ClassKind) -> u64 {
        let groups = self.class_groups(class);
        groups.iter().filter(|group| group.is_usable()).map(|group| group.data_share(group.space_use().space.saturating_sub(group.embedded_log_bytes()))).sum()
    }

    /// Of that, what is free.
    pub fn data_free(&self, class: ClassKind) -> u64 {
        let groups = self.class_groups(class);
        let free = |group: &Arc<Group>| group.data_use().free().saturating_sub(group.data_share(group.embedded_log_bytes()));
        groups.iter().filter(|group| group.is_usable()).map(free).sum()
    }

    /// What groups that are not on disk have allocated of a class: [`SpaceUse`] does not have it yet.
    pub fn taken(&self, class: ClassKind) -> u64 {
        self.class_groups(class).iter().map(|group| group.taken()).sum()
    }

    /// Percent of fragmentation of a class, weighted by the sizes of its groups.
    pub fn fragmentation(&self, class: ClassKind) -> u64 {
        let (mut total, mut weighted) = (0_u128, 0_u128);
        for group in self.class_groups(class).iter() {
            let space = u128::from(group.space_use().space);
            total += space;
            weighted += space * u128::from(group.fragmentation());
        }
        weighted.checked_div(total).unwrap_or(0) as u64
    }

    /// Bytes set aside for the intent log on ordinary vdevs.
    pub fn embedded_log_bytes(&self) -> u64 {
        self.groups().iter().map(|group| group.embedded_log_bytes()).sum()
    }

    /// The same, without the share of parity.
    pub fn embedded_log_data(&self) -> u64 {
        self.groups().iter().map(|group| group.data_share(group.embedded_log_bytes())).sum()
    }

    /// Weighs the groups' turns against each other; once each txg.
    pub fn rebalance(&self) {
        for class in ClassKind::ALL {
            let (groups, space) = (self.class_groups(class), self.space_use(class));
            groups.iter().for_each(|group| group.rebalance(space, groups.len() as u64));
        }
    }
}
