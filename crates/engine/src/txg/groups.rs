//! The states of the groups, and their holders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{TXG_SIZE, Txg, slot};
use crate::{bail, error};
use crate::error::{Error, Result};
use crate::host::Urgency;

const SHARDS: usize = 16;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    holds: Mutex<[u64; TXG_SIZE]>,
}

#[derive(Debug)]
struct State {
    /// The group that is closed, empty of holders, and waits to be synced.
    quiesced: Option<Txg>,
    /// The group being closed.
    quiescing: Option<Txg>,
    syncing: Option<Txg>,
    synced: Txg,
    /// This group was asked to be on disk.
    sync_wanted: Txg,
    /// This group is to be closed soon, though nobody waits for it.
    hastened: Txg,
    stopping: bool,
    /// No group is closed any more, whatever is wanted from now on.
    last_closed: bool,
    failed: Option<Error>,
    /// Users that can do nothing before the open group is written.
    stuck: usize,
}

/// How often a waiter checks whether its wait still makes sense.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The transaction groups of one pool.
pub struct TxgGroups {
    open: AtomicU64,
    /// The closed group that still has holders, so that the next one cannot be joined yet; 0: none. guarded by: all shards (to set), `state` (to clear, by its last holder)
    draining: AtomicU64,
    shards: [Shard; SHARDS],
    state: Mutex<State>,
    changed: Condvar,
    /// Copies of `State::synced`, `State::sync_wanted` and whether there is a `State::failed`, for readers without the
    /// lock. Stored under it.
    synced: AtomicU64,
    sync_wanted: AtomicU64,
    has_failed: AtomicBool,
    /// Groups up to this one are written even if nothing has changed.
    written_anyway: AtomicU64,
    /// Some are [`State::stuck`]. Stored under the lock.
    urgency: Urgency,
}

/// Membership of one group; the group is not synced before it is dropped. Where a panic drops it, it never is: the pool stops.
pub struct TxgHold {
    groups: Arc<TxgGroups>,
    shard: usize,
    txg: Txg,
}

impl TxgHold {
    /// The group.
    pub fn txg(&self) -> Txg {
        self.txg
    }
}

impl Drop for TxgHold {
    fn drop(&mut self) {
        // Before the group can be written.
        if std::thread::panicking() {
            self.groups.fail(bug(format_args!("ended a thread that was changing something in txg {}", self.txg)));
        }
        let mut holds = self.groups.shards[self.shard].holds.lock();
        let count = &mut holds[slot(self.txg)];
        *count -= 1;
        let last = *count == 0;
        drop(holds);
        if last && self.txg < self.groups.open_txg() {
            self.groups.have_left(self.txg);
        }
    }
}

/// The error with which a pool stops after a bug: half of a change may be in memory, which must not reach the disk.
pub(crate) fn bug(what: std::fmt::Arguments<'_>) -> Error {
    error!(Suspended, "a bug {what} (the messages before this say where); what is on disk is whole: export the pool (zpool export -f) and import it again")
}

fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
    SHARD.with(|shard| *shard)
}

impl TxgGroups {
    /// Groups of a pool whose last synced group is `synced`.
    pub fn new(synced: Txg) -> Arc<Self> {
        Arc::new(TxgGroups {
            open: AtomicU64::new(synced + 1),
            draining: AtomicU64::new(0),
            shards: Default::default(),
            state: Mutex::new(State {
                quiesced: None,
                quiescing: None,
                syncing: None,
                synced,
                sync_wanted: 0,
                hastened: 0,
                stopping: false,
                last_closed: false,
                failed: None,
                stuck: 0,
            }),
            changed: Condvar::new(),
            synced: AtomicU64::new(synced),
            sync_wanted: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            written_anyway: AtomicU64::new(0),
            urgency: Urgency::default(),
        })
    }

    /// The group that is open now.
    pub fn open_txg(&self) -> Txg {
        self.open.load(Ordering::Acquire)
    }

    /// The newest group that is on disk.
    pub fn synced_txg(&self) -> Txg {
        self.synced.load(Ordering::Acquire)
    }

    /// The group being written, if one is.
    pub fn syncing_txg(&self) -> Option<Txg> {
        self.state.lock().syncing
    }

    /// Joins the open group. While the group before it still has holders, waits for them: so the changes of one group
    /// all come before those of the next, and no object is changed for an older group after a newer one.
    /// So the holder of a group must not wait for anything that is held across a call of this.
    pub fn hold(self: &Arc<Self>) -> TxgHold {
        let shard = own_shard();
        let mut holds = self.shards[shard].holds.lock();
        while self.is_draining() {
            drop(holds);
            let mut state = self.state.lock();
            while self.is_draining() {
                self.changed.wait(&mut state);
            }
            drop(state);
            holds = self.shards[shard].holds.lock();
        }
        let txg = self.open.load(Ordering::Acquire);
        holds[slot(txg)] += 1;
        drop(holds);
        TxgHold { groups: self.clone(), shard, txg }
    }

    /// As [`TxgGroups::hold`]; `None`: it would have to wait.
    pub fn try_hold(self: &Arc<Self>) -> Option<TxgHold> {
        let shard = own_shard();
        let mut holds = self.shards[shard].holds.lock();
        if self.is_draining() {
            return None;
        }
        let txg = self.open.load(Ordering::Acquire);
        holds[slot(txg)] += 1;
        Some(TxgHold { groups: self.clone(), shard, txg })
    }

    /// As [`TxgGroups::hold`], but gives up when `suspension` says that the pool waits for an administrator: the caller may be
    /// the one that it waits for.
    ///
    /// # Errors
    /// What stopped the pool, or what it waits for.
    pub fn hold_unless(self: &Arc<Self>, suspension: &dyn Fn() -> Option<Error>) -> Result<TxgHold> {
        loop {
            if let Some(hold) = self.try_hold() {
                return Ok(hold);
            }
            if let Some(why) = suspension() {
                bail!(Suspended, "{why}");
            }
            let mut state = self.state.lock();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if self.is_draining() {
                self.changed.wait_for(&mut state, LOOK_AGAIN);
            }
        }
    }

    /// The last holders of `txg` in one shard have left it, after it was closed.
    fn have_left(&self, txg: Txg) {
        // With the lock, so that a quiescer between its look and its wait is not missed.
        let state = self.state.lock();
        // The next group can be joined at once: the thread that closes groups may be long in coming on a busy machine. But those of another shard may have come here
        // first, and a later group be draining by now.
        if self.holders(txg) == 0 {
            let _ = self.draining.compare_exchange(txg, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire) != 0
    }

    fn holders(&self, txg: Txg) -> u64 {
        self.shards.iter().map(|shard| shard.holds.lock()[slot(txg)]).sum()
    }

    /// Waits until a group should be closed: one is wanted on disk, or `timeout` is over, or the pool stops.
    /// `false`: the pool stops and nothing is wanted.
    pub fn wait_for_work(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        loop {
            let is_wanted = state.sync_wanted >= self.open_txg();
            if state.quiesced.is_none() && (is_wanted || state.hastened >= self.open_txg()) {
                return true;
            }
            // A wanted group is closed when the group before it has been taken.
            if state.stopping && (!is_wanted || state.failed.is_some()) {
                state.last_closed = true;
                drop(state);
                self.changed.notify_all();
                return false;
            }
            if self.changed.wait_for(&mut state, timeout).timed_out() {
                // One group waits for the syncer already: there is no slot for another.
                if state.quiesced.is_none() {
                    return true;
                }
            }
        }
    }

    /// Closes the open group, opens the next, and waits until the closed one has no holders. Returns it. If
    /// a failure has stopped the pool the group would never be taken, and nothing is closed.
    pub fn quiesce(&self) -> Txg {
        let mut state = self.state.lock();
        // open, quiesced and syncing at the most: the slot of the group that opens must have been synced.
        while state.quiesced.is_some() {
            if state.failed.is_some() {
                return self.open_txg();
            }
            self.changed.wait(&mut state);
        }
        let guards: Vec<_> = self.shards.iter().map(|shard| shard.holds.lock()).collect();
        let txg = self.open.fetch_add(1, Ordering::AcqRel);
        let is_held = guards.iter().any(|holds| holds[slot(txg)] > 0);
        if is_held {
            self.draining.store(txg, Ordering::Release);
        }
        drop(guards);
        state.quiescing = Some(txg);
        // The last holder ends the draining.
        while self.holders(txg) > 0 {
            self.changed.wait(&mut state);
        }
        state.quiescing = None;
        state.quiesced = Some(txg);
        drop(state);
        self.changed.notify_all();
        txg
    }

    /// Waits for a closed group and takes it for writing; `None` when the pool stops.
    pub fn begin_sync(&self) -> Option<Txg> {
        let mut state = self.state.lock();
        loop {
            if let Some(txg) = state.quiesced.take() {
                state.syncing = Some(txg);
                drop(state);
                self.changed.notify_all();
                return Some(txg);
            }
            // Where a failure has stopped the pool, or who closes groups is gone, nothing that is wanted is closed.
            let is_wanted = state.sync_wanted >= self.open_txg() && state.failed.is_none() && !state.last_closed;
            if state.stopping && state.quiescing.is_none() && !is_wanted {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// The group is on disk, or will never be.
    pub fn end_sync(&self, txg: Txg, result: Result<()>) {
        let mut state = self.state.lock();
        assert_eq!(state.syncing, Some(txg), "txg {txg} was not syncing");
        state.syncing = None;
        match result {
            Ok(()) => {
                state.synced = txg;
                self.synced.store(txg, Ordering::Release);
            }
            Err(error) => {
                state.failed.get_or_insert(error);
                self.has_failed.store(true, Ordering::Release);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Nothing more may be written: what comes from outside the sync thread and stops the pool.
    pub fn fail(&self, error: Error) {
        {
            let mut state = self.state.lock();
            state.failed.get_or_insert(error);
            self.has_failed.store(true, Ordering::Release);
        }
        self.changed.notify_all();
    }

    /// Asks that `txg` be closed and written soon; returns at once.
    pub fn kick(&self, txg: Txg) {
        if self.sync_wanted.load(Ordering::Acquire) >= txg {
            return;
        }
        let mut state = self.state.lock();
        if state.sync_wanted < txg {
            state.sync_wanted = txg;
            self.sync_wanted.store(txg, Ordering::Release);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Asks that `txg` be closed and written soon, for work that is done in groups and that nobody waits for.
    pub fn hasten(&self, txg: Txg) {
        let mut state = self.state.lock();
        state.hastened = state.hastened.max(txg);
        drop(state);
        self.changed.notify_all();
    }

    /// Asks that groups up to `txg` be written even if nothing has changed.
    pub fn write_anyway(&self, txg: Txg) {
        self.written_anyway.fetch_max(txg, Ordering::AcqRel);
    }

    /// Whether `txg` is to be written even if nothing has changed.
    pub fn is_written_anyway(&self, txg: Txg) -> bool {
        self.written_anyway.load(Ordering::Acquire) >= txg
    }

    /// Waits until the open group is on disk, also if nothing has changed: with it freed space comes nearer to its use.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn wait_for_room(&self) -> Result<()> {
        let txg = self.open_txg();
        self.write_anyway(txg);
        self.wait_stuck(txg)
    }

    /// As [`TxgGroups::wait_synced`], of a user that can do nothing before.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn wait_stuck(&self, txg: Txg) -> Result<()> {
        self.count_stuck(|stuck| stuck + 1);
        let written = self.wait_synced(txg);
        self.count_stuck(|stuck| stuck - 1);
        written
    }

    fn count_stuck(&self, change: impl FnOnce(usize) -> usize) {
        let mut state = self.state.lock();
        state.stuck = change(state.stuck);
        self.urgency.set_waited_for(state.stuck > 0);
    }

    /// That of writing a group: can users do nothing before?
    pub(crate) fn urgency(&self) -> Urgency {
        self.urgency.clone()
    }

    /// Says how near it is that users are delayed until groups are written, up to 100 ([`crate::txg::DirtyBytes::pressure_percent`]).
    pub(crate) fn note_pressure(&self, percent: u32) {
        self.urgency.set_percent(percent);
    }

    /// The newest group that was asked for ([`TxgGroups::kick`]); 0: none.
    pub fn wanted_txg(&self) -> Txg {
        self.state.lock().sync_wanted
    }

    /// Waits until `txg` is on disk.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn wait_synced(&self, txg: Txg) -> Result<()> {
        self.kick(txg);
        let mut state = self.state.lock();
        while state.synced < txg {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.stopping && state.syncing.is_none() && state.quiesced.is_none() && state.quiescing.is_none() && state.sync_wanted < txg {
                bail!(Suspended, "the pool is being closed");
            }
            self.changed.wait(&mut state);
        }
        Ok(())
    }

    /// As [`TxgGroups::wait_synced`], but gives up when `suspension` says that the pool waits for an administrator: the caller
    /// may be the one that it waits for.
    ///
    /// # Errors
    /// What stopped the pool, or what it waits for.
    pub fn wait_synced_unless(&self, txg: Txg, suspension: &dyn Fn() -> Option<Error>) -> Result<()> {
        self.kick(txg);
        loop {
            {
                let mut state = self.state.lock();
                let is_over = |state: &State| state.synced >= txg || state.failed.is_some() || state.stopping;
                if !is_over(&state) {
                    self.changed.wait_for(&mut state, LOOK_AGAIN);
                }
                if is_over(&state) {
                    break;
                }
            }
            if let Some(why) = suspension() {
                bail!(Suspended, "{why}");
            }
        }
        self.wait_synced(txg)
    }

    /// Waits until `txg` is no longer open.
    pub fn wait_quiesced(&self, txg: Txg) {
        self.kick(txg);
        let mut state = self.state.lock();
        while self.open_txg() <= txg && !state.stopping && state.failed.is_none() {
            self.changed.wait(&mut state);
        }
    }

    /// What stopped the pool, if something did.
    pub fn failure(&self) -> Option<Error> {
        if self.has_failed.load(Ordering::Acquire) { self.state.lock().failed.clone() } else { None }
    }

    /// The threads are to end after what is wanted on disk is there.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group is being closed while its holder waits for a device. A waiter for the next group gives up when the pool waits for
    /// an administrator, and gets the group when the holder is done.
    #[test]
    #[allow(clippy::disallowed_methods)] // this test is about threads
    fn an_administrator_does_not_wait_for_a_group_that_cannot_be_closed() {
        let groups = TxgGroups::new(4);
        let held = groups.hold();
        let closing = { let groups = groups.clone(); std::thread::spawn(move || groups.quiesce()) };
        while groups.try_hold().is_some() {
            std::thread::yield_now();
        }
        let suspended = || Some(error!(Io, "the disk is gone"));
        let refused = groups.hold_unless(&suspended).err().expect("it cannot be had");
        assert!(refused.kind() == crate::error::ErrorKind::Suspended && refused.to_string().contains("the disk is gone"), "{refused}");
        let next = { let groups = groups.clone(); std::thread::spawn(move || groups.hold_unless(&|| None).map(|hold| hold.txg())) };
        std::thread::sleep(2 * LOOK_AGAIN);
        assert!(!next.is_finished());
        let txg = held.txg();
        drop(held);
        assert_eq!((closing.join().unwrap(), next.join().unwrap().unwrap()), (txg, txg + 1));
        // Where nothing is in the way it is had at once, suspended or not.
        assert_eq!(groups.hold_unless(&suspended).unwrap().txg(), txg + 1);
    }

    /// Users that have no room are such until each has the group that it waits for, or that cannot be had.
    #[test]
    #[allow(clippy::disallowed_methods)] // this test is about threads
    fn a_group_is_urgent_while_users_have_no_room() {
        let groups = TxgGroups::new(4);
        let is_urgent = || groups.urgency().is_waited_for();
        let user = || { let groups = groups.clone(); std::thread::spawn(move || groups.wait_for_room()) };
        let until_stuck = |count: usize| while groups.state.lock().stuck != count {
            std::thread::yield_now();
        };
        assert!(!is_urgent());
        let first = user();
        until_stuck(1);
        let (txg, second) = (groups.quiesce(), user());
        until_stuck(2);
        assert!(is_urgent() && groups.is_written_anyway(txg + 1));
        assert_eq!(groups.begin_sync(), Some(txg));
        groups.end_sync(txg, Ok(()));
        first.join().unwrap().unwrap();
        assert!(is_urgent() && groups.state.lock().stuck == 1, "the second waits for the next one");
        groups.fail(error!(Io, "the disk is gone"));
        assert!(second.join().unwrap().is_err() && !is_urgent());
    }

    /// Everybody waited for the thread that closes groups to be scheduled, beside a group that keeps all processors busy.
    #[test]
    #[allow(clippy::disallowed_methods)] // this test is about threads
    fn the_last_holder_lets_others_into_the_next_group() {
        for round in 0..50 {
            let groups = TxgGroups::new(4);
            let held = groups.hold();
            let closing = { let groups = groups.clone(); std::thread::spawn(move || groups.quiesce()) };
            while groups.try_hold().is_some() {
                std::thread::yield_now();
            }
            drop(held);
            assert_eq!(groups.try_hold().map(|hold| hold.txg()), Some(6), "round {round}");
            closing.join().unwrap();
        }
    }

    /// Of two last holders of a group the slower one let others into the group after the next, while the next still had holders: a change of the older group came after
    /// one of the newer, and was lost.
    #[test]
    #[allow(clippy::disallowed_methods)] // this test is about threads
    fn no_group_is_joined_while_the_one_before_it_has_holders() {
        let groups = TxgGroups::new(4);
        groups.quiesce();
        assert_eq!(groups.begin_sync(), Some(5));
        let held = groups.hold();
        let closing = { let groups = groups.clone(); std::thread::spawn(move || groups.quiesce()) };
        while groups.try_hold().is_some() {
            std::thread::yield_now();
        }
        // That is when it comes to the lock.
        groups.have_left(5);
        assert!(groups.try_hold().is_none(), "txg {} has a holder", held.txg());
        drop(held);
        assert_eq!((closing.join().unwrap(), groups.try_hold().map(|hold| hold.txg())), (6, Some(7)));
    }

    /// The last group wanted one more, when nobody closed groups any more: its writer waited for that one for ever.
    #[test]
    fn what_is_wanted_after_the_last_group_was_closed_is_not_waited_for() {
        let groups = TxgGroups::new(4);
        groups.stop();
        assert!(!groups.wait_for_work(Duration::from_secs(60)));
        groups.kick(groups.open_txg());
        assert_eq!(groups.begin_sync(), None);
    }

    /// Drives groups until they stop, as a pool does.
    #[allow(clippy::disallowed_methods)] // these tests are about threads
    fn drive(groups: &Arc<TxgGroups>, mut sync: impl FnMut(Txg) + Send + 'static) -> [std::thread::JoinHandle<()>; 2] {
        let (closing, syncing) = (groups.clone(), groups.clone());
        let close = move || {
            while closing.wait_for_work(Duration::from_secs(3600)) && closing.failure().is_none() {
                closing.quiesce();
            }
        };
        let sync = move || {
            while let Some(txg) = syncing.begin_sync() {
                sync(txg);
                syncing.end_sync(txg, Ok(()));
            }
        };
        [std::thread::spawn(close), std::thread::spawn(sync)]
    }

    #[allow(clippy::disallowed_methods)] // the real clock: real threads are waited for
    fn have_ended(threads: &[std::thread::JoinHandle<()>]) -> bool {
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while std::time::Instant::now() < until && threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::yield_now();
        }
        threads.iter().all(std::thread::JoinHandle::is_finished)
    }

    /// One group was being written, one was closed, and the next was wanted: it was never closed, and the wait for its sync never ended.
    #[test]
    fn what_is_wanted_when_groups_stop_is_synced() {
        let groups = TxgGroups::new(4);
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let threads = drive(&groups, move |_| told.recv().unwrap());
        for txg in 5..7 {
            groups.kick(txg);
            while groups.open_txg() == txg {
                std::thread::yield_now();
            }
        }
        groups.kick(7);
        groups.stop();
        // The one that closes groups has heard of it.
        std::thread::sleep(2 * LOOK_AGAIN);
        (0..3).for_each(|_| tell.send(()).unwrap());
        assert!(have_ended(&threads), "they wait for each other");
        assert_eq!(groups.synced_txg(), 7);
    }

    /// A failure from outside: what was wanted will never be closed, and is not waited for.
    #[test]
    fn groups_that_failed_stop_whatever_is_wanted() {
        let groups = TxgGroups::new(4);
        let threads = drive(&groups, |_| ());
        groups.fail(error!(Io, "another host may take the pool"));
        assert!(groups.wait_synced(5).is_err());
        groups.stop();
        assert!(have_ended(&threads), "they wait for each other");
    }

    /// A thread that was changing something died of a bug, and the half of what it did went to disk with its group.
    #[test]
    #[allow(clippy::disallowed_methods)] // this test is about threads
    fn a_group_in_which_somebody_panicked_is_not_written() {
        let groups = TxgGroups::new(4);
        drop(groups.hold());
        assert!(groups.failure().is_none());
        let member = groups.clone();
        let died = std::thread::spawn(move || {
            let _hold = member.hold();
            panic!("a bug");
        });
        assert!(died.join().is_err());
        let failure = groups.failure().expect("half of a change is in the group");
        assert!(failure.to_string().contains("txg 5"), "{failure}");
        assert!(groups.wait_synced(5).is_err());
    }
}
