//! The way to a simulated disk and back: what a request takes when the disk itself takes nothing.
//!
//! # Theory
//!
//! A loop device hands each request to the simulation and gets it back: two threads are woken, and data is copied. A simulated disk
//! cannot answer sooner than that, and what it answers later than its model says is not the model's. So the way is measured before
//! the disk is used, with reads past all caches that are answered at once, of two sizes, and taken into account.
//! A model that answers within less than the way takes cannot be simulated on this machine.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::timing;
use crate::interrupt;
use crate::statistics;

/// The sizes of requests that are measured.
pub const SMALL: usize = 4096;
pub const LARGE: usize = 128 << 10;
const SAMPLES: u64 = 300;
const SLEEP: f64 = 200e-6;

/// Seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Way {
    /// A small read that the disk answers at once, as its user sees it.
    pub whole_small: f64,
    pub whole_large: f64,
    /// The part of it that lies outside of the disk.
    outside_small: f64,
    outside_large: f64,
    /// By how much a thread that sleeps wakes too late.
    pub(super) wakes_late: f64,
}

/// Memory whose address is a multiple of a page, as direct I/O takes it.
pub(super) struct Aligned(Vec<u8>);

impl Aligned {
    /// Room for the largest request.
    pub(super) fn new() -> Aligned {
        Aligned(vec![0; LARGE + SMALL])
    }

    pub(super) fn slice(&mut self, bytes: usize) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(SMALL);
        &mut self.0[skip..skip + bytes]
    }
}

/// Between two measured sizes, and a bit beyond.
fn between(small: f64, large: f64, bytes: u64) -> f64 {
    let part = (bytes as f64 - SMALL as f64) / (LARGE - SMALL) as f64;
    (small + (large - small).max(0.0) * part).max(0.0)
}

impl Way {
    /// What a request of so many bytes takes beside the disk.
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

/// Median seconds of reads, one at a time; `inside` says what the disk itself took of the last one.
fn reads(file: &File, size: usize, bytes: u64, inside: &dyn Fn() -> f64) -> Result<(f64, f64)> {
    let mut buffer = Aligned::new();
    let (mut whole, mut outside) = (Vec::new(), Vec::new());
    for number in 0..SAMPLES {
        interrupt::check()?;
        let place = number * LARGE as u64 % (bytes / LARGE as u64 * LARGE as u64).max(1);
        let started = Instant::now();
        file.read_exact_at(buffer.slice(size), place)?;
        let took = started.elapsed().as_secs_f64();
        whole.push(took);
        outside.push((took - inside()).max(0.0));
    }
    Ok((statistics::median(&whole).unwrap_or(0.0), statistics::median(&outside).unwrap_or(0.0)))
}

/// Measures the way to `device`, whose disk answers at once meanwhile.
pub(super) fn measure(device: &Path, bytes: u64, inside: &dyn Fn() -> f64) -> Result<Way> {
    let file = open(device, false)?;
    let late: Vec<f64> = (0..50)
        .map(|_| {
            let started = Instant::now();
            timing::sleep(SLEEP);
            (started.elapsed().as_secs_f64() - SLEEP).max(0.0)
        })
        .collect();
    // The first ones find neither threads nor memory.
    reads(&file, SMALL, bytes, inside)?;
    let (whole_small, outside_small) = reads(&file, SMALL, bytes, inside)?;
    let (whole_large, outside_large) = reads(&file, LARGE, bytes, inside)?;
    Ok(Way { whole_small, whole_large, outside_small, outside_large, wakes_late: statistics::median(&late).unwrap_or(0.0) })
}

/// Small random requests of so many threads for `each` long: how many a second.
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
    let mut buffer = Aligned::new();
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < each {
        interrupt::check()?;
        let place = random.random_range(0..bytes / SMALL as u64) * SMALL as u64;
        match write {
            true => file.write_all_at(buffer.slice(SMALL), place)?,
            false => file.read_exact_at(buffer.slice(SMALL), place)?,
        }
        count += 1;
    }
    Ok(count)
}
