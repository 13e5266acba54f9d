//! One read for all who miss the same block at the same time.

use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};

use crate::host;

/// A read that is under way.
#[derive(Debug)]
struct Flight<V> {
    state: Mutex<State<V>>,
    landed: Condvar,
}

#[derive(Debug)]
enum State<V> {
    InTheAir,
    Landed(V),
    /// The reader panicked, or read for itself alone.
    Lost,
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// It was there.
    Cached,
    /// Another thread was reading it.
    Joined,
    /// It was read.
    Loaded,
}

/// The reads that are under way.
#[derive(Debug)]
pub(super) struct Flights<K, V> {
    pending: Mutex<HashMap<K, Arc<Flight<V>>>>,
}

impl<K: Copy + Eq + Hash, V: Clone> Flights<K, V> {
    pub(super) fn new() -> Self {
        Flights { pending: Mutex::new(HashMap::new()) }
    }

    /// Whether a read of `key` is under way.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.pending.lock().contains_key(key)
    }

    /// The value for `key`: from `cached` if it has it by now, from another thread that is reading it, or from `load`. That can ask whether its
    /// own read was cancelled (`false`), whatever others read the key.
    /// `keep` is called with what `load` returned, unless the key was cancelled meanwhile. Those who wait get it if it `is_for_all`, and else
    /// load for themselves.
    pub(super) fn run(
        &self,
        key: K,
        cached: impl Fn() -> Option<V>,
        load: impl Fn(&dyn Fn() -> bool) -> V,
        keep: impl FnOnce(&V),
        is_for_all: impl FnOnce(&V) -> bool,
    ) -> (V, Source) {
        let flight = loop {
            let mut pending = self.pending.lock();
            // The thread that was reading it may have put it into the cache between our miss and here.
            if let Some(value) = cached() {
                return (value, Source::Cached);
            }
            let Some(flight) = pending.get(&key).cloned() else {
                let flight = Arc::new(Flight { state: Mutex::new(State::InTheAir), landed: Condvar::new() });
                pending.insert(key, Arc::clone(&flight));
                break flight;
            };
            drop(pending);
            if let Some(value) = flight.wait() {
                return (value, Source::Joined);
            }
        };
        let mut landing = Landing { flights: self, key, flight: &flight, value: None };
        let is_pending = || self.pending.lock().get(&key).is_some_and(|current| Arc::ptr_eq(current, &flight));
        let value = load(&is_pending);
        // Kept before it lands, so that nobody can find neither the flight nor the block; and under the lock, so that
        // the sync thread, which replaces the block, comes either before, and cancels this, or after.
        let pending = self.pending.lock();
        if pending.get(&key).is_some_and(|current| Arc::ptr_eq(current, &flight)) {
            keep(&value);
        }
        drop(pending);
        landing.value = is_for_all(&value).then(|| value.clone());
        (value, Source::Loaded)
    }

    /// The block is replaced: what a read that is under way returns is not kept.
    pub(super) fn cancel(&self, key: &K) {
        self.pending.lock().remove(key);
    }
}

impl<V: Clone> Flight<V> {
    fn wait(&self) -> Option<V> {
        host::claim_cpu();
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::InTheAir => self.landed.wait(&mut state),
                State::Landed(value) => return Some(value.clone()),
                State::Lost => return None,
            }
        }
    }
}

/// Ends a flight, also when the reader panics.
struct Landing<'a, K: Copy + Eq + Hash, V: Clone> {
    flights: &'a Flights<K, V>,
    key: K,
    flight: &'a Arc<Flight<V>>,
    value: Option<V>,
}

impl<K: Copy + Eq + Hash, V: Clone> Drop for Landing<'_, K, V> {
    fn drop(&mut self) {
        let mut pending = self.flights.pending.lock();
        if pending.get(&self.key).is_some_and(|current| Arc::ptr_eq(current, self.flight)) {
            pending.remove(&self.key);
        }
        drop(pending);
        *self.flight.state.lock() = self.value.take().map_or(State::Lost, State::Landed);
        self.flight.landed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Barrier, OnceLock};

    #[test]
    fn concurrent_misses_read_once() {
        let flights: Flights<u64, u64> = Flights::new();
        let (reads, loaded, kept) = (AtomicUsize::new(0), AtomicUsize::new(0), OnceLock::new());
        let start = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let load = |_: &dyn Fn() -> bool| {
                        reads.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        7
                    };
                    let (value, source) = flights.run(1, || kept.get().copied(), load, |value| kept.set(*value).unwrap(), |_| true);
                    assert_eq!(value, 7);
                    loaded.fetch_add(usize::from(source == Source::Loaded), Ordering::Relaxed);
                });
            }
        });
        assert_eq!((reads.load(Ordering::Relaxed), loaded.load(Ordering::Relaxed)), (1, 1));
        assert!(!flights.contains(&1));
    }

    #[test]
    fn a_reader_that_panics_does_not_strand_the_others() {
        let flights: Flights<u64, u64> = Flights::new();
        let panicking = || flights.run(1, || None, |_| panic!("the disk is gone"), |_| {}, |_| true);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).is_err());
        assert_eq!(flights.run(1, || None, |_| 5, |_| {}, |_| true), (5, Source::Loaded));
    }

    #[test]
    fn a_cancelled_read_is_not_kept() {
        let flights: Flights<u64, u64> = Flights::new();
        let load = |_: &dyn Fn() -> bool| {
            flights.cancel(&1);
            6
        };
        assert_eq!(flights.run(1, || None, load, |_| panic!("kept"), |_| true), (6, Source::Loaded));
    }

    /// One that had been cancelled took the read of another for its own, and healed what had been written meanwhile.
    #[test]
    fn a_cancelled_read_knows_although_there_is_another() {
        let flights: Flights<u64, u64> = Flights::new();
        let load = |is_first_pending: &dyn Fn() -> bool| {
            assert!(is_first_pending());
            flights.cancel(&1);
            let again = |is_pending: &dyn Fn() -> bool| {
                assert!(is_pending() && !is_first_pending());
                7
            };
            flights.run(1, || None, again, |_| {}, |_| true).0
        };
        assert_eq!(flights.run(1, || None, load, |_| panic!("kept"), |_| true), (7, Source::Loaded));
    }
}
