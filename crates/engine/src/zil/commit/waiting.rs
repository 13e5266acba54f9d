//! Where commits of a log wait.
//!
//! # Theory
//! Many commits are under way at a time, and each waits for something of its own: its turn to be placed, or the end of
//! the commits before it. If every step woke all of them, `n` commits would make `n` wake-ups each, and spend more time
//! on waking than on writing. So a commit waits in the slot that its number selects, and a step wakes only the slots
//! that it concerns. Two numbers may share a slot, so a woken commit checks its condition again.
//!
//! A commit that finds too many others under way waits in the slot where it would wait for its records to be stable
//! anyway. When a commit ends, the waiting one with the highest target goes next and takes the records of all the
//! others with it; they are woken once, when those are stable. The limit depends on what the commits carry. A few
//! committers are served soonest if each writes its own block at once. With many committers that is a device write for
//! each, where two commits at a time, one filling while the other is written, carry dozens. Rotating disks follow other
//! rules ([`crate::zil::commit::gather`]).
//!
//! A commit that panics never ends. Its waiters, and those that come later, go on at once (`Chain::is_over`) and find
//! that the pool has stopped.
//!
//! # Locks
//! The awaited state changes under the chain's lock (`Zil::chain`). Dozens of commits become stable together, and would
//! queue for that lock when they are woken. So the state that they check is copied into atomics, and each slot has a
//! lock of its own.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::zil::log::Chain;

/// Slots for the numbers of one kind.
const SLOTS: usize = 64;
/// Commits that may always be under way, whatever they carry.
const ALWAYS: usize = 2;
/// More than [`ALWAYS`] commits may be under way only while they carry fewer records than this.
const FEW_RECORDS: u64 = 8;

/// All waiting commits of one log.
#[derive(Debug)]
pub(in crate::zil) struct Waiting {
    turns: [Condvar; SLOTS],
    /// Copies of `Chain::stable` and `Chain::is_over`, which change first.
    stable: AtomicU64,
    is_over: AtomicBool,
    ends: [Slot; SLOTS],
    written: Condvar,
}

/// A slot where commits wait until some records are stable.
#[derive(Debug, Default)]
struct Slot {
    lock: Mutex<()>,
    woken: Condvar,
    /// How often a commit in this slot was told that it may begin.
    calls: AtomicU64,
}

impl Default for Waiting {
    fn default() -> Self {
        let conditions = || std::array::from_fn(|_| Condvar::new());
        Waiting {
            turns: conditions(),
            stable: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            ends: std::array::from_fn(|_| Slot::default()),
            written: Condvar::new(),
        }
    }
}

impl Slot {
    fn wait_until(&self, condition: impl Fn() -> bool) {
        let mut guard = self.lock.lock();
        while !condition() {
            self.woken.wait(&mut guard);
        }
    }

    /// The awaited state has changed. A waiter that checked before that is in its wait by now, as the lock was free.
    fn wake(&self) {
        drop(self.lock.lock());
        self.woken.notify_all();
    }
}

fn slot_of(number: u64) -> usize {
    (number % SLOTS as u64) as usize
}

impl Waiting {
    /// Waits for the turn of round `number`.
    pub(in crate::zil) fn for_turn(&self, number: u64, chain: &mut MutexGuard<'_, Chain>) {
        while chain.turn != number && !chain.is_over {
            self.turns[slot_of(number)].wait(chain);
        }
    }

    /// Wakes round `number`: its turn has come.
    pub(in crate::zil) fn turn_came(&self, number: u64) {
        self.turns[slot_of(number)].notify_all();
    }

    /// Waits until all records up to `target` are stable. Returns `false` if they never will be.
    pub(in crate::zil) fn for_stable(&self, target: u64) -> bool {
        if !self.is_stable(target) {
            self.ends[slot_of(target)].wait_until(|| self.is_stable(target) || self.is_over.load(Ordering::Acquire));
        }
        self.is_stable(target)
    }

    fn is_stable(&self, target: u64) -> bool {
        self.stable.load(Ordering::Acquire) >= target
    }

    /// Publishes that these records are stable, and wakes those that wait for them.
    pub(in crate::zil) fn became_stable(&self, records: RangeInclusive<u64>) {
        self.stable.fetch_max(*records.end(), Ordering::AcqRel);
        for number in records.take(SLOTS) {
            self.ends[slot_of(number)].wake();
        }
    }

    /// Waits until one more commit may be under way, `max` at most, and counts the caller's in. Returns `false` if
    /// other commits have taken all records up to `target`.
    pub(in crate::zil) fn for_permit(&self, target: u64, max: usize, chain: &Mutex<Chain>) -> bool {
        let slot = &self.ends[slot_of(target)];
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
                slot.calls.load(Ordering::Acquire)
            };
            slot.wait_until(|| self.is_stable(target) || slot.calls.load(Ordering::Acquire) != calls || self.is_over.load(Ordering::Acquire));
            if self.is_stable(target) {
                return false;
            }
        }
    }

    /// Wakes the candidate with the highest target if one more commit may begin now.
    pub(in crate::zil) fn one_may_begin(&self, chain: &mut Chain, max: usize) {
        let taken = chain.taken();
        chain.candidates.retain(|target| *target > taken);
        if may_begin(chain, max)
            && let Some(target) = chain.candidates.iter().max()
        {
            let slot = &self.ends[slot_of(*target)];
            slot.calls.fetch_add(1, Ordering::AcqRel);
            slot.wake();
        }
    }

    /// Waits until all blocks placed in the group at `slot` are written.
    pub(in crate::zil) fn for_written(&self, slot: usize, chain: &mut MutexGuard<'_, Chain>) {
        while chain.placed[slot] > 0 && !chain.is_over {
            self.written.wait(chain);
        }
    }

    /// Ends all waits: nothing will happen any more.
    pub(in crate::zil) fn is_over(&self) {
        self.is_over.store(true, Ordering::Release);
        self.ends.iter().for_each(Slot::wake);
        for condition in self.turns.iter().chain([&self.written]) {
            condition.notify_all();
        }
    }

    /// Wakes those that wait for a group: all blocks placed in it are written.
    pub(in crate::zil) fn group_written(&self) {
        self.written.notify_all();
    }
}

/// May one more commit be under way?
fn may_begin(chain: &Chain, max: usize) -> bool {
    let records = chain.taken() - chain.stable;
    let is_few = chain.commits < max && (chain.commits < ALWAYS || records < FEW_RECORDS);
    !chain.gathering.now && (is_few || chain.commits < max * chain.gathering.streams)
}
