//! Snapshots that are open because a program entered them through `.zfs/snapshot`.
//!
//! # Theory
//! To open a snapshot takes reads of disks, which may hang: meanwhile its slot is kept for it, and nothing is locked. Only callers that want the same snapshot
//! wait. If it is renamed or closed meanwhile, what was opened does not count, and it is looked up again.
//!
//! A snapshot may get another name without this being told, where the pool stops meanwhile. So one that is open counts for a name only if the pool has
//! it under that name, by its guid. If another one has the name, the slot is closed.
//!
//! A handle of a file (of an NFS client, or for `open_by_handle_at`) outlives what the kernel knows of the file, and names the slot. So the generation of a file in a slot
//! has the snapshot in it, by its guid: the slot may be another one's by then.
//!
//! # Invariants
//! 1. A slot is given to another snapshot only when the kernel has forgotten all nodes of the first one.
//! 2. A slot counts the nodes that the kernel knows in it; at zero it may be closed. A caller that enters it is counted before it has the file system.
//!
//! # Locks
//! `open` is held for moments only, never while a file system is opened or closed.

use std::collections::BTreeMap;
use std::sync::Arc;

use fuse::{Errno, Result, Timestamp};
use parking_lot::{Condvar, Mutex};
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

/// A snapshot that was opened.
#[derive(Debug, Clone)]
pub struct OpenSnapshot {
    /// Read-only.
    pub filesystem: Arc<FileSystem>,
    /// Tells it from all others that are or were there.
    pub guid: u64,
}

/// The source of snapshots.
pub trait Snapshots: Send + Sync {
    /// All snapshots of the dataset.
    fn list(&self) -> Result<Vec<SnapshotInfo>>;
    /// When one was made, renamed or destroyed last.
    fn changed(&self) -> Result<Timestamp>;
    /// Opens one, read-only.
    fn open(&self, name: &str) -> Result<OpenSnapshot>;
    /// What tells the one that has this name from all others that are or were there.
    fn guid(&self, name: &str) -> Result<u64>;
    /// Takes one.
    fn make(&self, caller: &Caller, name: &str) -> Result<()>;
    /// Gives one another name.
    fn rename(&self, caller: &Caller, from: &str, to: &str) -> Result<()>;
    /// May this caller destroy one?
    fn check_destroy(&self, caller: &Caller, name: &str) -> Result<()>;
    /// Destroys one that nobody has open.
    fn destroy(&self, caller: &Caller, name: &str) -> Result<()>;
}

/// What is in a slot.
enum Content {
    /// A snapshot that is being opened. `in_vain`: it was renamed or closed meanwhile.
    Opening { in_vain: bool },
    /// One that is open.
    Open(OpenSnapshot),
    /// One that was closed while the kernel knew nodes of it.
    Closed { guid: u64 },
}

struct Slot {
    name: String,
    content: Content,
    /// Nodes that the kernel knows, counted as often as it was told of them.
    known: u64,
    idle: u32,
}

impl Slot {
    fn is_opening(&self) -> bool {
        matches!(self.content, Content::Opening { .. })
    }

    fn snapshot(&self) -> Option<&OpenSnapshot> {
        match &self.content {
            Content::Open(snapshot) => Some(snapshot),
            Content::Opening { .. } | Content::Closed { .. } => None,
        }
    }

    /// Takes the snapshot out of it, if it is open.
    fn take(&mut self) -> Option<OpenSnapshot> {
        let snapshot = self.snapshot()?.clone();
        self.content = Content::Closed { guid: snapshot.guid };
        Some(snapshot)
    }

    /// Nobody has to do with it.
    fn is_free(&self) -> bool {
        matches!(self.content, Content::Closed { .. }) && self.known == 0
    }
}

/// What a caller finds that wants a snapshot.
enum Place {
    Open(u16, OpenSnapshot),
    /// It is this caller's to open it.
    Kept(u16),
}

pub(in crate::ops) struct Slots {
    source: Option<Box<dyn Snapshots>>,
    open: Mutex<BTreeMap<u16, Slot>>,
    /// Some snapshot is not being opened any more.
    opened: Condvar,
    /// guards: the listing that was begun last, by ascending id, so that going on with it does not read everything again
    listing: Mutex<Arc<Vec<SnapshotInfo>>>,
}

/// A slot that is kept for a snapshot; free again when this goes, unless the snapshot is in it by then.
struct Kept<'a> {
    slots: &'a Slots,
    slot: u16,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let mut slots = self.slots.open.lock();
        if slots.get(&self.slot).is_some_and(Slot::is_opening) {
            slots.remove(&self.slot);
        }
        drop(slots);
        self.slots.opened.notify_all();
    }
}

impl Slots {
    pub(in crate::ops) fn new(source: Option<Box<dyn Snapshots>>) -> Slots {
        Slots { source, open: Mutex::default(), opened: Condvar::new(), listing: Mutex::default() }
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
        for slot in self.open.lock().values_mut().filter(|slot| slot.name == from) {
            match &mut slot.content {
                Content::Opening { in_vain } => *in_vain = true,
                Content::Open(_) | Content::Closed { .. } => to.clone_into(&mut slot.name),
            }
        }
    }

    /// Closes a snapshot to destroy it. What it is given back with if that fails.
    pub(in crate::ops) fn take(&self, name: &str) -> Option<(u16, OpenSnapshot)> {
        let mut slots = self.open.lock();
        while slots.values().any(|slot| slot.name == name && slot.is_opening()) {
            self.opened.wait(&mut slots);
        }
        let (at, slot) = slots.iter_mut().find(|(_, slot)| slot.name == name && slot.snapshot().is_some())?;
        let (at, snapshot) = (*at, slot.take()?);
        if slot.is_free() {
            slots.remove(&at);
        }
        Some((at, snapshot))
    }

    /// The snapshot was not destroyed after all.
    pub(in crate::ops) fn give_back(&self, at: u16, snapshot: OpenSnapshot) {
        let mut slots = self.open.lock();
        // If nobody was in it, the slot may be another one's by now.
        if let Some(slot) = slots.get_mut(&at).filter(|slot| matches!(slot.content, Content::Closed { guid } if guid == snapshot.guid)) {
            slot.content = Content::Open(snapshot);
        }
    }

    /// The file system in a slot.
    pub(in crate::ops) fn get(&self, at: u16) -> Result<Arc<FileSystem>> {
        self.open.lock().get(&at).and_then(Slot::snapshot).map(|snapshot| Arc::clone(&snapshot.filesystem)).ok_or(Errno::ESTALE)
    }

    /// The slot of a snapshot, which is opened if need be. The caller counts as a node that the kernel knows.
    pub(in crate::ops) fn enter(&self, name: &str) -> Result<(u16, Arc<FileSystem>)> {
        loop {
            let at = match self.find_or_keep(name)? {
                Place::Open(at, snapshot) => match self.has_name(at, &snapshot, name)? {
                    true => return Ok((at, snapshot.filesystem)),
                    false => continue,
                },
                Place::Kept(at) => at,
            };
            let _kept = Kept { slots: self, slot: at };
            let snapshot = self.source()?.open(name)?;
            let mut slots = self.open.lock();
            let Some(slot) = slots.get_mut(&at) else { return Err(Errno::ESTALE) };
            if matches!(slot.content, Content::Opening { in_vain: false }) {
                let filesystem = Arc::clone(&snapshot.filesystem);
                *slot = Slot { name: name.to_owned(), content: Content::Open(snapshot), known: 1, idle: 0 };
                return Ok((at, filesystem));
            }
            // Closing may take long: not under the lock.
            drop(slots);
        }
    }

    /// Has the snapshot in a slot, in which the caller counts as a node, this name? If not, the caller does not count; and if another one has the name, the
    /// slot is closed.
    fn has_name(&self, at: u16, snapshot: &OpenSnapshot, name: &str) -> Result<bool> {
        let named = self.source().and_then(|source| source.guid(name));
        if named == Ok(snapshot.guid) {
            return Ok(true);
        }
        let closed = named.is_ok().then(|| {
            let mut slots = self.open.lock();
            let slot = slots.get_mut(&at).filter(|slot| slot.snapshot().is_some_and(|open| open.guid == snapshot.guid));
            slot.and_then(Slot::take)
        });
        // Closing may take long: not under the lock.
        drop(closed);
        self.forgotten(at, 1);
        named.map(|_| false)
    }

    fn find_or_keep(&self, name: &str) -> Result<Place> {
        let mut slots = self.open.lock();
        while slots.values().any(|slot| slot.name == name && slot.is_opening()) {
            self.opened.wait(&mut slots);
        }
        for (at, slot) in slots.iter_mut().filter(|(_, slot)| slot.name == name) {
            if let Content::Open(snapshot) = &slot.content {
                (slot.known, slot.idle) = (slot.known + 1, 0);
                return Ok(Place::Open(*at, snapshot.clone()));
            }
        }
        let at = (1..=SLOT_MAX).find(|at| !slots.contains_key(at)).ok_or(Errno::ENFILE)?;
        slots.insert(at, Slot { name: name.to_owned(), content: Content::Opening { in_vain: false }, known: 0, idle: 0 });
        Ok(Place::Kept(at))
    }

    /// Notes that the kernel is about to be told of a node of this file system.
    ///
    /// # Errors
    /// The slot is another one's by now: the kernel is not to be told.
    pub(in crate::ops) fn known(&self, at: u16, filesystem: &FileSystem) -> Result<()> {
        let mut slots = self.open.lock();
        let slot = slots.get_mut(&at).filter(|slot| slot.snapshot().is_some_and(|open| std::ptr::eq(Arc::as_ptr(&open.filesystem), filesystem)));
        let slot = slot.ok_or(Errno::ESTALE)?;
        (slot.known, slot.idle) = (slot.known + 1, 0);
        Ok(())
    }

    /// Notes that the kernel forgot a node `count` times.
    pub(in crate::ops) fn forgotten(&self, at: u16, count: u64) {
        let mut slots = self.open.lock();
        if let Some(slot) = slots.get_mut(&at) {
            slot.known = slot.known.saturating_sub(count);
            if slot.is_free() {
                slots.remove(&at);
            }
        }
    }

    /// What is to be mixed into the generations of the files in a slot. The kernel keeps 32 bits of them.
    pub(in crate::ops) fn salt(&self, at: u16) -> u64 {
        let guid = self.open.lock().get(&at).map_or(0, |slot| match &slot.content {
            Content::Opening { .. } => 0,
            Content::Open(OpenSnapshot { guid, .. }) | Content::Closed { guid } => *guid,
        });
        (guid ^ guid >> 32) & u64::from(u32::MAX)
    }

    /// Closes a snapshot even if it is in use.
    pub(in crate::ops) fn close(&self, name: &str) {
        let mut closed = Vec::new();
        self.open.lock().retain(|_, slot| {
            if slot.name == name {
                if let Content::Opening { in_vain } = &mut slot.content {
                    *in_vain = true;
                }
                closed.extend(slot.take());
            }
            !slot.is_free()
        });
        // Closing may take long: not under the lock.
        drop(closed);
    }

    pub(in crate::ops) fn close_idle(&self) {
        let mut closed = Vec::new();
        self.open.lock().retain(|_, slot| {
            slot.idle = if slot.known == 0 && !slot.is_opening() { slot.idle + 1 } else { 0 };
            let is_kept = slot.idle <= IDLE_TIDYINGS;
            if !is_kept {
                closed.extend(slot.take());
            }
            is_kept
        });
        drop(closed);
    }

    pub(in crate::ops) fn close_all(&self) {
        let mut slots = self.open.lock();
        let (opening, closed): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut *slots).into_iter().partition(|(_, slot)| slot.is_opening());
        *slots = opening;
        drop(slots);
        drop(closed);
    }
}
