//! The drive that leaves share: files of one file system, partitions of one disk.
//!
//! # Theory
//! Background I/O leaves a drive to others for a multiple of the time that it had it, and until they have had a multiple of its bytes: a drive that
//! is given so many bytes a second and no more (of a cloud, say) is fast at first and lets others wait afterwards. Were that counted for each leaf, a drive with six leaves would never
//! be left alone. So leaves on one drive ([`disk::Disk::drive`]) have one account, in all pools of the process.
//!
//! One background I/O takes the drive at a time while there are others: it *takes* it by writing down until when nobody else
//! may, as long as the last one took and its rest, and corrects that when it ends.
//!
//! # Locks
//! The list of drives has one, which is held for the look alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use disk::Disk;
use parking_lot::Mutex;

/// Beside other I/O, background I/O lets the drive go for so many times as long as it had it,
const REST: u64 = 3;
/// and, where others keep it busy, until they have had so many times its bytes,
const SHARE: u64 = 4;
/// where an I/O counts as so many at least, as a place costs too;
const PLACE_BYTES: u64 = 64 << 10;
/// but it has 32 MiB a second at least,
const BYTE_NS: u64 = 30;
/// and rests so long at most, in nanoseconds.
const REST_NS_MAX: u64 = 200_000_000;
/// How often is looked whether others have had enough, in nanoseconds.
const LOOK_NS: u64 = 1_000_000;

/// What is known of one drive; times are in nanoseconds of the host's clock. "Others" are I/Os that are not in the background, nor of a thread that works there.
#[derive(Debug, Default)]
pub(super) struct Drive {
    /// Beside others nothing begins in the background before,
    rests_until: AtomicU64,
    /// nor while others have had less than so many bytes,
    shares_until: AtomicU64,
    /// until then.
    waits_until: AtomicU64,
    /// How long the last background I/O took,
    took: AtomicU64,
    /// when it ended,
    ended: AtomicU64,
    /// and `idle` then.
    was_idle: AtomicU64,
    /// Others under way.
    others: AtomicU64,
    /// What others had.
    others_bytes: AtomicU64,
    /// When the last other ended.
    others_ended: AtomicU64,
    /// How long there was no other, before the last one that began.
    idle: AtomicU64,
}

impl Drive {
    /// That of a disk; one for itself, where nothing is known.
    pub(super) fn of(disk: &dyn Disk) -> Arc<Drive> {
        static DRIVES: OnceLock<Mutex<HashMap<u64, Weak<Drive>>>> = OnceLock::new();
        let Some(number) = disk.drive() else { return Arc::default() };
        let mut drives = DRIVES.get_or_init(Mutex::default).lock();
        drives.retain(|_, drive| drive.strong_count() > 0);
        let known = drives.get(&number).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let drive = Arc::default();
            drives.insert(number, Arc::downgrade(&drive));
            drive
        })
    }

    /// Are there others, or were there within `soon`?
    pub(super) fn is_used(&self, soon: u64, now: impl Fn() -> u64) -> bool {
        let ended = self.others_ended.load(Relaxed);
        self.others.load(Relaxed) > 0 || ended > 0 && now().saturating_sub(ended) < soon
    }

    /// Another begins.
    pub(super) fn begin_other(&self, now: u64) {
        if self.others.fetch_add(1, Relaxed) == 0 {
            self.idle.fetch_add(now.saturating_sub(self.others_ended.load(Relaxed)), Relaxed);
        }
    }

    /// It has ended. The bytes of a group do not count: nobody waits for them, and they are written in great pieces.
    pub(super) fn end_other(&self, bytes: u64, is_group: bool, now: u64) {
        let counted = if is_group { 0 } else { bytes.max(PLACE_BYTES) };
        self.others_bytes.fetch_add(counted, Relaxed);
        self.others_ended.store(now, Relaxed);
        self.others.fetch_sub(1, Relaxed);
    }

    /// How long background I/O has to leave it to others before it looks again; 0: it may be taken.
    pub(super) fn rest(&self, now: u64) -> u64 {
        let rest = self.rests_until.load(Relaxed).saturating_sub(now);
        let owes = self.others_bytes.load(Relaxed) < self.shares_until.load(Relaxed);
        if rest > 0 || !owes || self.has_time(now) { rest } else { self.waits_until.load(Relaxed).saturating_sub(now).min(LOOK_NS) }
    }

    /// Have others left it alone for half of the time since the last background I/O?
    fn has_time(&self, now: u64) -> bool {
        let still = if self.others.load(Relaxed) > 0 { 0 } else { now.saturating_sub(self.others_ended.load(Relaxed).max(self.ended.load(Relaxed))) };
        let idle = self.idle.load(Relaxed).saturating_sub(self.was_idle.load(Relaxed)) + still;
        idle * 2 > now.saturating_sub(self.ended.load(Relaxed))
    }

    /// A background I/O begins, whose rest is over. `false`: another has been quicker.
    pub(super) fn take(&self, now: u64) -> bool {
        let until = self.rests_until.load(Relaxed);
        let taken = now + self.took.load(Relaxed).saturating_mul(1 + REST).min(REST_NS_MAX);
        until <= now && self.rests_until.compare_exchange(until, taken, Relaxed, Relaxed).is_ok()
    }

    /// A background I/O has ended that began at `began`.
    pub(super) fn end_background(&self, bytes: u64, began: u64, now: u64) {
        let (took, had) = (now.saturating_sub(began), self.others_bytes.load(Relaxed));
        let rest = took.saturating_mul(REST).min(REST_NS_MAX);
        let owes = self.shares_until.load(Relaxed).max(had).saturating_add(bytes.saturating_mul(SHARE));
        self.took.store(took, Relaxed);
        self.ended.store(now, Relaxed);
        self.was_idle.store(self.idle.load(Relaxed), Relaxed);
        self.shares_until.store(owes, Relaxed);
        self.waits_until.store(now + rest.max(bytes.saturating_mul(BYTE_NS).min(REST_NS_MAX)), Relaxed);
        self.rests_until.store(now + rest, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_takes_a_drive() {
        let drive = Drive::default();
        assert!(drive.take(100), "nothing was there");
        drive.end_background(0, 100, 110);
        assert_eq!((drive.rest(110), drive.rest(140)), (30, 0));
        assert!(!drive.take(139) && drive.take(140));
        assert_eq!(drive.rest(140), 40, "it will take as long as the last one, and rest");
        assert!(!drive.take(179), "the other leaf waits");
        drive.end_background(0, 140, 142);
        assert_eq!(drive.rest(142), 6, "it was faster");
    }

    #[test]
    fn others_that_keep_a_drive_busy_have_more_of_its_bytes() {
        const MB: u64 = 1 << 20;
        let (drive, start) = (Drive::default(), 10 * LOOK_NS);
        drive.begin_other(start);
        drive.end_background(MB, start - LOOK_NS, start);
        let rested = start + REST * LOOK_NS;
        assert_eq!((drive.rest(rested - 1), drive.rest(rested)), (1, LOOK_NS), "it has rested, and the other is still there");
        let others = |count: u64| {
            (0..count).for_each(|_| {
                drive.begin_other(rested);
                drive.end_other(4096, false, rested);
            });
        };
        others(SHARE * 16 - 1);
        drive.begin_other(rested);
        drive.end_other(MB, true, rested);
        assert_eq!(drive.rest(rested), LOOK_NS);
        others(1);
        assert_eq!(drive.rest(rested), 0, "each counts as 64 KiB");
        drive.end_background(MB, rested - LOOK_NS, rested);
        assert_eq!(drive.rest(rested + MB * BYTE_NS), 0, "it does not wait for ever");
    }

    #[test]
    fn others_that_leave_a_drive_time_have_most_of_its_time_only() {
        let (drive, start) = (Drive::default(), 10 * LOOK_NS);
        let other = |from: u64, to: u64| {
            drive.begin_other(from);
            drive.end_other(4096, false, to);
        };
        other(0, start);
        drive.end_background(1 << 20, start - LOOK_NS, start);
        let rested = start + REST * LOOK_NS;
        other(start + LOOK_NS, start + 2 * LOOK_NS);
        assert_eq!(drive.rest(rested), 0, "nobody was there for two of three");
        assert!(drive.is_used(2 * LOOK_NS, || rested) && !drive.is_used(LOOK_NS, || rested));
    }

    #[test]
    fn files_of_one_file_system_share_their_drive() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| disk::FileDisk::create(&directory.path().join(name), 1 << 20).unwrap();
        let (one, other) = (file("one"), file("other"));
        let drive = Drive::of(&one);
        assert!(Arc::ptr_eq(&drive, &Drive::of(&other)));
        let memory = disk::MemDisk::new("memory", 1 << 20);
        assert!(!Arc::ptr_eq(&Drive::of(&memory), &Drive::of(&memory)));
    }
}
