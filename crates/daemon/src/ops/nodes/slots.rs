//! Snapshots that are open because a program entered them through `.zfs/snapshot`.
//!
//! # Invariants
//! 1. A slot is given to another snapshot only when the kernel has forgotten all nodes of the first one.
//! 2. A slot counts the nodes that the kernel knows in it; at zero it may be closed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuse::{Errno, Result, Timestamp};
use parking_lot::Mutex;
use tarnfs::FileSystem;
use tarnfs::control::Caller;

use crate::ops::nodes::node::SLOT_MAX;

/// Tidyings after which an unused snapshot is closed.
const IDLE_TIDYINGS: u32 = 30;

/// What `.zfs/snapshot` shows of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// The part after the `@`.
    pub name: String,
    /// Its object number in the pool: an inode number that stays the same.
    pub id: u64,
}

/// The source of snapshots.
pub trait Snapshots: Send + Sync {
    /// All snapshots of the dataset.
    fn list(&self) -> Result<Vec<SnapshotInfo>>;
    /// When one was made, renamed or destroyed last.
    fn changed(&self) -> Result<Timestamp>;
    /// Opens one, read-only.
    fn open(&self, name: &str) -> Result<Arc<FileSystem>>;
    /// Takes one.
    fn make(&self, caller: &Caller, name: &str) -> Result<()>;
    /// Gives one another name.
    fn rename(&self, caller: &Caller, from: &str, to: &str) -> Result<()>;
    /// May this caller destroy one?
    fn check_destroy(&self, caller: &Caller, name: &str) -> Result<()>;
    /// Destroys one that nobody has open.
    fn destroy(&self, caller: &Caller, name: &str) -> Result<()>;
}

struct Open {
    name: String,
    /// `None`: closed while in use.
    filesystem: Option<Arc<FileSystem>>,
    /// Nodes that the kernel knows, counted as often as it was told of them.
    known: AtomicU64,
    idle: u32,
}

pub(in crate::ops) struct Slots {
    source: Option<Box<dyn Snapshots>>,
    open: Mutex<BTreeMap<u16, Open>>,
    /// guards: the listing that was begun last, by ascending id, so that going on with it does not read everything again
    listing: Mutex<Arc<Vec<SnapshotInfo>>>,
}

impl Slots {
    pub(in crate::ops) fn new(source: Option<Box<dyn Snapshots>>) -> Slots {
        Slots { source, open: Mutex::default(), listing: Mutex::default() }
    }

    /// Are there snapshots to be shown?
    pub(in crate::ops) fn exist(&self) -> bool {
        self.source.is_some()
    }

    pub(in crate::ops) fn source(&self) -> Result<&dyn Snapshots> {
        self.source.as_deref().ok_or(Errno::ENOENT)
    }

    /// The snapshots by ascending id; anew, or as the last listing that was begun had them.
    pub(in crate::ops) fn listing(&self, anew: bool) -> Result<Arc<Vec<SnapshotInfo>>> {
        if !anew {
            return Ok(Arc::clone(&self.listing.lock()));
        }
        let mut list = self.source()?.list()?;
        list.sort_by_key(|snapshot| snapshot.id);
        let list = Arc::new(list);
        *self.listing.lock() = Arc::clone(&list);
        Ok(list)
    }

    /// A snapshot has another name; a program that is in it stays there.
    pub(in crate::ops) fn renamed(&self, from: &str, to: &str) {
        for open in self.open.lock().values_mut().filter(|open| open.name == from) {
            to.clone_into(&mut open.name);
        }
    }

    /// Closes a snapshot to destroy it. What it is given back with if that fails.
    pub(in crate::ops) fn take(&self, name: &str) -> Option<(u16, Arc<FileSystem>)> {
        let mut slots = self.open.lock();
        let (slot, open) = slots.iter_mut().find(|(_, open)| open.name == name && open.filesystem.is_some())?;
        let (slot, filesystem) = (*slot, open.filesystem.take()?);
        if open.known.load(Ordering::Relaxed) == 0 {
            slots.remove(&slot);
        }
        Some((slot, filesystem))
    }

    /// The snapshot was not destroyed after all.
    pub(in crate::ops) fn give_back(&self, slot: u16, filesystem: Arc<FileSystem>) {
        if let Some(open) = self.open.lock().get_mut(&slot) {
            open.filesystem = Some(filesystem);
        }
    }

    /// The file system in a slot.
    pub(in crate::ops) fn get(&self, slot: u16) -> Result<Arc<FileSystem>> {
        self.open.lock().get(&slot).and_then(|open| open.filesystem.clone()).ok_or(Errno::ESTALE)
    }

    /// The slot of a snapshot, which is opened if need be.
    pub(in crate::ops) fn enter(&self, name: &str) -> Result<(u16, Arc<FileSystem>)> {
        let mut slots = self.open.lock();
        let found = slots.iter_mut().find(|(_, open)| open.name == name && open.filesystem.is_some());
        if let Some((slot, open)) = found
            && let Some(filesystem) = &open.filesystem
        {
            open.idle = 0;
            return Ok((*slot, Arc::clone(filesystem)));
        }
        let slot = (1..=SLOT_MAX).find(|slot| !slots.contains_key(slot)).ok_or(Errno::ENFILE)?;
        let filesystem = self.source()?.open(name)?;
        slots.insert(slot, Open { name: name.to_owned(), filesystem: Some(Arc::clone(&filesystem)), known: AtomicU64::new(0), idle: 0 });
        Ok((slot, filesystem))
    }

    /// Notes that the kernel was told of a node.
    pub(in crate::ops) fn known(&self, slot: u16) {
        if let Some(open) = self.open.lock().get_mut(&slot) {
            open.known.fetch_add(1, Ordering::Relaxed);
            open.idle = 0;
        }
    }

    /// Notes that the kernel forgot a node `count` times.
    pub(in crate::ops) fn forgotten(&self, slot: u16, count: u64) {
        let mut slots = self.open.lock();
        if let Some(open) = slots.get(&slot) {
            let left = open.known.load(Ordering::Relaxed).saturating_sub(count);
            open.known.store(left, Ordering::Relaxed);
            if left == 0 && open.filesystem.is_none() {
                slots.remove(&slot);
            }
        }
    }

    /// Closes a snapshot even if it is in use.
    pub(in crate::ops) fn close(&self, name: &str) {
        self.open.lock().retain(|_, open| {
            if open.name == name {
                open.filesystem = None;
            }
            open.filesystem.is_some() || open.known.load(Ordering::Relaxed) > 0
        });
    }

    pub(in crate::ops) fn close_idle(&self) {
        let closed: Vec<Open> = {
            let mut slots = self.open.lock();
            let idle: Vec<u16> = slots
                .iter_mut()
                .filter_map(|(slot, open)| {
                    open.idle = if open.known.load(Ordering::Relaxed) == 0 { open.idle + 1 } else { 0 };
                    (open.idle > IDLE_TIDYINGS).then_some(*slot)
                })
                .collect();
            idle.into_iter().filter_map(|slot| slots.remove(&slot)).collect()
        };
        // Closing may take long: not under the lock.
        drop(closed);
    }

    pub(in crate::ops) fn close_all(&self) {
        let closed = std::mem::take(&mut *self.open.lock());
        drop(closed);
    }
}
