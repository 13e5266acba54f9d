//! Sectors that are moved while they are used.
//!
//! # Theory
//! When RAID-Z gets a device more, its sectors are moved, from the first to the last (see [`crate::vdev::map::Reflow`]). An I/O that has found out where its sectors are must be over before
//! they are somewhere else. So each I/O of such a vdev says which range it is of, and holds it ([`HeldRange`]) as long as its map is used. A mover of a range waits
//! for the I/Os that hold a part of it, and then keeps others away ([`Moving`]) until it is moved, or known to be.
//!
//! An I/O that comes while a range is waited for passes: it may belong to a block of which another I/O holds a part already, and would be waited for itself. So the wait has an
//! end, and is tried again later.
//!
//! # Locks
//! `state` is held for an instant. A thread that moves a range takes no I/O of it by itself through [`Moves::enter`].

use crate::vdev::map::{Hold, Reflow};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How often a mover looks whether it takes too long.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// So often.
const LOOKS_MAX: usize = 100;

/// Where the sectors of a vdev are, and which are being used.
#[derive(Debug, Default)]
pub struct Moves {
    /// guarded by: itself
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reflow: Option<Reflow>,
    moving: Option<Range<u64>>,
    held: BTreeMap<u64, Range<u64>>,
    next: u64,
}

/// An I/O of a range of a vdev.
#[derive(Debug)]
pub(in crate::vdev) struct HeldRange {
    moves: Arc<Moves>,
    number: u64,
}

impl Drop for HeldRange {
    fn drop(&mut self) {
        let mut state = self.moves.state.lock();
        state.held.remove(&self.number);
        if state.moving.is_some() {
            self.moves.changed.notify_all();
        }
    }
}

fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Moves {
    /// How far sectors have been moved, if they are.
    pub fn reflow(&self) -> Option<Reflow> {
        self.state.lock().reflow
    }

    /// Sectors are where this says; nobody uses them yet.
    pub(in crate::vdev) fn open_at(&self, reflow: Reflow) {
        self.state.lock().reflow = Some(reflow);
    }

    /// An I/O of this range begins; it waits while the range is being moved.
    pub(in crate::vdev) fn enter(self: &Arc<Self>, range: Range<u64>) -> (Option<Reflow>, Hold) {
        let mut state = self.state.lock();
        while state.moving.as_ref().is_some_and(|moving| overlaps(moving, &range)) && state.is_moving() {
            self.changed.wait(&mut state);
        }
        let number = state.next;
        state.next += 1;
        state.held.insert(number, range);
        (state.reflow, Hold::new(HeldRange { moves: self.clone(), number }))
    }

    /// Keeps I/Os of a range away, as soon as there are none. `None`: there were some all the time.
    pub fn begin(&self, range: Range<u64>) -> Option<Moving<'_>> {
        let mut state = self.state.lock();
        if state.moving.is_some() {
            return None;
        }
        state.moving = Some(range);
        for _ in 0..LOOKS_MAX {
            if state.is_moving() {
                return Some(Moving { moves: self });
            }
            self.changed.wait_for(&mut state, LOOK_EVERY);
        }
        state.moving = None;
        self.changed.notify_all();
        None
    }
}

impl State {
    /// Is nobody left of those that a mover waits for?
    fn is_moving(&self) -> bool {
        self.moving.as_ref().is_some_and(|moving| !self.held.values().any(|held| overlaps(held, moving)))
    }
}

/// A range is kept free of I/Os while this is there.
#[must_use]
pub struct Moving<'a> {
    moves: &'a Moves,
}

impl Moving<'_> {
    /// From now on sectors are where this says.
    pub fn set(&self, reflow: Option<Reflow>) {
        self.moves.state.lock().reflow = reflow;
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.moves.state.lock().moving = None;
        self.moves.changed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // real threads are what is tested
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_not_moved() {
        let moves = Arc::new(Moves::default());
        let (_, held) = moves.enter(100..200);
        // Another range is moved at once.
        let other = moves.begin(200..300).unwrap();
        other.set(Some(Reflow { synced: 0, moved: 300, in_scratch: false }));
        assert!(moves.begin(0..10).is_none(), "one at a time");
        drop(other);
        // A second I/O of a block passes while the first is waited for.
        let waiting = moves.clone();
        let mover = std::thread::spawn(move || {
            let moving = waiting.begin(0..150).unwrap();
            moving.set(Some(Reflow { synced: 150, moved: 300, in_scratch: false }));
        });
        let (reflow, second) = moves.enter(120..130);
        assert_eq!(reflow.unwrap().synced, 0);
        drop((held, second));
        mover.join().unwrap();
        assert_eq!(moves.enter(0..10).0.unwrap().synced, 150);
        // What is being moved is waited for.
        let moving = moves.begin(0..150).unwrap();
        let entering = moves.clone();
        let io = std::thread::spawn(move || entering.enter(140..160).0);
        std::thread::sleep(Duration::from_millis(20));
        moving.set(None);
        drop(moving);
        assert_eq!(io.join().unwrap(), None);
        assert!(moves.state.lock().held.is_empty());
    }
}
