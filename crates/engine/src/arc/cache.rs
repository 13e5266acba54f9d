//! The cache of blocks: a number of shards, and its readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use ondisk::blkptr::BlkPtr;
use parking_lot::{Mutex, RwLock};

use super::ahead::{Ahead, AheadStats, Foreseen};
use super::copies::{Copies, Data};
use super::flight::Flights;
use super::load::{Asked, kind_of, same, trimmed};
use super::pointers::Pointers;
use super::policy::{CachePolicy, Policies};
use super::second::{self, CacheDeviceStatus, NewCacheDevice, SecondLevel, SecondStats};
use super::shard::{Bytes, Candidate, Ghosts, Key, Kind, Scan, Shard};
use crate::error::Result;
use crate::host::HostRef;
use crate::stats::Counter;
use crate::tunables::{MemoryPressure, Shrink, Tunables};
use crate::zio::{BlockIo, Bookmark, Run, WhileThere};

/// Enough that two threads seldom meet, few enough that each sees a fair part of the load.
const SHARDS: usize = 64;
/// The least that the cache can be told to keep.
const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// What part of the limit others may fill before [`BlockCache::is_crowded`].
const HELD_PART: u64 = 8;

/// What the cache has and has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Reads that found their block, perhaps compressed.
    pub hits: u64,
    /// Reads for which it was being read already.
    #[doc(alias = "iohits")]
    pub joined: u64,
    /// Reads that had it read.
    pub misses: u64,
    /// Blocks read ahead.
    pub ahead: AheadStats,
    /// Copies of blocks given up for others.
    pub evictions: u64,
    /// Bytes of blocks seen once.
    pub recent_bytes: u64,
    /// Bytes of blocks seen again.
    pub frequent_bytes: u64,
    /// Bytes of metadata, in either.
    pub metadata_bytes: u64,
    /// Bytes of blocks as they are on disk.
    #[doc(alias = "compressed_size")]
    pub compressed_bytes: u64,
    /// What these would be if nothing were compressed.
    #[doc(alias = "uncompressed_size")]
    pub uncompressed_bytes: u64,
    /// Bytes of blocks as they are used, where that is not how they are on disk.
    #[doc(alias = "overhead_size")]
    pub overhead_bytes: u64,
    /// Bytes of what is known of objects and files.
    pub held_bytes: u64,
    /// Bytes that may be kept at present,
    pub limit_bytes: u64,
    /// if nothing else needs memory,
    pub limit_bytes_max: u64,
    /// and if everything else does.
    pub limit_bytes_min: u64,
    /// What is known of blocks that left.
    pub ghosts: Ghosts,
    /// Of the hits, those of blocks seen once,
    pub recent_hits: u64,
    /// and of blocks seen again.
    pub frequent_hits: u64,
    /// What went around it.
    pub past: PastStats,
}

/// What went around the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PastStats {
    /// Blocks that were read,
    #[doc(alias = "direct_read_count")]
    pub reads: u64,
    /// and their bytes.
    pub read_bytes: u64,
    /// Blocks that were written,
    #[doc(alias = "direct_write_count")]
    pub writes: u64,
    /// and their bytes.
    pub write_bytes: u64,
}

/// The blocks of one pool that are in memory. Cheap to clone: clones are the same cache.
#[derive(Clone)]
pub struct BlockCache {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) io: Arc<BlockIo>,
    /// Each guarded by its lock, which is a leaf.
    shards: Vec<RwLock<Shard>>,
    /// One for each shard; taken before the lock of the shard.
    flights: Vec<Flights<Key, Result<Copies>>>,
    /// Blocks that the group being synced writes over in their places. guarded by its lock, which is a leaf
    pub(super) rewritten: Mutex<HashMap<Key, Data>>,
    /// The group being synced; 0: none is.
    pub(super) writing: AtomicU64,
    pub(super) policies: Policies,
    pub(super) second: SecondLevel,
    limit: AtomicU64,
    pressure: MemoryPressure,
    /// Bytes of changes that are not on disk yet. They count against the limit.
    dirty: AtomicU64,
    /// Bytes of what others keep in memory about objects ([`Held`]). They count, too.
    held: AtomicU64,
    /// Sum of what the shards have.
    resident: AtomicU64,
    /// Which shard gives up blocks next.
    hand: AtomicUsize,
    pub(super) hits: Counter,
    pub(super) joined: Counter,
    pub(super) misses: Counter,
    ahead: Arc<Ahead>,
    evictions: Counter,
    past_reads: Counter,
    past_read_bytes: Counter,
    past_writes: Counter,
    past_write_bytes: Counter,
}

/// Memory that counts against the limit until this is dropped.
pub struct Held {
    cache: Arc<Inner>,
    bytes: u64,
}

impl Held {
    /// It is `bytes` now.
    pub fn resize(&mut self, bytes: u64) {
        // Wraps around for a decrease, which is what subtraction is.
        self.cache.held.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.resize(0);
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({})", self.bytes)
    }
}

/// The key of a block that can be cached: not of holes and embedded ones, which cost nothing to read.
fn key_of(bp: &BlkPtr) -> Option<Key> {
    if bp.is_hole() {
        return None;
    }
    let first = bp.first_dva()?;
    Some(Key { vdev: first.vdev, offset: first.offset, birth: bp.physical_birth() })
}

fn shard_of(key: &Key) -> usize {
    let mixed = (key.offset >> 9 ^ key.birth << 40 ^ u64::from(key.vdev) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % SHARDS
}

impl BlockCache {
    /// A cache that keeps up to `limit_bytes` of blocks read through `io`.
    pub fn new(io: Arc<BlockIo>, limit_bytes: u64) -> Self {
        Self::under(io, limit_bytes, MemoryPressure::default())
    }

    /// As [`BlockCache::new`]; has to do with less when there is pressure.
    pub fn under(io: Arc<BlockIo>, limit_bytes: u64, pressure: MemoryPressure) -> Self {
        let ahead = Arc::new(Ahead::default());
        let inner = Inner {
            io,
            shards: (0..SHARDS).map(|_| RwLock::new(Shard::new(&ahead))).collect(),
            flights: (0..SHARDS).map(|_| Flights::new()).collect(),
            rewritten: Mutex::default(),
            writing: AtomicU64::new(0),
            policies: Policies::default(),
            second: SecondLevel::default(),
            limit: AtomicU64::new(limit_bytes.max(LIMIT_BYTES_MIN)),
            pressure,
            dirty: AtomicU64::new(0),
            held: AtomicU64::new(0),
            resident: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
            hits: Counter::default(),
            joined: Counter::default(),
            misses: Counter::default(),
            ahead,
            evictions: Counter::default(),
            past_reads: Counter::default(),
            past_read_bytes: Counter::default(),
            past_writes: Counter::default(),
            past_write_bytes: Counter::default(),
        };
        let inner = Arc::new(inner);
        let shrink: Arc<dyn Shrink> = inner.clone();
        inner.pressure.tell(Arc::downgrade(&shrink));
        BlockCache { inner }
    }

    /// What reads the blocks that are not here.
    pub fn io(&self) -> &Arc<BlockIo> {
        &self.inner.io
    }

    /// The contents of a block: decompressed, verified, little-endian. Of a block of pointers [`BlockCache::read_pointers`] costs less.
    ///
    /// # Errors
    /// Those of [`BlockIo::read`].
    pub fn read(&self, bp: &BlkPtr, at: &Bookmark) -> Result<Arc<Vec<u8>>> {
        self.read_while(bp, at, &|see_to_it| see_to_it())
    }

    /// As [`BlockCache::read`], for a caller that cannot be sure that the block is there: damage is seen to only as far as `while_there` allows.
    ///
    /// # Errors
    /// Those of [`BlockIo::read`].
    pub fn read_while(&self, bp: &BlkPtr, at: &Bookmark, while_there: WhileThere<'_>) -> Result<Arc<Vec<u8>>> {
        let data = self.read_kept(bp, at, while_there)?;
        Ok(if bp.level() > 0 { Arc::new(Pointers::new(data, bp.logical_size()).to_block()) } else { data })
    }

    /// The contents of a block of pointers.
    ///
    /// # Errors
    /// Those of [`BlockIo::read`].
    pub fn read_pointers(&self, bp: &BlkPtr, at: &Bookmark) -> Result<Pointers> {
        let data = self.read_kept(bp, at, &|see_to_it| see_to_it())?;
        Ok(Pointers::new(data, bp.logical_size()))
    }

    /// What is kept of the contents of a block.
    fn read_kept(&self, bp: &BlkPtr, at: &Bookmark, while_there: WhileThere<'_>) -> Result<Data> {
        let Some(key) = key_of(bp) else { return self.inner.io.read(bp, at) };
        let is_kept = self.inner.policies.keeps(at.objset, bp);
        if let Some(data) = self.inner.get(&key) {
            self.inner.hits.add(1);
            if !is_kept {
                self.inner.forget(&key);
            }
            return Ok(data);
        }
        self.inner.load_plain(Asked { key, bp, at, ahead: false, is_kept, past: false, while_there })
    }

    /// A block as it is on disk: compressed, perhaps encrypted, in the byte order of its writer; verified. It takes no key, and is
    /// not decompressed: for raw streams, and for what caches blocks on devices.
    ///
    /// # Errors
    /// Those of [`BlockIo::read_physical`].
    pub fn physical(&self, bp: &BlkPtr, at: &Bookmark) -> Result<Arc<Vec<u8>>> {
        let Some(key) = key_of(bp) else { return self.inner.io.read_physical(bp, at).map(Arc::new) };
        let is_kept = self.inner.policies.keeps(at.objset, bp);
        self.inner.load_physical(Asked { key, bp, at, ahead: false, is_kept, past: false, while_there: &|see_to_it| see_to_it() })
    }

    /// The blocks of a run, each handed to `take`, in their order: as [`BlockCache::read`] has them, or with `physical` as [`BlockCache::physical`] has them. For a
    /// caller that reads each block once: what is not here is not kept. If nothing of it is here, it is read as one. Damage is seen to only as far as `while_there` allows.
    pub fn read_once(&self, run: &Run, physical: bool, while_there: WhileThere<'_>, mut take: impl FnMut(Result<Data>)) {
        let here = |bp: &BlkPtr| key_of(bp).and_then(|key| self.inner.copies(&key, false));
        let fit = |copies: Copies| if physical { copies.physical().cloned() } else { copies.plain().cloned() };
        let found: Vec<Option<Data>> = run.blocks().iter().map(|(bp, _)| here(bp).and_then(fit)).collect();
        let io = &self.inner.io;
        let mut parts = if found.iter().all(Option::is_none) { io.read_run(run) } else { Vec::new() }.into_iter();
        for (found, (bp, at)) in found.into_iter().zip(run.blocks()) {
            take(match (found, parts.next().flatten()) {
                (Some(data), _) => Ok(data),
                (None, Some(part)) if physical => Ok(Arc::new(part)),
                (None, Some(part)) => BlockIo::read_part(bp, part, at),
                (None, None) => io.read_block_while(bp, at, physical, while_there),
            });
        }
    }

    /// The plain contents of the blocks of a run, in their order, for a reader that goes around the cache: what is here is used, and nothing else stays here. Damage
    /// is seen to only as far as `while_there` allows, which is told which block it is about.
    pub fn read_past(&self, run: &Run, while_there: &dyn Fn(usize, &mut dyn FnMut())) -> Vec<Result<Data>> {
        let here: Vec<Option<Data>> = run.blocks().iter().map(|(bp, _)| self.inner.copies(&key_of(bp)?, false)?.plain().cloned()).collect();
        let parts = if here.iter().all(Option::is_none) { self.inner.io.read_run(run) } else { Vec::new() };
        let mut parts = parts.into_iter();
        let get = |(index, ((bp, at), here)): (usize, (&(BlkPtr, Bookmark), Option<Data>))| {
            let part = parts.next().flatten();
            self.inner.past_reads.add(1);
            self.inner.past_read_bytes.add(bp.logical_size());
            match (here, part, key_of(bp)) {
                (Some(data), ..) => Ok(data),
                (None, Some(part), _) => BlockIo::read_part(bp, part, at),
                (None, None, None) => self.inner.io.read(bp, at),
                (None, None, Some(key)) => {
                    let while_there: WhileThere<'_> = &|see_to_it| while_there(index, see_to_it);
                    self.inner.load_plain(Asked { key, bp, at, ahead: false, is_kept: false, past: true, while_there })
                }
            }
        };
        run.blocks().iter().zip(here).enumerate().map(get).collect()
    }

    /// Blocks were written by somebody who goes around the cache.
    pub fn note_written_past(&self, blocks: u64, bytes: u64) {
        self.inner.past_writes.add(blocks);
        self.inner.past_write_bytes.add(bytes);
    }

    /// Whether a block that can be cached is here, in any form, or is none that can be.
    pub(crate) fn is_here(&self, bp: &BlkPtr) -> bool {
        key_of(bp).is_none_or(|key| self.inner.shards[shard_of(&key)].read().has(&key))
    }

    #[cfg(test)]
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.inner.resident.load(Ordering::Relaxed)
    }

    /// Keeps a block of a dataset that was just written.
    pub fn insert(&self, dataset: u64, bp: &BlkPtr, data: Arc<Vec<u8>>) {
        if let Some(key) = key_of(bp) {
            self.inner.flights(&key).cancel(&key);
            self.inner.second.forget(&key);
            if !self.inner.policies.keeps(dataset, bp) {
                // What it was written over in its place may be here.
                return self.inner.forget(&key);
            }
            let is_same = bp.physical_size() == data.len() as u64 && !bp.uses_encryption();
            let copies = if is_same { same(bp, data).worth_keeping() } else { Copies::Plain(trimmed(bp, data)) };
            self.inner.insert(key, copies, kind_of(bp), false, self.inner.origin(dataset, bp));
            self.inner.evict();
        }
    }

    /// A group is being synced from now on: its blocks may be written over in their places, so nobody heals them until [`BlockCache::end_rewrites`].
    pub fn begin_rewrites(&self, txg: u64) {
        self.inner.writing.store(txg, Ordering::Release);
    }

    /// The group being synced is about to write over a block of its own, in its place. Readers may have the pointer from before, with the checksum of what was there:
    /// until [`BlockCache::end_rewrites`] they get `data`, whatever the limit is.
    pub fn begin_rewrite(&self, bp: &BlkPtr, data: Arc<Vec<u8>>) {
        if let Some(key) = key_of(bp) {
            self.inner.rewritten.lock().insert(key, data);
            self.inner.flights(&key).cancel(&key);
            self.inner.second.forget(&key);
        }
    }

    /// The group is on disk, and nobody gets a pointer from before any more.
    pub fn end_rewrites(&self) {
        let rewritten = std::mem::take(&mut *self.inner.rewritten.lock());
        drop(rewritten);
        self.inner.writing.store(0, Ordering::Release);
    }

    /// Reads a block in the background, if it is not here and there is a worker for it. Damage is seen to only as far as `while_there` allows:
    /// the block may be freed, and its place be somebody else's, before the worker has its turn. `false`: such a block is not kept.
    pub fn prefetch(&self, bp: &BlkPtr, at: &Bookmark, while_there: impl Fn(&mut dyn FnMut()) + Send + 'static) -> bool {
        let Some(key) = key_of(bp) else { return true };
        if !self.inner.policies.keeps(at.objset, bp) {
            return false;
        }
        let inner = Arc::clone(&self.inner);
        if inner.shards[shard_of(&key)].read().has_plain(&key) || inner.flights(&key).contains(&key) {
            return true;
        }
        let Some(active) = inner.ahead.begin(bp.logical_size(), self.limit()) else { return true };
        let (bp, at) = (*bp, *at);
        let job = move || {
            let _active = active;
            // Nobody waits for it: a reader that needs the block reads it again and gets the error.
            if let Err(error) = inner.load_plain(Asked { key, bp: &bp, at: &at, ahead: true, is_kept: true, past: false, while_there: &while_there }) {
                tracing::debug!(%error, "read-ahead failed");
            }
        };
        if self.inner.io.readers().submit(job) {
            self.inner.ahead.issued();
        }
        true
    }

    /// The largest window of reads that are foreseen.
    pub fn ahead_window(&self) -> u64 {
        self.inner.ahead.window(self.limit())
    }

    /// Counts what a read was to those that foresee.
    pub fn note_read(&self, what: Foreseen) {
        self.inner.ahead.note(what);
    }

    /// What of a dataset is kept from now on. What is here already goes when it is used next, or when others need its room.
    pub fn set_policy(&self, dataset: u64, policy: CachePolicy) {
        self.inner.policies.set(dataset, policy);
    }

    /// Forgets a block that was freed.
    pub fn invalidate(&self, bp: &BlkPtr) {
        if let Some(key) = key_of(bp) {
            self.inner.flights(&key).cancel(&key);
            self.inner.second.forget(&key);
            self.inner.forget(&key);
        }
    }

    /// From now on the pool with this guid has these cache devices. One that it has already goes on; where the host has threads each is fed by one.
    pub fn set_devices(&self, devices: Vec<NewCacheDevice>, pool_guid: u64, tunables: &Tunables, host: &HostRef) {
        for device in self.inner.second.set_devices(devices, pool_guid, host) {
            second::begin(&self.inner, device, tunables, host);
        }
    }

    /// Errors of the cache device with this guid are forgotten, if there is one.
    pub fn clear_device_errors(&self, guid: u64) {
        self.inner.second.clear_errors(guid);
    }

    /// How the cache devices are.
    pub fn device_statuses(&self) -> Vec<CacheDeviceStatus> {
        self.inner.second.statuses()
    }

    /// What was done on cache devices.
    pub fn second_stats(&self) -> SecondStats {
        self.inner.second.stats()
    }

    /// One round for each cache device, in this thread: where the host has none. Bytes written.
    pub fn feed(&self, tunables: &Tunables) -> u64 {
        self.inner.second.all().iter().map(|device| self.inner.feed(device, tunables).0).sum()
    }

    /// Says how many bytes of changes are not on disk yet; the cache leaves room for them.
    pub fn make_room(&self, dirty_bytes: u64) {
        self.inner.dirty.store(dirty_bytes, Ordering::Relaxed);
        self.inner.evict();
    }

    /// Somebody keeps `bytes` of something else in memory: the cache leaves room for them.
    pub fn hold(&self, bytes: u64) -> Held {
        self.inner.held.fetch_add(bytes, Ordering::Relaxed);
        Held { cache: Arc::clone(&self.inner), bytes }
    }

    /// Others keep more than their part: a holder that can do without something gives it up.
    pub fn is_crowded(&self) -> bool {
        self.inner.held.load(Ordering::Relaxed) > self.limit() / HELD_PART
    }

    /// Changes how much may be kept.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.inner.limit.store(limit_bytes.max(LIMIT_BYTES_MIN), Ordering::Relaxed);
        self.inner.evict();
    }

    /// How much may be kept.
    pub fn limit(&self) -> u64 {
        self.inner.limit_bytes()
    }

    /// What the cache has and has done.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats {
            hits: self.inner.hits.get(),
            joined: self.inner.joined.get(),
            misses: self.inner.misses.get(),
            ahead: self.inner.ahead.stats(),
            evictions: self.inner.evictions.get(),
            past: PastStats {
                reads: self.inner.past_reads.get(),
                read_bytes: self.inner.past_read_bytes.get(),
                writes: self.inner.past_writes.get(),
                write_bytes: self.inner.past_write_bytes.get(),
            },
            held_bytes: self.inner.held.load(Ordering::Relaxed),
            limit_bytes: self.inner.pressure.room_of(self.inner.limit.load(Ordering::Relaxed)),
            limit_bytes_max: self.limit(),
            limit_bytes_min: self.inner.pressure.least_of(self.inner.limit.load(Ordering::Relaxed)),
            ..CacheStats::default()
        };
        let mut bytes = Bytes::default();
        for shard in &self.inner.shards {
            let shard = shard.read();
            bytes.add(shard.bytes());
            stats.ghosts.add(shard.ghosts());
            let [recent, frequent] = shard.hits();
            (stats.recent_hits, stats.frequent_hits) = (stats.recent_hits + recent, stats.frequent_hits + frequent);
        }
        stats.recent_bytes = bytes.recent;
        stats.frequent_bytes = bytes.frequent;
        stats.metadata_bytes = bytes.metadata;
        stats.compressed_bytes = bytes.compressed;
        stats.uncompressed_bytes = bytes.uncompressed;
        stats.overhead_bytes = bytes.overhead;
        stats
    }
}

impl Shrink for Inner {
    fn shrink(&self) {
        self.evict();
    }
}

impl Inner {
    fn get(&self, key: &Key) -> Option<Data> {
        self.shards[shard_of(key)].read().get(key)
    }

    /// What there is of a block.
    pub(super) fn copies(&self, key: &Key, is_use: bool) -> Option<Copies> {
        self.shards[shard_of(key)].read().copies(key, is_use)
    }

    /// A reader got a block that was not here yet; that may have been read ahead.
    pub(super) fn used(&self, key: &Key) {
        self.shards[shard_of(key)].read().use_ahead(key);
    }

    /// The same of a reader that waited until it was here.
    pub(super) fn used_in_flight(&self, key: &Key) {
        if self.shards[shard_of(key)].read().use_ahead(key) {
            self.ahead.used_in_flight();
        }
    }

    /// A read found the block, though not as it wanted it.
    pub(super) fn hit(&self, key: &Key) {
        self.hits.add(1);
        self.shards[shard_of(key)].read().hit(key);
    }

    pub(super) fn flights(&self, key: &Key) -> &Flights<Key, Result<Copies>> {
        &self.flights[shard_of(key)]
    }

    /// How many bytes each shard ought to have.
    fn share(&self) -> u64 {
        self.room() / SHARDS as u64
    }

    /// How many bytes all shards may have. However much is dirty, a part of the limit is left for what is read.
    fn room(&self) -> u64 {
        let room = self.pressure.room_of(self.limit.load(Ordering::Relaxed));
        let others = self.dirty.load(Ordering::Relaxed) + self.held.load(Ordering::Relaxed) + self.second.held();
        room.saturating_sub(others).max(self.limit_bytes().min(room) / 8)
    }

    pub(super) fn insert(&self, key: Key, copies: Copies, kind: Kind, ahead: bool, origin: Option<BlkPtr>) {
        let share = self.share();
        self.change(&key, |shard| {
            shard.insert(key, copies, kind, ahead, share);
            shard.set_origin(&key, origin);
        });
    }

    /// What a block is in the pool, if it may be written to a cache device.
    pub(super) fn origin(&self, dataset: u64, bp: &BlkPtr) -> Option<BlkPtr> {
        (self.second.takes(bp) && self.policies.stores(dataset, bp)).then_some(*bp)
    }

    pub(super) fn limit_bytes(&self) -> u64 {
        self.pressure.most_of(self.limit.load(Ordering::Relaxed))
    }

    /// Has anything had to leave memory yet?
    pub(super) fn has_evicted(&self) -> bool {
        self.evictions.get() > 0
    }

    /// Looks in all shards for blocks that may be written to a cache device, a part of `headroom` in each.
    pub(super) fn scan(&self, scan: Scan, headroom: u64, accept: &mut dyn FnMut(&Key, u64) -> bool, found: &mut Vec<Candidate>) {
        self.shards.iter().for_each(|shard| shard.read().scan(scan, (headroom / SHARDS as u64).max(1), accept, found));
    }

    pub(super) fn forget(&self, key: &Key) {
        self.change(key, |shard| shard.remove(key));
    }

    /// Changes the shard of `key`, and keeps the sum right.
    fn change(&self, key: &Key, change: impl FnOnce(&mut Shard)) {
        let mut shard = self.shards[shard_of(key)].write();
        let before = shard.resident();
        change(&mut shard);
        self.adjust(before, shard.resident());
    }

    fn adjust(&self, before: u64, after: u64) {
        // Wraps around for a decrease, which is what subtraction is.
        self.resident.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Takes blocks from the shards that have more than their share, until all together have no more than the limit.
    pub(super) fn evict(&self) {
        if self.resident.load(Ordering::Relaxed) <= self.room() {
            return;
        }
        let mut evicted = Vec::new();
        let share = self.share();
        for _ in 0..2 * SHARDS {
            if self.resident.load(Ordering::Relaxed) <= self.room() {
                break;
            }
            let index = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let mut shard = self.shards[index].write();
            let before = shard.resident();
            while shard.resident() > share && shard.evict_one(share, &mut evicted) {}
            self.adjust(before, shard.resident());
        }
        self.evictions.add(evicted.len() as u64);
    }
}
