//! How long the requests of a device took, and how large they were: what `zpool iostat -l -q -r -w` shows.
//!
//! # Theory
//! A thread that has a request makes it itself, when its turn has come ([`queue`](super::queue)); the time at the device is what is
//! measured. Of the kinds that OpenZFS tells apart, four exist here: reads, writes of the
//! intent log (somebody waits for them), all other writes, and trims. Read-ahead and checks are reads like any other. A request
//! that carries several blocks, which lie side by side, is a *joined* one.
//!
//! # Invariants
//! 1. Bucket `n` of a time counts requests that took 2ⁿ up to 2ⁿ⁺¹ nanoseconds, of a size those of 2ⁿ up to 2ⁿ⁺¹ bytes;
//!    the last bucket also has what is beyond it.

use std::sync::{Arc, OnceLock};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::host::HostRef;
use crate::sync::Executor;
use crate::tunables::{Parameter, Tunables};

/// Buckets of times: the last begins at 69 seconds.
pub(in crate::vdev) const WAIT_BUCKETS: usize = 37;
/// Buckets of sizes: the last begins at 16 MiB.
const SIZE_BUCKETS: usize = 25;

/// What it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A read.
    Read,
    /// A write that is durable when it is done: the intent log's.
    LogWrite,
    /// A write of a transaction group.
    Write,
    /// A device is told what it need not keep.
    Trim,
}

/// The requests of one kind so far, and those under way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    /// By time.
    pub wait: Vec<u64>,
    /// Those of one block, by size.
    pub single: Vec<u64>,
    /// Those of several blocks, by size.
    pub joined: Vec<u64>,
    /// Begun and not done.
    pub active: u64,
}

#[derive(Debug)]
struct Counters {
    wait: [AtomicU64; WAIT_BUCKETS],
    single: [AtomicU64; SIZE_BUCKETS],
    joined: [AtomicU64; SIZE_BUCKETS],
    active: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            wait: std::array::from_fn(|_| AtomicU64::new(0)),
            single: std::array::from_fn(|_| AtomicU64::new(0)),
            joined: std::array::from_fn(|_| AtomicU64::new(0)),
            active: AtomicU64::new(0),
        }
    }
}

/// Times are remembered of so many requests, about.
const REMEMBERED: u64 = 8;
/// A device whose requests take longer than this, in nanoseconds, beside the time for their bytes, is worth a thread for each that is to be done.
const SLOW_NS: u64 = 500_000;
/// One that takes so long turns.
const TURNS_NS: u64 = 3_000_000;
/// Even a fast device takes so long for a byte.
const BYTE_NS: u64 = 1;
const MILLISECOND_NS: u64 = 1_000_000;

/// What requests take lately, in nanoseconds: the mean of the last ones, of which newer ones count more. Racing notes may lose one another.
#[derive(Default)]
pub(in crate::vdev) struct Pace(AtomicU64);

impl Pace {
    /// One took so long.
    fn note(&self, nanoseconds: u64) {
        let mean = match self.0.load(Relaxed) {
            0 => nanoseconds,
            mean => (mean * (REMEMBERED - 1)).saturating_add(nanoseconds) / REMEMBERED,
        };
        self.0.store(mean, Relaxed);
    }

    fn is_slow(&self) -> bool {
        self.0.load(Relaxed) >= SLOW_NS
    }
}

/// Counters of one device.
#[derive(Default)]
pub struct Traffic {
    /// Without one, nothing is measured.
    clock: OnceLock<HostRef>,
    /// Threads for several requests at a time.
    crew: OnceLock<Arc<Executor>>,
    kinds: [Counters; 4],
    reads: Pace,
    writes: Pace,
    flushes: Pace,
    /// Says what is slow. Without it, nothing is.
    limits: OnceLock<Tunables>,
    /// Requests that were slow.
    slow: AtomicU64,
    /// Until then readers do without it, in nanoseconds of the clock; 0: they do not.
    sits_until: AtomicU64,
    /// How often it was found to be far slower than others, lately.
    outlier: AtomicU64,
    /// How often it was made to sit out for that.
    sat_out: AtomicU64,
}

/// A request under way. Dropped, it is done.
pub(in crate::vdev) struct UnderWay<'a> {
    counters: &'a Counters,
    pace: Option<&'a Pace>,
    bytes: u64,
    clock: Option<(&'a HostRef, u64)>,
    traffic: &'a Traffic,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.counters.active.fetch_sub(1, Relaxed);
        if let Some((host, begun)) = self.clock {
            let took = host.now_ns().saturating_sub(begun);
            count(&self.counters.wait, took);
            self.traffic.note_slow(took);
            if let Some(pace) = self.pace {
                pace.note(took.saturating_sub(self.bytes.saturating_mul(BYTE_NS)));
            }
        }
    }
}

impl Traffic {
    /// Times are measured from now on.
    pub(in crate::vdev) fn set_clock(&self, host: &HostRef) {
        let _ = self.clock.set(host.clone());
    }

    /// What is slow is known from now on.
    pub(in crate::vdev) fn set_limits(&self, limits: &Tunables) {
        let _ = self.limits.set(limits.clone());
    }

    fn note_slow(&self, took: u64) {
        let is_slow = |limits: &Tunables| took >= limits.now(Parameter::SlowIoMs).saturating_mul(MILLISECOND_NS);
        if took >= MILLISECOND_NS && self.limits.get().is_some_and(is_slow) {
            self.slow.fetch_add(1, Relaxed);
        }
    }

    /// Requests that took longer than the parameter `zio_slow_io_ms` says.
    pub fn slow(&self) -> u64 {
        self.slow.load(Relaxed)
    }

    /// They are forgotten, and that it sits out.
    pub(in crate::vdev) fn forget_slow(&self) {
        [&self.slow, &self.outlier, &self.sits_until].into_iter().for_each(|counter| counter.store(0, Relaxed));
    }

    /// Do readers do without it? Asked on every read.
    #[doc(alias = "vdev_sit_out_reads")]
    pub fn sits_out(&self) -> bool {
        let until = self.sits_until.load(Relaxed);
        until != 0 && self.sit_out_secs() != 0 && self.now_ns() < until
    }

    /// For how long a device sits out that is too slow; 0: never.
    pub(in crate::vdev) fn sit_out_secs(&self) -> u64 {
        self.limits.get().map_or(0, |limits| limits.now(Parameter::ReadSitOutSecs))
    }

    /// Readers do without it for so many seconds; `None`: until somebody says otherwise.
    #[doc(alias = "vdev_raidz_sit_child")]
    pub(in crate::vdev) fn sit_out(&self, seconds: Option<u64>) {
        let until = |seconds: u64| self.now_ns().saturating_add(seconds.saturating_mul(1000 * MILLISECOND_NS));
        self.sits_until.store(seconds.map_or(u64::MAX, until), Relaxed);
        self.slow.fetch_add(1, Relaxed);
    }

    /// Readers use it again.
    #[doc(alias = "vdev_raidz_unsit_child")]
    pub(in crate::vdev) fn sit_in(&self) {
        self.sits_until.store(0, Relaxed);
    }

    /// How often it was found to be far slower than others.
    pub(in crate::vdev) fn outlier(&self) -> &AtomicU64 {
        &self.outlier
    }

    /// It sits out for being slow, not because somebody said so.
    pub(in crate::vdev) fn note_sat_out(&self) {
        self.sat_out.fetch_add(1, Relaxed);
    }

    /// How often that was.
    pub fn sat_out(&self) -> u64 {
        self.sat_out.load(Relaxed)
    }

    /// Reads by the time that they took, as [`Requests::wait`] with all buckets.
    pub(in crate::vdev) fn reads_by_time(&self) -> [u64; WAIT_BUCKETS] {
        std::array::from_fn(|bucket| self.kinds[RequestKind::Read as usize].wait[bucket].load(Relaxed))
    }

    /// What tells the time, and what is slow, once both are known.
    pub(in crate::vdev) fn clock_and_limits(&self) -> Option<(HostRef, Tunables)> {
        Some((self.clock.get()?.clone(), self.limits.get()?.clone()))
    }

    /// A request of `blocks` blocks begins.
    pub(in crate::vdev) fn begin(&self, kind: RequestKind, bytes: usize, blocks: usize) -> UnderWay<'_> {
        let counters = &self.kinds[kind as usize];
        counters.active.fetch_add(1, Relaxed);
        count(if blocks > 1 { &counters.joined } else { &counters.single }, bytes as u64);
        let pace = match kind {
            RequestKind::Read => Some(&self.reads),
            RequestKind::LogWrite | RequestKind::Write => Some(&self.writes),
            RequestKind::Trim => None,
        };
        UnderWay { counters, pace, bytes: bytes as u64, clock: self.clock.get().map(|host| (host, host.now_ns())), traffic: self }
    }

    /// Does a flush, and measures what it takes.
    pub(in crate::vdev) fn flush<T>(&self, flush: impl FnOnce() -> T) -> T {
        let Some(host) = self.clock.get() else { return flush() };
        let begun = host.now_ns();
        let done = flush();
        self.flushes.note(host.now_ns().saturating_sub(begun));
        done
    }

    /// The time in nanoseconds; 0 without a clock.
    pub(in crate::vdev) fn now_ns(&self) -> u64 {
        self.clock.get().map_or(0, |host| host.now_ns())
    }

    /// There are threads for several requests at a time.
    pub(in crate::vdev) fn set_crew(&self, crew: &Arc<Executor>) {
        let _ = self.crew.set(crew.clone());
    }

    /// Writes take as long as on a disk that turns.
    pub(in crate::vdev) fn turns(&self) -> bool {
        self.writes.0.load(Relaxed) >= TURNS_NS
    }

    /// Reads take so long that it counts how far apart they are.
    pub(in crate::vdev) fn seeks(&self) -> bool {
        self.reads.is_slow()
    }

    /// The threads for several reads at a time, if reads take long enough.
    pub(in crate::vdev) fn beside_reads(&self) -> Option<&Arc<Executor>> {
        self.crew.get().filter(|_| self.reads.is_slow())
    }

    /// The threads for several writes at a time, if writes take long enough.
    pub(in crate::vdev) fn beside_writes(&self) -> Option<&Arc<Executor>> {
        self.crew.get().filter(|_| self.writes.is_slow())
    }

    /// The threads for several flushes at a time, if flushes take long enough.
    pub(in crate::vdev) fn beside_flushes(&self) -> Option<&Arc<Executor>> {
        self.crew.get().filter(|_| self.flushes.is_slow())
    }

    /// The counters of a kind.
    pub fn of(&self, kind: RequestKind) -> Requests {
        let counters = &self.kinds[kind as usize];
        Requests {
            wait: values(&counters.wait),
            single: values(&counters.single),
            joined: values(&counters.joined),
            active: counters.active.load(Relaxed),
        }
    }
}

fn count(buckets: &[AtomicU64], value: u64) {
    let bucket = value.checked_ilog2().unwrap_or(0) as usize;
    buckets[bucket.min(buckets.len() - 1)].fetch_add(1, Relaxed);
}

/// Without the zeros at the end.
fn values(buckets: &[AtomicU64]) -> Vec<u64> {
    let mut values: Vec<u64> = buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
    while values.last() == Some(&0) {
        values.pop();
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_where_it_belongs() {
        let traffic = Traffic::default();
        for (bytes, blocks) in [(4096, 1), (8191, 1), (8192, 2), (usize::MAX, 9), (0, 1)] {
            let under_way = traffic.begin(RequestKind::Write, bytes, blocks);
            assert_eq!(traffic.of(RequestKind::Write).active, 1);
            drop(under_way);
        }
        let of = traffic.of(RequestKind::Write);
        assert_eq!((of.single[12], of.single[0], of.joined[13], of.joined[SIZE_BUCKETS - 1], of.active), (2, 1, 1, 1, 0), "{of:?}");
        assert!(of.wait.is_empty(), "without a clock nothing is measured");
        traffic.set_clock(&crate::host::RealHost::shared());
        drop(traffic.begin(RequestKind::Read, 512, 1));
        assert_eq!(traffic.of(RequestKind::Read).wait.iter().sum::<u64>(), 1);
        assert!(traffic.of(RequestKind::LogWrite).single.is_empty());
    }

    #[test]
    fn what_takes_longer_than_the_limit_is_slow() {
        let (traffic, limits) = (Traffic::default(), Tunables::default());
        traffic.note_slow(60_000 * MILLISECOND_NS);
        assert_eq!(traffic.slow(), 0, "nobody has said what is slow");
        traffic.set_limits(&limits);
        [29_999, 30_000, 31_000].into_iter().for_each(|milliseconds| traffic.note_slow(milliseconds * MILLISECOND_NS));
        assert_eq!(traffic.slow(), 2);
        limits.parameters.set(Parameter::SlowIoMs, "5").unwrap();
        [4, 6].into_iter().for_each(|milliseconds| traffic.note_slow(milliseconds * MILLISECOND_NS));
        assert_eq!(traffic.slow(), 3);
        traffic.forget_slow();
        assert_eq!(traffic.slow(), 0);
    }
}
