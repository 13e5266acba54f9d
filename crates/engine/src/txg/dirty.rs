//! How many bytes wait to be written, and how writers are slowed down.
//!
//! # Theory
//! Without a limit a fast writer fills memory and then stops dead until a group is on disk. Instead, from
//! `delay_min_percent` of the limit on, each transaction is delayed by a time that grows without bound towards the
//! limit: `delay = scale * (dirty - min) / (max - dirty)`. Writers so settle at the speed of the disks. (The curve is that
//! of the OpenZFS write throttle.) At the limit they wait for room.
//!
//! A group with much to write is closed early, so that the disks begin. A block of which a part was changed takes the memory of
//! a whole one, but is not *ripe*: the longer its group is open, the more changes become one write. So a group ripens with the bytes that were
//! really changed.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use super::{TXG_SIZE, Txg, slot};
use crate::tunables::{Parameter, Tunables};

/// Bytes of changes in memory, by group.
#[derive(Debug, Default)]
pub struct DirtyBytes {
    total: AtomicU64,
    by_txg: [AtomicU64; TXG_SIZE],
    ripe: [AtomicU64; TXG_SIZE],
    /// How many wait for room. guarded by: `full` (to change)
    waiting: AtomicU64,
    full: Mutex<()>,
    room: Condvar,
}

impl DirtyBytes {
    /// A change of `bytes` in `txg`.
    pub fn add(&self, txg: Txg, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.by_txg[slot(txg)].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that this many bytes of `txg` are new, and not just part of a block that has some.
    pub fn ripen(&self, txg: Txg, bytes: u64) {
        self.ripe[slot(txg)].fetch_add(bytes, Ordering::Relaxed);
    }

    /// `bytes` of `txg` are written (or were undone).
    pub fn remove(&self, txg: Txg, bytes: u64) {
        let own = &self.by_txg[slot(txg)];
        // In one step: two that took the same bytes would leave less than nothing, which is a number without end.
        let before = own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |own| Some(own.saturating_sub(bytes)));
        let taken = before.unwrap_or(0).min(bytes);
        // Subtracted before the check for waiters; a waiter registers before it reads the total.
        self.total.fetch_sub(taken, Ordering::SeqCst);
        if taken > 0 && self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.full.lock());
            self.room.notify_all();
        }
    }

    /// Everything of `txg` is on disk.
    pub fn clear(&self, txg: Txg) {
        let rest = self.by_txg[slot(txg)].load(Ordering::Relaxed);
        self.remove(txg, rest);
        self.ripe[slot(txg)].store(0, Ordering::Relaxed);
    }

    /// Bytes of all groups.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Bytes of one group that were really changed.
    pub fn ripe(&self, txg: Txg) -> u64 {
        self.ripe[slot(txg)].load(Ordering::Relaxed)
    }

    /// How long a new transaction should wait, in nanoseconds, where `max` bytes may be dirty.
    pub fn delay_ns(&self, max: u64, tunables: &Tunables) -> u64 {
        let dirty = self.total();
        let min = max / 100 * tunables.now(Parameter::DelayMinDirtyPercent);
        if dirty <= min {
            return 0;
        }
        if dirty >= max {
            return tunables.delay_ns_max;
        }
        let delay = u128::from(tunables.now(Parameter::DelayScale)) * u128::from(dirty - min) / u128::from(max - dirty);
        (delay as u64).min(tunables.delay_ns_max)
    }

    /// Waits until there is room, for 100 ms at the most; `false` if there is still none.
    pub fn wait_for_room(&self, max: u64) -> bool {
        if self.total() < max {
            return true;
        }
        let mut guard = self.full.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if self.total.load(Ordering::SeqCst) >= max {
            self.room.wait_for(&mut guard, std::time::Duration::from_millis(100));
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.total() < max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_starts_late_and_grows() {
        let tunables = Tunables::default();
        let dirty = DirtyBytes::default();
        dirty.add(4, 500);
        assert_eq!(dirty.delay_ns(1000, &tunables), 0);
        dirty.add(5, 200);
        let some = dirty.delay_ns(1000, &tunables);
        dirty.add(5, 200);
        let more = dirty.delay_ns(1000, &tunables);
        assert!(0 < some && some < more, "{some} {more}");
        dirty.ripen(5, 30);
        assert_eq!((dirty.ripe(4), dirty.ripe(5)), (0, 30));
        dirty.clear(5);
        assert_eq!((dirty.total(), dirty.ripe(5)), (500, 0));
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // this test is about threads
    fn many_may_remove_at_once() {
        let dirty = DirtyBytes::default();
        for _ in 0..200 {
            dirty.add(4, 30);
            std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| dirty.remove(4, 20)))));
            assert_eq!(dirty.total(), 0);
        }
    }
}
