//! What is in memory of the scans of a pool.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ondisk::blkptr::DataPointer;
use ondisk::error_scrub::ErrorScrubRecord;
use ondisk::scan::{ScanRecord, ScanState};
use parking_lot::Mutex;

use super::event::ScanEvent;
use super::window::BYTES_FIRST;
use crate::host::HostRef;
use crate::pool::error_log_sync::Damaged;
use crate::sync::Executor;
use crate::zio::NotRight;

/// Threads that read for scans: as many reads as a few devices are given at a time.
pub(super) const READERS: usize = 8;
/// A resilver is put off for so many groups: as many as may be open when a device comes back.
const POSTPONED_MAX: u64 = 4;
/// A scan waits for frees in so many groups.
const WAITS_MAX: u64 = 100;
/// Blocks of deduplication that are remembered, so that they are read once.
const SEEN_MAX: usize = 1 << 20;

/// The last scan, as it is at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "pool_scan_stat_t")]
pub struct ScanProgress {
    /// What is on disk of it, or will be with this group.
    pub record: ScanRecord,
    /// Bytes read.
    pub issued: u64,
    /// Bytes found since the pool was imported or the scan begun.
    pub pass_examined: u64,
    /// Bytes read since then.
    pub pass_issued: u64,
    /// When that was, in seconds since 1970.
    pub pass_start: u64,
    /// When it was paused; 0: it is not.
    pub pause_time: u64,
    /// Seconds that it was paused in all.
    pub spent_paused: u64,
    /// How fast it has been lately.
    pub pace: Pace,
    /// How often it went back, as users waited for the group, since the pool was imported or the scan begun.
    pub cut: u64,
}

/// What a scan has to know to say, at its end, what devices have caught up with.
#[derive(Debug, Clone, Default)]
pub(super) struct Coverage {
    /// It began since the pool was imported.
    pub(super) begun_here: bool,
    /// Devices that it was begun for, and how many flushes of each had failed then.
    pub(super) devices: BTreeMap<u64, u64>,
    /// How many flushes of each device of the pool had failed then.
    pub(super) flushes: BTreeMap<u64, u64>,
    /// Devices that were not there all the time.
    pub(super) away: BTreeSet<u64>,
    /// Blocks that could not be read or written.
    pub(super) wrong: NotRight,
    /// More of them than are remembered.
    pub(super) too_many_wrong: bool,
}

#[derive(Default)]
struct State {
    progress: Option<ScanProgress>,
    coverage: Coverage,
    /// What happened, in the words of events, until somebody asks.
    events: Vec<ScanEvent>,
    /// Blocks of deduplication that were read.
    seen: HashSet<(u32, u64)>,
    /// The last error scrub.
    error_scrub: Option<ErrorScrubRecord>,
    /// What the one that is under way has still to read; `None`: the log says it.
    errors_left: Option<Vec<Damaged>>,
}

/// See the module.
#[derive(Default)]
pub(in crate::pool) struct Scans {
    state: Mutex<State>,
    /// There is something to do in the next group.
    active: AtomicBool,
    /// How often a resilver was asked for, and how many of these questions were answered.
    resilver_wanted: AtomicU64,
    resilver_answered: AtomicU64,
    /// The pool is being closed.
    ending: AtomicBool,
    readers: OnceLock<Executor>,
    /// Groups in which a scan let frees go first.
    waited: AtomicU64,
    /// Groups in which a resilver was put off.
    postponed: AtomicU64,
    /// Bytes that the next window should have; 0: nobody knows.
    window: AtomicU64,
}

impl Scans {
    pub(super) fn open(&self, record: Option<ScanRecord>, now: u64) {
        let is_active = record.as_ref().is_some_and(|record| record.state == ScanState::Scanning && !record.is_paused());
        self.state.lock().progress = record.map(|record| ScanProgress {
            issued: record.examined.saturating_sub(record.skipped),
            pass_examined: 0,
            pass_issued: 0,
            pass_start: now,
            pause_time: if record.is_paused() { now } else { 0 },
            spent_paused: 0,
            pace: Pace::default(),
            cut: 0,
            record,
        });
        self.active.store(is_active, Ordering::Release);
    }

    /// A scan begins.
    pub(super) fn begin(&self, record: &ScanRecord, (devices, flushes): (BTreeMap<u64, u64>, BTreeMap<u64, u64>), event: ScanEvent) {
        let mut state = self.state.lock();
        state.progress = Some(ScanProgress {
            issued: 0,
            pass_examined: 0,
            pass_issued: 0,
            pass_start: record.start_time,
            pause_time: 0,
            spent_paused: 0,
            pace: Pace::default(),
            cut: 0,
            record: record.clone(),
        });
        self.postponed.store(0, Ordering::Relaxed);
        state.coverage = Coverage { begun_here: true, devices, flushes, ..Coverage::default() };
        state.seen.clear();
        state.events.push(event);
        self.active.store(true, Ordering::Release);
    }

    /// The record is this now; since the last call so many bytes more were read.
    pub(super) fn advance(&self, record: &ScanRecord, issued: u64, now_ns: u64) {
        if let Some(progress) = &mut self.state.lock().progress {
            // Fewer than before, where the scan went back.
            progress.pass_examined = (progress.pass_examined + record.examined).saturating_sub(progress.record.examined);
            progress.record = record.clone();
            progress.pass_issued += issued;
            progress.issued += issued;
            progress.pace.note(now_ns, progress.issued);
        }
    }

    /// It was paused at this time, or goes on.
    pub(super) fn set_paused(&self, record: &ScanRecord, now: u64) {
        let mut state = self.state.lock();
        if let Some(progress) = &mut state.progress {
            if record.is_paused() {
                progress.pause_time = now;
            } else {
                progress.spent_paused += now.saturating_sub(progress.pause_time);
                progress.pause_time = 0;
                progress.pace = Pace::default();
            }
            progress.record = record.clone();
        }
        state.events.push(ScanEvent::of_scrub(if record.is_paused() { "scrub_paused" } else { "scrub_resume" }));
        self.active.store(!record.is_paused(), Ordering::Release);
    }

    /// It is at its end.
    pub(super) fn end(&self, record: &ScanRecord, event: ScanEvent) {
        let mut state = self.state.lock();
        if let Some(progress) = &mut state.progress {
            progress.record = record.clone();
        }
        state.seen.clear();
        state.events.push(event);
        self.active.store(false, Ordering::Release);
    }

    /// Says of a block of deduplication that it is being read. `false`: it was before.
    pub(super) fn is_new(&self, vdev: u32, offset: u64) -> bool {
        let seen = &mut self.state.lock().seen;
        if seen.len() >= SEEN_MAX {
            seen.clear();
        }
        seen.insert((vdev, offset))
    }

    /// A block was not read after all: a scan has gone back.
    pub(super) fn forget_seen(&self, block: &DataPointer) {
        if let Some(dva) = block.dvas().first().filter(|_| block.dedup) {
            self.state.lock().seen.remove(&(dva.vdev, dva.offset));
        }
    }

    /// What was read does not count.
    pub(super) fn forget_all_seen(&self) {
        self.state.lock().seen.clear();
    }

    /// What was left of a window was put off.
    pub(super) fn note_cut(&self) {
        self.state.lock().progress.iter_mut().for_each(|progress| progress.cut += 1);
    }

    /// So many bytes the first window of a piece should have.
    pub(super) fn window(&self) -> u64 {
        match self.window.load(Ordering::Relaxed) {
            0 => BYTES_FIRST,
            bytes => bytes,
        }
    }

    pub(super) fn set_window(&self, bytes: u64) {
        self.window.store(bytes, Ordering::Relaxed);
    }

    /// Whether a scan lets what is being freed go first. It does so for a while only: some of it may not be to be had.
    pub(super) fn waits_for_frees(&self, are_there: bool) -> bool {
        let waited = if are_there { self.waited.fetch_add(1, Ordering::Relaxed) } else { self.waited.swap(0, Ordering::Relaxed) };
        are_there && waited < WAITS_MAX
    }

    /// Whether a resilver is put off for a group: a few times only.
    pub(super) fn postpone(&self) -> bool {
        self.postponed.fetch_add(1, Ordering::Relaxed) < POSTPONED_MAX
    }

    pub(super) fn coverage<T>(&self, change: impl FnOnce(&mut Coverage) -> T) -> T {
        change(&mut self.state.lock().coverage)
    }

    /// The last error scrub.
    pub(in crate::pool) fn error_scrub(&self) -> Option<ErrorScrubRecord> {
        self.state.lock().error_scrub
    }

    pub(super) fn set_error_scrub(&self, record: Option<ErrorScrubRecord>) {
        self.state.lock().error_scrub = record;
    }

    /// Has an error scrub something to do in the next group?
    pub(in crate::pool) fn is_scrubbing_errors(&self) -> bool {
        self.error_scrub().is_some_and(|record| record.is_running() && !record.is_paused) && !self.is_ending()
    }

    pub(super) fn take_errors_left(&self) -> Option<Vec<Damaged>> {
        self.state.lock().errors_left.take()
    }

    pub(super) fn set_errors_left(&self, left: Option<Vec<Damaged>>) {
        self.state.lock().errors_left = left;
    }

    /// The last scan.
    pub(in crate::pool) fn progress(&self) -> Option<ScanProgress> {
        self.state.lock().progress.clone()
    }

    /// Something else happened that is told as what scans do.
    pub(in crate::pool) fn note_event(&self, event: ScanEvent) {
        self.state.lock().events.push(event);
    }

    /// What happened since this was last asked.
    pub(in crate::pool) fn take_events(&self) -> Vec<ScanEvent> {
        std::mem::take(&mut self.state.lock().events)
    }

    /// Whether the next group has something to do.
    pub(in crate::pool) fn is_active(&self) -> bool {
        (self.active.load(Ordering::Acquire) || self.resilver_wanted().is_some()) && !self.is_ending()
    }

    pub(in crate::pool) fn want_resilver(&self) {
        self.resilver_wanted.fetch_add(1, Ordering::AcqRel);
    }

    /// The last question for a resilver, if it is not answered.
    pub(in crate::pool) fn resilver_wanted(&self) -> Option<u64> {
        let asked = self.resilver_wanted.load(Ordering::Acquire);
        (asked != self.resilver_answered.load(Ordering::Acquire)).then_some(asked)
    }

    /// A resilver has begun, or is not needed, as of that question.
    pub(super) fn answer(&self, asked: u64) {
        self.resilver_answered.store(asked, Ordering::Release);
    }

    /// The pool is being closed: nothing more is scanned. Or it is not, after all.
    pub(in crate::pool) fn set_ending(&self, ending: bool) {
        self.ending.store(ending, Ordering::Release);
    }

    pub(in crate::pool) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// The threads that read.
    pub(in crate::pool) fn readers(&self, host: &HostRef) -> &Executor {
        self.readers.get_or_init(|| Executor::in_background(host, "scan", READERS))
    }
}

/// A moment of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    at_ns: u64,
    /// Bytes read until then.
    issued: u64,
}

/// How fast a scan has been lately. It does not go through a pool evenly: small files, which are many seeks, come before or after large ones. So when it will end
/// is said by what it did in the last third of its time or somewhat more: long enough to even out the pieces of which it consists. Nothing is known before the
/// second call of [`Pace::note`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace(Option<Marks>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marks {
    first: Mark,
    /// At least a third of the time since the first ago.
    lately: Mark,
    next: Mark,
    last: Mark,
}

impl Pace {
    /// So many bytes are read in all.
    pub(super) fn note(&mut self, at_ns: u64, issued: u64) {
        let now = Mark { at_ns, issued };
        let marks = self.0.get_or_insert(Marks { first: now, lately: now, next: now, last: now });
        marks.last = now;
        if at_ns.saturating_sub(marks.next.at_ns) >= at_ns.saturating_sub(marks.first.at_ns) / 3 {
            (marks.lately, marks.next) = (marks.next, now);
        }
    }

    /// Bytes a second; 0: nobody knows.
    pub fn rate(&self) -> u64 {
        let Some(Marks { lately, last, .. }) = self.0 else { return 0 };
        let took = u128::from(last.at_ns.saturating_sub(lately.at_ns)).max(1);
        let rate = u128::from(last.issued.saturating_sub(lately.issued)) * 1_000_000_000 / took;
        u64::try_from(rate).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scan of ten seconds of small files and ninety of large ones, four times as fast: by all that it had done, it would have taken three times as long.
    #[test]
    fn what_was_slow_at_first_does_not_count_for_ever() {
        let (mut pace, mut issued) = (Pace::default(), 0);
        assert_eq!(pace.rate(), 0);
        for tenth in 0..=1000_u64 {
            pace.note(tenth * 100_000_000, issued);
            if tenth == 99 {
                assert_eq!(pace.rate(), 10_000_000);
            }
            if tenth == 300 {
                assert_eq!(pace.rate(), 40_000_000);
            }
            issued += if tenth < 100 { 1_000_000 } else { 4_000_000 };
        }
        assert_eq!(pace.rate(), 40_000_000);
    }
}
