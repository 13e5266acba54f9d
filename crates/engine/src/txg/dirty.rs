//! How many bytes wait to be written, and how writers are slowed down.
//!
//! # Theory
//! Without a limit a fast writer fills memory and then stops dead until a group is on disk. Instead, from
//! `delay_min_percent` of the limit on, each transaction is delayed by a time that grows without bound towards the
//! limit: `delay = scale * (dirty - min) / (max - dirty)` for each 128 KiB that it brings. Writers so settle at the speed of the disks, and a writer of
//! a log, who brings little, is not held up by those who bring much. (The curve is that of the OpenZFS write throttle, which delays all transactions
//! alike.) At the limit they wait for room. Long before users are delayed the disks leave less and less to others than the group
//! ([`DirtyBytes::pressure_percent`]).
//!
//! A group with much to write is closed early, so that the disks begin. A block of which a part was changed takes the memory of
//! a whole one, but is not *ripe*: the longer its group is open, the more changes become one write. So a group ripens with the bytes that were
//! really changed.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use super::{TXG_SIZE, Txg, slot};
use crate::tunables::{Parameter, Tunables};

/// A transaction that brings so many bytes is delayed as the curve says.
const DELAY_BYTES: u64 = 128 << 10;
/// From this part of what may be dirty before users are delayed, in percent, writing it begins to be urgent.
const PRESSURE_FROM: u64 = 50;

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

    /// How near it is that users are delayed, where `max` bytes may be dirty: 0: far, 100: they are.
    #[doc(alias("zfs_vdev_async_write_active_min_dirty_percent", "zfs_vdev_async_write_active_max_dirty_percent"))]
    pub fn pressure_percent(&self, max: u64, tunables: &Tunables) -> u32 {
        let delayed = delayed_from(max, tunables);
        let from = delayed / 100 * PRESSURE_FROM;
        let over = self.total().saturating_sub(from).min(delayed - from);
        (u128::from(over) * 100 / u128::from((delayed - from).max(1))) as u32
    }

    /// How long a new transaction that brings `bytes` should wait, in nanoseconds, where `max` bytes may be dirty.
    pub fn delay_ns(&self, max: u64, bytes: u64, tunables: &Tunables) -> u64 {
        let dirty = self.total();
        let min = delayed_from(max, tunables);
        if dirty <= min {
            return 0;
        }
        let delay = u128::from(tunables.now(Parameter::DelayScale)) * u128::from(dirty - min) / u128::from(max.saturating_sub(dirty).max(1));
        let delay = delay.saturating_mul(u128::from(bytes)) / u128::from(DELAY_BYTES);
        u64::try_from(delay).unwrap_or(u64::MAX).min(tunables.delay_ns_max)
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

/// From so many dirty bytes on users are delayed, where `max` may be dirty.
fn delayed_from(max: u64, tunables: &Tunables) -> u64 {
    max / 100 * tunables.now(Parameter::DelayMinDirtyPercent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of 2K writes kept a fifth of its rate beside a file of 2 GB: each write was delayed as one of a megabyte was.
    #[test]
    fn whoever_brings_little_is_delayed_little() {
        let (tunables, dirty) = (Tunables::default(), DirtyBytes::default());
        dirty.add(4, 800);
        let delay = |bytes: u64| dirty.delay_ns(1000, bytes, &tunables);
        assert!(delay(DELAY_BYTES) > 0);
        assert_eq!(delay(DELAY_BYTES / 64), delay(DELAY_BYTES) / 64);
        assert_eq!(delay(8 * DELAY_BYTES), 8 * delay(DELAY_BYTES));
        dirty.add(4, 200);
        assert_eq!(delay(DELAY_BYTES), tunables.delay_ns_max);
        assert_eq!(delay(0), 0);
    }

    #[test]
    fn pressure_comes_before_the_delay() {
        let (tunables, dirty) = (Tunables::default(), DirtyBytes::default());
        let pressure = || dirty.pressure_percent(1000, &tunables);
        dirty.add(4, 300);
        assert_eq!(pressure(), 0);
        dirty.add(4, 150);
        assert_eq!((pressure(), dirty.delay_ns(1000, DELAY_BYTES, &tunables)), (50, 0));
        dirty.add(4, 150);
        assert_eq!((pressure(), dirty.delay_ns(1000, DELAY_BYTES, &tunables)), (100, 0));
        dirty.add(4, 5000);
        assert_eq!(pressure(), 100);
        assert_eq!(dirty.pressure_percent(0, &tunables), 0, "nobody may write anything");
    }

    #[test]
    fn the_delay_starts_late_and_grows() {
        let tunables = Tunables::default();
        let dirty = DirtyBytes::default();
        dirty.add(4, 500);
        assert_eq!(dirty.delay_ns(1000, DELAY_BYTES, &tunables), 0);
        dirty.add(5, 200);
        let some = dirty.delay_ns(1000, DELAY_BYTES, &tunables);
        dirty.add(5, 200);
        let more = dirty.delay_ns(1000, DELAY_BYTES, &tunables);
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
