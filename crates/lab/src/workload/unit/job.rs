//! What a test has in its hands while it is timed: a path, sizes, random numbers, something to write, and a clock.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::latency::Latencies;
use super::MIB;
use crate::aligned::Aligned;
use crate::interrupt;
use crate::storage::{Handle, Open, Storage};

/// Random bytes to write. Longer than any record, so that no two pieces inside one record are alike.
pub(super) struct Data {
    bytes: Aligned,
}

impl Data {
    const LONGEST_PIECE: usize = MIB as usize;

    pub(super) fn new(seed: u64) -> Data {
        let mut bytes = Aligned::new(4 * MIB as usize + Self::LONGEST_PIECE);
        ChaCha8Rng::seed_from_u64(seed).fill(&mut bytes[..]);
        Data { bytes }
    }

    /// The `number`th piece, which begins with a page. Neighbouring numbers give pieces from far apart.
    pub(super) fn piece(&self, number: u64, length: usize) -> &[u8] {
        let room = (self.bytes.len() - Self::LONGEST_PIECE) as u64;
        // An odd stride, about 0.62 of the room.
        let start = (number.wrapping_mul(633) % (room / 4096) * 4096) as usize;
        &self.bytes[start..start + length]
    }
}

/// One run of one test.
pub(super) struct Job<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) path: &'a Path,
    pub(super) file_bytes: u64,
    /// For each thread.
    pub(super) moved_bytes: u64,
    pub(super) seed: u64,
    pub(super) data: &'a Data,
    pub(super) deadline: Instant,
    /// guards: how long the calls of all threads took
    pub(super) latencies: Mutex<Latencies>,
}

impl Job<'_> {
    /// Random numbers of thread `thread`.
    pub(super) fn random(&self, thread: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed.wrapping_mul(31).wrapping_add(thread))
    }

    /// A piece that this run has not written before and the run before did not write either.
    pub(super) fn piece(&self, number: u64, length: usize) -> &[u8] {
        self.data.piece(self.seed.wrapping_mul(7919).wrapping_add(number), length)
    }

    /// Counts towards `goal_bytes`.
    pub(super) fn meter(&self, goal_bytes: u64) -> Meter<'_> {
        let (deadline, all) = (self.deadline, &self.latencies);
        Meter { goal: goal_bytes, done: 0, deadline, looked: Instant::now(), latencies: Latencies::default(), all }
    }

    pub(super) fn open(&self, how: Open) -> Result<Box<dyn Handle>> {
        self.storage.open(self.path, how)
    }
}

/// Bytes done, bytes to do, and the time limit. The clock is read once for a call, at its end: what lies between two calls is a few
/// nanoseconds of choosing what comes next.
pub(super) struct Meter<'a> {
    goal: u64,
    done: u64,
    deadline: Instant,
    /// When the call before ended.
    looked: Instant,
    latencies: Latencies,
    all: &'a Mutex<Latencies>,
}

impl Meter<'_> {
    /// Bytes that the next call may move, `wanted` at most; 0 when the goal or the time limit is reached.
    pub(super) fn next(&mut self, wanted: u64) -> Result<usize> {
        interrupt::check()?;
        if self.looked >= self.deadline {
            return Ok(0);
        }
        Ok(wanted.min(self.goal - self.done) as usize)
    }

    /// A call moved `bytes`.
    pub(super) fn add(&mut self, bytes: usize) {
        self.done += bytes as u64;
        self.called();
    }

    /// A call ended that moved nothing: the file was synced.
    pub(super) fn called(&mut self) {
        let now = Instant::now();
        self.latencies.add(now - self.looked);
        self.looked = now;
    }

    pub(super) fn done(&self) -> u64 {
        self.done
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        self.all.lock().join(&self.latencies);
    }
}
