//! One device.
//!
//! # Locks
//! `disk` is held for reading across I/O, so that closing a device waits for what is under way; what is no I/O does not wait for that in its turn. `missing` is taken inside it, never the other way round.
//!
//! # Invariants
//! 1. A leaf of which something is missing is behind.

use super::queue::{Class, Passage, Queue, Turn, Wanted};
use super::together;
use super::traffic::{RequestKind, Traffic};
use super::{Reason, VdevState};
use crate::error::{Error, ErrorKind, Result};
use crate::host::{self, HostRef};
use crate::tunables::Tunables;
use crate::vdev::map::View;
use crate::vdev::members::outage::{self, Missed};
use crate::{bail, error};
use disk::{DiskRef, Loan};
use ondisk::label;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::{Relaxed, SeqCst}};

/// Groups that writes may belong to: the one being written, the one that is closed, and the open one, of which the intent log writes blocks. And one
/// more: the next may be taken for writing, and another opened, before anybody is told of that.
const GROUPS: u64 = 4;

/// Counters of one device, since it was opened.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct LeafStats {
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub read_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub read_errors: AtomicU64,
    pub write_errors: AtomicU64,
    pub checksum_errors: AtomicU64,
    /// Bytes that the last scan wrote here.
    pub scan_processed: AtomicU64,
    /// Bytes that the last rebuild wrote here.
    pub rebuild_processed: AtomicU64,
    /// Bytes written over what was wrong or missing.
    pub self_healed: AtomicU64,
    /// Begun and not done.
    pub pending: AtomicU64,
    /// Where the last one that was begun ends, as an offset of data.
    pub last_end: AtomicU64,
}

/// One device of a top-level vdev.
pub struct Leaf {
    /// immutable; no other leaf of its top-level vdev has it while the pool is open
    number: u32,
    /// Its guid, which changes when it takes the place of a mirror.
    guid: AtomicU64,
    /// immutable; for messages
    name: String,
    /// None: not there, or not used.
    disk: RwLock<Option<DiskRef>>,
    state: AtomicU8,
    reason: AtomicU8,
    /// Whether it has missed writes, which of them is known or not. Stored under the lock of `missing`.
    behind: AtomicBool,
    /// Whether the device could be told what is not needed, when it was there last.
    trims: AtomicBool,
    /// Beginnings and ends of writes that are safe with a flush only.
    written: AtomicU64,
    /// As many of those as came before the last flush that worked.
    flushed: AtomicU64,
    /// How often something could not be made durable. The system says so to one caller, which need not be the writer of what is lost.
    failed_flushes: AtomicU64,
    /// A flush failed: what was written before it may be gone, and no later flush will say so.
    lost: AtomicBool,
    /// The txgs whose writes it missed, half-open and ascending. guarded by: itself
    missing: Mutex<Vec<(u64, u64)>>,
    /// `missing` has something that is not in the log on disk.
    unsaved: AtomicBool,
    /// The txg that is being written, for `missing`; shared by the whole tree.
    writing_txg: Arc<AtomicU64>,
    /// What was done with it.
    pub stats: LeafStats,
    /// How that went.
    pub traffic: Traffic,
    queue: Queue,
}

/// Counts an I/O as pending while it lives.
struct Pending<'a>(&'a AtomicU64);

impl<'a> Pending<'a> {
    fn new(counter: &'a AtomicU64) -> Pending<'a> {
        counter.fetch_add(1, Relaxed);
        Pending(counter)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Leaf {
    /// A leaf on `disk`, or without one.
    pub(in crate::vdev) fn new(
        number: u32,
        guid: u64,
        name: String,
        disk: Option<DiskRef>,
        state: VdevState,
        reason: Reason,
        writing_txg: Arc<AtomicU64>,
    ) -> Leaf {
        let trims = disk.as_ref().is_some_and(|disk| disk.can_discard());
        let queue = Queue::default();
        if let Some(disk) = &disk {
            queue.set_drive(&**disk);
        }
        Leaf {
            number,
            guid: AtomicU64::new(guid),
            name,
            disk: RwLock::new(disk),
            state: AtomicU8::new(state as u8),
            reason: AtomicU8::new(reason as u8),
            behind: AtomicBool::new(false),
            trims: AtomicBool::new(trims),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            failed_flushes: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            missing: Mutex::default(),
            unsaved: AtomicBool::new(false),
            writing_txg,
            stats: LeafStats::default(),
            traffic: Traffic::default(),
            queue,
        }
    }

    /// A device that is in no tree: a cache device.
    pub(crate) fn alone(guid: u64, name: String, disk: DiskRef, host: &HostRef) -> Leaf {
        let leaf = Leaf::new(0, guid, name, Some(disk), VdevState::Online, Reason::None, Arc::default());
        leaf.traffic.set_clock(host);
        leaf
    }

    /// Its number among all leaves that its top-level vdev has had since the pool was opened.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its guid.
    pub fn guid(&self) -> u64 {
        self.guid.load(Relaxed)
    }

    /// Gives it another guid.
    pub(in crate::vdev) fn set_guid(&self, guid: u64) {
        self.guid.store(guid, Relaxed);
    }

    /// Its path, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is.
    pub fn state(&self) -> VdevState {
        VdevState::from_u8(self.state.load(Relaxed))
    }

    /// Why it is not online.
    pub fn reason(&self) -> Reason {
        Reason::from_u8(self.reason.load(Relaxed))
    }

    /// Changes how it is. A leaf that is no longer to be read loses its device.
    pub fn set_state(&self, state: VdevState, reason: Reason) {
        self.state.store(state as u8, Relaxed);
        self.reason.store(reason as u8, Relaxed);
        if !state.is_readable() {
            *self.disk.write() = None;
        }
    }

    /// It is not used any more: nothing begins on it. [`Leaf::close`] lets go of the device.
    pub(crate) fn stop(&self, state: VdevState, reason: Reason) {
        self.reason.store(reason as u8, Relaxed);
        self.state.store(state as u8, Relaxed);
    }

    /// It is used again, on what may be another device with the same contents.
    pub(crate) fn reopen(&self, disk: DiskRef) {
        self.trims.store(disk.can_discard(), Relaxed);
        self.queue.set_drive(&*disk);
        *self.disk.write() = Some(disk);
        self.stop(VdevState::Online, Reason::None);
    }

    /// Lets go of the device, after what is under way on it.
    pub(crate) fn close(&self) {
        *self.disk.write() = None;
    }

    /// Its device is gone, and with it what is being written, and perhaps what no flush has made durable.
    pub(crate) fn lose(&self) {
        self.note_missed_write();
        self.stop(VdevState::Unavailable, Reason::NotFound);
        self.close();
        self.note_failed_flush();
    }

    /// The device, if there is one, and nobody waits to let go of it: what is under way on one that hangs may take for ever, and holds up
    /// I/O on it, but nothing else.
    fn asked<T>(&self, ask: impl FnOnce(&DiskRef) -> T) -> Option<T> {
        self.disk.try_read()?.as_ref().map(ask)
    }

    /// The device, if there is one.
    pub fn disk(&self) -> Option<DiskRef> {
        self.asked(DiskRef::clone)
    }

    /// Whether it can be read and written.
    pub fn is_open(&self) -> bool {
        self.state().is_readable() && self.asked(|_| ()).is_some()
    }

    /// Whether it has missed what was written in a group, as far as is known.
    pub(crate) fn has_missed(&self, txg: u64) -> bool {
        self.is_behind() && self.missing.lock().iter().any(|(start, end)| (*start..*end).contains(&txg))
    }

    /// Whether it can be read and has all that was written before a group. Where nobody knows what it has missed, it has not.
    pub(crate) fn has_all_before(&self, txg: u64) -> bool {
        let is_open = self.is_open();
        let missing = self.missing.lock();
        is_open && (!self.is_behind() || !missing.is_empty() && missing.iter().all(|(start, _)| *start >= txg))
    }

    /// Whether it has missed writes.
    pub fn is_behind(&self) -> bool {
        self.behind.load(Relaxed)
    }

    /// Says that it may have missed writes before it was opened.
    pub fn set_behind(&self, behind: bool) {
        let mut missing = self.missing.lock();
        self.behind.store(behind, Relaxed);
        if !behind {
            self.lost.store(false, SeqCst);
            if !std::mem::take(&mut *missing).is_empty() {
                self.unsaved.store(true, Relaxed);
            }
        }
    }

    /// It is not behind any more if nothing is known that it has missed. Whether that is so.
    pub(crate) fn forget_behind(&self) -> bool {
        let missing = self.missing.lock();
        if missing.is_empty() && self.behind.swap(false, Relaxed) {
            self.lost.store(false, SeqCst);
        }
        missing.is_empty()
    }

    /// What its dirty time log says: half-open and ascending. `filling`: it is behind even if it says nothing.
    pub(crate) fn set_missed(&self, ranges: Vec<(u64, u64)>, filling: bool) {
        let mut missing = self.missing.lock();
        self.behind.store(filling || !ranges.is_empty(), Relaxed);
        *missing = ranges;
    }

    /// It has all now that was written before txg `before`, but for what was in the groups `wrong`. Where nothing is left, what a flush had lost is there again.
    pub(crate) fn caught_up(&self, before: u64, wrong: &BTreeSet<u64>) {
        let mut missing = self.missing.lock();
        let mut left: Vec<(u64, u64)> = Vec::new();
        for (start, end) in missing.drain(..) {
            left.extend(wrong.range(start..end.min(before).max(start)).map(|txg| (*txg, *txg + 1)));
            if end > before {
                left.push((start.max(before), end));
            }
        }
        *missing = left;
        self.unsaved.store(true, Relaxed);
        self.behind.store(!missing.is_empty(), Relaxed);
        if missing.is_empty() {
            self.lost.store(false, SeqCst);
        }
    }

    /// Whether [`Leaf::take_unsaved_missed`] has something.
    pub(crate) fn has_unsaved_missed(&self) -> bool {
        self.unsaved.load(Relaxed)
    }

    /// What its log has to say, if that is not what it says on disk.
    pub(crate) fn take_unsaved_missed(&self) -> Option<Vec<(u64, u64)>> {
        self.unsaved.swap(false, Relaxed).then(|| self.missing.lock().clone())
    }

    /// What cannot be had from it: of one that is not there, or of which nobody knows what it has missed, all.
    pub(in crate::vdev) fn outage(&self) -> Missed {
        let is_open = self.is_open();
        let missing = self.missing.lock();
        if !is_open || (self.is_behind() && missing.is_empty()) { outage::all() } else { missing.clone() }
    }

    /// The txgs whose writes it missed, half-open and ascending: what its dirty time log gets.
    pub fn missing_txgs(&self) -> Vec<(u64, u64)> {
        self.missing.lock().clone()
    }

    /// Bytes of the device that count: whole labels.
    pub fn device_bytes(&self) -> u64 {
        self.bytes().unwrap_or(0)
    }

    fn bytes(&self) -> Option<u64> {
        self.asked(|disk| label::usable_bytes(disk.size_bytes()))
    }

    /// Counts a block that came back with the wrong checksum.
    pub fn note_checksum_error(&self) {
        self.stats.checksum_errors.fetch_add(1, Relaxed);
    }

    /// Counts bytes that were written over what was wrong or missing.
    pub(crate) fn note_repair(&self, bytes: u64, by_scan: bool) {
        self.stats.self_healed.fetch_add(bytes, Relaxed);
        if by_scan {
            self.stats.scan_processed.fetch_add(bytes, Relaxed);
        }
    }

    /// A write is not on this leaf: from now on it is behind (invariant 2 of the module). Which group it belongs to is not known here.
    pub(crate) fn note_missed_write(&self) {
        let txg = self.writing_txg.load(Relaxed);
        self.note_missed(txg, txg + GROUPS);
    }

    /// It has missed what was written from txg `start` on, before `end`.
    pub(crate) fn note_missed(&self, start: u64, end: u64) {
        self.note_in(&mut self.missing.lock(), start, end);
    }

    fn note_in(&self, missing: &mut Vec<(u64, u64)>, start: u64, end: u64) {
        self.behind.store(true, Relaxed);
        if missing.iter().any(|(first, last)| *first <= start && end <= *last) {
            return;
        }
        // Ranges that touch become one.
        let mut joined = (start, end);
        missing.retain(|(first, last)| {
            let is_apart = *last < start || end < *first;
            if !is_apart {
                joined = (joined.0.min(*first), joined.1.max(*last));
            }
            is_apart
        });
        let at = missing.partition_point(|(first, _)| *first < joined.0);
        missing.insert(at, joined);
        self.unsaved.store(true, Relaxed);
    }

    /// How it is for a reader that wants to read what was written in the group `birth`.
    pub(in crate::vdev) fn view(&self, birth: u64) -> View {
        View {
            readable: self.is_open(),
            missed: self.has_missed(birth),
            behind: self.is_behind(),
            sits_out: self.traffic.sits_out(),
            pending: self.stats.pending.load(Relaxed),
            last_end: self.traffic.seeks().then(|| self.stats.last_end.load(Relaxed)),
        }
    }

    fn with_disk<T>(&self, what: &str, action: impl FnOnce(&DiskRef) -> std::io::Result<T>) -> Result<T> {
        let guard = self.disk.read();
        let Some(disk) = guard.as_ref() else { bail!(NoDevice, "{}: {}", self.name, self.state()) };
        action(disk).map_err(|cause| Error::new(ErrorKind::Io, format!("{}: {what}: {cause}", self.name)))
    }

    /// The place of a data offset on the device (invariant 1 of the module). Offsets of the scratch area, which lies in front of the data, are negative.
    fn place(&self, offset: u64, length: u64) -> Result<u64> {
        let Some(bytes) = self.bytes() else { bail!(NoDevice, "{}: {}", self.name, self.state()) };
        let end = bytes.saturating_sub(label::END_BYTES);
        Some(offset.wrapping_add(label::START_BYTES))
            .filter(|at| *at >= label::BOOT_OFFSET && at.checked_add(length).is_some_and(|last| last <= end))
            .ok_or_else(|| error!(Io, "{}: {length} bytes at {offset:#x} are not on the device", self.name))
    }

    /// Reads data.
    pub fn read(&self, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        if !self.is_open() {
            bail!(NoDevice, "{}: {}", self.name, self.state());
        }
        let at = self.place(offset, buf.len() as u64)?;
        host::claim_cpu();
        let _pending = Pending::new(&self.stats.pending);
        self.stats.last_end.store(offset.wrapping_add(buf.len() as u64), Relaxed);
        let now = || self.traffic.now_ns();
        let wanted = Wanted { class, is_write: false, at, length: buf.len() };
        if let Some(_turn) = self.queue.try_enter(&wanted, &now) {
            return self.read_now(at, buf);
        }
        disk::lend_mut(buf, |loan| {
            let Some(_turn) = self.wait_in_queue(&wanted, loan, &now) else { return Ok(()) };
            let Some(mut own) = loan.borrow() else { bail!(Io, "{}: a read does not wait any more", self.name) };
            own.bufs_mut().into_iter().try_for_each(|buf| self.read_now(at, buf))
        })
    }

    fn read_now(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let _under_way = self.traffic.begin(RequestKind::Read, buf.len(), 1);
        let result = self.with_disk("read", |disk| disk.read_at(buf, at));
        count(&result, &self.stats.reads, &self.stats.read_bytes, &self.stats.read_errors, buf.len());
        result
    }

    /// Waits until an I/O may be made. `None`: it has been, together with others, by this thread or another.
    fn wait_in_queue<'a>(&'a self, wanted: &Wanted, loan: &Loan, now: &'a dyn Fn() -> u64) -> Option<Turn<'a>> {
        let mut turn = match self.queue.wait(wanted, Some(loan), now) {
            Passage::Made => return None,
            Passage::Turn(turn) => turn,
        };
        let all = turn.together();
        if all.is_empty() {
            return Some(turn);
        }
        let (length, blocks) = (together::length(all), all.len());
        let result = if wanted.is_write {
            let _under_way = self.traffic.begin(RequestKind::Write, length, blocks);
            self.with_disk("write", |disk| together::write(disk, all))
        } else {
            let _under_way = self.traffic.begin(RequestKind::Read, length, blocks);
            self.with_disk("read", |disk| together::read(disk, all))
        };
        // What fails counts where each is made alone.
        if result.is_ok() {
            let stats = &self.stats;
            let (made, bytes) = if wanted.is_write { (&stats.writes, &stats.written_bytes) } else { (&stats.reads, &stats.read_bytes) };
            made.fetch_add(1, Relaxed);
            bytes.fetch_add(length as u64, Relaxed);
        }
        turn.settle(result.is_ok());
        result.is_err().then_some(turn)
    }

    /// The limits of the pool.
    pub(in crate::vdev) fn set_limits(&self, limits: &Tunables) {
        self.queue.set_limits(limits);
        self.traffic.set_limits(limits);
    }

    /// I/Os that wait for their turn.
    #[cfg(test)]
    pub(in crate::vdev) fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Writes data. What fails leaves the leaf degraded; whether it has missed something then, who writes to the others knows.
    pub fn write(&self, class: Class, offset: u64, bufs: &[&[u8]]) -> Result<()> {
        // Before and after: a flush may come in between.
        self.written.fetch_add(1, SeqCst);
        let result = self.write_pieces(class, offset, bufs);
        self.written.fetch_add(1, SeqCst);
        result
    }

    /// Writes as much at a time as the queue allows.
    fn write_pieces(&self, class: Class, offset: u64, bufs: &[&[u8]]) -> Result<()> {
        let now = || self.traffic.now_ns();
        let mut left = Pieces { bufs, gone: 0 };
        let mut at = offset;
        loop {
            let most = if self.traffic.turns() { usize::MAX } else { self.queue.piece_bytes(class, &now) };
            let piece = left.take(most);
            self.write_with(class, RequestKind::Write, at, &piece, |disk, at| disk.write_vectored_at(&piece, at))?;
            // An offset may be negative, up to the end of the scratch area.
            at = at.wrapping_add(piece.iter().map(|buf| buf.len() as u64).sum::<u64>());
            if left.bufs.is_empty() {
                return Ok(());
            }
        }
    }

    /// Writes data and makes just that durable.
    pub fn write_durable(&self, offset: u64, bufs: &[&[u8]]) -> Result<()> {
        self.while_no_flush_fails(|| {
            self.write_with(Class::SyncWrite, RequestKind::LogWrite, offset, bufs, |disk, at| self.heed_flush(disk.write_durable_at(bufs, at)))
        })
    }

    fn write_with(
        &self,
        class: Class,
        kind: RequestKind,
        offset: u64,
        bufs: &[&[u8]],
        write: impl FnOnce(&DiskRef, u64) -> std::io::Result<()>,
    ) -> Result<()> {
        host::claim_cpu();
        let length: usize = bufs.iter().map(|b| b.len()).sum();
        let counted = |result: Result<()>| {
            count(&result, &self.stats.writes, &self.stats.written_bytes, &self.stats.write_errors, length);
            result
        };
        let make = |at: u64| {
            let _under_way = self.traffic.begin(kind, length, bufs.len());
            counted(self.with_disk("write", |disk| write(disk, at)))
        };
        let in_turn = |at: u64| {
            let _pending = Pending::new(&self.stats.pending);
            let now = || self.traffic.now_ns();
            let wanted = Wanted { class, is_write: true, at, length };
            // What is durable when it is done is made by the caller.
            if class != Class::AsyncWrite {
                let _turn = self.queue.enter(&wanted, &now);
                return make(at);
            }
            match self.queue.try_enter(&wanted, &now) {
                Some(_turn) => make(at),
                None => disk::lend(bufs, |loan| self.wait_in_queue(&wanted, loan, &now).map_or(Ok(()), |_turn| make(at))),
            }
        };
        let result = match self.place(offset, length as u64) {
            Ok(at) => in_turn(at),
            Err(error) => counted(Err(error)),
        };
        if result.is_err() {
            self.degrade();
        }
        result
    }

    /// Makes durable what was written. What fails leaves the leaf degraded and behind: nobody knows what it lost. A second flush may well
    /// succeed then: the system has reported the error, and dropped what it could not write.
    pub fn flush(&self) -> Result<()> {
        host::claim_cpu();
        let written = self.written.load(SeqCst);
        let now = || self.traffic.now_ns();
        let _turn = self.queue.note_flush(&now);
        let result = self.while_no_flush_fails(|| {
            let result = self.traffic.flush(|| self.with_disk("flush", |disk| disk.flush()));
            if result.is_err() {
                self.note_failed_flush();
            }
            result
        });
        match &result {
            Ok(()) => {
                self.flushed.fetch_max(written, SeqCst);
            }
            Err(_) => {
                self.stats.write_errors.fetch_add(1, Relaxed);
                self.note_write_failure();
            }
        }
        result
    }

    /// How often something could not be made durable here.
    pub(crate) fn failed_flushes(&self) -> u64 {
        self.failed_flushes.load(SeqCst)
    }

    /// Does what makes something durable. If meanwhile somebody else was told of an error, it may have been ours.
    fn while_no_flush_fails(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let before = self.failed_flushes();
        flush().and_then(|()| self.check_flushes_since(before))
    }

    /// Fails if a flush has, since there were so many that did.
    pub(in crate::vdev) fn check_flushes_since(&self, failed_flushes: u64) -> Result<()> {
        if self.failed_flushes() != failed_flushes {
            bail!(Io, "{}: another flush failed at the same time", self.name);
        }
        Ok(())
    }

    /// Passes on how something went, and notes it if it was a flush that failed.
    fn heed_flush<T>(&self, result: std::io::Result<T>) -> std::io::Result<T> {
        result.inspect_err(|error| {
            if disk::is_failed_flush(error) {
                self.note_failed_flush();
            }
        })
    }

    /// What was written since the last flush may be gone. It is counted when everything else is known.
    fn note_failed_flush(&self) {
        let txg = self.writing_txg.load(Relaxed);
        {
            let mut missing = self.missing.lock();
            self.note_in(&mut missing, txg, txg + GROUPS);
            self.lost.fetch_or(self.written.load(SeqCst) > self.flushed.load(SeqCst), SeqCst);
        }
        self.degrade();
        self.failed_flushes.fetch_add(1, SeqCst);
    }

    /// Is what it has written perhaps not durable before a flush?
    pub fn has_write_cache(&self) -> bool {
        self.asked(|disk| disk.has_write_cache()).unwrap_or(false)
    }

    /// What it did not take will be written again: it is not behind, unless there is something that nobody will write again.
    pub fn will_catch_up(&self) {
        let mut missing = self.missing.lock();
        if !self.has_lost_writes() {
            missing.clear();
            self.behind.store(false, Relaxed);
        }
    }

    /// Whether a flush failed, so that something may be gone that was written.
    pub fn has_lost_writes(&self) -> bool {
        self.lost.load(SeqCst)
    }

    /// Is it worth while to prepare places?
    pub fn gains_by_preparing(&self) -> bool {
        self.asked(|disk| disk.gains_by_preparing()).unwrap_or(false)
    }

    /// Prepares a range, of which nothing is needed, for durable writes.
    pub fn prepare(&self, offset: u64, length: u64) -> Result<()> {
        let at = self.place(offset, length)?;
        let now = || self.traffic.now_ns();
        let _turn = self.queue.enter(&Wanted { class: Class::Initialize, is_write: true, at, length: length as usize }, &now);
        self.with_disk("prepare", |disk| self.heed_flush(disk.prepare(at, length)))
    }

    /// Can the device be told what is no longer needed, or could it when it was there last?
    pub fn can_trim(&self) -> bool {
        self.trims.load(Relaxed)
    }

    /// Tells the device that nothing of a range is needed.
    #[doc(alias = "zio_trim")]
    pub fn trim(&self, offset: u64, length: u64) -> Result<()> {
        let at = self.place(offset, length)?;
        let now = || self.traffic.now_ns();
        let _turn = self.queue.enter(&Wanted { class: Class::Trim, is_write: true, at, length: length as usize }, &now);
        let _under_way = self.traffic.begin(RequestKind::Trim, length as usize, 1);
        self.with_disk("trim", |disk| disk.discard(at, length))
    }

    fn note_write_failure(&self) {
        self.note_missed_write();
        self.degrade();
    }

    fn degrade(&self) {
        // Not if it was stopped just now.
        if self.state.compare_exchange(VdevState::Online as u8, VdevState::Degraded as u8, Relaxed, Relaxed).is_ok() {
            self.reason.store(Reason::Errors as u8, Relaxed);
        }
    }

    /// Forgets errors and, if it still has its device, that it was degraded (`zpool clear`).
    pub fn clear_errors(&self) {
        for counter in [&self.stats.read_errors, &self.stats.write_errors, &self.stats.checksum_errors] {
            counter.store(0, Relaxed);
        }
        self.traffic.forget_slow();
        if self.state.compare_exchange(VdevState::Degraded as u8, VdevState::Online as u8, Relaxed, Relaxed).is_ok() {
            self.reason.store(Reason::None as u8, Relaxed);
        }
    }
}

/// Goes through several buffers.
struct Pieces<'a> {
    bufs: &'a [&'a [u8]],
    /// Bytes of the first of them that are gone.
    gone: usize,
}

impl<'a> Pieces<'a> {
    /// The next `most` bytes, or what is left.
    fn take(&mut self, most: usize) -> Vec<&'a [u8]> {
        let (mut taken, mut room) = (Vec::new(), most);
        while let Some((first, rest)) = self.bufs.split_first().filter(|_| room > 0) {
            let part = &first[self.gone..];
            let part = &part[..part.len().min(room)];
            taken.push(part);
            room -= part.len();
            self.gone += part.len();
            if self.gone == first.len() {
                (self.bufs, self.gone) = (rest, 0);
            }
        }
        taken
    }
}

fn count(result: &Result<()>, operations: &AtomicU64, bytes: &AtomicU64, errors: &AtomicU64, length: usize) {
    operations.fetch_add(1, Relaxed);
    match result {
        Ok(()) => bytes.fetch_add(length as u64, Relaxed),
        Err(_) => errors.fetch_add(1, Relaxed),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::RealHost;

    /// It was noted while a resilver ended: the leaf was not behind, and so its readers had what it had not; or it was forgotten.
    #[test]
    fn what_is_missed_while_the_rest_is_forgotten_is_known() {
        #[cfg(debug_assertions)]
        let _pauses = parking_lot::counting::pause(2);
        type Forget = fn(&Leaf);
        let ways: [(bool, Forget); 3] = [
            (true, |leaf| leaf.caught_up(4, &BTreeSet::new())),
            (true, |leaf| {
                leaf.forget_behind();
            }),
            (false, Leaf::will_catch_up),
        ];
        for (way, (is_kept, forget)) in ways.into_iter().enumerate() {
            for round in 0..300 {
                let leaf = Leaf::alone(1, "leaf".into(), Arc::new(disk::MemDisk::new("leaf", 1 << 20)), &RealHost::shared());
                leaf.set_behind(true);
                std::thread::scope(|scope| {
                    scope.spawn(|| leaf.note_missed(7, 10));
                    forget(&leaf);
                });
                let missing = leaf.missing_txgs();
                assert_eq!(leaf.is_behind(), !missing.is_empty(), "way {way}, round {round}: {missing:?}");
                assert!(!is_kept || missing == [(7, 10)], "way {way}, round {round}: {missing:?}");
            }
        }
    }

    #[test]
    fn pieces_are_all_the_bytes_in_order() {
        let bufs: Vec<Vec<u8>> = [0, 5, 0, 3, 1, 0].map(|length| (0..length).collect()).into();
        let slices: Vec<&[u8]> = bufs.iter().map(Vec::as_slice).collect();
        for most in [1, 2, 3, 4, 8, 9, usize::MAX] {
            let mut left = Pieces { bufs: &slices, gone: 0 };
            let mut all = Vec::new();
            while !left.bufs.is_empty() {
                let piece = left.take(most).concat();
                assert!(piece.len() <= most);
                all.extend(piece);
            }
            assert_eq!(all, bufs.concat());
        }
    }
}
