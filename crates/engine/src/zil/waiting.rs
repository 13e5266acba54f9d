//! Waiting for what happens to a log.
//!
//! # Theory
//! Many commits are under way at a time, and each waits for something of its own: its turn to be placed, the end of those before it.
//! Whoever is woken by every step of everybody spends more time on waking than on writing: with `n` commits that is `n` wake-ups for
//! each. So who waits stands at a place that goes by the number for which he waits, and only those at the places that are meant are woken.
//! Two numbers may share a place; so everybody looks again.
//!
//! Who finds too many commits under way stands where he would wait for the end anyway. When one ends, he who wants most goes next, and takes
//! what all the others want with him: they are woken once, when it is stable. How many are too many depends on what they carry: a few
//! committers are served soonest if each writes his own block at once; with many, that is a device write for each, where two commits
//! at a time, of which one fills up while the other is written, would carry dozens. A disk that turns is another thing ([`super::gather`]).
//!
//! A commit that panics will never come to its end. Whoever waits for it, or will, goes on at once (`Chain::is_over`), and finds that the pool has stopped.
//!
//! # Locks
//! What is waited for changes with the lock of the chain (`Zil::chain`). Dozens become stable together, and would all want that lock when they are
//! woken, one after the other: so what they look at then is known without it, and each place has a lock of its own.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::log::Chain;

/// Places for numbers of one kind.
const PLACES: usize = 64;
/// So many commits may be under way, whatever they carry.
const ALWAYS: usize = 2;
/// More than [`ALWAYS`] only while fewer records than this are under way.
const FEW_RECORDS: u64 = 8;

/// Those who wait.
#[derive(Debug)]
pub(super) struct Waiting {
    turns: [Condvar; PLACES],
    /// As `Chain::stable` and `Chain::is_over`, which change first.
    stable: AtomicU64,
    is_over: AtomicBool,
    ends: [Place; PLACES],
    written: Condvar,
}

/// Where those wait for whom some records have to be stable.
#[derive(Debug, Default)]
struct Place {
    lock: Mutex<()>,
    woken: Condvar,
    /// How often somebody here was told that he may begin, perhaps.
    calls: AtomicU64,
}

impl Default for Waiting {
    fn default() -> Self {
        let places = || std::array::from_fn(|_| Condvar::new());
        Waiting {
            turns: places(),
            stable: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            ends: std::array::from_fn(|_| Place::default()),
            written: Condvar::new(),
        }
    }
}

impl Place {
    fn wait_until(&self, condition: impl Fn() -> bool) {
        let mut guard = self.lock.lock();
        while !condition() {
            self.woken.wait(&mut guard);
        }
    }

    /// What they wait for has changed. Whoever looked before that waits by now.
    fn wake(&self) {
        drop(self.lock.lock());
        self.woken.notify_all();
    }
}

fn place(number: u64) -> usize {
    (number % PLACES as u64) as usize
}

impl Waiting {
    /// Until it is the turn of round `number`.
    pub(super) fn for_turn(&self, number: u64, chain: &mut MutexGuard<'_, Chain>) {
        while chain.turn != number && !chain.is_over {
            self.turns[place(number)].wait(chain);
        }
    }

    /// It is the turn of round `number`.
    pub(super) fn turn_came(&self, number: u64) {
        self.turns[place(number)].notify_all();
    }

    /// Until everything up to the record `target` is stable. `false`: it never will be.
    pub(super) fn for_stable(&self, target: u64) -> bool {
        if !self.is_stable(target) {
            self.ends[place(target)].wait_until(|| self.is_stable(target) || self.is_over.load(Ordering::Acquire));
        }
        self.is_stable(target)
    }

    fn is_stable(&self, target: u64) -> bool {
        self.stable.load(Ordering::Acquire) >= target
    }

    /// These records have become stable.
    pub(super) fn became_stable(&self, records: RangeInclusive<u64>) {
        self.stable.fetch_max(*records.end(), Ordering::AcqRel);
        for number in records.take(PLACES) {
            self.ends[place(number)].wake();
        }
    }

    /// Until another commit may be under way, which is the caller's then; `max` at a time at most. `false`: others have taken everything up to
    /// the record `target`.
    pub(super) fn for_permit(&self, target: u64, max: usize, chain: &Mutex<Chain>) -> bool {
        let place = &self.ends[place(target)];
        loop {
            let calls = {
                let mut chain = chain.lock();
                if chain.taken() >= target {
                    return false;
                }
                chain.candidates.retain(|candidate| *candidate != target);
                if may_begin(&chain, max) || chain.is_over {
                    chain.commits += 1;
                    return true;
                }
                chain.candidates.push(target);
                place.calls.load(Ordering::Acquire)
            };
            place.wait_until(|| self.is_stable(target) || place.calls.load(Ordering::Acquire) != calls || self.is_over.load(Ordering::Acquire));
            if self.is_stable(target) {
                return false;
            }
        }
    }

    /// `chain` says that another commit may begin now, perhaps: who is to go next, if anybody?
    pub(super) fn one_may_begin(&self, chain: &mut Chain, max: usize) {
        let taken = chain.taken();
        chain.candidates.retain(|target| *target > taken);
        if may_begin(chain, max)
            && let Some(target) = chain.candidates.iter().max()
        {
            let place = &self.ends[place(*target)];
            place.calls.fetch_add(1, Ordering::AcqRel);
            place.wake();
        }
    }

    /// Until all that was placed in the group at `slot` is written.
    pub(super) fn for_written(&self, slot: usize, chain: &mut MutexGuard<'_, Chain>) {
        while chain.placed[slot] > 0 && !chain.is_over {
            self.written.wait(chain);
        }
    }

    /// Nothing will happen any more.
    pub(super) fn is_over(&self) {
        self.is_over.store(true, Ordering::Release);
        self.ends.iter().for_each(Place::wake);
        for place in self.turns.iter().chain([&self.written]) {
            place.notify_all();
        }
    }

    /// All that was placed in a group is written.
    pub(super) fn group_written(&self) {
        self.written.notify_all();
    }
}

/// May one more commit be under way?
fn may_begin(chain: &Chain, max: usize) -> bool {
    let records = chain.taken() - chain.stable;
    let is_few = chain.commits < max && (chain.commits < ALWAYS || records < FEW_RECORDS);
    !chain.gathering.now && (is_few || chain.commits < max * chain.gathering.streams)
}
