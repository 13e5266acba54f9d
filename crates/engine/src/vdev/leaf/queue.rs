//! The queue of a leaf: which I/O may go to the device now, and what goes there as one.
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
//! What nobody asked for just now (scrub, rebuild, trim, initialize) is in the *background*: while there is other I/O, and a moment after it, only the floor of
//! it is under way, and after each the drive *rests* from it ([`super::drive`]), unless a user waits for its thread.
//! Limits and floors are tunables, by OpenZFS's names ([`Parameter`]), and may change at any time. A large I/O counts as several.
//!
//! A thread that has an I/O waits here for its turn and then makes it itself. Meanwhile it lends its memory ([`disk::Loan`]): whose turn
//! it is takes along what waits of the same class beside its own, of reads also what lies a little apart, and makes one I/O of all, in
//! the memory of each. If that fails, each makes its own, as one bad sector is not the fault of its neighbours.
//!
//! # Invariants
//! 1. A thread waits for I/O of its own class that is under way, which waits for the device only: so the wait ends.
//! 2. Of each class one may always be under way, whatever it counts.
//! 3. Of a class the one that waits longest is next, or is taken along before.
//!
//! # Locks
//! `Queue::state`, and nothing below it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use disk::{Disk, Loan};
use parking_lot::{Condvar, Mutex, RwLock};

use super::drive::Drive;
use crate::host;
use crate::tunables::{Parameter, Tunables};

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

/// Each of so many bytes count as one I/O,
const UNIT_BYTES: usize = 32 << 10;
/// up to so many: a large one.
const LARGE: u32 = 4;
/// Beside durable writes a group is written in pieces of so many bytes.
const PIECE_BYTES: usize = LARGE as usize * UNIT_BYTES;
/// and the leaf rests from it so many times as long as the last one took, [`SOON_NS`] at most; less, the nearer it is that users are delayed until the group is
/// written.
const GROUP_REST: u64 = 3;
/// Beside durable writes is also what comes so soon after one, in nanoseconds.
const SOON_NS: u64 = 20_000_000;
/// How often who rests looks whether somebody waits for him, in nanoseconds.
const LOOK_NS: u64 = 10_000_000;

/// Most I/Os that are made as one.
const TOGETHER_MAX: usize = 128;
/// A limit that is none.
const UNBOUNDED: u32 = u32::MAX;

impl Class {
    const COUNT: usize = 8;

    /// Can it wait for all others?
    fn is_background(self) -> bool {
        matches!(self, Class::Scrub | Class::Rebuild | Class::Trim | Class::Initialize)
    }

    /// The floor and the limit.
    fn bounds(self) -> (Parameter, Parameter) {
        match self {
            Class::SyncRead => (Parameter::SyncReadMin, Parameter::SyncReadMax),
            Class::SyncWrite => (Parameter::SyncWriteMin, Parameter::SyncWriteMax),
            Class::AsyncRead => (Parameter::AsyncReadMin, Parameter::AsyncReadMax),
            Class::AsyncWrite => (Parameter::AsyncWriteMin, Parameter::AsyncWriteMax),
            Class::Scrub => (Parameter::ScrubMin, Parameter::ScrubMax),
            Class::Rebuild => (Parameter::RebuildMin, Parameter::RebuildMax),
            Class::Trim => (Parameter::TrimMin, Parameter::TrimMax),
            Class::Initialize => (Parameter::InitializeMin, Parameter::InitializeMax),
        }
    }
}

/// What somebody wants to do at a place of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::vdev) struct Wanted {
    pub(in crate::vdev) class: Class,
    pub(in crate::vdev) is_write: bool,
    pub(in crate::vdev) at: u64,
    pub(in crate::vdev) length: usize,
}

impl Wanted {
    pub(in crate::vdev) fn end(&self) -> u64 {
        self.at + self.length as u64
    }

    fn counts(&self) -> u32 {
        counts(self.length)
    }
}

fn counts(bytes: usize) -> u32 {
    (bytes / UNIT_BYTES).clamp(1, LARGE as usize) as u32
}

/// An I/O that waits for its turn.
pub(in crate::vdev) struct Waiting {
    pub(in crate::vdev) wanted: Wanted,
    /// Its memory, if others may make it.
    pub(in crate::vdev) loan: Option<Loan>,
    /// A [`Fate`]. guarded by: `Queue::state`
    fate: AtomicU8,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Waits,
    /// Somebody makes it together with his own.
    Taken,
    Made,
    /// It failed together with others, and is made alone.
    Alone,
}

impl Waiting {
    fn fate(&self) -> Fate {
        [Fate::Waits, Fate::Taken, Fate::Made, Fate::Alone][usize::from(self.fate.load(Relaxed))]
    }

    fn set_fate(&self, fate: Fate) {
        self.fate.store(fate as u8, Relaxed);
    }

    fn may_be_joined(&self, class: Class, is_write: bool) -> bool {
        self.fate() == Fate::Waits && self.loan.is_some() && (self.wanted.class, self.wanted.is_write) == (class, is_write)
    }
}

#[derive(Default)]
struct State {
    /// By class.
    under_way: [u32; Class::COUNT],
    /// In the order in which they came.
    waiting: VecDeque<Arc<Waiting>>,
    /// Beside durable writes no write of a group begins before, in nanoseconds of the host's clock.
    group_rests_until: u64,
}

impl State {
    fn has_room(&self, wanted: &Wanted, limit: u32) -> bool {
        let under_way = self.under_way[wanted.class as usize];
        under_way == 0 || under_way.saturating_add(wanted.counts()) <= limit
    }

    fn is_next(&self, me: &Arc<Waiting>) -> bool {
        self.waiting.iter().find(|other| other.wanted.class == me.wanted.class).is_some_and(|first| Arc::ptr_eq(first, me))
    }

    /// Takes those out that make one I/O with `me`, in the order of their places: `most` bytes from end to end, up to `gap` between two.
    fn take_neighbours(&mut self, me: &Arc<Waiting>, most: u64, gap: u64) -> Vec<Arc<Waiting>> {
        let Wanted { class, is_write, at, .. } = me.wanted;
        let mut near: Vec<Arc<Waiting>> = self.waiting.iter().filter(|other| other.may_be_joined(class, is_write)).cloned().collect();
        near.sort_by_key(|other| other.wanted.at);
        let (mut start, mut end, mut together) = (at, me.wanted.end(), VecDeque::from([me.clone()]));
        for other in near.iter().filter(|other| other.wanted.at > at) {
            let is_near = other.wanted.at.checked_sub(end).is_some_and(|apart| apart <= gap);
            if !is_near || other.wanted.end() - start > most || together.len() == TOGETHER_MAX {
                break;
            }
            end = other.wanted.end();
            together.push_back(other.clone());
        }
        for other in near.iter().rev().filter(|other| other.wanted.at < at) {
            let is_near = start.checked_sub(other.wanted.end()).is_some_and(|apart| apart <= gap);
            if !is_near || end - other.wanted.at > most || together.len() == TOGETHER_MAX {
                break;
            }
            start = other.wanted.at;
            together.push_front(other.clone());
        }
        self.waiting.retain(|other| !together.iter().any(|taken| Arc::ptr_eq(taken, other)));
        together.into()
    }
}

/// What waits for one leaf, and what is under way there.
#[derive(Default)]
pub(in crate::vdev) struct Queue {
    state: Mutex<State>,
    ended: Condvar,
    /// Durable writes under way.
    durable: AtomicU64,
    /// When the last one ended, in nanoseconds of the host's clock.
    durable_ended: AtomicU64,
    drive: RwLock<Arc<Drive>>,
    limits: OnceLock<Tunables>,
}

/// The time in nanoseconds, 0 where there is no clock.
type Clock<'a> = &'a dyn Fn() -> u64;

/// An I/O whose turn it is. Dropped, it is done.
pub(in crate::vdev) struct Turn<'a> {
    queue: &'a Queue,
    drive: Arc<Drive>,
    class: Class,
    /// 0: it is not bounded.
    counts: u32,
    bytes: u64,
    /// This one and those that are to be made together with it, by place; none: it is alone.
    together: Vec<Arc<Waiting>>,
    began: u64,
    /// It is not in the background, nor of a thread that works there.
    is_foreground: bool,
    now: Clock<'a>,
}

/// How the waiting ends.
pub(in crate::vdev) enum Passage<'a> {
    /// It may be made now.
    Turn(Turn<'a>),
    /// Somebody else has made it.
    Made,
}

impl Queue {
    /// The limits of the pool; once.
    pub(in crate::vdev) fn set_limits(&self, limits: &Tunables) {
        let _ = self.limits.set(limits.clone());
    }

    /// What it is the queue of.
    pub(in crate::vdev) fn set_drive(&self, disk: &dyn Disk) {
        *self.drive.write() = Drive::of(disk);
    }

    fn limit(&self, parameter: Parameter) -> u64 {
        self.limits.get_or_init(Tunables::default).now(parameter)
    }

    /// Lets an I/O go if it need not wait.
    pub(in crate::vdev) fn try_enter<'a>(&'a self, wanted: &Wanted, now: Clock<'a>) -> Option<Turn<'a>> {
        let class = wanted.class;
        let limit = self.allowed(class, now);
        let bytes = wanted.length as u64;
        let turn = |counts| {
            if class == Class::SyncWrite {
                self.durable.fetch_add(1, Relaxed);
            }
            self.turn(class, counts, bytes, Vec::new(), now)
        };
        if limit == UNBOUNDED {
            return Some(turn(0));
        }
        let mut state = self.state.lock();
        if state.waiting.iter().any(|other| other.wanted.class == class) || !state.has_room(wanted, limit) || self.rest(&state, class, now) > 0 {
            return None;
        }
        state.under_way[class as usize] += wanted.counts();
        Some(turn(wanted.counts()))
    }

    /// Waits until an I/O may go. With a loan it may be made together with others, by this thread or by another.
    pub(in crate::vdev) fn wait<'a>(&'a self, wanted: &Wanted, loan: Option<&Loan>, now: Clock<'a>) -> Passage<'a> {
        let me = Arc::new(Waiting { wanted: *wanted, loan: loan.cloned(), fate: AtomicU8::new(Fate::Waits as u8) });
        let mut state = self.state.lock();
        state.waiting.push_back(me.clone());
        let mut stands_still = None;
        loop {
            let limit = self.allowed(wanted.class, now);
            match me.fate() {
                Fate::Made => return Passage::Made,
                Fate::Taken => {}
                // From the front, as it was there already.
                Fate::Alone if !state.waiting.iter().any(|other| Arc::ptr_eq(other, &me)) => state.waiting.push_front(me.clone()),
                Fate::Waits | Fate::Alone => {}
            }
            let is_next = matches!(me.fate(), Fate::Waits | Fate::Alone) && state.is_next(&me) && state.has_room(wanted, limit);
            let rest = if is_next && stands_still != Some(now()) { self.rest(&state, wanted.class, now) } else { 0 };
            match rest {
                0 if is_next => break,
                0 => self.ended.wait(&mut state),
                // A clock may stand still.
                rest => {
                    let began = now();
                    stands_still = self.ended.wait_for(&mut state, Duration::from_nanos(rest.min(LOOK_NS))).timed_out().then_some(began);
                }
            }
        }
        let together = if me.fate() == Fate::Waits { self.take_together(&mut state, &me, now) } else { Vec::new() };
        state.waiting.retain(|other| !Arc::ptr_eq(other, &me));
        let bytes: usize = together.iter().map(|other| other.wanted.length).sum();
        let bytes = bytes.max(wanted.length);
        let counts = counts(bytes);
        state.under_way[wanted.class as usize] += counts;
        // The next one may have looked before this one went.
        if !state.waiting.is_empty() {
            self.ended.notify_all();
        }
        if wanted.class == Class::SyncWrite {
            self.durable.fetch_add(1, Relaxed);
        }
        Passage::Turn(self.turn(wanted.class, counts, bytes as u64, together, now))
    }

    fn turn<'a>(&'a self, class: Class, counts: u32, bytes: u64, together: Vec<Arc<Waiting>>, now: Clock<'a>) -> Turn<'a> {
        let drive = self.drive.read().clone();
        let is_foreground = !class.is_background() && !host::is_in_background();
        let began = now();
        if is_foreground {
            drive.begin_other(began);
        }
        Turn { queue: self, drive, class, counts, bytes, together, began, is_foreground, now }
    }

    /// As [`Queue::wait`], of what nobody else makes.
    pub(in crate::vdev) fn enter<'a>(&'a self, wanted: &Wanted, now: Clock<'a>) -> Turn<'a> {
        match self.try_enter(wanted, now).map_or_else(|| self.wait(wanted, None, now), Passage::Turn) {
            Passage::Turn(turn) => turn,
            Passage::Made => unreachable!("nothing was lent"),
        }
    }

    /// Somebody waits for a flush: as long as the turn lasts, the drive is in use as by a durable write. `None`: nobody does.
    pub(in crate::vdev) fn note_flush<'a>(&'a self, now: Clock<'a>) -> Option<Turn<'a>> {
        (!host::is_in_background()).then(|| {
            self.durable.fetch_add(1, Relaxed);
            self.turn(Class::SyncWrite, 0, 0, Vec::new(), now)
        })
    }

    /// How many wait.
    #[cfg(test)]
    pub(in crate::vdev) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    fn take_together(&self, state: &mut State, me: &Arc<Waiting>, now: Clock<'_>) -> Vec<Arc<Waiting>> {
        if me.loan.is_none() {
            return Vec::new();
        }
        let Wanted { class, is_write, .. } = me.wanted;
        let most = self.limit(Parameter::AggregationLimit).min(self.piece_bytes(class, now) as u64);
        let gap = if is_write { 0 } else { self.limit(Parameter::ReadGapLimit) };
        let together = state.take_neighbours(me, most, gap);
        together.iter().for_each(|other| other.set_fate(Fate::Taken));
        if together.len() > 1 { together } else { Vec::new() }
    }

    /// So many bytes of an I/O are made at a time just now.
    pub(in crate::vdev) fn piece_bytes(&self, class: Class, now: Clock<'_>) -> usize {
        if class == Class::AsyncWrite && self.yields_to_durable(now) { PIECE_BYTES } else { usize::MAX }
    }

    fn allowed(&self, class: Class, now: Clock<'_>) -> u32 {
        let (floor, limit) = class.bounds();
        let is_beside = match class {
            // Durable writes are not beside themselves, and the caller of a read waits for it.
            Class::SyncRead | Class::SyncWrite => false,
            Class::AsyncRead => self.is_beside_durable(now),
            Class::AsyncWrite => self.yields_to_durable(now),
            _ => self.drive.read().is_used(SOON_NS, now),
        };
        let bound = if is_beside { floor } else { limit };
        u32::try_from(self.limit(bound)).unwrap_or(UNBOUNDED)
    }

    fn is_beside_durable(&self, now: Clock<'_>) -> bool {
        let ended = self.durable_ended.load(Relaxed);
        self.durable.load(Relaxed) > 0 || ended > 0 && now().saturating_sub(ended) < SOON_NS
    }

    /// Does a group let durable writes go first? Not if a user can do nothing before it is written.
    fn yields_to_durable(&self, now: Clock<'_>) -> bool {
        self.is_beside_durable(now) && !host::is_waited_for()
    }

    /// How long an I/O of this class has to leave the drive to others still, in nanoseconds. 0: it has the drive now.
    fn rest(&self, state: &State, class: Class, now: Clock<'_>) -> u64 {
        if class == Class::AsyncWrite && self.yields_to_durable(now) {
            return state.group_rests_until.saturating_sub(now());
        }
        let drive = self.drive.read();
        // A user that waits may be the one to which the drive would be left.
        if !class.is_background() || host::is_waited_for() || !drive.is_used(SOON_NS, now) {
            return 0;
        }
        match drive.rest(now()) {
            0 if drive.take(now()) => 0,
            rest => rest.max(1),
        }
    }
}

impl Turn<'_> {
    /// What is to be made as one I/O, by place; empty: only what the turn was asked for.
    pub(in crate::vdev) fn together(&self) -> &[Arc<Waiting>] {
        &self.together
    }

    /// Tells the others how it went. If it failed, this one is made alone now, and so are they.
    pub(in crate::vdev) fn settle(&mut self, is_made: bool) {
        let _state = self.queue.state.lock();
        let fate = if is_made { Fate::Made } else { Fate::Alone };
        self.together.drain(..).for_each(|other| other.set_fate(fate));
        self.queue.ended.notify_all();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.class == Class::SyncWrite {
            self.queue.durable_ended.store((self.now)().max(1), Relaxed);
            self.queue.durable.fetch_sub(1, Relaxed);
        }
        if self.is_foreground {
            self.drive.end_other(self.bytes, self.class == Class::AsyncWrite, (self.now)());
        }
        if !self.together.is_empty() {
            self.settle(false);
        }
        if self.counts > 0 {
            let mut state = self.queue.state.lock();
            state.under_way[self.class as usize] -= self.counts;
            if self.class == Class::AsyncWrite && self.queue.yields_to_durable(self.now) {
                let now = (self.now)();
                let rest = (now.saturating_sub(self.began) * GROUP_REST).min(SOON_NS);
                state.group_rests_until = now + rest * u64::from(100 - host::urgency_percent()) / 100;
            }
            if self.class.is_background() {
                // A trim moves no bytes.
                let bytes = if self.class == Class::Trim { 0 } else { self.bytes };
                self.drive.end_background(bytes, self.began, (self.now)());
            }
            if !state.waiting.is_empty() {
                self.queue.ended.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(class: Class, length: usize) -> Wanted {
        Wanted { class, is_write: class == Class::AsyncWrite, at: 0, length }
    }

    /// How many large writes of a group are under way at the same time, if eight want to be.
    #[allow(clippy::disallowed_methods)] // this test is about threads
    fn most_at_once(queue: &Queue, now: &(dyn Fn() -> u64 + Sync)) -> u64 {
        let (inside, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _turn = queue.enter(&wanted(Class::AsyncWrite, 1 << 20), &now);
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
        drop(queue.enter(&wanted(Class::SyncWrite, 4096), &now));
        assert_eq!(most_at_once(&queue, &now), 1, "a moment after one");
        assert_eq!([Class::AsyncWrite, Class::SyncWrite].map(|class| queue.piece_bytes(class, &now)), [PIECE_BYTES, usize::MAX]);
        clock.store(5 + SOON_NS, Relaxed);
        assert_eq!(most_at_once(&queue, &now), 2);
        let under_way = queue.enter(&wanted(Class::SyncWrite, 4096), &now);
        assert_eq!(most_at_once(&queue, &now), 1, "beside one");
        drop(under_way);
        clock.fetch_add(SOON_NS, Relaxed);
        let flush = queue.note_flush(&now);
        assert!(flush.is_some() && most_at_once(&queue, &now) == 1, "beside a flush that somebody waits for");
        host::work_in_background();
        assert!(queue.note_flush(&now).is_none());
    }

    /// A lone writer of the log did 0.43 of what he does alone, beside a group without rests.
    #[test]
    fn a_group_lets_the_device_go_beside_durable_writes() {
        let queue = Queue::default();
        let time = AtomicU64::new(1_000_000_000);
        let now = || time.load(Relaxed);
        let group = || queue.try_enter(&wanted(Class::AsyncWrite, 1 << 17), &now);
        let piece = || {
            let turn = group().expect("it may go");
            time.fetch_add(1_000_000, Relaxed);
            drop(turn);
        };
        piece();
        piece();
        drop(queue.enter(&wanted(Class::SyncWrite, 4096), &now));
        piece();
        assert!(group().is_none(), "it had the device for 1 ms, and lets it go for 3");
        time.fetch_add(3_000_000, Relaxed);
        piece();
        time.fetch_add(SOON_NS, Relaxed);
        piece();
        piece();
    }

    /// A user that has no room before the group is written waits for it, and so do durable writes of others.
    #[test]
    fn a_group_that_a_user_needs_does_not_rest() {
        let queue = Queue::default();
        let time = AtomicU64::new(1_000_000_000);
        let now = || time.load(Relaxed);
        let group = || queue.try_enter(&wanted(Class::AsyncWrite, 1 << 17), &now);
        let piece = || {
            let turn = group().expect("it may go");
            time.fetch_add(1_000_000, Relaxed);
            drop(turn);
        };
        drop(queue.enter(&wanted(Class::SyncWrite, 4096), &now));
        piece();
        assert!(group().is_none(), "it rests");
        assert_eq!(queue.piece_bytes(Class::AsyncWrite, &now), PIECE_BYTES);
        let urgency = host::Urgency::default();
        let urgent = host::work_at(Some(urgency.clone()));
        assert!(group().is_none(), "nobody needs it yet");
        urgency.set_waited_for(true);
        piece();
        piece();
        assert_eq!(queue.piece_bytes(Class::AsyncWrite, &now), usize::MAX);
        drop(urgent);
        time.fetch_add(SOON_NS, Relaxed);
        drop(queue.enter(&wanted(Class::SyncWrite, 4096), &now));
        piece();
        assert!(group().is_none(), "it rests again");
    }

    /// What users write came faster than a group that rests gets to disk, and all of them, writers of logs too, were delayed in the end.
    #[test]
    fn a_group_rests_less_the_more_users_have_written() {
        let queue = Queue::default();
        let time = AtomicU64::new(1_000_000_000);
        let now = || time.load(Relaxed);
        let urgency = host::Urgency::default();
        let _urgent = host::work_at(Some(urgency.clone()));
        let mut rests = Vec::new();
        for percent in [0, 50, 100] {
            time.fetch_add(SOON_NS, Relaxed);
            drop(queue.enter(&wanted(Class::SyncWrite, 4096), &now));
            urgency.set_percent(percent);
            let turn = queue.enter(&wanted(Class::AsyncWrite, 1 << 17), &now);
            time.fetch_add(1_000_000, Relaxed);
            drop(turn);
            rests.push(queue.state.lock().group_rests_until.saturating_sub(now()));
            assert_eq!(queue.piece_bytes(Class::AsyncWrite, &now), PIECE_BYTES, "in small pieces all the same");
        }
        assert_eq!(rests, [3_000_000, 1_500_000, 0]);
    }

    /// A scrub took the half of what readers did, and of what writers of a log did nine tenths.
    #[test]
    fn background_io_lets_the_device_go_beside_others() {
        let queue = Queue::default();
        let time = AtomicU64::new(1_000_000_000);
        let now = || time.load(Relaxed);
        let scrub = || queue.try_enter(&wanted(Class::Scrub, 1 << 20), &now);
        let first = scrub().expect("nobody else is there");
        assert!(scrub().is_some(), "a device of which nobody else wants anything is kept busy");
        drop(first);
        assert!(scrub().is_some());
        drop(queue.enter(&wanted(Class::SyncRead, 4096), &now));
        let turn = scrub().expect("one is always let in");
        assert!(scrub().is_none(), "beside a reader one at a time");
        time.fetch_add(1_000_000, Relaxed);
        drop(turn);
        time.fetch_add(2_900_000, Relaxed);
        assert!(scrub().is_none(), "it had the device for 1 ms, and lets it go for 3");
        time.fetch_add(100_000, Relaxed);
        let turn = scrub().expect("it has let it go long enough");
        time.fetch_add(1_000_000, Relaxed);
        drop(turn);
        assert!(scrub().is_none());
        time.fetch_add(SOON_NS, Relaxed);
        assert!(scrub().is_some(), "the reader is gone");
    }

    #[test]
    fn who_is_waited_for_does_not_wait() {
        let queue = Queue::default();
        let none = || 0;
        let _group = queue.enter(&wanted(Class::AsyncWrite, 64 << 20), &none);
        let sync = |n: u32| if n.is_multiple_of(2) { Class::SyncRead } else { Class::SyncWrite };
        let all: Vec<Turn<'_>> = (0..100).map(|n| queue.enter(&wanted(sync(n), 4096), &none)).collect();
        drop(all);
        assert_eq!(queue.durable.load(Relaxed), 0);
        // Of each class one may always begin.
        for class in [Class::AsyncRead, Class::Scrub, Class::Rebuild, Class::Trim, Class::Initialize] {
            drop(queue.enter(&wanted(class, 64 << 20), &none));
        }
        assert_eq!(queue.state.lock().under_way[Class::AsyncWrite as usize], LARGE);
    }

    #[test]
    fn a_limit_may_change_and_hold_for_what_is_waited_for() {
        let (queue, limits) = (Queue::default(), Tunables::default());
        queue.set_limits(&limits);
        let now = || 0;
        assert_eq!(most_at_once(&queue, &now), 2);
        limits.parameters.set(Parameter::AsyncWriteMax, "12").unwrap();
        assert_eq!(most_at_once(&queue, &now), 3);
        limits.parameters.set(Parameter::SyncReadMax, "1").unwrap();
        let read = wanted(Class::SyncRead, 4096);
        let first = queue.try_enter(&read, &now);
        assert!(first.is_some() && queue.try_enter(&read, &now).is_none());
        drop(first);
        assert!(queue.try_enter(&read, &now).is_some());
    }

    /// Places of what is made as one: the one that is next, what waits beside it, most bytes, largest gap.
    #[test]
    fn neighbours_are_one_as_far_as_is_allowed() {
        let at = |at: u64, length: usize| Wanted { class: Class::AsyncRead, is_write: false, at, length };
        let taken = |all: &[Wanted], most: u64, gap: u64| {
            disk::lend(&[], |loan| {
                let waits = |wanted: &Wanted| Arc::new(Waiting { wanted: *wanted, loan: Some(loan.clone()), fate: AtomicU8::new(0) });
                let mut state = State { waiting: all.iter().map(waits).collect(), ..State::default() };
                let me = state.waiting[0].clone();
                let together = state.take_neighbours(&me, most, gap);
                assert_eq!(together.len() + state.waiting.len(), all.len());
                together.iter().map(|other| other.wanted.at).collect::<Vec<_>>()
            })
        };
        let all = [at(100, 10), at(110, 10), at(90, 10), at(125, 5), at(85, 3), at(200, 1)];
        assert_eq!(taken(&all, 1000, 0), [90, 100, 110]);
        assert_eq!(taken(&all, 1000, 5), [85, 90, 100, 110, 125]);
        assert_eq!(taken(&all, 1000, 70), [85, 90, 100, 110, 125, 200]);
        assert_eq!(taken(&all, 25, 5), [100, 110]);
        assert_eq!(taken(&all, 0, 5), [100]);
        // What overlaps, and what is of another kind.
        let write = Wanted { is_write: true, ..at(110, 10) };
        let scrub = Wanted { class: Class::Scrub, ..at(110, 10) };
        assert_eq!(taken(&[at(100, 10), at(105, 10), at(100, 10), write, scrub], 1000, 5), [100]);
    }
}
