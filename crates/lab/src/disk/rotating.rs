//! The arithmetic of a disk with one arm.
//!
//! # Theory
//!
//! A seek over the part `f` of the disk takes `shortest + (longest - shortest) * sqrt(f)`: an arm accelerates and
//! brakes. Between two places chosen at random, `f` has the density `2 (1 - f)` and `sqrt(f)` the mean 8/15, which gives
//! the longest seek from the average one that data sheets have.
//!
//! A track holds what passes the head in one turn. The angle of a byte is its place in its track, and tracks are taken
//! to begin at the same angle, so that reading on from one to the next costs nothing.

use std::time::Duration;

use super::timing::INTERFACE_BYTES_PER_SECOND;

/// Mean of the square root of the distance of two random places.
const MEAN_ROOT: f64 = 8.0 / 15.0;

/// The rounding error of the arithmetic, in turns.
const ROUNDING: f64 = 1e-9;

/// A rotating disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotating {
    pub turns_per_minute: f64,
    /// To the next track.
    pub shortest_seek: Duration,
    /// Between two random places.
    pub average_seek: Duration,
    /// The bytes that pass the head in a second.
    pub bytes_per_second: f64,
    /// Of the electronics, for each request.
    pub overhead: Duration,
    /// The bytes that it reads ahead.
    pub buffer_bytes: u64,
    /// 0: a write is done when the arm has done it.
    pub write_cache_bytes: u64,
    /// Requests that it chooses among.
    pub queue: usize,
}

/// The position of the arm, and the bytes that have passed the head since.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Arm {
    /// Where the last request ended,
    pub(super) place: u64,
    /// and when the head was there, in seconds since the disk began to turn.
    pub(super) free_at: f64,
    /// It was a read: the bytes behind it are read ahead.
    pub(super) reading: bool,
}

impl Rotating {
    /// Seconds of one turn.
    pub fn turn(&self) -> f64 {
        60.0 / self.turns_per_minute
    }

    fn longest_seek(&self) -> f64 {
        let shortest = self.shortest_seek.as_secs_f64();
        shortest + (self.average_seek.as_secs_f64() - shortest) / MEAN_ROOT
    }

    fn track_bytes(&self) -> f64 {
        self.bytes_per_second * self.turn()
    }

    /// Seconds that the arm takes from one place to the other.
    pub fn seek(&self, from: u64, to: u64, disk_bytes: u64) -> f64 {
        let track = |place: u64| (place as f64 / self.track_bytes()).floor();
        if track(from) == track(to) {
            return 0.0;
        }
        let part = from.abs_diff(to) as f64 / disk_bytes as f64;
        let shortest = self.shortest_seek.as_secs_f64();
        shortest + (self.longest_seek() - shortest) * part.min(1.0).sqrt()
    }

    /// Seconds from `time` on until `place` is under the head.
    pub fn wait_for(&self, place: u64, time: f64) -> f64 {
        let angle = |turns: f64| turns - turns.floor();
        let wanted = angle(place as f64 / self.track_bytes());
        let wait = angle(wanted - angle(time / self.turn()));
        // The place right behind the last request is under the head now: a rounding error must not cost a turn.
        if wait > 1.0 - ROUNDING { 0.0 } else { wait * self.turn() }
    }

    /// The seconds in which `bytes` pass the head.
    pub fn transfer(&self, bytes: u64) -> f64 {
        bytes as f64 / self.bytes_per_second
    }

    /// The average seconds of one random read.
    pub fn average_random_read(&self, bytes: u64) -> f64 {
        self.overhead.as_secs_f64() + self.average_seek.as_secs_f64() + self.turn() / 2.0 + self.transfer(bytes)
    }

    /// The seconds of a write that the cache has room for.
    pub fn cached_write(&self, bytes: u64) -> f64 {
        self.overhead.as_secs_f64() + bytes as f64 / INTERFACE_BYTES_PER_SECOND
    }

    /// The moment at which the requested bytes have passed the head, if the request continues the last read.
    fn read_ahead(&self, arm: &Arm, offset: u64, bytes: u64, is_read: bool) -> Option<f64> {
        let goes_on = is_read && arm.reading && offset >= arm.place && offset - arm.place <= self.buffer_bytes;
        goes_on.then(|| arm.free_at + self.transfer(offset + bytes - arm.place))
    }

    /// The arm after a request that is done at `done`. Reading ahead goes on between requests, until the buffer is full: a reader that
    /// was held up finds there what has passed meanwhile.
    pub(super) fn arm_after(&self, arm: &Arm, offset: u64, bytes: u64, is_read: bool, done: f64) -> Arm {
        let passed = self.read_ahead(arm, offset, bytes, is_read);
        let free_at = passed.map_or(done, |passed| passed.max(done - self.transfer(self.buffer_bytes)));
        Arm { place: offset + bytes, free_at, reading: is_read }
    }

    /// When a request that comes at `arrival` is done, if it is the next one.
    pub(super) fn done_at(&self, arm: &Arm, offset: u64, bytes: u64, is_read: bool, arrival: f64, disk_bytes: u64) -> f64 {
        // A disk that was idle has had the time for its overhead; a busy one overlaps it with the request before.
        let start = arm.free_at.max(arrival + self.overhead.as_secs_f64());
        if let Some(passed) = self.read_ahead(arm, offset, bytes, is_read) {
            return passed.max(arrival + self.overhead.as_secs_f64());
        }
        let there = start + self.seek(arm.place, offset, disk_bytes);
        there + self.wait_for(offset, there) + self.transfer(bytes)
    }
}
