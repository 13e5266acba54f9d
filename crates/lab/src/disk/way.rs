//! The way to a simulated disk and back: the time of a request when the disk itself takes none.
//!
//! # Theory
//!
//! A loop device hands each request to the simulation and gets it back: two threads are woken, and data is copied. A simulated disk
//! cannot answer sooner than that, and what it answers later than its model says is not the model's. So the way is measured before
//! the disk is used, with reads past all caches, of two sizes, and taken into account: first they are answered at once, which is the
//! least that the way takes; then as late as the disk would, because processors that wait meanwhile take longer to wake up.
//! A model that answers within less than the way takes cannot be simulated on this machine.
//!
//! To wake a processor takes a virtual machine 30 to 50 us, more or less often as the work has it. So processors are kept awake as
//! long as a disk is served ([`KeepAwake`]): with that a wait ends when it should. It is so for every file system on such disks.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::timing;
use crate::aligned::Aligned;
use crate::interrupt;

/// The sizes of requests that are measured.
pub const SMALL: usize = 4096;
pub const LARGE: usize = 128 << 10;
const SAMPLES: u64 = 150;
const CORRECTIONS: usize = 3;
const SLEEP: f64 = 200e-6;

/// Seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Way {
    /// A small read that the disk answers at once, as its user sees it.
    pub whole_small: f64,
    pub whole_large: f64,
    /// The delay of an answer that the disk gives in its usual time.
    outside_small: f64,
    outside_large: f64,
    /// By how much a thread that sleeps wakes too late.
    pub(super) wakes_late: f64,
}

/// Between two measured sizes, and a bit beyond.
fn between(small: f64, large: f64, bytes: u64) -> f64 {
    let part = (bytes as f64 - SMALL as f64) / (LARGE - SMALL) as f64;
    (small + (large - small).max(0.0) * part).max(0.0)
}

impl Way {
    /// One of which nothing more is known.
    #[cfg(test)]
    pub(super) fn new(small: f64, large: f64) -> Way {
        Way { whole_small: small, whole_large: large, outside_small: small, outside_large: large, wakes_late: 0.0 }
    }

    /// The time of a request of `bytes` beside that of the disk.
    pub(super) fn outside(&self, bytes: u64) -> f64 {
        between(self.outside_small, self.outside_large, bytes)
    }

    /// All of it.
    pub fn whole(&self, bytes: u64) -> f64 {
        between(self.whole_small, self.whole_large, bytes)
    }
}

/// Past all caches.
pub(super) fn open(device: &Path, write: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(write).custom_flags(libc::O_DIRECT).open(device);
    opened.with_context(|| format!("cannot open {}", device.display()))
}

/// Usual seconds of some reads, one at a time; `number` counts them, so that none is of what was read before.
fn reads(file: &File, size: usize, bytes: u64, number: &mut u64) -> Result<f64> {
    let mut buffer = Aligned::new(size);
    let places = (bytes / LARGE as u64).max(1);
    let mut took = Vec::new();
    for _ in 0..SAMPLES {
        interrupt::check()?;
        let started = Instant::now();
        file.read_exact_at(&mut buffer, *number % places * LARGE as u64)?;
        took.push(started.elapsed().as_secs_f64());
        *number += 1;
    }
    Ok(usual(took))
}

/// The mean of all but the largest tenth, in which the machine did something else.
fn usual(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.truncate((values.len() * 9 / 10).max(1));
    values.iter().sum::<f64>() / values.len() as f64
}

/// Measures the way to `device`. `answer_after` sets how long the disk waits before it answers, `correct` what it takes off that for the way;
/// `seconds` are those that a small and a large read take of the disk's model.
pub(super) fn measure(
    device: &Path,
    bytes: u64,
    seconds: [f64; 2],
    answer_after: &dyn Fn(f64),
    correct: &dyn Fn(Way),
) -> Result<Way> {
    let file = open(device, false)?;
    let late = |_| {
        let started = Instant::now();
        timing::sleep(SLEEP);
        (started.elapsed().as_secs_f64() - SLEEP).max(0.0)
    };
    let mut way = Way { wakes_late: usual((0..50).map(late).collect()), ..Way::default() };
    let mut number = 0;
    correct(way);
    answer_after(0.0);
    // The first ones find neither threads nor memory.
    reads(&file, SMALL, bytes, &mut number)?;
    (way.whole_small, way.whole_large) = (reads(&file, SMALL, bytes, &mut number)?, reads(&file, LARGE, bytes, &mut number)?);
    (way.outside_small, way.outside_large) = (way.whole_small, way.whole_large);
    for _ in 0..CORRECTIONS {
        correct(way);
        for (size, seconds, outside) in [(SMALL, seconds[0], &mut way.outside_small), (LARGE, seconds[1], &mut way.outside_large)] {
            answer_after(seconds);
            let late = reads(&file, size, bytes, &mut number)? - seconds;
            *outside = (*outside + late).clamp(0.0, seconds);
        }
    }
    correct(way);
    Ok(way)
}

/// As long as it lives processors do not sleep so that it takes long to wake them, where we may ask for that.
pub(super) struct KeepAwake(#[allow(dead_code, reason = "held open")] Option<File>);

impl KeepAwake {
    pub(super) fn new() -> KeepAwake {
        // Of the kernel's quality of service: at most so many microseconds to wake up, while the file is open.
        let asked = OpenOptions::new().write(true).open("/dev/cpu_dma_latency");
        KeepAwake(asked.ok().filter(|mut file| file.write_all(&0_i32.to_le_bytes()).is_ok()))
    }
}

/// The small random requests a second of several threads, in `each` of time.
pub(super) fn rate(device: &Path, bytes: u64, threads: usize, write: bool, each: Duration) -> Result<f64> {
    let file = open(device, write)?;
    let started = Instant::now();
    let counts = std::thread::scope(|scope| {
        let working: Vec<_> = (0..threads)
            .map(|thread| {
                let file = &file;
                scope.spawn(move || hammer(file, bytes, thread as u64, write, each))
            })
            .collect();
        working.into_iter().map(|thread| thread.join().expect("it does not panic")).sum::<Result<u64>>()
    })?;
    Ok(counts as f64 / started.elapsed().as_secs_f64())
}

fn hammer(file: &File, bytes: u64, seed: u64, write: bool, each: Duration) -> Result<u64> {
    use rand::{Rng, SeedableRng};
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut buffer = Aligned::new(SMALL);
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < each {
        interrupt::check()?;
        let place = random.random_range(0..bytes / SMALL as u64) * SMALL as u64;
        match write {
            true => file.write_all_at(&buffer, place)?,
            false => file.read_exact_at(&mut buffer, place)?,
        }
        count += 1;
    }
    Ok(count)
}
