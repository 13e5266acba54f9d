//! A lone writer of a log, alone and beside a writer of a large file.
//!
//! # Theory
//!
//! The writer of a log waits for each write to be stable, and for nothing else; a bulk writer waits for nothing and keeps the
//! device busy with what it has written before. What the one keeps of its rate beside the other says whether a file system
//! knows who is waiting. Nobody has published this; the first figure is the part that is kept.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::contents::{Contents, LONGEST};
use super::latency::Latencies;
use super::together::{Ground, Time};
use super::{Figure, MOST_SECONDS, Parameter, Parameters, Published, Round, Workload, described};
use crate::interrupt;
use crate::storage::WRITE_THROUGH;

/// The workload.
pub struct LogBeside {
    parameters: Parameters,
}

const PARAMETERS: [Parameter; 4] = [
    Parameter::fixed("block", "bytes in a write of the log", 2048).at_least(512).at_most(LONGEST as u64),
    Parameter::fixed("log", "bytes of the log, which is there before", 64 << 20).at_least(LONGEST as u64),
    Parameter::scaled("seconds", "how long the log is written alone", 10, 1).at_most(MOST_SECONDS),
    Parameter::scaled("bulk", "bytes of the large file, written and made stable", 1 << 30, 1 << 20),
];

/// As everywhere on a page.
const MEGABYTE: f64 = 1_048_576.0;

/// What came of one part of a round.
struct Part {
    writes: Latencies,
    seconds: f64,
}

impl Default for LogBeside {
    fn default() -> Self {
        Self::new()
    }
}

impl LogBeside {
    /// A gigabyte beside 2 K at a time.
    pub fn new() -> LogBeside {
        LogBeside { parameters: Parameters::new(&PARAMETERS) }
    }

    fn log_until(&self, log: &File, random: &mut ChaCha8Rng, contents: &Contents, is_over: impl Fn() -> bool) -> Result<Part> {
        let (block, size) = (self.parameters.get("block"), self.parameters.get("log"));
        let (began, mut writes) = (Instant::now(), Latencies::default());
        while !is_over() {
            let place = random.random_range(0..(size / block).max(1)) * block;
            let piece = contents.piece(random, block as usize);
            writes.time(|| log.write_all_at(piece, place))?;
        }
        Ok(Part { writes, seconds: began.elapsed().as_secs_f64().max(1e-9) })
    }

    fn bulk(&self, ground: Ground<'_>, contents: &Contents) -> Result<f64> {
        let (began, mut random) = (Instant::now(), ground.random(1));
        let path = ground.directory.join("bulk");
        let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut at = 0;
        while at < self.parameters.get("bulk") && !interrupt::pending() {
            file.write_all_at(contents.piece(&mut random, LONGEST), at)?;
            at += LONGEST as u64;
        }
        file.sync_all()?;
        Ok(began.elapsed().as_secs_f64().max(1e-9))
    }
}

impl Workload for LogBeside {
    described!("log-beside", "a log written 2K at a time (O_DSYNC), alone and beside a gigabyte of another file");

    fn published(&self) -> &'static [Published] {
        &[]
    }

    fn space_bytes(&self) -> u64 {
        self.parameters.get("bulk").saturating_add(self.parameters.get("log")).saturating_mul(2).saturating_add(1 << 30)
    }

    fn prepare(&self, round: &Round<'_>) -> Result<()> {
        let ground = Ground::from(round);
        let (contents, mut random) = (Contents::new(ground.seed), ground.random(2));
        let log = File::create(ground.directory.join("log"))?;
        for at in (0..self.parameters.get("log")).step_by(LONGEST) {
            log.write_all_at(contents.piece(&mut random, LONGEST), at)?;
            interrupt::check()?;
        }
        Ok(log.sync_all()?)
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let ground = Ground::from(round);
        let (contents, mut random) = (Contents::new(ground.seed), ground.random(0));
        let log = OpenOptions::new().write(true).custom_flags(WRITE_THROUGH).open(ground.directory.join("log"))?;
        let time = Time::new(self.parameters.get("seconds"));
        let alone = self.log_until(&log, &mut random, &contents, || time.is_over())?;
        interrupt::check()?;
        let is_over = AtomicBool::new(false);
        let (beside, bulk) = std::thread::scope(|scope| {
            let bulk = scope.spawn(|| {
                let bulk = self.bulk(ground, &contents);
                is_over.store(true, Ordering::Relaxed);
                bulk
            });
            let beside = self.log_until(&log, &mut random, &contents, || is_over.load(Ordering::Relaxed));
            (beside, bulk.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked"))))
        });
        let (beside, bulk) = (beside?, bulk?);
        interrupt::check()?;
        let rate = |part: &Part| part.writes.count() as f64 * self.parameters.get("block") as f64 / MEGABYTE / part.seconds;
        let mut figures = vec![
            Figure::rate("kept beside", "%", 100.0 * rate(&beside) / rate(&alone).max(1e-9)),
            Figure::rate("log alone", "MB/s", rate(&alone)),
            Figure::rate("log beside", "MB/s", rate(&beside)),
            Figure::rate("bulk", "MB/s", self.parameters.get("bulk") as f64 / MEGABYTE / bulk),
        ];
        figures.extend(alone.writes.figures("a write alone"));
        figures.extend(beside.writes.figures("a write beside"));
        Ok(figures)
    }
}
