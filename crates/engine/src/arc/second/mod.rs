//! The second level: blocks that memory may soon have no room for, on cache devices.
//!
//! # Theory
//! A thread for each device goes through the blocks that would leave memory next, and writes those that are on no device yet (`feed`): as they are in the pool,
//! compressed and perhaps encrypted, round and round the device (`device`). An index in memory says what is where; a miss of the cache in memory looks there before it asks the
//! pool. What comes back is verified with the checksum that the pool has for the block, so nothing on a device need be believed: what is wrong counts as an
//! error of the device, and the block is read from the pool. Blocks without a checksum, and those in pieces, are not stored.
//!
//! Log blocks on the device say what is on it, and when it is opened again the index is made from them (`rebuild`), in the order of OpenZFS, whose format it is.
//!
//! # Invariants
//! 1. No error and no damage of a cache device reaches a reader.
//! 2. Only the area between header and labels of a device is written, and what lies there is out of the index before.
//! 3. The index takes no more than `l2arc_meta_percent` of the cache.
//! 4. A device that does not answer holds up the readers that wait for it already, for five seconds, and no others; nobody waits longer than two for it at the end of
//!    the pool.
//!
//! # Locks
//! `Writer` of a device is held across its I/O by the thread that feeds it alone. The index, and what a device has, are leaves.
//!
//! # Path
//! `load` reads here before it reads the pool. `pool` says which devices there are.

mod device;
mod feed;
mod rebuild;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::{AcqRel, Acquire, Relaxed, Release}};

use hashbrown::{HashMap, HashSet};
use ondisk::blkptr::{BlkPtr, DataPointer};
use parking_lot::{Mutex, RwLock};

use super::shard::Key;
use crate::host::HostRef;
use crate::stats::Counter;
use crate::tunables::{Parameter, Tunables};
use crate::vdev::{Leaf, VdevConfig, VdevStatus};
use crate::zio::BlockIo;

pub(super) use device::CacheDevice;
pub(super) use feed::begin;
use device::Stored;

/// Memory that an entry of the index takes, with what the device knows of it.
const ENTRY_BYTES: u64 = 136;

/// A cache device that a pool is to use.
pub struct NewCacheDevice {
    /// Its description.
    pub config: VdevConfig,
    /// The device.
    pub disk: disk::DiskRef,
}

/// How one is.
pub struct CacheDeviceStatus {
    /// As of any device.
    pub status: VdevStatus,
    /// Bytes in use.
    pub allocated: u64,
    /// Bytes that can be.
    pub space: u64,
}

/// What was done on cache devices, and what is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // as OpenZFS's counters of these names, with `l2_` before them
pub struct SecondStats {
    pub hits: u64,
    pub misses: u64,
    pub feeds: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub writes_sent: u64,
    pub writes_done: u64,
    pub writes_error: u64,
    pub cksum_bad: u64,
    pub io_error: u64,
    pub size: u64,
    pub asize: u64,
    pub hdr_size: u64,
    pub log_blk_writes: u64,
    pub log_blk_asize: u64,
    pub log_blk_count: u64,
    pub rebuild_success: u64,
    pub rebuild_log_blks: u64,
    pub rebuild_bufs: u64,
    pub rebuild_abort_lowmem: u64,
    pub rebuild_abort_unsupported: u64,
    pub rebuild_abort_cksum_lb_errors: u64,
}

/// The counters among them.
#[derive(Debug, Default)]
struct Counters {
    hits: Counter,
    misses: Counter,
    feeds: Counter,
    read_bytes: Counter,
    write_bytes: Counter,
    writes_sent: Counter,
    writes_done: Counter,
    writes_error: Counter,
    wrong: Counter,
    failed: Counter,
    log_writes: Counter,
    rebuilt: Counter,
    rebuilt_logs: Counter,
    rebuilt_blocks: Counter,
    rebuild_no_memory: Counter,
    rebuild_none: Counter,
    rebuild_wrong: Counter,
}

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    device: u32,
    address: u64,
    physical_bytes: u32,
}

/// See the module.
#[derive(Default)]
pub(super) struct SecondLevel {
    /// Whether there are devices: without them nothing here costs more than this.
    is_used: AtomicBool,
    devices: RwLock<Vec<Arc<CacheDevice>>>,
    index: RwLock<HashMap<Key, Place>>,
    /// Blocks that some thread is about to write.
    pending: Mutex<HashSet<Key>>,
    numbers: AtomicU32,
    entries: AtomicU64,
    counters: Counters,
}

impl SecondLevel {
    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Acquire)
    }

    /// Bytes of memory that the index takes.
    pub(super) fn held(&self) -> u64 {
        self.entries.load(Relaxed) * ENTRY_BYTES
    }

    fn has_room(&self, limit: u64, tunables: &Tunables) -> bool {
        self.held() < limit / 100 * tunables.now(Parameter::CacheMetaPercent)
    }

    /// Whether a block can be stored: one that is whole, and whose checksum says what it is.
    pub(super) fn takes(&self, bp: &BlkPtr) -> bool {
        use ondisk::blkptr::BlockPointer;
        if !self.is_used() || bp.is_gang() {
            return false;
        }
        matches!(bp.decode(), Ok(BlockPointer::Data(data)) if data.has_checksum())
    }

    /// The verified bytes of a block as it is on disk, if a device has them.
    pub(super) fn read(&self, key: &Key, pointer: &DataPointer, io: &BlockIo) -> Option<Vec<u8>> {
        // What a device has from before may be of another block of that place and group: without a checksum nothing would say so.
        if !self.is_used() || !pointer.has_checksum() {
            return None;
        }
        let place = self.index.read().get(key).copied();
        let place = place.filter(|place| u64::from(place.physical_bytes) == pointer.physical_size);
        let device = place.and_then(|place| self.device(place.device)).filter(|device| device.answers());
        let (Some(place), Some(device)) = (place, device) else {
            self.counters.misses.add(1);
            return None;
        };
        let read = device.read_or_give_up(place.address, place.physical_bytes.into());
        let is_right = read.as_ref().is_ok_and(|bytes| io.is_right(pointer, bytes).unwrap_or(false));
        if is_right {
            device.note_right();
            self.counters.hits.add(1);
            self.counters.read_bytes.add(pointer.physical_size);
            return read.ok();
        }
        self.counters.misses.add(1);
        // What was written over meanwhile is nobody's fault.
        if self.index.read().get(key) == Some(&place) {
            match &read {
                Ok(_) => {
                    self.counters.wrong.add(1);
                    device.note_wrong();
                }
                Err(error) => {
                    self.counters.failed.add(1);
                    tracing::debug!(%error, "a cache device cannot be read");
                }
            }
            self.forget(key);
        }
        None
    }

    /// The block was freed, or is something else now.
    pub(super) fn forget(&self, key: &Key) {
        if !self.is_used() {
            return;
        }
        let place = self.index.write().remove(key);
        if let Some(place) = place {
            self.entries.fetch_sub(1, Relaxed);
            if let Some(device) = self.device(place.device) {
                device.forget(place.address, key);
            }
        }
    }

    fn has(&self, key: &Key) -> bool {
        self.index.read().contains_key(key)
    }

    fn device(&self, number: u32) -> Option<Arc<CacheDevice>> {
        self.devices.read().iter().find(|device| device.number() == number).cloned()
    }

    /// A block is on a device now. One that is there already stays where it is unless `replace`.
    fn insert(&self, device: &CacheDevice, address: u64, stored: Stored, replace: bool) -> bool {
        let key = stored.key;
        let place = Place { device: device.number(), address, physical_bytes: stored.physical_bytes };
        let mut index = self.index.write();
        // Of one that is stopped nobody takes entries out any more: that was done, or will be as soon as the index is not locked.
        if device.is_asked_to_end() || !replace && index.contains_key(&key) {
            return false;
        }
        let before = index.insert(key, place);
        drop(index);
        match before {
            Some(before) => {
                if let Some(device) = self.device(before.device) {
                    device.forget(before.address, &key);
                }
            }
            None => {
                self.entries.fetch_add(1, Relaxed);
            }
        }
        if let Some(replaced) = device.keep(address, stored) {
            self.drop_places(device, [(address, replaced)]);
        }
        true
    }

    /// What was at these addresses of a device is about to be written over.
    fn drop_places(&self, device: &CacheDevice, gone: impl IntoIterator<Item = (u64, Stored)>) {
        for (address, stored) in gone {
            let mut index = self.index.write();
            if index.get(&stored.key).is_some_and(|place| place.device == device.number() && place.address == address) {
                index.remove(&stored.key);
                self.entries.fetch_sub(1, Relaxed);
            }
        }
    }

    /// From now on `wanted` are the devices: those that are there already go on, others begin and are returned.
    pub(super) fn set_devices(&self, wanted: Vec<NewCacheDevice>, pool_guid: u64, host: &HostRef) -> Vec<Arc<CacheDevice>> {
        let guids: Vec<u64> = wanted.iter().map(|device| device.config.guid).collect();
        let mut devices = self.devices.write();
        let (stay, go): (Vec<_>, Vec<_>) = devices.drain(..).partition(|device| guids.contains(&device.guid()));
        let known: Vec<u64> = stay.iter().map(|device| device.guid()).collect();
        *devices = stay;
        let mut begin = Vec::new();
        for new in wanted.into_iter().filter(|new| !known.contains(&new.config.guid)) {
            let number = self.numbers.fetch_add(1, AcqRel);
            match CacheDevice::new(number, new, pool_guid, host) {
                Some(device) => begin.push(Arc::new(device)),
                None => tracing::warn!("a cache device is too small to be used"),
            }
        }
        devices.extend(begin.iter().cloned());
        self.is_used.store(!devices.is_empty(), Release);
        drop(devices);
        for device in go {
            device.stop();
            let mut index = self.index.write();
            let before = index.len();
            index.retain(|_, place| place.device != device.number());
            self.entries.fetch_sub((before - index.len()) as u64, Relaxed);
        }
        begin
    }

    pub(super) fn all(&self) -> Vec<Arc<CacheDevice>> {
        self.devices.read().clone()
    }

    /// Errors of the device with this guid are forgotten.
    pub(super) fn clear_errors(&self, guid: u64) {
        self.devices.read().iter().filter(|device| device.guid() == guid).for_each(|device| device.leaf.clear_errors());
    }

    pub(super) fn statuses(&self) -> Vec<CacheDeviceStatus> {
        self.devices.read().iter().map(|device| device.status()).collect()
    }

    pub(super) fn stats(&self) -> SecondStats {
        let c = &self.counters;
        let mut stats = SecondStats {
            hits: c.hits.get(),
            misses: c.misses.get(),
            feeds: c.feeds.get(),
            read_bytes: c.read_bytes.get(),
            write_bytes: c.write_bytes.get(),
            writes_sent: c.writes_sent.get(),
            writes_done: c.writes_done.get(),
            writes_error: c.writes_error.get(),
            cksum_bad: c.wrong.get(),
            io_error: c.failed.get(),
            hdr_size: self.held(),
            log_blk_writes: c.log_writes.get(),
            rebuild_success: c.rebuilt.get(),
            rebuild_log_blks: c.rebuilt_logs.get(),
            rebuild_bufs: c.rebuilt_blocks.get(),
            rebuild_abort_lowmem: c.rebuild_no_memory.get(),
            rebuild_abort_unsupported: c.rebuild_none.get(),
            rebuild_abort_cksum_lb_errors: c.rebuild_wrong.get(),
            ..SecondStats::default()
        };
        self.devices.read().iter().for_each(|device| device.add_to(&mut stats));
        stats
    }
}

/// The leaf of a device.
fn leaf_of(new: &NewCacheDevice, host: &HostRef) -> Leaf {
    Leaf::alone(new.config.guid, new.config.display_name(), new.disk.clone(), host)
}
