//! One cache device: what is on it, and where the next block goes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_channel::bounded;
use ondisk::cache_device::{Area, Entry, Header, LogPointer};
use ondisk::label;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{CacheDeviceStatus, Key, NewCacheDevice, SecondLevel, SecondStats, leaf_of};
use crate::error;
use crate::error::Result;
use crate::host::HostRef;
use crate::sync::Executor;
use crate::vdev::{Class, Leaf, Reason, VdevConfig, VdevState, leaf_status};

/// A device that has not answered for so long is not asked any more until it does.
const PATIENCE_NS: u64 = 5_000_000_000;
/// Reads of a device that are under way at a time.
const READERS: usize = 8;
/// After so many errors without a success between them a device is not used any more.
const ERRORS_MAX: u32 = 64;
/// At the end of the pool a device that is being written gets so long to finish.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// One block on a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    pub(super) key: Key,
    pub(super) physical_bytes: u32,
    pub(super) logical_bytes: u32,
    /// Whole sectors.
    pub(super) bytes: u32,
}

/// What is on it.
#[derive(Default)]
struct Contents {
    by_address: BTreeMap<u64, Stored>,
    bytes: u64,
    logical_bytes: u64,
    log_bytes: u64,
    log_blocks: u64,
}

/// Where it is written.
pub(super) struct Writer {
    /// What the header says, or will say.
    pub(super) header: Header,
    /// Where the next block goes.
    pub(super) hand: u64,
    /// What goes into the next log block.
    pub(super) open: Vec<Entry>,
    pub(super) payload_start: u64,
    pub(super) payload_bytes: u64,
    /// The log blocks that are there, newest first.
    pub(super) logs: VecDeque<LogPointer>,
    /// What is on the device was looked at.
    pub(super) is_open: bool,
}

/// Whether the thread that feeds it has to end, and has.
#[derive(Default)]
struct Ending {
    is_asked: bool,
    has_thread: bool,
    has_ended: bool,
}

pub(in crate::arc) struct CacheDevice {
    number: u32,
    config: VdevConfig,
    pub(super) ashift: u32,
    pub(super) area: Area,
    pub(super) pool_guid: u64,
    pub(super) leaf: Leaf,
    /// They make the reads of those that read the pool instead if that takes too long.
    readers: Executor,
    host: HostRef,
    /// Held across I/O, by what feeds the device.
    writer: Mutex<Writer>,
    /// A leaf.
    contents: Mutex<Contents>,
    ending: Mutex<Ending>,
    changed: Condvar,
    under_way: AtomicU32,
    /// When it answered last, or was asked while nothing was under way.
    alive_ns: AtomicU64,
    errors: AtomicU32,
    /// Reads since the last one that was right.
    wrong: AtomicU32,
    has_given_up: AtomicBool,
}

impl CacheDevice {
    /// `None`: it is too small.
    pub(super) fn new(number: u32, new: NewCacheDevice, pool_guid: u64, host: &HostRef) -> Option<CacheDevice> {
        let ashift = new.config.number(crate::vdev::key::ASHIFT).clamp(9, 16) as u32;
        let area = Area::of(new.disk.size_bytes(), ashift)?;
        let header = Header {
            pool_guid,
            vdev_guid: new.config.guid,
            entries: 0,
            evicted: area.start,
            is_first_round: true,
            area,
            newest: [LogPointer::default(); 2],
            log_bytes: 0,
            log_blocks: 0,
        };
        let writer = Writer { header, hand: area.start, open: Vec::new(), payload_start: 0, payload_bytes: 0, logs: VecDeque::new(), is_open: false };
        Some(CacheDevice {
            number,
            ashift,
            area,
            pool_guid,
            leaf: leaf_of(&new, host),
            config: new.config,
            readers: Executor::new(host, "cache-read", READERS),
            host: host.clone(),
            writer: Mutex::new(writer),
            contents: Mutex::default(),
            ending: Mutex::default(),
            changed: Condvar::new(),
            under_way: AtomicU32::new(0),
            alive_ns: AtomicU64::new(0),
            errors: AtomicU32::new(0),
            wrong: AtomicU32::new(0),
            has_given_up: AtomicBool::new(false),
        })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn guid(&self) -> u64 {
        self.config.guid
    }

    pub(super) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    pub(super) fn sectors(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(1 << self.ashift)
    }

    /// Whether it makes sense to ask it.
    pub(super) fn answers(&self) -> bool {
        let is_stuck = self.under_way.load(Relaxed) > 0 && self.host.now_ns().saturating_sub(self.alive_ns.load(Relaxed)) > PATIENCE_NS;
        !is_stuck && !self.has_given_up.load(Relaxed) && self.leaf.is_open()
    }

    fn watch<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.under_way.fetch_add(1, Relaxed) == 0 {
            self.alive_ns.store(self.host.now_ns(), Relaxed);
        }
        let result = act();
        self.alive_ns.store(self.host.now_ns(), Relaxed);
        self.under_way.fetch_sub(1, Relaxed);
        if result.is_ok() { self.errors.store(0, Relaxed) } else { self.note_error(&self.errors) }
        result
    }

    fn note_error(&self, errors: &AtomicU32) {
        if errors.fetch_add(1, Relaxed) + 1 == ERRORS_MAX {
            tracing::warn!("{}: is not used as a cache any more: too many errors", self.leaf.name());
            self.has_given_up.store(true, Relaxed);
            self.leaf.stop(VdevState::Faulted, Reason::Errors);
        }
    }

    /// What came back was not what had been written. That the device takes writes, and answers, says nothing against it.
    pub(super) fn note_wrong(&self) {
        self.leaf.note_checksum_error();
        self.note_error(&self.wrong);
    }

    /// What came back was what had been written.
    pub(super) fn note_right(&self) {
        self.wrong.store(0, Relaxed);
    }

    /// Bytes from an address of the device, for a reader that has somewhere else to go: it waits no longer than [`PATIENCE_NS`]. So a thread of the device
    /// makes the read, as no thread can be called back from a device that hangs.
    pub(super) fn read_or_give_up(self: &Arc<Self>, address: u64, bytes: u64) -> Result<Vec<u8>> {
        let (device, (answer, answered)) = (Arc::clone(self), bounded(1));
        if !self.readers.submit(move || drop(answer.send(device.read(address, bytes)))) {
            return self.read(address, bytes);
        }
        let answer = answered.recv_timeout(Duration::from_nanos(PATIENCE_NS));
        answer.unwrap_or_else(|_| Err(error!(Io, "{}: does not answer", self.leaf.name())))
    }

    /// Bytes from an address of the device.
    pub(super) fn read(&self, address: u64, bytes: u64) -> Result<Vec<u8>> {
        let mut buf = vec![0; self.sectors(bytes) as usize];
        self.watch(|| self.leaf.read(Class::SyncRead, address.wrapping_sub(label::START_BYTES), &mut buf))?;
        buf.truncate(bytes as usize);
        Ok(buf)
    }

    /// Whole sectors to an address of the device, behind the labels and before them.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        assert!(address >= label::START_BYTES && address + bytes.len() as u64 <= self.area.end, "a cache device would be written outside of its area");
        self.watch(|| self.leaf.write(Class::AsyncWrite, address - label::START_BYTES, &[bytes]))
    }

    /// A block is there. What was at the address.
    pub(super) fn keep(&self, address: u64, stored: Stored) -> Option<Stored> {
        let mut contents = self.contents.lock();
        contents.bytes += u64::from(stored.bytes);
        contents.logical_bytes += u64::from(stored.logical_bytes);
        let before = contents.by_address.insert(address, stored);
        if let Some(before) = before {
            contents.bytes -= u64::from(before.bytes);
            contents.logical_bytes -= u64::from(before.logical_bytes);
        }
        before
    }

    /// A block is not there any more. What is at its address by now may be another.
    pub(super) fn forget(&self, address: u64, key: &Key) {
        let mut contents = self.contents.lock();
        if contents.by_address.get(&address).is_some_and(|stored| stored.key == *key)
            && let Some(gone) = contents.by_address.remove(&address)
        {
            contents.bytes -= u64::from(gone.bytes);
            contents.logical_bytes -= u64::from(gone.logical_bytes);
        }
    }

    /// Takes out what lies between two addresses, wholly or in part.
    pub(super) fn take_between(&self, from: u64, to: u64) -> Vec<(u64, Stored)> {
        let contents = self.contents.lock();
        let before = contents.by_address.range(..from).next_back().filter(|(address, stored)| *address + u64::from(stored.bytes) > from);
        let gone: Vec<(u64, Stored)> = before.into_iter().chain(contents.by_address.range(from..to)).map(|(address, stored)| (*address, *stored)).collect();
        drop(contents);
        gone.iter().for_each(|(address, stored)| self.forget(*address, &stored.key));
        gone
    }

    /// The log blocks that are there now.
    pub(super) fn note_logs(&self, writer: &mut Writer) {
        let bytes = writer.logs.iter().map(|log| log.bytes).sum();
        (writer.header.log_bytes, writer.header.log_blocks) = (bytes, writer.logs.len() as u64);
        let mut contents = self.contents.lock();
        (contents.log_bytes, contents.log_blocks) = (bytes, writer.logs.len() as u64);
    }

    /// Makes room for `distance` bytes from the hand on: what is there leaves the index.
    pub(super) fn evict_ahead(&self, second: &SecondLevel, writer: &mut Writer, distance: u64) {
        loop {
            let is_end = writer.hand + distance > self.area.end;
            let target = if is_end { self.area.end } else { writer.hand + distance };
            if !writer.header.is_first_round {
                writer.header.evicted = writer.header.evicted.max(target);
                second.drop_places(self, self.take_between(writer.hand, writer.header.evicted));
                while writer.logs.back().is_some_and(|log| !writer.header.has(log, writer.hand)) {
                    writer.logs.pop_back();
                }
            }
            if !is_end {
                break;
            }
            (writer.hand, writer.header.evicted, writer.header.is_first_round) = (self.area.start, self.area.start, false);
        }
        self.note_logs(writer);
    }

    /// A thread feeds it from now on.
    pub(super) fn begin_thread(&self) {
        self.ending.lock().has_thread = true;
    }

    /// The host has no threads.
    pub(super) fn has_no_thread(&self) {
        self.ending.lock().has_thread = false;
    }

    pub(super) fn is_asked_to_end(&self) -> bool {
        self.ending.lock().is_asked
    }

    /// The thread waits. `false`: it has to end.
    pub(super) fn pause(&self, how_long: Duration) -> bool {
        let mut ending = self.ending.lock();
        if !ending.is_asked {
            self.changed.wait_for(&mut ending, how_long);
        }
        !ending.is_asked
    }

    /// The thread has ended, and the device is free.
    pub(super) fn end_thread(&self) {
        self.leaf.close();
        self.ending.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// It is not used any more. Waits for what is under way, but not for ever.
    pub(super) fn stop(&self) {
        self.leaf.stop(VdevState::Offline, Reason::None);
        let mut ending = self.ending.lock();
        ending.is_asked = true;
        self.changed.notify_all();
        if !ending.has_thread {
            drop(ending);
            return self.leaf.close();
        }
        while !ending.has_ended {
            if self.changed.wait_for(&mut ending, END_PATIENCE).timed_out() {
                tracing::warn!("{}: the cache device does not answer; it is let go of when it does", self.leaf.name());
                return;
            }
        }
    }

    pub(super) fn status(&self) -> CacheDeviceStatus {
        let contents = self.contents.lock();
        let allocated = contents.bytes + contents.log_bytes;
        CacheDeviceStatus { status: leaf_status(&self.config, &self.leaf), allocated, space: self.area.bytes() }
    }

    pub(super) fn add_to(&self, stats: &mut SecondStats) {
        let contents = self.contents.lock();
        stats.size += contents.logical_bytes;
        stats.asize += contents.bytes;
        stats.log_blk_asize += contents.log_bytes;
        stats.log_blk_count += contents.log_blocks;
    }
}
