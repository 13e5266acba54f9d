//! Threads that work at the same time.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::Round;
use crate::interrupt;

/// Runs `work` in so many threads, each with its number, and waits for all of them; the first error is returned.
pub(super) fn together<T: Send>(threads: u64, work: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        let joined: Vec<Result<T>> =
            threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?).collect();
        joined.into_iter().collect()
    })
}

/// What threads need of a round.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) directory: &'a Path,
    pub(super) seed: u64,
}

impl<'a> From<&Round<'a>> for Ground<'a> {
    fn from(round: &Round<'a>) -> Ground<'a> {
        Ground { directory: round.directory, seed: round.seed }
    }
}

impl Ground<'_> {
    /// Random numbers of a thread.
    pub(super) fn random(&self, thread: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed.wrapping_mul(1009).wrapping_add(thread))
    }
}

/// Tells threads when their time is over.
pub(super) struct Time {
    started: Instant,
    length: Duration,
    over: AtomicBool,
}

impl Time {
    pub(super) fn new(seconds: u64) -> Time {
        Time { started: Instant::now(), length: Duration::from_secs(seconds), over: AtomicBool::new(false) }
    }

    /// Asked by each thread before each step.
    pub(super) fn is_over(&self) -> bool {
        if self.over.load(Ordering::Relaxed) {
            return true;
        }
        let over = self.started.elapsed() >= self.length || interrupt::pending();
        if over {
            self.end();
        }
        over
    }

    /// For everyone, also after an error of one.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64().max(1e-9)
    }
}
