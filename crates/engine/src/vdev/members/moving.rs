//! Sectors that are moved, or copied, while they are used.
//!
//! # Theory
//! When RAID-Z gets a device more, its sectors are moved, from the first to the last (see [`crate::vdev::map::Reflow`]). An I/O that has found out where its sectors are must be over before
//! they are somewhere else. So each I/O of such a vdev says which range it is of, and holds it ([`HeldRange`]) as long as its map is used. A mover of a range waits
//! for the I/Os that hold a part of it, and then keeps others away ([`Moving`]) until it is moved, or known to be. A rebuild does the same with writes.
//!
//! An I/O that comes while a range is waited for passes: it may belong to a block of which another I/O holds a part already, and would be waited for itself. So the wait has an
//! end, and is tried again later.
//!
//! # While nothing is moved
//! Mostly nothing is. Then an I/O is only counted ([`CountedIo`]), and its range is not asked for. The first mover says that it is there (`is_watched`), and from then on I/Os hold
//! ranges; the I/Os that were counted before may be of any range, so a mover waits for all of these, too. None can be missed: an I/O counts itself and looks at `is_watched` afterwards, a
//! mover sets `is_watched` and looks at the count afterwards. All four are in one order (`SeqCst`), so if the I/O did not see the mover, its count stands before the mover's look, and the
//! mover sees it until the I/O is over. An I/O that did see the mover takes its count back and holds its range. A mover that has no more to move says so ([`Moves::rest`]); ranges that are held
//! then stay known, as counted I/Os do.
//!
//! # Invariants
//! 1. While sectors lie as a `reflow` says, `is_watched` is set: an I/O that is counted uses none.
//!
//! # Locks
//! `state` is held for an instant, and not at all by I/Os while nothing is moved. A thread that moves a range takes no I/O of it by itself through [`Moves::enter`].

use crate::vdev::map::{Hold, Reflow};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// So long a mover waits for I/Os, however many end meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the sectors of a vdev are, and which are being used.
#[derive(Debug, Default)]
pub struct Moves {
    /// There is a mover: I/Os hold ranges.
    is_watched: AtomicBool,
    /// I/Os under way that hold no range.
    counted: AtomicU64,
    /// guarded by: itself
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reflow: Option<Reflow>,
    /// What a mover wants, or has.
    moving: Option<Range<u64>>,
    /// The mover has it: nobody uses it.
    is_moving: bool,
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

/// An I/O of some range of a vdev that nobody moved when it began.
#[derive(Debug)]
pub(in crate::vdev) struct CountedIo(Arc<Moves>);

impl CountedIo {
    fn new(moves: &Arc<Moves>) -> CountedIo {
        moves.counted.fetch_add(1, SeqCst);
        CountedIo(moves.clone())
    }
}

impl Clone for CountedIo {
    fn clone(&self) -> CountedIo {
        CountedIo::new(&self.0)
    }
}

impl Drop for CountedIo {
    fn drop(&mut self) {
        // A mover that still saw the count has said before that it is there.
        if self.0.counted.fetch_sub(1, SeqCst) == 1 && self.0.is_watched.load(SeqCst) {
            let _state = self.0.state.lock();
            self.0.changed.notify_all();
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
        self.is_watched.store(true, SeqCst);
        self.state.lock().reflow = Some(reflow);
    }

    /// An I/O of this range begins; it waits while the range is being moved.
    pub(in crate::vdev) fn enter(self: &Arc<Self>, range: impl FnOnce() -> Range<u64>) -> (Option<Reflow>, Hold) {
        if !self.is_watched.load(SeqCst) {
            let counted = CountedIo::new(self);
            if !self.is_watched.load(SeqCst) {
                return (None, Hold::counted(counted));
            }
        }
        let range = range();
        let mut state = self.state.lock();
        while state.is_moving && state.moving.as_ref().is_some_and(|moving| overlaps(moving, &range)) {
            self.changed.wait(&mut state);
        }
        let number = state.next;
        state.next += 1;
        state.held.insert(number, range);
        (state.reflow, Hold::of_range(HeldRange { moves: self.clone(), number }))
    }

    /// Keeps I/Os of a range away, as soon as there are none. `None`: there were some all the time.
    #[allow(clippy::disallowed_methods)] // how long others are waited for changes nothing of what is written
    pub fn begin(&self, range: Range<u64>) -> Option<Moving<'_>> {
        self.is_watched.store(true, SeqCst);
        let mut state = self.state.lock();
        if state.moving.is_some() {
            return None;
        }
        state.moving = Some(range.clone());
        let end = Instant::now() + PATIENCE;
        loop {
            if self.counted.load(SeqCst) == 0 && !state.held.values().any(|held| overlaps(held, &range)) {
                state.is_moving = true;
                return Some(Moving { moves: self });
            }
            if self.changed.wait_until(&mut state, end).timed_out() {
                break;
            }
        }
        state.moving = None;
        self.changed.notify_all();
        None
    }

    /// Nothing more will be moved for now: I/Os need not say what they use.
    pub fn rest(&self) {
        let state = self.state.lock();
        if state.reflow.is_none() && state.moving.is_none() {
            self.is_watched.store(false, SeqCst);
        }
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
        let mut state = self.moves.state.lock();
        (state.moving, state.is_moving) = (None, false);
        drop(state);
        self.moves.changed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // real threads are what is tested
mod tests {
    use super::*;

    fn enter(moves: &Arc<Moves>, range: Range<u64>) -> (Option<Reflow>, Hold) {
        moves.enter(|| range)
    }

    #[test]
    fn what_is_used_is_not_moved() {
        let moves = Arc::new(Moves::default());
        drop(moves.begin(0..1).unwrap());
        let (_, held) = enter(&moves, 100..200);
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
        let (reflow, second) = enter(&moves, 120..130);
        assert_eq!(reflow.unwrap().synced, 0);
        drop((held, second));
        mover.join().unwrap();
        assert_eq!(enter(&moves, 0..10).0.unwrap().synced, 150);
        // What is being moved is waited for.
        let moving = moves.begin(0..150).unwrap();
        let entering = moves.clone();
        let io = std::thread::spawn(move || enter(&entering, 140..160).0);
        std::thread::sleep(Duration::from_millis(20));
        moving.set(None);
        drop(moving);
        assert_eq!(io.join().unwrap(), None);
        assert!(moves.state.lock().held.is_empty());
    }

    #[test]
    fn an_io_is_counted_while_nothing_is_moved_and_known_to_the_first_mover() {
        let moves = Arc::new(Moves::default());
        let (reflow, first) = moves.enter(|| unreachable!("its range is not needed"));
        let second = first.clone();
        assert_eq!((reflow, moves.counted.load(SeqCst), moves.state.lock().held.len()), (None, 2, 0));
        let moving = moves.clone();
        let mover = std::thread::spawn(move || moving.begin(0..100).map(drop).is_some());
        while !moves.is_watched.load(SeqCst) {
            std::thread::yield_now();
        }
        let third = enter(&moves, 200..300).1;
        assert_eq!((moves.counted.load(SeqCst), moves.state.lock().held.len()), (2, 1));
        drop(first);
        std::thread::sleep(Duration::from_millis(100));
        assert!(!mover.is_finished(), "the counted I/O may be of its range");
        drop(second);
        assert!(mover.join().unwrap());
        // What was held stays known to the next one.
        moves.rest();
        let fourth = enter(&moves, 0..10).1;
        assert_eq!(moves.counted.load(SeqCst), 1);
        drop(fourth);
        assert!(!moves.state.lock().held.is_empty());
        drop(third);
        // Where sectors lie otherwise everybody has to know.
        moves.begin(0..1).unwrap().set(Some(Reflow { synced: 0, moved: 0, in_scratch: false }));
        moves.rest();
        assert!(moves.is_watched.load(SeqCst) && enter(&moves, 0..1).0.is_some());
    }

    /// A mover was waked by each I/O that ended, and took a hundred of those for five seconds: under load it found everything in use for ever.
    #[test]
    fn a_mover_waits_for_some_time_however_often_it_is_waked() {
        let moves = Arc::new(Moves::default());
        drop(moves.begin(0..1).unwrap());
        let held = enter(&moves, 0..10).1;
        let moving = moves.clone();
        let mover = std::thread::spawn(move || moving.begin(0..10).map(drop).is_some());
        for _ in 0..500 {
            std::thread::sleep(Duration::from_micros(200));
            drop(enter(&moves, 100..110));
        }
        drop(held);
        assert!(mover.join().unwrap());
    }

    /// Threads use cells while a mover comes, takes some, and rests: a thread that has a cell is alone with it.
    #[test]
    fn an_io_and_a_mover_never_have_the_same_range() {
        const CELLS: u64 = 8;
        let moves = Arc::new(Moves::default());
        let cells: Arc<Vec<AtomicU64>> = Arc::new((0..CELLS).map(|_| AtomicU64::new(0)).collect());
        let is_over = Arc::new(AtomicBool::new(false));
        // I/Os that were held, as there was a mover, and that were counted only.
        let done: Arc<[AtomicU64; 2]> = Arc::default();
        let is_done = |kind: usize| while done[kind].load(SeqCst) == 0 { std::thread::yield_now() };
        let ios: Vec<_> = (0..3_u64)
            .map(|number| {
                let (moves, cells, is_over) = (moves.clone(), cells.clone(), is_over.clone());
                let done = done.clone();
                std::thread::spawn(move || {
                    for round in number.. {
                        let at = round * 5 % CELLS;
                        let held = enter(&moves, at..at + 1).1;
                        done[usize::from(held.is_counted())].fetch_add(1, SeqCst);
                        assert_ne!(cells[at as usize].fetch_add(1, SeqCst), MOVED, "it is being moved");
                        std::hint::spin_loop();
                        cells[at as usize].fetch_sub(1, SeqCst);
                        drop(held);
                        std::thread::sleep(Duration::from_micros(round % 7 * 5));
                        if is_over.load(SeqCst) {
                            return;
                        }
                    }
                    unreachable!()
                })
            })
            .collect();
        const MOVED: u64 = 1 << 32;
        let first = (0..1000).find_map(|_| moves.begin(0..1)).expect("a moment without any of them");
        is_done(0);
        drop(first);
        for round in 0..2000_u64 {
            let from = round % CELLS;
            // Where the threads are all the time it is tried again.
            let moving = (0..1000).find_map(|_| moves.begin(from..CELLS)).expect("a moment without any of them");
            for cell in &cells[from as usize..] {
                assert_eq!(cell.swap(MOVED, SeqCst), 0, "round {round}: somebody uses it");
            }
            std::thread::yield_now();
            cells[from as usize..].iter().for_each(|cell| assert_eq!(cell.swap(0, SeqCst), MOVED));
            drop(moving);
            moves.rest();
        }
        is_done(1);
        is_over.store(true, SeqCst);
        ios.into_iter().for_each(|io| io.join().unwrap());
        assert_eq!((moves.counted.load(SeqCst), moves.state.lock().held.len()), (0, 0));
    }
}
