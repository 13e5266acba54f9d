//! Filebench's database: readers of small pieces, and writers that keep up with them, each write on stable storage.
//!
//! # Theory
//!
//! As the published definition has it (filebench 1.5, `oltp.f`): 200 *shadows* read 2 K at random places of ten files
//! and then compute for a while. After every 1,000 reads one of ten *database writers* writes 100 times 2 K at random
//! places, and after every 3,200 reads the *log writer* writes 256 K at a random place of the log, all with O_DSYNC. A
//! shadow waits when the writers are too far behind.
//!
//! What differs from the original: a writer's hundred writes follow one another, where the original has them in flight
//! together; threads of one process take the place of processes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use anyhow::{Context, Result};
use parking_lot::{Condvar, Mutex};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

use crate::workload::contents::{Contents, LONGEST};
use crate::workload::latency::Latencies;
use crate::workload::together::{Ground, Time, together};
use crate::workload::{Figure, MOST_SECONDS, MOST_THREADS, Parameter, Parameters, Published, Round, Workload, described};
use crate::aligned::Aligned;
use crate::interrupt;
use crate::storage::WRITE_THROUGH;

/// The workload.
pub struct Oltp {
    parameters: Parameters,
}

const PARAMETERS: [Parameter; 8] = [
    Parameter::fixed("shadows", "readers", 200).at_most(MOST_THREADS),
    Parameter::fixed("writers", "database writers", 10).at_most(MOST_THREADS),
    Parameter::fixed("files", "data files", 10).at_most(1000),
    Parameter::scaled("size", "bytes of a data file", 10 << 20, 1 << 20),
    Parameter::fixed("log", "bytes of the log", 10 << 20),
    Parameter::fixed("io", "bytes of a read, and of a database write", 2 << 10).at_most(1 << 20),
    Parameter::fixed("hog", "steps of computing after each read", 200_000).at_least(0).at_most(100_000_000),
    Parameter::scaled("seconds", "how long it runs", 60, 1).at_most(MOST_SECONDS),
];

const LOG_WRITE: u64 = 256 << 10;
/// Reads for a turn of a database writer, and how many may be waiting for one.
const DATABASE: (u64, u64) = (1000, 2000);
/// The same for the log writer. The definition lets fewer wait than a turn takes, which nobody could ever have.
const LOG: (u64, u64) = (3200, 6400);
const WRITES_A_TURN: u64 = 100;

/// Counts reads that a writer has to answer.
struct Posts {
    /// guards: the reads since the last turn
    count: Mutex<u64>,
    changed: Condvar,
    turn: u64,
    most: u64,
}

/// What was done, and how long each of it took.
#[derive(Debug, Clone, Default)]
struct Tally {
    reads: Latencies,
    database_writes: Latencies,
    log_writes: Latencies,
}

impl Posts {
    fn new((turn, most): (u64, u64)) -> Posts {
        Posts { count: Mutex::new(0), changed: Condvar::new(), turn, most }
    }

    /// A read was done; waits while too many have been.
    fn post(&self, time: &Time) {
        let mut count = self.count.lock();
        while *count >= self.most && !time.is_over() {
            self.changed.wait_for(&mut count, Duration::from_millis(50));
        }
        *count += 1;
        self.changed.notify_all();
    }

    /// Takes a turn's worth of reads; `false` if the time is over.
    fn take(&self, time: &Time) -> bool {
        let mut count = self.count.lock();
        while *count < self.turn {
            if time.is_over() {
                return false;
            }
            self.changed.wait_for(&mut count, Duration::from_millis(50));
        }
        *count -= self.turn;
        self.changed.notify_all();
        true
    }
}

/// Computes, in steps that the compiler must take.
fn hog(steps: u64) {
    (0..steps).for_each(|step| {
        std::hint::black_box(step);
    });
}

impl Default for Oltp {
    fn default() -> Self {
        Self::new()
    }
}

impl Oltp {
    /// The published parameters.
    pub fn new() -> Oltp {
        Oltp { parameters: Parameters::new(&PARAMETERS) }
    }

    fn data(ground: Ground<'_>, number: u64) -> PathBuf {
        ground.directory.join(format!("data{number}"))
    }

    fn log(ground: Ground<'_>) -> PathBuf {
        ground.directory.join("log")
    }

    fn open(&self, ground: Ground<'_>, synchronous: bool) -> Result<Vec<File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(if synchronous { WRITE_THROUGH } else { 0 });
        let paths = (0..self.parameters.get("files")).map(|number| Self::data(ground, number));
        paths.map(|path| options.open(&path).with_context(|| format!("cannot open {}", path.display()))).collect()
    }

    fn place(&self, random: &mut ChaCha8Rng, bytes: u64, file_bytes: u64) -> u64 {
        random.random_range(0..(file_bytes / bytes).max(1)) * bytes
    }

    fn shadow(&self, ground: Ground<'_>, time: &Time, posts: [&Posts; 2], thread: u64) -> Result<Tally> {
        let (files, mut random) = (self.open(ground, false)?, ground.random(thread));
        let (io, size) = (self.parameters.get("io"), self.parameters.get("size"));
        let mut buffer = Aligned::new(io as usize);
        let mut reads = Latencies::default();
        while !time.is_over() {
            let file = &files[random.random_range(0..files.len())];
            let place = self.place(&mut random, io, size);
            reads.time(|| file.read_exact_at(&mut buffer, place))?;
            hog(self.parameters.get("hog"));
            posts.iter().for_each(|posts| posts.post(time));
        }
        Ok(Tally { reads, ..Tally::default() })
    }

    fn database_writer(&self, ground: Ground<'_>, time: &Time, posts: &Posts, contents: &Contents, thread: u64) -> Result<Tally> {
        let (files, mut random) = (self.open(ground, true)?, ground.random(thread));
        let (io, size) = (self.parameters.get("io"), self.parameters.get("size"));
        let mut database_writes = Latencies::default();
        while posts.take(time) {
            for _ in 0..WRITES_A_TURN {
                let file = &files[random.random_range(0..files.len())];
                let place = self.place(&mut random, io, size);
                let piece = contents.piece(&mut random, io as usize);
                database_writes.time(|| file.write_all_at(piece, place))?;
            }
        }
        Ok(Tally { database_writes, ..Tally::default() })
    }

    fn log_writer(&self, ground: Ground<'_>, time: &Time, posts: &Posts, contents: &Contents) -> Result<Tally> {
        let log = OpenOptions::new().write(true).custom_flags(WRITE_THROUGH).open(Self::log(ground))?;
        let (mut random, mut log_writes) = (ground.random(0), Latencies::default());
        while posts.take(time) {
            let place = self.place(&mut random, LOG_WRITE, self.parameters.get("log"));
            let piece = contents.piece(&mut random, LOG_WRITE as usize);
            log_writes.time(|| log.write_all_at(piece, place))?;
        }
        Ok(Tally { log_writes, ..Tally::default() })
    }

    fn run(&self, ground: Ground<'_>) -> Result<(Tally, f64)> {
        let contents = Contents::new(ground.seed);
        let (database, log) = (Posts::new(DATABASE), Posts::new(LOG));
        let (writers, shadows) = (self.parameters.get("writers"), self.parameters.get("shadows"));
        let time = Time::new(self.parameters.get("seconds"));
        let tallies = together(1 + writers + shadows, |thread| {
            let outcome = match thread {
                0 => self.log_writer(ground, &time, &log, &contents),
                thread if thread <= writers => self.database_writer(ground, &time, &database, &contents, thread),
                thread => self.shadow(ground, &time, [&database, &log], thread),
            };
            outcome.inspect_err(|_| time.end())
        })?;
        interrupt::check()?;
        let tally = Tally {
            reads: Latencies::all(tallies.iter().map(|one| &one.reads)),
            database_writes: Latencies::all(tallies.iter().map(|one| &one.database_writes)),
            log_writes: Latencies::all(tallies.iter().map(|one| &one.log_writes)),
        };
        Ok((tally, time.seconds()))
    }
}

impl Workload for Oltp {
    described!("oltp", "filebench's database: 200 readers of 2K, ten writers and a log writer with O_DSYNC");

    /// Its definition was published, figures were not.
    fn published(&self) -> &'static [Published] {
        &[]
    }

    fn space_bytes(&self) -> u64 {
        self.parameters.get("size").saturating_mul(self.parameters.get("files")).saturating_mul(3).saturating_add(1 << 30)
    }

    fn prepare(&self, round: &Round<'_>) -> Result<()> {
        let ground = Ground::from(round);
        let (contents, mut random) = (Contents::new(round.seed), ground.random(u64::MAX));
        let data = (0..self.parameters.get("files")).map(|number| (Self::data(ground, number), self.parameters.get("size")));
        for (path, bytes) in data.chain([(Self::log(ground), self.parameters.get("log"))]) {
            interrupt::check()?;
            let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
            let mut place = 0;
            while place < bytes {
                let piece = contents.piece(&mut random, (bytes - place).min(LONGEST as u64) as usize);
                file.write_all_at(piece, place)?;
                place += piece.len() as u64;
            }
        }
        Ok(())
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let (tally, seconds) = self.run(Ground::from(round))?;
        let rate = |name: &'static str, count: u64| Figure::rate(name, "/s", count as f64 / seconds);
        let Tally { reads, database_writes, log_writes } = &tally;
        let mut figures = vec![
            rate("operations", reads.count() + database_writes.count() + log_writes.count()),
            rate("reads", reads.count()),
            rate("database writes", database_writes.count()),
            rate("log writes", log_writes.count()),
        ];
        for (of, latencies) in [("a read", reads), ("a database write", database_writes), ("a log write", log_writes)] {
            figures.extend(latencies.figures(of));
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{HostDirectory, Target};

    /// A writer writes as often as reads ask for it, and no shadow runs away from the writers.
    #[test]
    fn writes_keep_up_with_reads() {
        let mut workload = Oltp::new();
        for (name, value) in [("shadows", 8), ("writers", 2), ("files", 2), ("size", 1 << 20), ("seconds", 2), ("hog", 100)] {
            workload.parameters_mut().set(name, value).unwrap();
        }
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let round = Round::new(&host, host.directory(), 0, 3);
        workload.prepare(&round).unwrap();
        let (tally, _) = workload.run(Ground::from(&round)).unwrap();
        let (reads, writes, log_writes) = (tally.reads.count(), tally.database_writes.count(), tally.log_writes.count());
        let turns = writes / WRITES_A_TURN;
        assert_eq!(writes % WRITES_A_TURN, 0);
        assert!(reads >= turns * 1000 && reads <= turns * 1000 + 2000 + 8 + 999, "{reads} {writes}");
        assert!(turns > 1 && log_writes.abs_diff(reads / 3200) <= 2, "{reads} {log_writes}");
    }
}
