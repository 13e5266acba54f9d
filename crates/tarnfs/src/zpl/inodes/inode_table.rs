//! Which files somebody refers to, and what is kept in memory of each.
//!
//! # Theory
//! A kernel remembers files by the hundred thousand, and lets us know when it forgets one. Of each we must know how often the kernel was
//! told of it; all else is in the pool. So a file is in the table as a whole [`Inode`], or as a mere number, from which the inode is
//! made again when somebody uses it. All changes of an inode are in its object at once, so nothing is lost with it but these: how often it
//! was changed, which transactions of programs compare, and whether the kernel owes times. They stay with the number.
//!
//! Whole ones count towards the cache ([`engine::arc::Held`]). When all objects together have more than their part of it, each that comes
//! makes some go that were not used lately: a hand sweeps over them as over a clock.
//!
//! # Invariants
//! 1. A file without links that somebody refers to is whole: so a mere number has links.
//! 2. An inode of which a call has a reference is whole, and the only one of its file.
//! 3. What was loaded is put into the table only if no inode left the shard meanwhile: else it might be older than what that one changed.
//! 4. A file is freed by one only, who took the last reference. Until that is done nobody else is given its inode: a thread that had it
//!    made again would free it too, and perhaps the next file of that number.
//!
//! # Locks
//! One for each shard; a leaf, but for the attributes of an inode that nobody else has.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use engine::arc::{BlockCache, Held};
use ondisk::sa::Attribute;
use parking_lot::Mutex;

use super::file_set::FileSet;
use super::inode::Inode;
use crate::zpl::InodeNumber;

const SHARDS: usize = 32;
/// So many whole ones stay in each shard, however crowded it is. (In tests of this crate none: all that can be made again is.)
const WHOLE_MIN: usize = if cfg!(test) { 0 } else { 16 };
/// How many the hand looks at when one comes.
const SWEEP: usize = 8;
/// Bytes of a file in the table.
const ENTRY_BYTES: usize = size_of::<(InodeNumber, Known)>() + 1;

/// What is kept of a file.
#[derive(Debug)]
enum Known {
    Whole(Arc<Inode>),
    Number { references: u32, times_owed: bool, changed_at: u64 },
}

#[derive(Debug)]
struct Shard {
    known: HashMap<InodeNumber, Known>,
    /// Whole ones in the order in which the hand comes to them, by number and ticket; some are gone.
    order: VecDeque<(InodeNumber, u64)>,
    tickets: u64,
    whole: usize,
    /// Those without links whose last reference went, by number and ticket.
    leaving: HashMap<InodeNumber, u64>,
    /// How many inodes left.
    departures: u64,
    /// When one of those that left was changed last: one that comes (back) may have been.
    gone_at: u64,
    /// What `known` weighs.
    held: Held,
}

/// What the table has of a file.
pub(in crate::zpl) enum Found {
    /// All. The reference is counted.
    Whole(Arc<Inode>),
    /// Its number; or nothing (`is_known`). It has to be loaded, and inserted with this number of departures.
    ToLoad { is_known: bool, departures: u64 },
    /// It was removed, and is being freed.
    Leaving,
}

/// All files that somebody refers to.
#[derive(Debug)]
pub(in crate::zpl) struct InodeTable {
    shards: [Mutex<Shard>; SHARDS],
    /// Which shard gives up inodes next.
    hand: AtomicUsize,
    set: Arc<FileSet>,
}

impl Shard {
    /// Puts an inode into the table as a whole.
    fn put(&mut self, mut inode: Inode, changed_at: u64) -> Arc<Inode> {
        inode.changed_at = changed_at.into();
        let references = match self.known.get(&inode.object) {
            Some(Known::Number { references, times_owed, changed_at }) => {
                inode.changed_at = (*changed_at).into();
                inode.times_owed = (*times_owed).into();
                u64::from(*references)
            }
            Some(Known::Whole(_)) | None => 0,
        };
        self.tickets += 1;
        inode.references = (references + 1).into();
        inode.ticket = self.tickets;
        let inode = Arc::new(inode);
        // The thread that frees the file that had the number before may not have come back.
        self.leaving.remove(&inode.object);
        self.known.insert(inode.object, Known::Whole(inode.clone()));
        self.order.push_back((inode.object, inode.ticket));
        self.whole += 1;
        if self.order.len() > 2 * self.whole + 64 {
            let known = &self.known;
            self.order.retain(|(object, ticket)| matches!(known.get(object), Some(Known::Whole(inode)) if inode.ticket == *ticket));
        }
        self.weigh();
        inode
    }

    fn weigh(&mut self) {
        // As the table is made: a power of two, filled to seven eighths.
        self.held.resize(((self.known.capacity() * 8 / 7).next_power_of_two() * ENTRY_BYTES) as u64);
    }

    fn remove(&mut self, object: InodeNumber) -> Option<Known> {
        let known = self.known.remove(&object);
        match &known {
            Some(Known::Whole(inode)) => {
                self.gone_at = self.gone_at.max(inode.changed_at.load(Ordering::Acquire));
                self.departures += 1;
                self.whole -= 1;
            }
            Some(Known::Number { changed_at, .. }) => self.gone_at = self.gone_at.max(*changed_at),
            None => {}
        }
        if self.known.len() * 8 < self.known.capacity() && self.known.capacity() > 1024 {
            self.known.shrink_to(self.known.len() * 2);
            self.weigh();
        }
        known
    }

    /// Lets go of whole inodes that were not used lately, and that can be made again. They are to be dropped without the lock.
    fn sweep(&mut self, cache: &BlockCache) -> Vec<Arc<Inode>> {
        let mut gone = Vec::new();
        for _ in 0..SWEEP {
            if self.whole < WHOLE_MIN + 1 || !cache.is_crowded() {
                break;
            }
            let Some((object, ticket)) = self.order.pop_front() else { break };
            let Some(Known::Whole(inode)) = self.known.get(&object) else { continue };
            if inode.ticket != ticket {
                continue;
            }
            let Some(number) = as_number(inode).filter(|_| !inode.used.swap(false, Ordering::Relaxed)) else {
                self.order.push_back((object, ticket));
                continue;
            };
            if let Some(Known::Whole(inode)) = self.known.insert(object, number) {
                self.whole -= 1;
                self.departures += 1;
                gone.push(inode);
            }
        }
        gone
    }
}

/// What has to stay of an inode; `None`: all of it (invariants 1 and 2).
fn as_number(inode: &Arc<Inode>) -> Option<Known> {
    if Arc::strong_count(inode) > 1 {
        return None;
    }
    // The last holder has given back its reference before.
    fence(Ordering::Acquire);
    let references = u32::try_from(inode.references.load(Ordering::Acquire)).ok()?;
    let links = inode.attributes.try_read()?.word(Attribute::Links)?;
    let number = Known::Number { references, times_owed: inode.times_owed.load(Ordering::Acquire), changed_at: inode.changed_at.load(Ordering::Acquire) };
    (links > 0).then_some(number)
}

impl InodeTable {
    pub(in crate::zpl) fn new(set: Arc<FileSet>) -> Self {
        let cache = &set.objset().context().cache;
        let shard = || Shard { known: HashMap::new(), order: VecDeque::new(), tickets: 0, whole: 0, leaving: HashMap::new(), departures: 0, gone_at: 0, held: cache.hold(0) };
        InodeTable { shards: std::array::from_fn(|_| Mutex::new(shard())), hand: AtomicUsize::new(0), set }
    }

    fn shard(&self, object: InodeNumber) -> &Mutex<Shard> {
        &self.shards[(object % SHARDS as u64) as usize]
    }

    /// What is there of a file.
    pub(in crate::zpl) fn find(&self, object: InodeNumber) -> Found {
        let shard = self.shard(object).lock();
        match shard.known.get(&object) {
            Some(Known::Whole(inode)) => {
                inode.references.fetch_add(1, Ordering::AcqRel);
                if !inode.used.load(Ordering::Relaxed) {
                    inode.used.store(true, Ordering::Relaxed);
                }
                Found::Whole(inode.clone())
            }
            Some(Known::Number { .. }) => Found::ToLoad { is_known: true, departures: shard.departures },
            None if shard.leaving.contains_key(&object) => Found::Leaving,
            None => Found::ToLoad { is_known: false, departures: shard.departures },
        }
    }

    /// Puts a new file's inode into the table, unless somebody found the file by its entry and was faster.
    pub(super) fn insert_new(&self, inode: Inode) -> Arc<Inode> {
        let mut shard = self.shard(inode.object).lock();
        match shard.known.get(&inode.object) {
            Some(Known::Whole(known)) if Arc::ptr_eq(&known.contents.dnode, &inode.contents.dnode) => {
                known.references.fetch_add(1, Ordering::AcqRel);
                known.clone()
            }
            _ => shard.put(inode, self.set.last_change()),
        }
    }

    /// Puts an inode that was loaded into the table, unless another thread was faster. `None`: it has to be loaded again.
    pub(in crate::zpl) fn insert_loaded(&self, inode: Inode, departures: u64) -> Option<Arc<Inode>> {
        let mut shard = self.shard(inode.object).lock();
        if let Some(Known::Whole(inode)) = shard.known.get(&inode.object) {
            inode.references.fetch_add(1, Ordering::AcqRel);
            return Some(inode.clone());
        }
        let changed_at = shard.gone_at;
        (shard.departures == departures).then(|| shard.put(inode, changed_at))
    }

    /// One more of the kernel's references to an inode that the caller has.
    pub(super) fn refer(inode: &Inode) {
        inode.references.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes back a reference without a lock, unless it is the last one.
    pub(super) fn release_one_of_several(inode: &Inode) -> bool {
        inode.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, |references| (references > 1).then(|| references - 1)).is_ok()
    }

    /// After one came: others may have to go, if all are too many. They go from one shard after the other.
    pub(super) fn sweep(&self) -> Vec<Arc<Inode>> {
        let cache = &self.set.objset().context().cache;
        if !cache.is_crowded() {
            return Vec::new();
        }
        let hand = self.hand.fetch_add(1, Ordering::Relaxed);
        self.shards[hand % SHARDS].lock().sweep(cache)
    }

    /// Takes back `count` references; returns the inode if it was the last, and the file may have to be freed, by the caller, who says so
    /// when that is done ([`InodeTable::left`]).
    pub(in crate::zpl) fn release(&self, object: InodeNumber, count: u64) -> Option<Arc<Inode>> {
        let mut shard = self.shard(object).lock();
        let left = match shard.known.get_mut(&object)? {
            Known::Whole(inode) => {
                let less = |references: u64| Some(references.saturating_sub(count));
                inode.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).map_or(0, |before| before.saturating_sub(count))
            }
            Known::Number { references, .. } => {
                *references = u64::from(*references).saturating_sub(count) as u32;
                u64::from(*references)
            }
        };
        if left > 0 {
            return None;
        }
        match shard.remove(object)? {
            Known::Whole(inode) => {
                let links = inode.attributes.try_read().and_then(|attributes| attributes.word(Attribute::Links));
                if links.is_none_or(|links| links == 0) {
                    shard.leaving.insert(object, inode.ticket);
                }
                Some(inode)
            }
            Known::Number { .. } => None,
        }
    }

    /// What [`InodeTable::release`] returned is freed, or stays.
    pub(in crate::zpl) fn left(&self, inode: &Inode) {
        let mut shard = self.shard(inode.object).lock();
        if shard.leaving.get(&inode.object) == Some(&inode.ticket) {
            shard.leaving.remove(&inode.object);
        }
    }

    /// Does somebody refer to it?
    pub(in crate::zpl) fn contains(&self, object: InodeNumber) -> bool {
        self.shard(object).lock().known.contains_key(&object)
    }

    /// All files, with how often somebody refers to each.
    pub(super) fn references(&self) -> Vec<(InodeNumber, u64)> {
        let count = |known: &Known| match known {
            Known::Whole(inode) => inode.references.load(Ordering::Acquire),
            Known::Number { references, .. } => u64::from(*references),
        };
        let of_shard = |shard: &Mutex<Shard>| shard.lock().known.iter().map(|(object, known)| (*object, count(known))).collect::<Vec<_>>();
        self.shards.iter().flat_map(of_shard).collect()
    }

    /// Numbers of all files.
    pub(in crate::zpl) fn all(&self) -> Vec<InodeNumber> {
        self.shards.iter().flat_map(|shard| shard.lock().known.keys().copied().collect::<Vec<_>>()).collect()
    }

    /// Those that are whole.
    pub(in crate::zpl) fn whole(&self) -> Vec<Arc<Inode>> {
        let whole = |known: &Known| if let Known::Whole(inode) = known { Some(inode.clone()) } else { None };
        self.shards.iter().flat_map(|shard| shard.lock().known.values().filter_map(whole).collect::<Vec<_>>()).collect()
    }

    #[cfg(test)]
    pub(in crate::zpl) fn is_whole(&self, object: InodeNumber) -> bool {
        matches!(self.shard(object).lock().known.get(&object), Some(Known::Whole(_)))
    }

    /// How many files there are, and how many of them whole.
    #[cfg(test)]
    pub(in crate::zpl) fn counts(&self) -> (usize, usize) {
        let counts = self.shards.iter().map(|shard| shard.lock()).map(|shard| (shard.known.len(), shard.whole));
        counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}
