//! What is read ahead: how much may be under way, and what came of it.
//!
//! # Theory
//! Bytes that wait for a reader ahead or are with one are bounded: what is more is refused. A block that was read ahead is *used* when somebody asks for it, *unused*
//! when it leaves memory before that: then others needed its room more. Where more are unused than used, windows are halved, again and again; where nearly all are used, they
//! are doubled, up to what they were.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::stats::Counter;

/// What a read was to those that foresee reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreseen {
    /// It went on where a stream was.
    Hit,
    /// It was the next step of one that goes in steps.
    Stride,
    /// It was a little before the position of a stream.
    Future,
    /// It was a little behind it.
    Past,
    /// No stream expected it.
    Miss,
    /// The same, and a stream had to go for the one that it began.
    Full,
}

/// What was read ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AheadStats {
    /// Blocks that were asked for.
    pub issued: u64,
    /// Blocks that are under way,
    pub active: u64,
    /// and their bytes.
    pub active_bytes: u64,
    /// Blocks that somebody used.
    pub used: u64,
    /// Of these, blocks that were still under way when somebody asked for them.
    pub used_in_flight: u64,
    /// Blocks that left memory before.
    pub unused: u64,
    /// Blocks that were not read since too much was under way.
    pub refused: u64,
    /// Reads by what they were, in the order of [`Foreseen`].
    pub reads: [u64; 6],
}

/// Under way are at most so many bytes,
const ACTIVE_MAX: u64 = 64 << 20;
/// and this part of what may be in memory.
const ACTIVE_PART: u64 = 8;
/// The largest window, however much may be in memory,
const WINDOW_MAX: u64 = 8 << 20;
/// and the part of that which it is at most.
const WINDOW_PART: u64 = 16;
/// Blocks after which it is asked whether they were of use.
const ROUND: u64 = 128;
/// Windows become no smaller than 1 / 2^5.
const SHIFT_MAX: u64 = 5;

/// Shared by all that read ahead in one pool.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    issued: Counter,
    refused: Counter,
    active: AtomicU64,
    active_count: AtomicU64,
    used: Counter,
    used_in_flight: Counter,
    unused: Counter,
    reads: [Counter; 6],
    /// Of this round.
    used_now: AtomicU64,
    unused_now: AtomicU64,
    /// log2 of the part of a window that is asked for.
    shift: AtomicU64,
}

/// Bytes that are under way until this is dropped.
pub(super) struct Active(Arc<Ahead>, u64);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(self.1, Relaxed);
        self.0.active_count.fetch_sub(1, Relaxed);
    }
}

impl Ahead {
    /// Begins with a block of `bytes`; `None`: too much is under way, of `limit` bytes that may be in memory.
    pub(super) fn begin(self: &Arc<Self>, bytes: u64, limit: u64) -> Option<Active> {
        let before = self.active.fetch_add(bytes, Relaxed);
        self.active_count.fetch_add(1, Relaxed);
        let active = Active(Arc::clone(self), bytes);
        // A single block of any size may be.
        if before > 0 && before.saturating_add(bytes) > ACTIVE_MAX.min(limit / ACTIVE_PART) {
            self.refused.add(1);
            return None;
        }
        Some(active)
    }

    /// A job for a block was accepted.
    pub(super) fn issued(&self) {
        self.issued.add(1);
    }

    /// The largest window, of `limit` bytes that may be in memory.
    pub(super) fn window(&self, limit: u64) -> u64 {
        WINDOW_MAX.min(limit / WINDOW_PART) >> self.shift.load(Relaxed)
    }

    pub(super) fn note(&self, what: Foreseen) {
        self.reads[what as usize].add(1);
    }

    /// A block that was read ahead is asked for.
    pub(super) fn used(&self) {
        self.used.add(1);
        self.used_now.fetch_add(1, Relaxed);
        self.learn();
    }

    /// A reader waited for a block that was being read ahead, and used it.
    pub(super) fn used_in_flight(&self) {
        self.used_in_flight.add(1);
    }

    /// A block that was read ahead leaves, and was not asked for.
    pub(super) fn unused(&self) {
        self.unused.add(1);
        self.unused_now.fetch_add(1, Relaxed);
        self.learn();
    }

    /// Threads that are here at the same time learn the same twice, or a little less; it evens out.
    fn learn(&self) {
        let (used, unused) = (self.used_now.load(Relaxed), self.unused_now.load(Relaxed));
        if used + unused < ROUND {
            return;
        }
        self.used_now.store(0, Relaxed);
        self.unused_now.store(0, Relaxed);
        let shift = self.shift.load(Relaxed);
        if unused > used {
            self.shift.store((shift + 1).min(SHIFT_MAX), Relaxed);
        } else if unused * 8 <= used {
            self.shift.store(shift.saturating_sub(1), Relaxed);
        }
    }

    pub(super) fn stats(&self) -> AheadStats {
        AheadStats {
            issued: self.issued.get(),
            active: self.active_count.load(Relaxed),
            active_bytes: self.active.load(Relaxed),
            used: self.used.get(),
            used_in_flight: self.used_in_flight.get(),
            unused: self.unused.get(),
            refused: self.refused.get(),
            reads: self.reads.each_ref().map(Counter::get),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn what_is_under_way_is_bounded() {
        let ahead = Arc::new(Ahead::default());
        let large = ahead.begin(16 * MB, 64 * MB).expect("a single one may be larger");
        assert!(ahead.begin(1, 64 * MB).is_none());
        drop(large);
        let active: Vec<Active> = (0..100).filter_map(|_| ahead.begin(MB, 64 * MB)).collect();
        assert_eq!((active.len(), ahead.stats().active_bytes, ahead.stats().refused), (8, 8 * MB, 93));
        drop(active);
        assert_eq!(ahead.stats().active_bytes, 0);
    }

    #[test]
    fn windows_shrink_while_it_is_of_no_use_and_grow_again() {
        let ahead = Ahead::default();
        assert_eq!([ahead.window(1 << 30), ahead.window(16 * MB)], [8 * MB, MB]);
        (0..3 * ROUND).for_each(|_| ahead.unused());
        assert_eq!(ahead.window(1 << 30), MB);
        (0..100 * ROUND).for_each(|_| ahead.unused());
        assert_eq!(ahead.window(1 << 30), 256 << 10);
        (0..100 * ROUND).for_each(|_| ahead.used());
        assert_eq!(ahead.window(1 << 30), 8 * MB);
    }
}
