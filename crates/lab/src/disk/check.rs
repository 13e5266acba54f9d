//! Checks a simulated disk against its model's arithmetic.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Model;
use super::served::Clock;
use super::way::{self, LARGE, SMALL, Way};
use crate::aligned::Aligned;
use crate::interrupt;

/// One thing that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub what: String,
    pub measured: f64,
    pub expected: f64,
    /// The limit that the way to the disk would set for a disk that takes no time; `None` where it sets none.
    pub limit: f64,
    /// Of as many requests at a time as the disk works on.
    pub together: bool,
}

impl Row {
    /// The deviation, as a part of the expected figure.
    pub fn off(&self) -> f64 {
        self.measured / self.expected - 1.0
    }

    /// Is the machine too slow for it?
    pub fn is_beyond(&self) -> bool {
        self.limit < self.expected
    }
}

/// Reads one behind the other by one thread: MB a second.
fn sequential(path: &Path, bytes: u64, each: Duration) -> Result<f64> {
    let file = way::open(path, false)?;
    let mut buffer = Aligned::new(LARGE);
    // The first of these has to seek.
    file.read_exact_at(&mut buffer, 0)?;
    let (started, mut place) = (Instant::now(), LARGE as u64);
    while started.elapsed() < each && place + LARGE as u64 <= bytes {
        interrupt::check()?;
        file.read_exact_at(&mut buffer, place)?;
        place += LARGE as u64;
    }
    Ok((place - LARGE as u64) as f64 / 1e6 / started.elapsed().as_secs_f64())
}

/// Reads and writes past all caches, each for `each` long. The device loses its contents.
pub fn check(model: &Model, path: &Path, bytes: u64, clock: &Clock, way: &Way, each: Duration) -> Result<Vec<Row>> {
    let (small, large) = (SMALL as u64, LARGE as u64);
    let one_small = 1.0 / way.whole(small);
    let mut rows = vec![
        Row {
            what: "random 4K reads/s".to_owned(),
            measured: way::rate(path, bytes, 1, false, each)?,
            expected: model.random_reads_per_second(small),
            limit: one_small,
            together: false,
        },
        Row {
            what: "sequential MB/s".to_owned(),
            measured: sequential(path, bytes, each)?,
            expected: model.sequential_bytes_per_second(large) / 1e6,
            limit: large as f64 / 1e6 / way.whole(large),
            together: false,
        },
    ];
    if let Some((threads, expected)) = model.random_reads_together(small) {
        rows.push(Row {
            what: format!("random 4K reads/s, {threads} at a time"),
            measured: way::rate(path, bytes, threads, false, each)?,
            expected,
            limit: clock.rate(path, threads, each)?,
            together: true,
        });
    }
    if let Some(expected) = model.random_writes_per_second(small) {
        // So short that no write cache is full at its end.
        let each = each.min(Duration::from_millis(500));
        rows.push(Row {
            what: "random 4K writes/s".to_owned(),
            measured: way::rate(path, bytes, 1, true, each)?,
            expected,
            limit: one_small,
            together: false,
        });
    }
    Ok(rows)
}
