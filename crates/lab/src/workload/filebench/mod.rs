//! Filebench's servers: many threads, each in a loop of opens, reads, appends, deletes on one set of files.
//!
//! # Theory
//!
//! A personality is a set of files (how many, how large, how they are spread over directories, how many of them exist at
//! the beginning) and a loop that each of its threads goes through again and again for a given time. Sizes are
//! gamma-distributed with a shape of 1.5, as in the published definitions (filebench 1.5, `workloads/*.f`), whose
//! numbers these are. As there, every step counts as an operation, opening and closing too.
//!
//! What differs from the original: all threads are in one process, and the tree has equally wide directories where the
//! original draws their widths.
//!
//! # Invariants
//!
//! 1. A file that a thread has open, or is about to make or delete, is not given to another thread.

mod file_set;
mod flow;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::latency::Latencies;
use super::{Figure, LONGEST_CALL, MOST_FILES, MOST_SECONDS, MOST_THREADS, Parameter, Parameters, Published, Round, Workload};
use crate::interrupt;
use file_set::FileSet;
use flow::{Runner, Tally};

/// One step of a loop. What is opened or made stays the thread's file until it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Makes one of the files that do not exist.
    Create,
    /// Writes as many bytes as the file is meant to have.
    WriteWhole,
    /// Opens one that exists.
    Open,
    ReadWhole,
    /// Appends up to the append size, at random.
    Append,
    Sync,
    Close,
    Delete,
    Stat,
    /// Appends to the log that all threads share.
    AppendLog,
}

struct Personality {
    name: &'static str,
    about: &'static str,
    steps: &'static [Step],
    parameters: [Parameter; 8],
}

/// A personality with its parameters.
pub struct Filebench {
    personality: &'static Personality,
    parameters: Parameters,
}

const KIB: u64 = 1 << 10;

/// `files`, `width` of directories, bytes of a file, threads, percentage that exists.
const fn parameters(files: u64, width: u64, size: u64, threads: u64, exist: u64) -> [Parameter; 8] {
    [
        Parameter::scaled("files", "files in the set", files, 20).at_most(MOST_FILES),
        Parameter::fixed("width", "entries of a directory", width),
        Parameter::fixed("size", "mean size of a file, in bytes", size),
        Parameter::fixed("threads", "threads", threads).at_most(MOST_THREADS),
        Parameter::fixed("exist", "percentage of the files that is there at the beginning", exist).at_most(100),
        Parameter::fixed("io", "bytes in a call", 1024 * KIB).at_most(LONGEST_CALL),
        Parameter::fixed("append", "bytes appended at most", 16 * KIB),
        Parameter::scaled("seconds", "how long it runs", 60, 1).at_most(MOST_SECONDS),
    ]
}

use Step::{Append, AppendLog, Close, Create, Delete, Open, ReadWhole, Stat, Sync, WriteWhole};

static PERSONALITIES: [Personality; 4] = [
    Personality {
        name: "fileserver",
        about: "filebench's file server: 50 threads make, extend, read and delete files of 128K",
        steps: &[Create, WriteWhole, Close, Open, Append, Close, Open, ReadWhole, Close, Delete, Stat],
        parameters: parameters(10_000, 20, 128 * KIB, 50, 80),
    },
    Personality {
        name: "varmail",
        about: "filebench's mail server: 16 threads, files of 16K in one directory, an fsync after each message",
        steps: &[Delete, Create, Append, Sync, Close, Open, ReadWhole, Append, Sync, Close, Open, ReadWhole, Close],
        parameters: parameters(1000, 1_000_000, 16 * KIB, 16, 80),
    },
    Personality {
        name: "webserver",
        about: "filebench's web server: 100 threads read files of 16K, ten for each append to a shared log",
        steps: &[
            Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole,
            Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open,
            ReadWhole, Close, AppendLog,
        ],
        parameters: parameters(1000, 20, 16 * KIB, 100, 100),
    },
    Personality {
        name: "webproxy",
        about: "filebench's web proxy: 100 threads replace and read files of 16K in one directory",
        steps: &[
            Delete, Create, Append, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open,
            ReadWhole, Close, Open, ReadWhole, Close,
        ],
        parameters: parameters(10_000, 1_000_000, 16 * KIB, 100, 80),
    },
];

/// All of them, with the published parameters.
pub fn all() -> Vec<Box<dyn Workload>> {
    let one = |personality: &'static Personality| -> Box<dyn Workload> {
        Box::new(Filebench { personality, parameters: Parameters::new(&personality.parameters) })
    };
    PERSONALITIES.iter().map(one).collect()
}

impl Filebench {
    fn file_set(&self, round: &Round<'_>) -> FileSet {
        FileSet::new(round.directory, &self.parameters, round.seed)
    }

    fn run(&self, round: &Round<'_>) -> Result<(Tally, f64, Latencies)> {
        let files = self.file_set(round).found_on_disk()?;
        let log = self.personality.steps.contains(&AppendLog).then(|| files.open_log()).transpose()?;
        let over = AtomicBool::new(false);
        let started = Instant::now();
        let length = Duration::from_secs(self.parameters.get("seconds"));
        let tallies = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.parameters.get("threads"))
                .map(|number| {
                    let runner =
                        Runner::new(&files, log.as_ref(), &self.parameters, round.seed.wrapping_mul(1009).wrapping_add(number));
                    let (over, steps) = (&over, self.personality.steps);
                    scope.spawn(move || runner.run(steps, over))
                })
                .collect();
            while started.elapsed() < length
                && !interrupt::pending()
                && !threads.iter().any(thread::ScopedJoinHandle::is_finished)
            {
                thread::sleep(Duration::from_millis(20));
            }
            over.store(true, Ordering::Relaxed);
            let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
            joined.collect::<Result<Vec<(Tally, Latencies)>>>()
        })?;
        interrupt::check()?;
        let seconds = started.elapsed().as_secs_f64();
        let latencies = Latencies::all(tallies.iter().map(|(_, latencies)| latencies));
        Ok((tallies.into_iter().map(|(tally, _)| tally).sum(), seconds, latencies))
    }
}

impl Workload for Filebench {
    fn name(&self) -> &'static str {
        self.personality.name
    }

    fn about(&self) -> &'static str {
        self.personality.about
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn parameters_mut(&mut self) -> &mut Parameters {
        &mut self.parameters
    }

    /// Its definitions were published, figures for these four were not.
    fn published(&self) -> &'static [Published] {
        &[]
    }

    fn space_bytes(&self) -> u64 {
        let size = self.parameters.get("size").saturating_add(self.parameters.get("append"));
        self.parameters.get("files").saturating_mul(size.saturating_mul(3)).saturating_add(1 << 30)
    }

    fn prepare(&self, round: &Round<'_>) -> Result<()> {
        self.file_set(round).make()
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let (tally, seconds, latencies) = self.run(round)?;
        let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20) / seconds;
        let operations = tally.operations();
        let threads = self.parameters.get("threads") as f64;
        let mut figures = vec![
            Figure::rate("operations", "/s", operations as f64 / seconds),
            Figure::rate("read", "MB/s", megabytes(tally.bytes_read)),
            Figure::rate("written", "MB/s", megabytes(tally.bytes_written)),
            Figure::time("an operation takes", "us", threads * seconds * 1e6 / operations.max(1) as f64),
        ];
        figures.extend(latencies.figures("an operation"));
        Ok(figures)
    }
}
