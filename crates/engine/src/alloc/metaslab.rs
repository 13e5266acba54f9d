//! One metaslab: a fixed piece of a top-level vdev, and where each of its bytes is in the life of a range.
//!
//! # Theory
//!
//! See [`super`] for the picture.  Within a metaslab an allocation looks for the first room behind the previous one of its
//! alignment, so that what is written together lies together; when that has become laborious (little is free, or in small
//! pieces) it takes a segment of about the right size instead.
//!
//! The *weight* says how promising a metaslab is: the size class of its largest free segments, then how many there are.
//! It is kept outside the lock and may be somewhat old: choosing by it is a guess that the allocation proves.
//!
//! # Locks
//!
//! `loading` is held across the I/O of a load, and by the sync thread where it changes what a load would read.
//! `state` is taken inside it, and guards everything else.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::space_map::{HISTOGRAM_BUCKETS, SpaceMapHeader};
use parking_lot::{Mutex, MutexGuard};

use super::range_tree::{CLASSES, RangeTree};
use super::{LoadSpaceMap, fragmentation};
use crate::bail;
use crate::error::{ErrorKind, Result, Within};

/// Txgs that can be allocating at one time: open, quiescing, syncing, and one to tell them apart.
const TXG_SLOTS: usize = 4;
/// Written txgs for which freed space waits.
const DEFER_TXGS: usize = 2;
/// How far behind the cursor room is looked for before a segment is picked by its size.
const SEARCH_BYTES: u64 = 16 << 20;
const SEARCH_SEGMENTS: usize = 100;
/// With less than this free, or with no segment of at least the second, segments are picked by size at once.
const SEARCH_FREE_PERCENT: u64 = 4;
const SEARCH_CLASS_MIN: usize = 17;
/// A metaslab in use is given up when its largest free segments have shrunk by this many size classes.
const CLASSES_LOST_MAX: usize = 2;
/// A metaslab that has not been allocated from for this many txgs gives its memory back.
const UNLOAD_TXGS: u64 = 64;
/// One whose space map could not be read is tried again after so many txgs.
const UNREADABLE_TXGS: u64 = 8;

/// Ranges that came free lately, of one metaslab: what is beyond it no device is told of.
const LATELY_MAX: usize = 1 << 16;

const WEIGHT_COUNT_BITS: u32 = 40;

/// What one sync pass of a metaslab has to write.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Ranges that came into use.
    pub allocated: RangeTree,
    /// Ranges that were given back.  They may include ranges that earlier passes of the txg allocated.
    pub freed: RangeTree,
    /// Ranges that were given back and that a checkpoint has: they stay in use.
    pub kept: RangeTree,
}

/// What a txg changed in a metaslab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SyncDone {
    /// Change of the bytes that are not available: in use, or waiting.
    pub allocated: i64,
    /// Change of the bytes that are waiting.
    pub deferred: i64,
    /// Some bytes are still waiting: the next txg has to come by again.
    pub waiting: bool,
}

#[derive(Debug, Default)]
struct State {
    /// What can be allocated; `None`: not in memory.
    free: Option<RangeTree>,
    /// Where the last allocation of each alignment ended.
    cursors: [u64; 32],
    /// The size class of the largest segment when this metaslab was chosen.
    class_when_chosen: usize,
    /// The last txg that allocated here.
    used_txg: u64,
    allocating: [RangeTree; TXG_SLOTS],
    freeing: RangeTree,
    keeping: RangeTree,
    freed: RangeTree,
    /// What waits, the oldest first.
    deferred: [RangeTree; DEFER_TXGS],
    /// What is free and nobody may allocate: it is being filled, or given back to a device.
    withheld: RangeTree,
    /// Of `withheld`, the parts, each with the number of its holder.
    holds: Vec<(u64, RangeTree)>,
    /// What has come free lately, for the devices that are told of it; `None`: nobody wants to know.
    lately: Option<RangeTree>,
    /// Bytes that passes of the syncing txg have written as allocated.
    written_allocated: u64,
    /// Bytes in use, as the disk has it after the last pass.
    allocated: u64,
    fragmentation: u64,
}

/// A fixed piece of a top-level vdev.
#[derive(Debug)]
pub struct Metaslab {
    /// The top-level vdev. Immutable.
    pub vdev: u32,
    /// Its index there. Immutable.
    pub id: u64,
    /// Offset of its first byte in the vdev. Immutable.
    pub start: u64,
    /// Its size. Immutable.
    pub size: u64,
    /// Log2 of the smallest allocation. Immutable.
    pub shift: u8,
    weight: AtomicU64,
    /// Its space map could not be read when somebody wanted to allocate in an earlier txg than this.
    unreadable_until: AtomicU64,
    loading: Mutex<()>,
    state: Mutex<State>,
}

/// Adds to the ranges that came free lately, unless these are too many already. What is there already was allocated meanwhile.
fn note_lately<'a>(lately: &mut Option<RangeTree>, freed: impl IntoIterator<Item = &'a RangeTree>) {
    let Some(lately) = lately else { return };
    for (offset, size) in freed.into_iter().flat_map(RangeTree::segments) {
        if lately.segment_count() >= LATELY_MAX {
            return;
        }
        lately.remove_present(offset, size);
        // Nothing of it is there now.
        let _ = lately.add(offset, size);
    }
}

fn weight_of(class: usize, count: u64) -> u64 {
    (class as u64 + 1) << WEIGHT_COUNT_BITS | count.min((1 << WEIGHT_COUNT_BITS) - 1)
}

impl Metaslab {
    /// A metaslab that is not in memory. `header` is that of its space map; `None`: it has never been used.
    /// `allocated` is what is in use, changes in log space maps included.
    pub fn new(vdev: u32, id: u64, size: u64, shift: u8, header: Option<&SpaceMapHeader>, allocated: u64) -> Self {
        Self::with_area(vdev, id, (id * size, size), shift, header, allocated)
    }

    /// As [`Metaslab::new`], where it begins and its size are given.
    pub fn with_area(vdev: u32, id: u64, (start, size): (u64, u64), shift: u8, header: Option<&SpaceMapHeader>, allocated: u64) -> Self {
        let metaslab = Self {
            vdev,
            id,
            start,
            size,
            shift,
            weight: AtomicU64::new(0),
            unreadable_until: AtomicU64::new(0),
            loading: Mutex::new(()),
            state: Mutex::new(State { allocated, ..State::default() }),
        };
        metaslab.guess_weight(header, &mut metaslab.state.lock());
        metaslab
    }

    /// Weight and fragmentation of a metaslab that is not in memory, from what the disk says of it.
    fn guess_weight(&self, header: Option<&SpaceMapHeader>, state: &mut State) {
        let free = self.size.saturating_sub(state.allocated);
        let histogram = header.and_then(|header| header.histogram);
        let largest = histogram.and_then(|counts| counts.iter().rposition(|count| *count > 0).map(|i| (i, counts[i])));
        let weight = match (histogram, largest) {
            _ if free == 0 => 0,
            (Some(histogram), Some((bucket, count))) => {
                state.fragmentation = fragmentation(&histogram, self.shift);
                weight_of(bucket + usize::from(self.shift), count)
            }
            // Never used, or all the free space came with changes in the log: take it for whole.
            _ if header.is_none() => weight_of(self.size.ilog2() as usize, 1),
            _ => weight_of((free.ilog2() as usize).saturating_sub(3).max(usize::from(self.shift)), 1),
        };
        self.weight.store(weight, Ordering::Relaxed);
    }

    fn reweigh(&self, state: &State) {
        if let Some(free) = &state.free {
            let weight = free.largest_class().map_or(0, |(class, count)| weight_of(class, count));
            self.weight.store(weight, Ordering::Relaxed);
        }
    }

    /// How promising this metaslab is; 0: full.
    pub(super) fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    /// The size class of the largest free segments, by the weight.
    pub(super) fn largest_class(&self) -> Option<usize> {
        (self.weight() >> WEIGHT_COUNT_BITS).checked_sub(1).map(|class| class as usize)
    }

    /// The range lies in this metaslab and is made of whole allocation units.
    fn check_range(&self, offset: u64, size: u64) -> Result<()> {
        let inside = offset >= self.start && size > 0 && size <= self.size && offset - self.start <= self.size - size;
        let unit = 1_u64 << self.shift;
        if !inside || !offset.is_multiple_of(unit) || !size.is_multiple_of(unit) {
            bail!(Corrupt, "{self}: no range of it: {offset:#x}+{size:#x}");
        }
        Ok(())
    }

    /// Is the offset in this metaslab?
    pub fn contains(&self, offset: u64) -> bool {
        (self.start..self.start + self.size).contains(&offset)
    }

    /// Keeps loads out while the sync thread changes what a load reads.
    pub fn exclude_load(&self) -> MutexGuard<'_, ()> {
        self.loading.lock()
    }

    /// Its free space is in memory.
    pub fn is_loaded(&self) -> bool {
        self.state.lock().free.is_some()
    }

    /// Brings its free space into memory.
    pub fn load(&self, loader: &dyn LoadSpaceMap) -> Result<()> {
        if self.is_loaded() {
            return Ok(());
        }
        let _loading = self.loading.lock();
        if self.is_loaded() {
            return Ok(());
        }
        let mut free = loader.load(self.vdev, self.id).within(|| self)?;
        let mut state = self.state.lock();
        let remove = |free: &mut RangeTree| {
            state.deferred.iter().chain(&state.allocating).try_for_each(|tree| free.remove_all(tree))
        };
        remove(&mut free).within(|| format!("{self}: its space map does not fit what waits"))?;
        state.free = Some(free.into_indexed());
        self.reweigh(&state);
        Ok(())
    }

    /// As [`Metaslab::load`], for a caller that wants to allocate in `txg`. `false`: its space map is damaged; others will do.
    pub(super) fn load_if_readable(&self, loader: &dyn LoadSpaceMap, txg: u64) -> Result<bool> {
        if txg < self.unreadable_until.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match self.load(loader) {
            Err(error) if matches!(error.kind(), ErrorKind::Checksum | ErrorKind::Corrupt | ErrorKind::Io) => {
                tracing::error!(%error, "nothing is allocated in a metaslab for some time");
                self.unreadable_until.store(txg + UNREADABLE_TXGS, Ordering::Relaxed);
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }

    /// Notes that this metaslab is the one in use now.
    pub(super) fn chosen(&self) {
        let mut state = self.state.lock();
        state.class_when_chosen = state.free.as_ref().and_then(RangeTree::largest_class).map_or(0, |(class, _)| class);
    }

    /// A better one should be looked for: the large segments that it was chosen for are used up.
    pub(super) fn is_worn(&self) -> bool {
        let state = self.state.lock();
        let class = state.free.as_ref().and_then(RangeTree::largest_class).map_or(0, |(class, _)| class);
        class + CLASSES_LOST_MAX <= state.class_when_chosen
    }

    /// Takes `size` bytes; `None`: there is no such piece, or the metaslab is not in memory.
    /// The flag: this is the first allocation of the txg here.
    pub(super) fn allocate(&self, size: u64, txg: u64) -> Option<(u64, bool)> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let free = state.free.as_ref()?;
        let cursor = &mut state.cursors[(size.trailing_zeros() as usize).min(31)];
        let large = free.largest_class().is_some_and(|(class, _)| class >= SEARCH_CLASS_MIN);
        let roomy = large && free.bytes() >= self.size / 100 * SEARCH_FREE_PERCENT;
        let near = if roomy { free.first_fit(*cursor, size, SEARCH_BYTES, SEARCH_SEGMENTS) } else { None };
        let offset = near.or_else(|| free.best_fit(size));
        let Some(offset) = offset else {
            self.reweigh(state);
            return None;
        };
        *cursor = offset + size;
        Some((offset, self.take(state, offset, size, txg)))
    }

    /// As [`Metaslab::allocate`], the lowest room.
    pub(super) fn allocate_lowest(&self, size: u64, txg: u64) -> Option<(u64, bool)> {
        let mut state = self.state.lock();
        let free = state.free.as_ref()?;
        let lowest = free.first_fit(self.start, size, SEARCH_BYTES, SEARCH_SEGMENTS);
        let offset = lowest.or_else(|| free.best_fit(size))?;
        Some((offset, self.take(&mut state, offset, size, txg)))
    }

    /// As [`Metaslab::allocate`], the first room at `from` or behind it, but not if that is hard to find.
    pub(super) fn allocate_behind(&self, from: u64, size: u64, txg: u64) -> Option<(u64, bool)> {
        let mut state = self.state.lock();
        let offset = state.free.as_ref()?.first_fit(from, size, SEARCH_BYTES, SEARCH_SEGMENTS)?;
        Some((offset, self.take(&mut state, offset, size, txg)))
    }

    /// A free range is allocated by `txg`; says whether it is the first one here.
    fn take(&self, state: &mut State, offset: u64, size: u64, txg: u64) -> bool {
        let taken = state.free.as_mut().map(|free| free.remove(offset, size));
        taken.unwrap_or(Ok(())).unwrap_or_else(|error| unreachable!("{self}: {error}"));
        state.used_txg = state.used_txg.max(txg);
        let allocating = &mut state.allocating[txg as usize % TXG_SLOTS];
        let first = allocating.is_empty();
        allocating.add(offset, size).unwrap_or_else(|error| panic!("{self}: allocated twice: {error}"));
        first
    }

    /// Gives back what `txg` allocated and no pass has written yet (a write that failed).
    pub(super) fn unallocate(&self, offset: u64, size: u64, txg: u64) -> Result<()> {
        self.check_range(offset, size)?;
        let mut state = self.state.lock();
        state.allocating[txg as usize % TXG_SLOTS].remove(offset, size).within(|| self)?;
        if let Some(free) = &mut state.free {
            free.add(offset, size).within(|| self)?;
        }
        self.reweigh(&state);
        Ok(())
    }

    /// Gives back a range that is in use; `keep`: a checkpoint has it. The flag: this is the first free since the last pass.
    pub(super) fn free(&self, offset: u64, size: u64, keep: bool) -> Result<bool> {
        self.check_range(offset, size)?;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let (to, other) = if keep { (&mut state.keeping, &state.freeing) } else { (&mut state.freeing, &state.keeping) };
        let gone = [&state.freed, other, &state.withheld].into_iter().chain(&state.deferred).chain(&state.free);
        if gone.into_iter().any(|tree| tree.overlaps(offset, size)) {
            bail!(Corrupt, "{self}: freed twice: {offset:#x}+{size:#x}");
        }
        let first = to.is_empty() && other.is_empty();
        to.add(offset, size).within(|| format!("{self}: freed twice"))?;
        Ok(first)
    }

    /// Takes a range that the intent log refers to out of the free space; the metaslab must be in memory.
    pub(super) fn claim(&self, offset: u64, size: u64, txg: u64) -> Result<bool> {
        self.check_range(offset, size)?;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(free) = &mut state.free else { bail!(Invalid, "{self} is not in memory") };
        if !free.contains(offset, size) {
            bail!(NotFound, "{self}: claimed range {offset:#x}+{size:#x} is not free");
        }
        free.remove(offset, size).within(|| self)?;
        state.used_txg = state.used_txg.max(txg);
        let allocating = &mut state.allocating[txg as usize % TXG_SLOTS];
        let first = allocating.is_empty();
        allocating.add(offset, size).within(|| self)?;
        Ok(first)
    }

    /// Some byte of the range is free; `None`: not in memory.
    pub fn is_free(&self, offset: u64, size: u64) -> Option<bool> {
        let state = self.state.lock();
        state.free.as_ref().map(|free| free.overlaps(offset, size) || state.withheld.overlaps(offset, size))
    }

    /// What is not free of a range; `None`: not in memory.
    ///
    /// # Errors
    /// The range is not in this metaslab.
    pub fn used_of(&self, start: u64, end: u64) -> Result<Option<RangeTree>> {
        self.check_range(start, end.saturating_sub(start))?;
        let state = self.state.lock();
        let Some(free) = &state.free else { return Ok(None) };
        let mut used = RangeTree::new();
        used.add(start, end - start)?;
        for (offset, size) in free.segments() {
            let (from, to) = (offset.max(start), (offset + size).min(end));
            if from < to {
                used.remove(from, to - from).within(|| self)?;
            }
        }
        Ok(Some(used))
    }

    /// What is in use of a range and has not been freed by the group that is being written. `None`: not in memory.
    ///
    /// # Errors
    /// The range is not in this metaslab.
    pub fn in_use(&self, start: u64, end: u64) -> Result<Option<RangeTree>> {
        self.check_range(start, end.saturating_sub(start))?;
        let state = self.state.lock();
        let Some(free) = &state.free else { return Ok(None) };
        let mut used = RangeTree::new();
        used.add(start, end - start)?;
        let waiting = [&state.freeing, &state.freed, &state.withheld].into_iter().chain(&state.deferred);
        for tree in [free].into_iter().chain(waiting) {
            for (offset, size) in tree.segments_from(start).take_while(|(offset, _)| *offset < end) {
                let (from, to) = (offset.max(start), (offset + size).min(end));
                if from < to {
                    used.remove(from, to - from).within(|| self)?;
                }
            }
        }
        Ok(Some(used))
    }

    /// There is something for a pass to write.
    pub fn has_changes(&self, txg: u64) -> bool {
        let state = self.state.lock();
        !state.allocating[txg as usize % TXG_SLOTS].is_empty() || !state.freeing.is_empty() || !state.keeping.is_empty()
    }

    /// What this pass has to write; from here on it counts as written.
    pub fn begin_pass(&self, txg: u64) -> Result<Changes> {
        let mut state = self.state.lock();
        let allocated = std::mem::take(&mut state.allocating[txg as usize % TXG_SLOTS]);
        let freed = std::mem::take(&mut state.freeing);
        let kept = std::mem::take(&mut state.keeping);
        if state.freed.is_empty() {
            state.freed = freed.clone();
        } else {
            state.freed.add_all(&freed).within(|| self)?;
        }
        state.written_allocated += allocated.bytes();
        let in_use = (state.allocated + allocated.bytes()).checked_sub(freed.bytes());
        let Some(in_use) = in_use else { bail!(Corrupt, "{self}: more is freed than was in use") };
        state.allocated = in_use;
        Ok(Changes { allocated, freed, kept })
    }

    /// What the disk called free after the last txg: the contents of a condensed space map. `None`: not in memory, or the
    /// syncing txg has begun to write.
    pub fn free_on_disk(&self) -> Result<Option<RangeTree>> {
        let state = self.state.lock();
        let Some(free) = &state.free else { return Ok(None) };
        if !state.freed.is_empty() || state.written_allocated > 0 {
            return Ok(None);
        }
        let mut whole = free.clone();
        state.deferred.iter().chain(&state.allocating).chain([&state.withheld]).try_for_each(|tree| whole.add_all(tree)).within(|| self)?;
        Ok(Some(whole))
    }

    /// How many free segments there are of each size class, without what waits; `None`: not in memory.
    pub fn class_counts(&self) -> Option<[u64; CLASSES]> {
        self.state.lock().free.as_ref().map(RangeTree::class_counts)
    }

    /// Brings the histogram of its space map up to date with a pass that freed `freed`.
    pub fn update_histogram(&self, header: &mut SpaceMapHeader, freed: &RangeTree) {
        if header.histogram.is_none() {
            return;
        }
        let mut state = self.state.lock();
        if let Some(free) = &state.free {
            header.histogram = Some([0; HISTOGRAM_BUCKETS]);
            for (class, count) in free.class_counts().iter().enumerate().filter(|(_, count)| **count > 0) {
                header.histogram_add(self.shift, 1 << class, *count);
            }
            // `freed` is part of `state.freed` by now.
            for tree in [&state.freed, &state.withheld].into_iter().chain(&state.deferred) {
                tree.segments().for_each(|(_, size)| header.histogram_add(self.shift, size, 1));
            }
        } else {
            freed.segments().for_each(|(_, size)| header.histogram_add(self.shift, size, 1));
        }
        if let Some(histogram) = &header.histogram {
            state.fragmentation = fragmentation(histogram, self.shift);
        }
    }

    /// The txg is over. If it `advances`, what was freed two such txgs ago can be used again; what this one freed starts to wait, unless space is so short
    /// that `may_defer` is false. The caller holds [`Metaslab::exclude_load`].
    pub fn sync_done(&self, txg: u64, (advances, may_defer): (bool, bool), header: Option<&SpaceMapHeader>) -> Result<SyncDone> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let freed = std::mem::take(&mut state.freed);
        let freed_bytes = freed.bytes();
        let mut waited = RangeTree::new();
        if advances {
            waited = std::mem::take(&mut state.deferred[0]);
            state.deferred.rotate_left(1);
        }
        let mut released_now = RangeTree::new();
        match &mut state.deferred[DEFER_TXGS - 1] {
            _ if !may_defer => released_now = freed,
            newest if newest.is_empty() => *newest = freed,
            newest => newest.add_all(&freed).within(|| self)?,
        }
        if let Some(free) = &mut state.free {
            free.add_all(&waited).and_then(|()| free.add_all(&released_now)).within(|| self)?;
        }
        note_lately(&mut state.lately, [&waited, &released_now]);
        let deferred = if may_defer { freed_bytes } else { 0 }.cast_signed() - waited.bytes().cast_signed();
        let allocated = state.written_allocated.cast_signed() - freed_bytes.cast_signed() + deferred;
        state.written_allocated = 0;
        let idle = state.allocating.iter().chain([&state.freeing, &state.keeping, &state.withheld]).all(RangeTree::is_empty);
        if idle && state.used_txg + UNLOAD_TXGS < txg && state.free.take().is_some() {
            self.guess_weight(header, state);
        }
        self.reweigh(state);
        let waiting = state.deferred.iter().any(|tree| !tree.is_empty());
        Ok(SyncDone { allocated, deferred, waiting })
    }

    /// Takes what is free in a window out of what can be allocated, until [`Metaslab::give_back`]; what somebody else holds is taken too. `lately`: only
    /// of what has come free since this was last asked. `None`: the metaslab is not in memory.
    pub(super) fn withhold(&self, id: u64, window: Range<u64>, lately: bool) -> Result<Option<RangeTree>> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(free) = &mut state.free else { return Ok(None) };
        let mut windows = vec![window.clone()];
        if lately {
            let recent = state.lately.as_mut().map(std::mem::take).unwrap_or_default();
            windows = recent.segments().map(|(offset, size)| offset..offset + size).collect();
        }
        let mut taken = RangeTree::new();
        for window in windows {
            for tree in [&*free, &state.withheld] {
                for (offset, size) in tree.segments_from(window.start).take_while(|(offset, _)| *offset < window.end) {
                    let (from, to) = (offset.max(window.start), (offset + size).min(window.end));
                    if from < to {
                        taken.add(from, to - from).within(|| self)?;
                    }
                }
            }
        }
        for (offset, size) in taken.segments() {
            for (offset, size) in free.remove_present(offset, size) {
                state.withheld.add(offset, size).within(|| self)?;
            }
        }
        state.holds.push((id, taken.clone()));
        self.reweigh(state);
        Ok(Some(taken))
    }

    /// What `id` holds can be allocated again, but for what others hold too.
    pub(super) fn give_back(&self, id: u64) -> Result<()> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(at) = state.holds.iter().position(|(holder, _)| *holder == id) else { return Ok(()) };
        let (_, mut back) = state.holds.swap_remove(at);
        for (offset, size) in state.holds.iter().flat_map(|(_, other)| other.segments()) {
            back.remove_present(offset, size);
        }
        for (offset, size) in back.segments() {
            state.withheld.remove(offset, size).within(|| self)?;
            if let Some(free) = &mut state.free {
                free.add(offset, size).within(|| self)?;
            }
        }
        self.reweigh(state);
        Ok(())
    }

    /// What comes free from now on is noted for [`Metaslab::withhold`], or no longer.
    pub(super) fn note_frees(&self, wanted: bool) {
        let mut state = self.state.lock();
        match wanted {
            true => drop(state.lately.get_or_insert_default()),
            false => state.lately = None,
        }
    }

    /// What was taken as having come free lately no device was told of: it is taken again next time.
    pub(super) fn note_untold(&self, ranges: &RangeTree) {
        note_lately(&mut self.state.lock().lately, [ranges]);
    }

    /// Something has come free that [`Metaslab::withhold`] would take.
    pub(super) fn has_lately_freed(&self) -> bool {
        self.state.lock().lately.as_ref().is_some_and(|lately| !lately.is_empty())
    }

    /// Gives back the memory of its free space, if nothing goes on here.
    pub(super) fn unload(&self) {
        let mut state = self.state.lock();
        let busy = state.allocating.iter().chain([&state.freeing, &state.keeping, &state.withheld, &state.freed]).any(|tree| !tree.is_empty());
        if !busy && state.used_txg == 0 && state.written_allocated == 0 {
            state.free = None;
        }
    }

    /// Bytes in use after the last pass.
    pub fn allocated(&self) -> u64 {
        self.state.lock().allocated
    }

    /// Percent of fragmentation of its free space.
    pub fn fragmentation(&self) -> u64 {
        self.state.lock().fragmentation
    }
}

impl std::fmt::Display for Metaslab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "vdev {}, metaslab {}", self.vdev, self.id)
    }
}
