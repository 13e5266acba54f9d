//! Does a simulated disk do what its model's arithmetic says?

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::fs::OFlags;

use super::Model;
use crate::interrupt;

const PAGE: usize = 4096;
const SEQUENTIAL: usize = 128 << 10;

/// Measured, and as it should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    pub measured: f64,
    pub expected: f64,
}

impl Compared {
    /// How far off, as a part of what is expected.
    pub fn off(&self) -> f64 {
        (self.measured / self.expected - 1.0).abs()
    }
}

/// Random 4 K reads a second, and sequential MB a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Checked {
    pub random_reads: Compared,
    pub sequential_megabytes: Compared,
}

/// Memory whose address is a multiple of a page, as direct I/O takes it.
struct Aligned(Vec<u8>);

impl Aligned {
    fn slice(&mut self, bytes: usize) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(PAGE);
        &mut self.0[skip..skip + bytes]
    }
}

/// Reads past all caches for `each` long, at random and in sequence, by one thread.
pub fn check(model: &Model, path: &Path, bytes: u64, each: Duration) -> Result<Checked> {
    let file: File = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)?;
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut buffer = Aligned(vec![0; SEQUENTIAL + PAGE]);
    let (started, mut reads) = (Instant::now(), 0_u64);
    while started.elapsed() < each {
        interrupt::check()?;
        let place = random.random_range(0..bytes / PAGE as u64) * PAGE as u64;
        file.read_exact_at(buffer.slice(PAGE), place)?;
        reads += 1;
    }
    let random_reads = reads as f64 / started.elapsed().as_secs_f64();
    // The first of these has to seek.
    file.read_exact_at(buffer.slice(SEQUENTIAL), 0)?;
    let (started, mut place) = (Instant::now(), SEQUENTIAL as u64);
    while started.elapsed() < each && place + SEQUENTIAL as u64 <= bytes {
        interrupt::check()?;
        file.read_exact_at(buffer.slice(SEQUENTIAL), place)?;
        place += SEQUENTIAL as u64;
    }
    let megabytes = (place - SEQUENTIAL as u64) as f64 / 1e6 / started.elapsed().as_secs_f64();
    Ok(Checked {
        random_reads: Compared { measured: random_reads, expected: model.random_reads_per_second(PAGE as u64) },
        sequential_megabytes: Compared {
            measured: megabytes,
            expected: model.sequential_bytes_per_second(SEQUENTIAL as u64) / 1e6,
        },
    })
}
