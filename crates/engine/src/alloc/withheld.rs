//! Free space that nobody may allocate for a while: it is being written (`zpool initialize`), or given back to a device (`zpool trim`).
//!
//! # Theory
//! What is to be done with free space takes time, and nobody may have been given the space meanwhile. So it is taken out of what can be allocated,
//! a window at a time, and given back when it is done. Several may hold the same space, for different devices. An allocation that finds no room because of this
//! waits until all is given back; nobody takes more meanwhile. If all was given back while it searched, it searches once more.
//!
//! # Invariants
//! 1. What is held is free on disk, and was when the last group was synced: freed space comes there after its groups.
//! 2. A holder waits for devices only.
//!
//! # Locks
//! `Withholding::state`, and nothing inside it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use super::allocator::Allocator;
use super::group::Group;
use super::metaslab::Metaslab;
use super::range_tree::RangeTree;
use crate::bail;
use crate::error::Result;

/// A metaslab may be forgotten as soon as it was read, but not that often.
const LOADS_MAX: usize = 8;

#[derive(Debug, Default)]
struct State {
    /// Windows that are held.
    held: usize,
    /// Allocations that wait for all of them.
    starving: usize,
}

/// How many windows are held, and how many allocations wait for that.
#[derive(Debug, Default)]
pub(super) struct Withholding {
    state: Mutex<State>,
    changed: Condvar,
    next: AtomicU64,
    /// Windows that are not held any more. Stored under the lock.
    ended: AtomicU64,
}

impl Withholding {
    fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        while state.starving > 0 {
            self.changed.wait(&mut state);
        }
        state.held += 1;
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.held -= 1;
        self.ended.fetch_add(1, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    /// How many windows have been given back.
    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// How many allocations wait.
    pub(super) fn starving(&self) -> usize {
        self.state.lock().starving
    }

    /// Does something when nothing is held; `None`: nothing was since the count `before` of [`Withholding::ended`].
    pub(super) fn without<T>(&self, before: u64, act: impl FnOnce() -> T) -> Option<T> {
        let mut state = self.state.lock();
        if state.held == 0 && self.ended() == before {
            return None;
        }
        state.starving += 1;
        while state.held > 0 {
            self.changed.wait(&mut state);
        }
        drop(state);
        let done = act();
        self.state.lock().starving -= 1;
        self.changed.notify_all();
        Some(done)
    }
}

/// Free space of one metaslab that nobody may allocate while this lives.
pub struct Withheld {
    allocator: Arc<Allocator>,
    group: Arc<Group>,
    metaslab: Arc<Metaslab>,
    id: u64,
    was_loaded: bool,
    ranges: RangeTree,
}

impl Withheld {
    /// What is held.
    pub fn ranges(&self) -> &RangeTree {
        &self.ranges
    }

    /// An allocation waits until all that is held is given back.
    pub fn is_waited_for(&self) -> bool {
        self.allocator.withholding.starving() > 0
    }

    /// No device was told of it, though it came free lately: [`Allocator::withhold_lately_freed`] takes it again.
    pub fn note_untold(&self) {
        self.metaslab.note_untold(&self.ranges);
    }
}

impl Drop for Withheld {
    fn drop(&mut self) {
        if let Err(error) = self.metaslab.give_back(self.id) {
            tracing::error!("free space is lost until the next import: {error}");
        }
        if !self.was_loaded {
            self.metaslab.unload();
        }
        self.group.forget_refusals();
        self.allocator.withholding.end();
    }
}

impl Allocator {
    /// Takes what is free in a window of a vdev, which lies in one metaslab, out of what can be allocated.
    ///
    /// # Errors
    /// There is no such place, or its space map cannot be read.
    pub fn withhold(self: &Arc<Self>, vdev: u32, window: Range<u64>) -> Result<Withheld> {
        let metaslab = self.metaslab(vdev, window.start)?;
        self.withhold_of(vdev, &metaslab, window, false)
    }

    /// Takes what has come free lately in a metaslab out of what can be allocated; `None`: there is nothing.
    ///
    /// # Errors
    /// As for [`Allocator::withhold`].
    pub fn withhold_lately_freed(self: &Arc<Self>, vdev: u32, metaslab: &Arc<Metaslab>) -> Result<Option<Withheld>> {
        if !metaslab.has_lately_freed() {
            return Ok(None);
        }
        self.withhold_of(vdev, metaslab, metaslab.start..metaslab.start + metaslab.size, true).map(Some)
    }

    fn withhold_of(self: &Arc<Self>, vdev: u32, metaslab: &Arc<Metaslab>, window: Range<u64>, lately: bool) -> Result<Withheld> {
        let group = self.group(vdev)?;
        let id = self.withholding.begin();
        let was_loaded = metaslab.is_loaded();
        let mut held = Withheld { allocator: self.clone(), group, metaslab: metaslab.clone(), id, was_loaded, ranges: RangeTree::new() };
        for _ in 0..LOADS_MAX {
            metaslab.load(self.loader()?)?;
            if let Some(ranges) = metaslab.withhold(id, window.clone(), lately)? {
                held.ranges = ranges;
                return Ok(held);
            }
        }
        bail!(Busy, "{metaslab} does not stay in memory")
    }

    /// What comes free from now on is noted for [`Allocator::withhold_lately_freed`], or no longer.
    pub fn note_frees(&self, wanted: bool) {
        self.groups().iter().flat_map(|group| group.metaslabs()).for_each(|metaslab| metaslab.note_frees(wanted));
    }
}
