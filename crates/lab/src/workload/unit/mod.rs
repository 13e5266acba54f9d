//! The fourteen data-intensive unit tests, with the figures that ZFS and UFS were published with.
//!
//! # Theory
//!
//! Each test moves a given number of bytes in one manner (new file, rewrite, random, read; small or large calls;
//! synchronous or not; cached or not; one thread or four) and is timed from open to close. A throughput is bytes that
//! went through the calls, over that time, in MB (2^20 bytes) per second.
//!
//! "Cached" means that the file has been read once, in full, just before; "uncached" that neither the page cache nor
//! the file system's own cache holds it, for which [`crate::target::Target::drop_caches`] is there.
//!
//! What is written is random, and different each time: no file system wins by compressing it, or by noticing that a
//! rewrite changes nothing.
//!
//! # Invariants
//!
//! 1. Only the test's own calls are timed: making its file, filling or emptying caches and waiting for what the last
//!    repetition left behind are not.
//! 2. Targets take turns, repetition by repetition, so that the machine's noise hits all of them.
//! 3. A measurement that was cut short by its time limit says so, and its throughput is that of the bytes it moved.

mod create;
mod driver;
mod job;
mod random;
mod sequential;
mod settings;

#[cfg(test)]
mod tests;

pub use driver::{Progress, run};
pub use settings::Settings;

use anyhow::Result;
use job::Job;

use crate::statistics;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What must be in memory when a test begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// The test makes its file.
    NoFile,
    /// All of the file.
    Full,
    /// Nothing of the file.
    Empty,
}

/// The sizes that a test was published with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Bytes(u64),
    /// Half of the memory that is free.
    HalfOfMemory,
}

/// MB/s in the published table; `None` where it had no figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    pub zfs: Option<f64>,
    pub ufs: Option<f64>,
}

/// One of the fourteen.
pub struct UnitTest {
    pub id: u8,
    pub name: &'static str,
    pub published: Published,
    pub cache: Cache,
    /// The file that is there before, or that the test makes.
    pub file: Size,
    /// What goes through the calls in one pass of one thread ...
    pub moved: Size,
    /// ... so many times, counting threads and passes.
    pub times: u64,
    /// Returns the bytes that went through the calls.
    run: fn(&Job<'_>) -> Result<u64>,
}

/// One timed run of one test on one target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement {
    pub id: u8,
    pub bytes: u64,
    pub seconds: f64,
    /// Whether it moved all it was meant to.
    pub complete: bool,
}

impl Measurement {
    /// MB (2^20 bytes) per second.
    pub fn throughput(&self) -> f64 {
        self.bytes as f64 / MIB as f64 / self.seconds.max(1e-9)
    }
}

/// All repetitions of one test on one target.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    pub measurements: Vec<Measurement>,
    /// Why there are no more.
    pub failure: Option<String>,
}

impl Series {
    fn throughputs(&self) -> Vec<f64> {
        self.measurements.iter().map(Measurement::throughput).collect()
    }

    /// The middle throughput; of an even number the mean of the middle two.
    pub fn median(&self) -> Option<f64> {
        statistics::median(&self.throughputs())
    }

    /// The lowest throughput.
    pub fn minimum(&self) -> Option<f64> {
        self.throughputs().into_iter().min_by(f64::total_cmp)
    }

    /// The highest throughput.
    pub fn maximum(&self) -> Option<f64> {
        self.throughputs().into_iter().max_by(f64::total_cmp)
    }

    /// Did the time limit cut one of them short?
    pub fn cut_short(&self) -> bool {
        self.measurements.iter().any(|measurement| !measurement.complete)
    }
}

/// One test on all targets, in the targets' order.
pub struct Row {
    pub test: &'static UnitTest,
    pub file_bytes: u64,
    pub series: Vec<Series>,
}

/// A target as a report names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub description: String,
}

/// Everything that a run measured.
pub struct Results {
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    pub settings: Settings,
}

const fn published(zfs: f64, ufs: f64) -> Published {
    Published { zfs: Some(zfs), ufs: Some(ufs) }
}

const UNPUBLISHED: Published = Published { zfs: None, ufs: None };

const fn test(
    id: u8,
    name: &'static str,
    published: Published,
    cache: Cache,
    [file, moved]: [Size; 2],
    run: fn(&Job<'_>) -> Result<u64>,
) -> UnitTest {
    UnitTest { id, name, published, cache, file, moved, times: 1, run }
}

impl UnitTest {
    const fn times(self, times: u64) -> UnitTest {
        UnitTest { times, ..self }
    }
}

const fn kib(file: u64, moved: u64) -> [Size; 2] {
    [Size::Bytes(file * KIB), Size::Bytes(moved * KIB)]
}

const fn mib(file: u64, moved: u64) -> [Size; 2] {
    kib(file * KIB, moved * KIB)
}

/// The fourteen, in their order.
pub static TESTS: [UnitTest; 14] = [
    test(1, "create, 1M writes", published(486.02, 145.94), Cache::NoFile, mib(128, 128), create::large_writes),
    test(2, "create, 128K O_DSYNC writes", published(4.5637, 0.86565), Cache::NoFile, mib(5, 5), create::synchronous),
    test(3, "create, 1-8K writes, fsync per 10M", published(27.3327, 50.0903), Cache::NoFile, mib(50, 50), create::small_writes),
    test(4, "read 32K, cached", published(674.77, 612.93), Cache::Full, mib(1024, 1024), sequential::read),
    test(5, "read 32K, uncached", UNPUBLISHED, Cache::Empty, mib(1024, 1024), sequential::read),
    test(6, "rewrite 32K O_DSYNC, uncached", published(2.20641, 0.85497), Cache::Empty, mib(10, 10), sequential::rewrite_synchronous),
    test(7, "rewrite 1-8K, cached", published(204.32, 257.23), Cache::Full, mib(1000, 1000), sequential::rewrite_small),
    test(
        8,
        "create half of memory, read it twice",
        published(698.18, 298.25),
        Cache::NoFile,
        [Size::HalfOfMemory, Size::HalfOfMemory],
        create::write_and_read_twice,
    )
    .times(3),
    test(9, "random 8K writes, cached, fsync", published(42.7521, 100.3526), Cache::Full, mib(1024, 128), random::writes),
    test(10, "random 2K O_DSYNC writes, cached", published(0.117925, 0.116375), Cache::Full, mib(100, 1), random::synchronous),
    test(11, "the same, uncached, 4 threads", published(0.42673, 0.07391), Cache::Empty, mib(100, 1), random::synchronous_by_four).times(4),
    test(12, "random 8K, 3 reads : 1 write, cached", published(264.84, 266.78), Cache::Full, mib(1024, 128), random::mixed),
    test(13, "random 2K reads, uncached, 4 threads", UNPUBLISHED, Cache::Empty, mib(1024, 5), random::reads_by_four).times(4),
    test(14, "random 2K reads, cached, 4 threads", published(56.3849, 386.7031), Cache::Full, mib(1024, 5), random::reads_by_four).times(4),
];
