//! Directories: the tree of names, and the sums of space along it.
//!
//! # Theory
//! A directory is one node of the tree of names. It holds what belongs to a file system or volume as a whole, not to one version
//! of it: properties, quota, reservation, children; and the space of everything below it, by what uses it.
//!
//! # On disk
//! [`ondisk::dsl::DirPhys`] in the bonus buffer of a MOS object; [`ondisk::dsl::dir_field`] in its ZAP, if it is one.
//!
//! # Invariants
//! 1. There is at most one `Dir` in memory for one object.
//! 2. `used_bytes` is the sum of `used_breakdown`.
//! 3. The parent's `Child` is the sum of its children's `used_bytes`; its `ChildReservation` the sum of what they have
//!    reserved and not used.
//!
//! # Locks
//! `Dir::state`, one at a time, children before parents; after it only the list of dirty directories.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use ondisk::dsl::{DIR_FLAG_USED_BREAKDOWN, DirPhys, USED_KINDS, UsedKind};
use crate::dsl::meta::{Space, SpaceDelta, change};
use crate::dsl::space::in_flight::InFlight;
use crate::sync::{Publish, Published};
use crate::txg::Txg;

/// One directory in memory.
pub struct Dir {
    /// Its object in the MOS. immutable
    pub object: u64,
    /// The object with its wrapped master key; 0 if it is not encrypted. immutable
    pub crypto_key: u64,
    /// If its head is a clone: the txg of the snapshot that it is a clone of. Else 0. Changed by clone and promotion only.
    origin_txg: AtomicU64,
    /// Place in the tree; changed by rename only.
    link: ArcSwap<DirLink>,
    /// guards: the record
    state: Published<DirState>,
    /// Space promised to transactions that are not on disk yet.
    promised: InFlight,
    /// Of that, what a reservation pays for: the directory above knows nothing of it.
    kept: InFlight,
    /// guards: that `promised` and `kept` change together, where a reservation pays for a part
    sharing: Mutex<()>,
    /// Space that such transactions free, here and below, about.
    freeing: InFlight,
}

#[derive(Debug, Clone)]
struct DirLink {
    parent: Option<Arc<Dir>>,
    name: String,
}

#[derive(Debug)]
pub(in crate::dsl) struct DirState {
    phys: DirPhys,
    /// The record in the MOS is older than this one.
    dirty: bool,
}

/// Those numbers of the record that a promise of space is measured by.
#[derive(Debug, Default)]
pub(in crate::dsl) struct DirLimits {
    used: AtomicU64,
    reserved: AtomicU64,
    quota: AtomicU64,
    has_head: AtomicBool,
}

impl DirLimits {
    /// Space of everything below.
    pub(in crate::dsl) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// The property `reservation`.
    pub(in crate::dsl) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// What quota limits, if one does.
    pub(in crate::dsl) fn quota(&self) -> Option<u64> {
        Some(self.quota.load(Ordering::Acquire)).filter(|quota| *quota != 0 && self.has_head.load(Ordering::Acquire))
    }
}

impl Publish for DirState {
    type Published = DirLimits;

    fn publish(&self, limits: &DirLimits) {
        limits.used.store(self.phys.used_bytes.get(), Ordering::Release);
        limits.reserved.store(self.phys.reserved.get(), Ordering::Release);
        limits.quota.store(self.phys.quota.get(), Ordering::Release);
        limits.has_head.store(self.phys.head_dataset.get() != 0, Ordering::Release);
    }
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dir").field("object", &self.object).field("name", &self.full_name()).finish_non_exhaustive()
    }
}

impl Dir {
    pub(in crate::dsl) fn new(object: u64, parent: Option<Arc<Dir>>, name: String, phys: DirPhys, crypto_key: u64, origin_txg: u64) -> Self {
        Dir {
            object,
            crypto_key,
            origin_txg: origin_txg.into(),
            link: ArcSwap::from_pointee(DirLink { parent, name }),
            state: Published::new(DirState { phys, dirty: false }),
            promised: InFlight::default(),
            kept: InFlight::default(),
            sharing: Mutex::new(()),
            freeing: InFlight::default(),
        }
    }

    /// If its head is a clone: the txg of the snapshot that it is a clone of. Else 0.
    pub fn origin_txg(&self) -> u64 {
        self.origin_txg.load(Ordering::Acquire)
    }

    /// Its head is a clone of a snapshot of this txg from now on; 0: of none.
    pub(in crate::dsl) fn set_origin_txg(&self, txg: u64) {
        self.origin_txg.store(txg, Ordering::Release);
    }

    /// The directory above; none for the root.
    pub fn parent(&self) -> Option<Arc<Dir>> {
        self.link.load().parent.clone()
    }

    /// The directory and those above it, upwards.
    pub fn and_above(self: &Arc<Self>) -> impl Iterator<Item = Arc<Dir>> + use<> {
        std::iter::successors(Some(self.clone()), |dir| dir.parent())
    }

    /// The last component of its name.
    pub fn name(&self) -> String {
        self.link.load().name.clone()
    }

    /// Its name from the pool's on.
    pub fn full_name(&self) -> String {
        let link = self.link.load_full();
        match &link.parent {
            Some(parent) => format!("{}/{}", parent.full_name(), link.name),
            None => link.name.clone(),
        }
    }

    /// It is elsewhere in the tree now. Called by rename.
    pub fn relink(&self, parent: Option<Arc<Dir>>, name: String) {
        self.link.store(Arc::new(DirLink { parent, name }));
    }

    /// The record.
    pub fn phys(&self) -> DirPhys {
        self.state.read().phys
    }

    /// Runs `change` on the record; whether it is the first change since [`Dir::take_record`], too.
    pub(in crate::dsl) fn change<T>(&self, change: impl FnOnce(&mut DirState) -> T) -> (T, bool) {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let is_first = !std::mem::replace(&mut state.dirty, true);
        (result, is_first)
    }

    /// The record, which is written into the MOS now.
    pub(super) fn take_record(&self) -> DirPhys {
        let mut state = self.state.lock();
        state.dirty = false;
        state.phys
    }

    /// What a promise of space is measured by, without a lock.
    pub(in crate::dsl) fn limits(&self) -> &DirLimits {
        self.state.published()
    }

    /// It is the root of the tree.
    pub(in crate::dsl) fn is_root(&self) -> bool {
        self.link.load().parent.is_none()
    }

    /// Calls `visit` with the directory above, if there is one.
    pub(in crate::dsl) fn with_parent<T>(&self, visit: impl FnOnce(&Dir) -> T) -> Option<T> {
        self.link.load().parent.as_deref().map(visit)
    }

    /// Calls `visit` with the directory and those above it, upwards, as long as it says so.
    pub(in crate::dsl) fn upwards(&self, visit: &mut dyn FnMut(&Dir) -> bool) {
        if visit(self) {
            self.with_parent(|parent| parent.upwards(visit));
        }
    }

    /// Space of everything below.
    pub fn space(&self) -> Space {
        let phys = self.phys();
        Space {
            used: phys.used_bytes.get(),
            compressed: phys.compressed_bytes.get(),
            uncompressed: phys.uncompressed_bytes.get(),
        }
    }

    /// Space used by one kind of consumer; 0 in pools too old to know.
    pub fn used_by(&self, kind: UsedKind) -> u64 {
        self.phys().used_breakdown.get(kind as usize).map_or(0, |used| used.get())
    }

    /// Promises `bytes` to a transaction of `txg`. A reservation pays for `kept` of them, so that the directory above need not.
    pub(in crate::dsl) fn promise(&self, txg: Txg, bytes: u64, kept: u64) {
        if kept == 0 {
            return self.promised.add(txg, bytes);
        }
        let _together = self.sharing.lock();
        self.promised.add(txg, bytes);
        self.kept.add(txg, kept);
    }

    /// Takes back a part of what was promised, first of what is beyond the reservation. Returns that: the directory above takes it back too.
    #[must_use]
    pub(in crate::dsl) fn take_back(&self, txg: Txg, bytes: u64) -> u64 {
        if self.kept.of(txg) == 0 {
            self.promised.take_back(txg, bytes);
            return bytes;
        }
        let _together = self.sharing.lock();
        let beyond = self.promised.of(txg).saturating_sub(self.kept.of(txg)).min(bytes);
        self.promised.take_back(txg, bytes);
        self.kept.take_back(txg, bytes - beyond);
        beyond
    }

    /// Takes a promise back as it was made.
    pub(in crate::dsl) fn withdraw(&self, txg: Txg, bytes: u64, kept: u64) {
        let _together = self.sharing.lock();
        self.promised.take_back(txg, bytes);
        self.kept.take_back(txg, kept);
    }

    /// What is promised and not on disk yet.
    pub(in crate::dsl) fn promised(&self) -> u64 {
        self.promised.total()
    }

    /// A transaction of `txg` frees `bytes`, about, here or below.
    pub(in crate::dsl) fn note_freeing(&self, txg: Txg, bytes: u64) {
        self.freeing.add(txg, bytes);
    }

    /// What is freed and not on disk yet, about.
    pub(in crate::dsl) fn freeing(&self) -> u64 {
        self.freeing.total()
    }

    /// `txg` is on disk: what it had promised it has taken or did not need, and what it frees is free.
    pub(in crate::dsl) fn group_done(&self, txg: Txg) {
        self.promised.clear(txg);
        self.kept.clear(txg);
        self.freeing.clear(txg);
    }
}

/// How much of a change the level above sees: space up to the reservation is accounted for there already.
pub(in crate::dsl) fn beyond_reservation(used: u64, reserved: u64, delta: i64) -> i64 {
    let before = used.max(reserved);
    let after = used.saturating_add_signed(delta).max(reserved);
    after.wrapping_sub(before) as i64
}

/// A change to one directory's record.
#[derive(Debug, Clone, Copy)]
pub(in crate::dsl) enum DirChange {
    /// All of the change is of one kind.
    One(UsedKind),
    /// `to_new` goes to the kind `to`; what that is more than the whole change comes from the kind `from`.
    Moved { to_new: i64, from: UsedKind, to: UsedKind },
}

impl DirState {
    /// The record, to change it.
    pub(in crate::dsl) fn phys_mut(&mut self) -> &mut DirPhys {
        &mut self.phys
    }

    /// Applies a change; returns what of `delta.used` the parent sees.
    pub(in crate::dsl) fn change(&mut self, delta: SpaceDelta, how: DirChange) -> i64 {
        let phys = &mut self.phys;
        let above = beyond_reservation(phys.used_bytes.get(), phys.reserved.get(), delta.used);
        delta.apply(&mut phys.used_bytes, &mut phys.compressed_bytes, &mut phys.uncompressed_bytes);
        if phys.flags.get() & DIR_FLAG_USED_BREAKDOWN != 0 {
            let breakdown: &mut [_; USED_KINDS] = &mut phys.used_breakdown;
            match how {
                DirChange::One(kind) => change(&mut breakdown[kind as usize], delta.used),
                DirChange::Moved { to_new, from, to } => {
                    change(&mut breakdown[from as usize], delta.used.wrapping_sub(to_new));
                    change(&mut breakdown[to as usize], to_new);
                }
            }
        }
        above
    }

    /// Moves space from one kind to another.
    pub(in crate::dsl) fn transfer(&mut self, bytes: i64, from: UsedKind, to: UsedKind) -> bool {
        if bytes == 0 || self.phys.flags.get() & DIR_FLAG_USED_BREAKDOWN == 0 {
            return false;
        }
        change(&mut self.phys.used_breakdown[from as usize], bytes.wrapping_neg());
        change(&mut self.phys.used_breakdown[to as usize], bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_hides_space_from_the_parent() {
        assert_eq!(beyond_reservation(10, 0, 5), 5);
        assert_eq!(beyond_reservation(10, 100, 5), 0);
        assert_eq!(beyond_reservation(98, 100, 5), 3);
        assert_eq!(beyond_reservation(103, 100, -5), -3);
        assert_eq!(beyond_reservation(200, 100, -5), -5);
    }

    #[test]
    fn the_breakdown_sums_up() {
        let mut phys: DirPhys = zerocopy::FromZeros::new_zeroed();
        phys.flags = DIR_FLAG_USED_BREAKDOWN.into();
        phys.reserved = 100.into();
        let mut state = DirState { phys, dirty: false };
        let delta = |used| SpaceDelta { used, compressed: used, uncompressed: used };
        assert_eq!(state.change(delta(150), DirChange::One(UsedKind::Head)), 50);
        assert_eq!(state.change(delta(0), DirChange::Moved { to_new: 30, from: UsedKind::Head, to: UsedKind::Snapshot }), 0);
        assert!(state.transfer(20, UsedKind::Head, UsedKind::Snapshot));
        let sum: u64 = state.phys.used_breakdown.iter().map(|used| used.get()).sum();
        assert_eq!(sum, state.phys.used_bytes.get());
        assert_eq!(state.phys.used_breakdown[UsedKind::Snapshot as usize].get(), 50);
    }
}
