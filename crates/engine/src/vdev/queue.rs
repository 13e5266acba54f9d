//! The queue of a leaf: which I/O may go to the device now.
//!
//! # Theory
//! A caller waits for a *sync* read or write, which goes to the device at once. All other I/O can wait, and a device that
//! is given much of it keeps callers waiting: so of each other class only so much is under way. Its
//! *limit* keeps the device busy; beside durable writes, and a moment after one as another will follow, it is only the *floor*.
//! Then a group is also written in small *pieces*: a durable write waits for what the device has just been given, and for
//! all that lies in its cache. Written 1 MiB at a time three at once, a group leaves a lone writer of the log a
//! hundredth of what he does alone; 1 MiB one after the other a third, 128 KiB two thirds and more, and the group still has a
//! gigabyte a second there. A disk that turns would miss its place between pieces: there writes stay whole.
//!
//! A thread that has an I/O waits here for its turn and then makes it itself. What lies side by side is one I/O before it
//! comes here (`zio/write.rs`), of a bounded size. A large I/O counts as several.
//!
//! # Invariants
//! 1. A thread waits for I/O of its own class that is under way, which waits for the device only: so the wait ends.
//! 2. Of each class one may always be under way, whatever it counts.
//!
//! # Locks
//! `Queue::under_way`, and nothing below it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex};

/// What an I/O is for, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "zio_priority_t")]
pub enum Class {
    /// A caller waits for the bytes.
    SyncRead,
    /// A caller waits until it is durable.
    SyncWrite,
    /// A reader may want the bytes soon.
    AsyncRead,
    /// A transaction group.
    AsyncWrite,
    /// All copies are looked at.
    Scrub,
    /// A device is filled.
    Rebuild,
    /// The device is told what is no longer needed.
    Trim,
    /// Places are written for the first time, so that they are there.
    Initialize,
}

/// How much of a class may be under way, of what counts as one.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    floor: u32,
    limit: u32,
}

/// Each of so many bytes count as one I/O,
const UNIT_BYTES: usize = 32 << 10;
/// up to so many: a large one.
const LARGE: u32 = 4;
/// Beside durable writes a group is written in pieces of so many bytes.
const PIECE_BYTES: usize = LARGE as usize * UNIT_BYTES;
/// Beside durable writes is also what comes so soon after one, in nanoseconds.
const SOON_NS: u64 = 20_000_000;

impl Class {
    const COUNT: usize = 8;

    /// What does not wait has no bounds.
    fn bounds(self) -> Option<Bounds> {
        let bounds = |floor, limit| Some(Bounds { floor, limit });
        match self {
            Class::SyncRead | Class::SyncWrite => None,
            // As many as there are readers ahead.
            Class::AsyncRead => bounds(4, 16),
            Class::AsyncWrite => bounds(LARGE, 2 * LARGE),
            Class::Scrub | Class::Rebuild => bounds(1, 2 * LARGE),
            Class::Trim | Class::Initialize => bounds(1, 2),
        }
    }
}

/// What waits for one leaf, and what is under way there.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By class. guarded by: itself
    under_way: Mutex<[u32; Class::COUNT]>,
    ended: Condvar,
    /// Durable writes under way.
    durable: AtomicU64,
    /// When the last one ended, in nanoseconds of the host's clock.
    durable_ended: AtomicU64,
}

/// An I/O whose turn it is. Dropped, it is done.
pub(super) struct Turn<'a> {
    queue: &'a Queue,
    class: Class,
    counts: u32,
    now: &'a dyn Fn() -> u64,
}

impl Queue {
    /// Waits until an I/O of so many bytes may go to the device. `now` is the time in nanoseconds, 0 where there is no clock.
    pub(super) fn enter<'a>(&'a self, class: Class, bytes: usize, now: &'a dyn Fn() -> u64) -> Turn<'a> {
        let counts = (bytes / UNIT_BYTES).clamp(1, LARGE as usize) as u32;
        if class == Class::SyncWrite {
            self.durable.fetch_add(1, Relaxed);
        }
        if let Some(bounds) = class.bounds() {
            let mut under_way = self.under_way.lock();
            while under_way[class as usize] > 0 && under_way[class as usize] + counts > self.allowed(bounds, now) {
                self.ended.wait(&mut under_way);
            }
            under_way[class as usize] += counts;
        }
        Turn { queue: self, class, counts, now }
    }

    /// So many bytes of an I/O are made at a time just now.
    pub(super) fn piece_bytes(&self, class: Class, now: &dyn Fn() -> u64) -> usize {
        if class == Class::AsyncWrite && self.is_beside_durable(now) { PIECE_BYTES } else { usize::MAX }
    }

    fn allowed(&self, bounds: Bounds, now: &dyn Fn() -> u64) -> u32 {
        if self.is_beside_durable(now) { bounds.floor } else { bounds.limit }
    }

    fn is_beside_durable(&self, now: &dyn Fn() -> u64) -> bool {
        let ended = self.durable_ended.load(Relaxed);
        self.durable.load(Relaxed) > 0 || ended > 0 && now().saturating_sub(ended) < SOON_NS
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.class == Class::SyncWrite {
            self.queue.durable_ended.store((self.now)().max(1), Relaxed);
            self.queue.durable.fetch_sub(1, Relaxed);
        }
        if self.class.bounds().is_some() {
            self.queue.under_way.lock()[self.class as usize] -= self.counts;
            self.queue.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many large writes of a group are under way at the same time, if eight want to be.
    #[allow(clippy::disallowed_methods)] // this test is about threads
    fn most_at_once(queue: &Queue, now: &(dyn Fn() -> u64 + Sync)) -> u64 {
        let (inside, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _turn = queue.enter(Class::AsyncWrite, 1 << 20, &now);
                    most.fetch_max(inside.fetch_add(1, Relaxed) + 1, Relaxed);
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    inside.fetch_sub(1, Relaxed);
                });
            }
        });
        most.into_inner()
    }

    #[test]
    fn a_group_takes_less_of_the_device_beside_durable_writes() {
        let queue = Queue::default();
        let clock = AtomicU64::new(5);
        let now = || clock.load(Relaxed);
        assert_eq!((most_at_once(&queue, &now), queue.piece_bytes(Class::AsyncWrite, &now)), (2, usize::MAX));
        drop(queue.enter(Class::SyncWrite, 4096, &now));
        assert_eq!(most_at_once(&queue, &now), 1, "a moment after one");
        assert_eq!([Class::AsyncWrite, Class::SyncWrite].map(|class| queue.piece_bytes(class, &now)), [PIECE_BYTES, usize::MAX]);
        clock.store(5 + SOON_NS, Relaxed);
        assert_eq!(most_at_once(&queue, &now), 2);
        let _under_way = queue.enter(Class::SyncWrite, 4096, &now);
        assert_eq!(most_at_once(&queue, &now), 1, "beside one");
    }

    #[test]
    fn who_is_waited_for_does_not_wait() {
        let queue = Queue::default();
        let none = || 0;
        let _group = queue.enter(Class::AsyncWrite, 64 << 20, &none);
        let sync = |n: u32| if n % 2 == 0 { Class::SyncRead } else { Class::SyncWrite };
        let all: Vec<Turn<'_>> = (0..100).map(|n| queue.enter(sync(n), 4096, &none)).collect();
        drop(all);
        assert_eq!(queue.durable.load(Relaxed), 0);
        // Of each class one may always begin.
        for class in [Class::AsyncRead, Class::Scrub, Class::Rebuild, Class::Trim, Class::Initialize] {
            drop(queue.enter(class, 64 << 20, &none));
        }
        assert_eq!(queue.under_way.lock()[Class::AsyncWrite as usize], LARGE);
    }
}
