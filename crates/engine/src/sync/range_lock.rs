//! Locks on ranges of one file.
//!
//! # Theory
//! Readers of overlapping ranges share, a writer excludes all that overlap, and disjoint writers go on in parallel: so
//! each write is atomic and none waits for a write elsewhere in the file. Waiters are woken when any range is released
//! and look again; arrivals queue behind an earlier overlapping waiter, so that a stream of readers cannot starve a writer.

use std::ops::Range;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Clone)]
struct Claim {
    ticket: u64,
    range: Range<u64>,
    exclusive: bool,
    granted: bool,
}

impl Claim {
    fn conflicts(&self, other: &Claim) -> bool {
        (self.exclusive || other.exclusive) && self.range.start < other.range.end && other.range.start < self.range.end
    }
}

#[derive(Debug, Default)]
struct State {
    next_ticket: u64,
    claims: Vec<Claim>,
}

/// The locked ranges of one file.
#[derive(Debug, Default)]
pub struct RangeLock {
    state: Mutex<State>,
    released: Condvar,
}

/// A range that is locked until this is dropped.
#[derive(Debug)]
pub struct RangeGuard<'a> {
    lock: &'a RangeLock,
    ticket: u64,
}

impl RangeLock {
    /// No range is locked.
    pub fn new() -> Self {
        Self::default()
    }

    /// Locks `range` for reading: waits for writers of overlapping ranges.
    pub fn read(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.lock(range, false)
    }

    /// Locks `range` for writing: waits for everyone in overlapping ranges.
    pub fn write(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.lock(range, true)
    }

    /// Locks the whole file for writing (size or block size changes).
    pub fn write_all(&self) -> RangeGuard<'_> {
        self.lock(0..u64::MAX, true)
    }

    fn lock(&self, range: Range<u64>, exclusive: bool) -> RangeGuard<'_> {
        let mut state = self.state.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let claim = Claim { ticket, range, exclusive, granted: false };
        state.claims.push(claim.clone());
        // An earlier claim goes first, whether it is granted or still waits.
        while state.claims.iter().any(|other| other.ticket < ticket && other.conflicts(&claim)) {
            self.released.wait(&mut state);
        }
        if let Some(own) = state.claims.iter_mut().find(|own| own.ticket == ticket) {
            own.granted = true;
        }
        RangeGuard { lock: self, ticket }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.lock.state.lock();
        if let Some(index) = state.claims.iter().position(|claim| claim.ticket == self.ticket) {
            state.claims.swap_remove(index);
        }
        let waiting = state.claims.iter().any(|claim| !claim.granted);
        drop(state);
        if waiting {
            self.lock.released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    #[allow(clippy::disallowed_methods)]
    fn writers_of_one_range_exclude_each_other() {
        let lock = Arc::new(RangeLock::new());
        let inside = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let (lock, inside) = (lock.clone(), inside.clone());
                std::thread::spawn(move || {
                    for _ in 0..500 {
                        let _guard = lock.write(100 - n..200 + n);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn disjoint_writers_and_overlapping_readers_share() {
        let lock = RangeLock::new();
        let _one = lock.write(0..10);
        let _two = lock.write(10..20);
        let _three = lock.read(20..30);
        let _four = lock.read(25..30);
    }
}
