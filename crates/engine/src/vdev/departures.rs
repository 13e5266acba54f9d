//! Devices that the tree has no more, until nothing on them says otherwise.
//!
//! # Theory
//! A device that is taken out still has the pool's labels, and they may only be changed when the group is on disk that took it out. A device that leaves is often one that
//! hangs, so no group waits for that: it is done beside, and a verb that wants to have the device waits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ondisk::nvlist::NvList;
use parking_lot::{Condvar, Mutex};

use super::{Leaf, TopVdev};

/// A device that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(10);

/// A device that is no part of the tree any more.
pub struct Departing {
    /// The device.
    pub leaf: Arc<Leaf>,
    /// log2 of the sector of the vdev that had it.
    pub ashift: u32,
    /// What its labels say from then on; nothing if there is none.
    pub label: Option<NvList>,
    /// What it was a part of, if that is gone as a whole: a reader that still has it may be reading from the device.
    pub top: Option<Weak<TopVdev>>,
}

#[derive(Default)]
struct State {
    /// Those that the group which is being written takes out.
    of_group: Vec<Departing>,
    /// Whose group is on disk.
    free: Vec<Departing>,
    /// So many have been taken from `free`, and are not done.
    under_way: usize,
}

/// See the module.
#[derive(Default)]
pub struct Departures {
    /// guarded by: itself
    state: Mutex<State>,
    done: Condvar,
}

impl Departures {
    /// A device is no part of the tree any more, from the group on that is being written.
    pub fn note(&self, departing: Departing) {
        self.state.lock().of_group.push(departing);
    }

    /// The group is on disk. Whether it has taken devices out.
    pub fn group_done(&self) -> bool {
        let mut state = self.state.lock();
        let State { of_group, free, .. } = &mut *state;
        free.append(of_group);
        !free.is_empty()
    }

    /// Does this with each device whose group is on disk.
    pub fn release(&self, mut release: impl FnMut(Departing)) {
        let free = {
            let mut state = self.state.lock();
            state.under_way += 1;
            std::mem::take(&mut state.free)
        };
        free.into_iter().for_each(&mut release);
        self.state.lock().under_way -= 1;
        self.done.notify_all();
    }

    /// Waits until no device has the pool's labels that the pool has no more, but for devices of groups that are not on disk; not for ever.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        while state.under_way > 0 || !state.free.is_empty() {
            if self.done.wait_for(&mut state, LIMIT).timed_out() {
                return;
            }
        }
    }
}
