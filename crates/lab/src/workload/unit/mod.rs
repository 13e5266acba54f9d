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
//! The tests go through [`crate::storage::Storage`], so they also run on a library without a mount.
//!
//! # Invariants
//!
//! 1. Only the test's own calls are timed: making its file, filling or emptying caches and waiting for what the round
//!    before left behind are not.
//! 2. A measurement that was cut short by its time limit says so, and its throughput is that of the bytes it moved.

mod create;
mod job;
mod random;
mod sequential;

#[cfg(test)]
mod calls_tests;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use job::{Data, Job};
use parking_lot::Mutex;

use super::latency::Latencies;
use super::{Figure, MOST_SECONDS, Parameter, Parameters, Published, Round, Workload};
use crate::aligned::Aligned;
use crate::interrupt;
use crate::storage::Open;

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

/// One of the fourteen.
pub struct UnitTest {
    pub id: u8,
    pub name: &'static str,
    pub title: &'static str,
    published: Option<[Published; 2]>,
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

/// One of the fourteen with its parameters.
pub struct Unit {
    test: &'static UnitTest,
    parameters: Parameters,
}

const NAMES: [&str; 14] = [
    "unit01", "unit02", "unit03", "unit04", "unit05", "unit06", "unit07", "unit08", "unit09", "unit10", "unit11", "unit12",
    "unit13", "unit14",
];

const THROUGHPUT: &str = "throughput";

const fn published(zfs: f64, ufs: f64) -> Option<[Published; 2]> {
    Some([
        Published { figure: THROUGHPUT, system: "ZFS", value: zfs },
        Published { figure: THROUGHPUT, system: "UFS", value: ufs },
    ])
}

const UNPUBLISHED: Option<[Published; 2]> = None;

const fn test(
    id: u8,
    title: &'static str,
    published: Option<[Published; 2]>,
    cache: Cache,
    [file, moved]: [Size; 2],
    run: fn(&Job<'_>) -> Result<u64>,
) -> UnitTest {
    UnitTest { id, name: NAMES[id as usize - 1], title, published, cache, file, moved, times: 1, run }
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
    test(
        6,
        "rewrite 32K O_DSYNC, uncached",
        published(2.20641, 0.85497),
        Cache::Empty,
        mib(10, 10),
        sequential::rewrite_synchronous,
    ),
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
    test(
        11,
        "the same, uncached, 4 threads",
        published(0.42673, 0.07391),
        Cache::Empty,
        mib(100, 1),
        random::synchronous_by_four,
    )
    .times(4),
    test(12, "random 8K, 3 reads : 1 write, cached", published(264.84, 266.78), Cache::Full, mib(1024, 128), random::mixed),
    test(13, "random 2K reads, uncached, 4 threads", UNPUBLISHED, Cache::Empty, mib(1024, 5), random::reads_by_four).times(4),
    test(
        14,
        "random 2K reads, cached, 4 threads",
        published(56.3849, 386.7031),
        Cache::Full,
        mib(1024, 5),
        random::reads_by_four,
    )
    .times(4),
];

/// All fourteen with the published sizes. Half of the free memory is found out now.
pub fn all() -> Vec<Unit> {
    let half_of_memory_bytes = crate::system::free_memory_bytes().map_or(1024 * MIB, |bytes| bytes / 2 / MIB * MIB);
    TESTS.iter().map(|test| Unit::new(test, half_of_memory_bytes)).collect()
}

impl Unit {
    fn new(test: &'static UnitTest, half_of_memory_bytes: u64) -> Unit {
        let bytes = |size: Size| match size {
            Size::Bytes(bytes) => bytes,
            Size::HalfOfMemory => half_of_memory_bytes,
        };
        let parameter = |name, about, value| Parameter::scaled(name, about, value, MIB.min(value));
        let mut parameters = Vec::new();
        if test.file != test.moved {
            parameters.push(parameter("file", "bytes of the file", bytes(test.file)));
        }
        let about = match test.times {
            1 => "bytes that are written and read",
            3 => "bytes of the file, which is written once and read twice",
            _ => "bytes that each of the four threads moves",
        };
        parameters.push(parameter("bytes", about, bytes(test.moved)));
        parameters.push(Parameter::fixed("limit", "seconds after which it is cut short", 600).at_least(0).at_most(MOST_SECONDS));
        Unit { test, parameters: Parameters::new(&parameters) }
    }

    /// What it is in words.
    pub fn test(&self) -> &'static UnitTest {
        self.test
    }

    fn moved_bytes(&self) -> u64 {
        self.parameters.get("bytes") / 4096 * 4096
    }

    fn file_bytes(&self) -> u64 {
        if self.test.file == self.test.moved { self.moved_bytes() } else { self.parameters.get("file") / 4096 * 4096 }
    }

    fn path(round: &Round<'_>) -> PathBuf {
        round.directory.join("file")
    }

    /// Makes the file that the test expects.
    fn make_file(&self, round: &Round<'_>, data: &Data) -> Result<()> {
        let path = Self::path(round);
        let file = round.target.storage().open(&path, Open::Create)?;
        let mut left = self.file_bytes();
        // Pieces whose numbers no run uses.
        let mut number = u64::MAX / 2;
        while left > 0 {
            interrupt::check()?;
            let length = left.min(MIB) as usize;
            file.write(data.piece(number, length)).with_context(|| format!("cannot fill {}", path.display()))?;
            left -= length as u64;
            number += 1;
        }
        file.sync().with_context(|| format!("cannot sync {}", path.display()))
    }

    /// Reads all of it, so that it is in memory.
    fn read_all(&self, round: &Round<'_>) -> Result<()> {
        let path = Self::path(round);
        let file = round.target.storage().open(&path, Open::Existing)?;
        let mut buffer = Aligned::new(MIB as usize);
        let mut bytes = 0;
        loop {
            interrupt::check()?;
            match file.read(&mut buffer)? {
                0 => break,
                got => bytes += got as u64,
            }
        }
        ensure!(bytes == self.file_bytes(), "{} has {bytes} bytes instead of {}", path.display(), self.file_bytes());
        Ok(())
    }

    /// Runs it: the bytes that went through the calls, the seconds from open to close, and how long each call took.
    fn run(&self, round: &Round<'_>) -> Result<(u64, f64, Latencies)> {
        let data = Data::new(round.seed);
        let path = Self::path(round);
        let seed = round.seed.wrapping_mul(1009).wrapping_add(u64::from(round.number) * 17 + u64::from(self.test.id));
        let started = Instant::now();
        let job = Job {
            storage: round.target.storage(),
            path: &path,
            file_bytes: self.file_bytes(),
            moved_bytes: self.moved_bytes(),
            seed,
            data: &data,
            deadline: started + Duration::from_secs(self.parameters.get("limit")),
            latencies: Mutex::default(),
        };
        let bytes = (self.test.run)(&job)?;
        Ok((bytes, started.elapsed().as_secs_f64(), job.latencies.into_inner()))
    }
}

impl Workload for Unit {
    fn name(&self) -> &'static str {
        self.test.name
    }

    fn about(&self) -> &'static str {
        self.test.title
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn parameters_mut(&mut self) -> &mut Parameters {
        &mut self.parameters
    }

    fn published(&self) -> &'static [Published] {
        self.test.published.as_ref().map_or(&[], |both| both.as_slice())
    }

    fn space_bytes(&self) -> u64 {
        // Room for copies that are not yet freed.
        self.file_bytes().saturating_mul(2).saturating_add(512 * MIB)
    }

    fn needs_mount(&self) -> bool {
        false
    }

    fn prepare(&self, round: &Round<'_>) -> Result<()> {
        if self.test.cache != Cache::NoFile {
            self.make_file(round, &Data::new(round.seed))?;
        }
        round.target.settle()?;
        match self.test.cache {
            Cache::NoFile => Ok(()),
            Cache::Full => self.read_all(round),
            Cache::Empty => round.target.drop_caches().context("cannot empty the caches"),
        }
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let (bytes, seconds, latencies) = self.run(round)?;
        let expected = self.moved_bytes() * self.test.times;
        if bytes < expected {
            let limit = self.parameters.get("limit");
            round.remark(format!("cut short after {limit} s; the figure is for the {} MB moved until then", bytes / MIB));
        }
        let mut figures = vec![Figure::rate(THROUGHPUT, "MB/s", bytes as f64 / MIB as f64 / seconds.max(1e-9))];
        figures.extend(latencies.figures("a call"));
        Ok(figures)
    }
}
