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
//! All of it goes with the lock of the chain (`Zil::chain`).

use std::ops::RangeInclusive;

use parking_lot::{Condvar, MutexGuard};

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
    stable: [Condvar; PLACES],
    written: Condvar,
}

impl Default for Waiting {
    fn default() -> Self {
        let places = || std::array::from_fn(|_| Condvar::new());
        Waiting { turns: places(), stable: places(), written: Condvar::new() }
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

    /// Until everything up to the record `target` is stable.
    pub(super) fn for_stable(&self, target: u64, chain: &mut MutexGuard<'_, Chain>) {
        while chain.stable < target && !chain.is_over {
            self.stable[place(target)].wait(chain);
        }
    }

    /// These records have become stable.
    pub(super) fn became_stable(&self, records: RangeInclusive<u64>) {
        for number in records.take(PLACES) {
            self.stable[place(number)].notify_all();
        }
    }

    /// Until another commit may be under way, which is the caller's then; `max` at a time at most. `false`: others have taken everything up to
    /// the record `target`.
    pub(super) fn for_permit(&self, target: u64, max: usize, chain: &mut MutexGuard<'_, Chain>) -> bool {
        let must_wait = |chain: &Chain| chain.taken() < target && !may_begin(chain, max) && !chain.is_over;
        if must_wait(chain) {
            chain.candidates.push(target);
            while must_wait(chain) {
                self.stable[place(target)].wait(chain);
            }
            if let Some(own) = chain.candidates.iter().position(|candidate| *candidate == target) {
                chain.candidates.swap_remove(own);
            }
        }
        let permitted = chain.taken() < target;
        chain.commits += usize::from(permitted);
        permitted
    }

    /// `chain` says that another commit may begin now, perhaps: who is to go next, if anybody?
    pub(super) fn one_may_begin(&self, chain: &Chain, max: usize) {
        if may_begin(chain, max)
            && let Some(target) = chain.candidates.iter().max().filter(|target| **target > chain.taken())
        {
            self.stable[place(*target)].notify_all();
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
        for place in self.turns.iter().chain(&self.stable).chain([&self.written]) {
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
