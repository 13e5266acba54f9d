//! Filebench's video server: many readers of large files, and one writer that replaces files that nobody reads.
//!
//! # Theory
//!
//! As the published definition has it (filebench 1.5, `videoserver.f`): *active* videos are read in sequence, 256 K a
//! call, by each of the threads; *passive* ones, half of which exist at the beginning, are replaced by one thread, one
//! every ten seconds, in calls of 1 MB. There the readers can be held back to a rate; it is 0 here, which means not.
//! The sizes are those that ZFS was published with (24 threads, 4 GB files), the numbers of files those of a laptop:
//! the definition has 32 active and 194 passive ones.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::workload::contents::{Contents, LONGEST};
use crate::workload::latency::Latencies;
use crate::workload::together::{Ground, Time, together};
use crate::workload::{Figure, LONGEST_CALL, MOST_SECONDS, MOST_THREADS, Parameter, Parameters, Published, Round, Workload, described};
use crate::aligned::Aligned;
use crate::interrupt;

/// The workload.
pub struct Videoserver {
    parameters: Parameters,
}

const PARAMETERS: [Parameter; 8] = [
    Parameter::scaled("size", "bytes of a video", 4 << 30, 1 << 20),
    Parameter::fixed("active", "videos that are read", 4).at_most(10_000),
    Parameter::fixed("passive", "videos that are replaced; half of them exist at the beginning", 4).at_most(10_000),
    Parameter::fixed("threads", "readers", 24).at_most(MOST_THREADS),
    Parameter::fixed("read", "bytes in a read call", 256 << 10).at_most(LONGEST_CALL),
    Parameter::fixed("interval", "seconds between two replacements", 10).at_least(0).at_most(MOST_SECONDS),
    Parameter::fixed("rate", "reads a second that all readers together may do; 0 for no limit", 0).at_least(0),
    Parameter::scaled("seconds", "how long it runs", 60, 1).at_most(MOST_SECONDS),
];

const fn published(figure: &'static str, system: &'static str, value: f64) -> Published {
    Published { figure, system, value }
}

static PUBLISHED: [Published; 6] = [
    published("throughput", "ZFS", 118.0),
    published("throughput", "ext4", 76.0),
    published("throughput", "XFS", 88.0),
    published("operations", "ZFS", 3200.0),
    published("operations", "ext4", 2100.0),
    published("operations", "XFS", 2400.0),
];

/// What one thread did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    reads: u64,
    bytes_read: u64,
    replaced: u64,
    bytes_written: u64,
}

/// What all of them did, and how long it and each read took.
#[derive(Debug, Clone, Default)]
struct Outcome {
    tally: Tally,
    operations: u64,
    seconds: f64,
    reads: Latencies,
}

impl Default for Videoserver {
    fn default() -> Self {
        Self::new()
    }
}

impl Videoserver {
    /// The published sizes, and a laptop's number of files.
    pub fn new() -> Videoserver {
        Videoserver { parameters: Parameters::new(&PARAMETERS) }
    }

    fn active(ground: Ground<'_>, number: u64) -> PathBuf {
        ground.directory.join(format!("active{number}"))
    }

    fn passive(ground: Ground<'_>, number: u64) -> PathBuf {
        ground.directory.join(format!("passive{number}"))
    }

    /// Writes a video; `go_on` says whether to.
    fn make(
        &self,
        path: &std::path::Path,
        contents: &Contents,
        random: &mut ChaCha8Rng,
        go_on: impl Fn() -> bool,
    ) -> Result<u64> {
        let name = || format!("cannot write {}", path.display());
        let mut file = File::create(path).with_context(name)?;
        let mut written = 0;
        let size = self.parameters.get("size");
        while written < size && go_on() {
            let piece = contents.piece(random, (size - written).min(LONGEST as u64) as usize);
            file.write_all(piece).with_context(name)?;
            written += piece.len() as u64;
        }
        Ok(written)
    }

    fn read(&self, ground: Ground<'_>, time: &Time, thread: u64) -> Result<(Tally, Latencies)> {
        let mut random = ground.random(thread);
        let mut buffer = Aligned::new(self.parameters.get("read") as usize);
        let (rate, threads) = (self.parameters.get("rate"), self.parameters.get("threads"));
        let (mut tally, mut latencies) = (Tally::default(), Latencies::default());
        let started = Instant::now();
        while !time.is_over() {
            let path = Self::active(ground, random.random_range(0..self.parameters.get("active")));
            let mut file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
            while !time.is_over() {
                if rate > 0 {
                    let due = Duration::from_secs_f64(tally.reads as f64 * threads as f64 / rate as f64);
                    std::thread::sleep(due.saturating_sub(started.elapsed()).min(Duration::from_millis(200)));
                    if started.elapsed() < due {
                        continue;
                    }
                }
                let began = Instant::now();
                match file.read(&mut buffer)? {
                    0 => break,
                    got => {
                        latencies.add(began.elapsed());
                        tally.reads += 1;
                        tally.bytes_read += got as u64;
                    }
                }
            }
        }
        Ok((tally, latencies))
    }

    fn replace(&self, ground: Ground<'_>, time: &Time) -> Result<Tally> {
        let contents = Contents::new(ground.seed);
        let mut random = ground.random(0);
        let passive = self.parameters.get("passive");
        let mut tally = Tally::default();
        // The first of those that exist goes, and the first of those that do not comes.
        let (mut oldest, mut newest) = (0, passive / 2);
        while !time.is_over() {
            if newest > oldest {
                fs::remove_file(Self::passive(ground, oldest % passive))?;
                oldest += 1;
            }
            tally.bytes_written +=
                self.make(&Self::passive(ground, newest % passive), &contents, &mut random, || !time.is_over())?;
            newest += 1;
            tally.replaced += 1;
            let until = Instant::now() + Duration::from_secs(self.parameters.get("interval"));
            while !time.is_over() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(tally)
    }

    fn run(&self, ground: Ground<'_>) -> Result<Outcome> {
        let time = Time::new(self.parameters.get("seconds"));
        let tallies = together(self.parameters.get("threads") + 1, |thread| {
            let replaced = || Ok((self.replace(ground, &time)?, Latencies::default()));
            let outcome = if thread == 0 { replaced() } else { self.read(ground, &time, thread) };
            outcome.inspect_err(|_| time.end())
        })?;
        interrupt::check()?;
        let reads = Latencies::all(tallies.iter().map(|(_, latencies)| latencies));
        let mut tally = Tally::default();
        for (one, _) in tallies {
            tally.reads += one.reads;
            tally.bytes_read += one.bytes_read;
            tally.replaced += one.replaced;
            tally.bytes_written += one.bytes_written;
        }
        // Delete, create, write whole, close.
        Ok(Outcome { tally, operations: tally.reads + 4 * tally.replaced, seconds: time.seconds(), reads })
    }
}

impl Workload for Videoserver {
    described!("videoserver", "filebench's video server: 24 threads read large files in sequence, one replaces others");

    fn published(&self) -> &'static [Published] {
        &PUBLISHED
    }

    fn space_bytes(&self) -> u64 {
        let videos = self.parameters.get("active").saturating_add(self.parameters.get("passive"));
        self.parameters.get("size").saturating_mul(videos + 1).saturating_add(1 << 30)
    }

    fn prepare(&self, round: &Round<'_>) -> Result<()> {
        let ground = Ground::from(round);
        let (contents, mut random) = (Contents::new(round.seed), ground.random(u64::MAX));
        let active = (0..self.parameters.get("active")).map(|number| Self::active(ground, number));
        let passive = (0..self.parameters.get("passive") / 2).map(|number| Self::passive(ground, number));
        for path in active.chain(passive) {
            self.make(&path, &contents, &mut random, || !interrupt::pending())?;
            interrupt::check()?;
        }
        Ok(())
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let Outcome { tally, operations, seconds, reads } = self.run(Ground::from(round))?;
        let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20) / seconds;
        let mut figures = vec![
            Figure::rate("throughput", "MB/s", megabytes(tally.bytes_read + tally.bytes_written)),
            Figure::rate("operations", "/s", operations as f64 / seconds),
            Figure::rate("read", "MB/s", megabytes(tally.bytes_read)),
            Figure::rate("written", "MB/s", megabytes(tally.bytes_written)),
        ];
        figures.extend(reads.figures("a read"));
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{HostDirectory, Target};

    fn tiny(rate: u64) -> (HostDirectory, Videoserver) {
        let mut workload = Videoserver::new();
        for (name, value) in [("size", 3 << 20), ("threads", 3), ("interval", 0), ("seconds", 1), ("rate", rate)] {
            workload.parameters_mut().set(name, value).unwrap();
        }
        (HostDirectory::new("host", &std::env::temp_dir()).unwrap(), workload)
    }

    #[test]
    fn videos_are_read_and_replaced() {
        let (host, workload) = tiny(0);
        let round = Round::new(&host, host.directory(), 0, 3);
        workload.prepare(&round).unwrap();
        let sizes = |prefix: &str| -> Vec<u64> {
            let entries = fs::read_dir(host.directory()).unwrap().map(|entry| entry.unwrap());
            entries
                .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
                .map(|entry| entry.metadata().unwrap().len())
                .collect()
        };
        assert_eq!((sizes("active"), sizes("passive")), (vec![3 << 20; 4], vec![3 << 20; 2]));
        let outcome = workload.run(Ground::from(&round)).unwrap();
        let tally = outcome.tally;
        assert_eq!(outcome.reads.count(), tally.reads, "each read is timed");
        // The last one may be cut off, before its first byte too.
        assert!(tally.replaced > 1 && tally.bytes_written >= (tally.replaced - 1) * (3 << 20), "{tally:?}");
        assert!(tally.reads > 12 && tally.bytes_read == tally.reads * (256 << 10), "a video is a multiple of a read: {tally:?}");
        assert_eq!((outcome.operations, sizes("active").len(), sizes("passive").len()), (tally.reads + 4 * tally.replaced, 4, 2));
    }

    #[test]
    fn a_rate_holds_the_readers_back() {
        let (host, workload) = tiny(30);
        let round = Round::new(&host, host.directory(), 0, 3);
        workload.prepare(&round).unwrap();
        let reads = workload.run(Ground::from(&round)).unwrap().tally.reads;
        assert!((5..=40).contains(&reads), "{reads}");
    }
}
