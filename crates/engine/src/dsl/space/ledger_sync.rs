//! Counting what is used, in directories and all above them.
//!
//! # Theory
//! What a directory uses, everything above it uses too, as its child's space. What a reservation had claimed before it was used does not
//! count a second time above. Space whose place is not known at once (the MOS's own, what is leaked) is summed up first.

use std::sync::{Arc, OnceLock, Weak};

use ondisk::dsl::UsedKind;
use parking_lot::Mutex;

use super::mos_space::MosSpace;
use crate::dsl::meta::{Meta, Space, SpaceDelta};
use crate::dsl::tree::dir::{Dir, DirChange, DirState};
use crate::dsl::tree::records::Records;

/// See the module.
pub(in crate::dsl) struct Ledger {
    meta: Arc<Meta>,
    records: Weak<Records>,
    mos_space: Arc<MosSpace>,
    /// `$MOS`
    mos_dir: OnceLock<Arc<Dir>>,
    /// Space to be counted in `$LEAK`. guarded by its lock, which is a leaf
    leaked: Mutex<SpaceDelta>,
}

impl Ledger {
    /// Without `$MOS` yet. `mos_space` is the owner that the MOS was opened with.
    pub(in crate::dsl) fn new(meta: Arc<Meta>, records: Weak<Records>, mos_space: Arc<MosSpace>) -> Self {
        Ledger { meta, records, mos_space, mos_dir: OnceLock::new(), leaked: Mutex::default() }
    }

    /// The MOS's own space is counted in `dir` from now on.
    pub(in crate::dsl) fn set_mos_dir(&self, dir: Arc<Dir>) {
        self.mos_dir.get_or_init(|| dir);
    }

    /// Runs `change` on a directory's record and remembers to write it.
    pub(in crate::dsl) fn change_dir<T>(&self, dir: &Arc<Dir>, change: impl FnOnce(&mut DirState) -> T) -> T {
        let (result, is_first) = dir.change(change);
        if is_first && let Some(records) = self.records.upgrade() {
            records.note_dir(dir);
        }
        result
    }

    /// `dir` uses more (or less) space of one kind; so do all above it.
    pub(in crate::dsl) fn did_use(&self, dir: &Arc<Dir>, kind: UsedKind, delta: SpaceDelta) {
        self.did_change(dir, delta, DirChange::One(kind));
    }

    /// `dir` uses `delta` more; of that `to_new` is of the kind `to`, the rest of the kind `from`.
    pub(in crate::dsl) fn did_use_and_transfer(&self, dir: &Arc<Dir>, delta: SpaceDelta, to_new: i64, from: UsedKind, to: UsedKind) {
        self.did_change(dir, delta, DirChange::Moved { to_new, from, to });
    }

    fn did_change(&self, dir: &Arc<Dir>, mut delta: SpaceDelta, mut how: DirChange) {
        let mut at = Some(dir.clone());
        while let Some(dir) = at {
            let used = delta.used;
            delta.used = self.change_dir(&dir, |state| state.change(delta, how));
            // Above, what changed is the child's; what its reservation had already claimed comes out of that.
            how = DirChange::Moved { to_new: used, from: UsedKind::ChildReservation, to: UsedKind::Child };
            at = dir.parent();
        }
    }

    /// Space of `dir` changes its kind.
    pub(in crate::dsl) fn transfer(&self, dir: &Arc<Dir>, bytes: i64, from: UsedKind, to: UsedKind) {
        self.change_dir(dir, |state| state.transfer(bytes, from, to));
    }

    /// `dir` and what is below it have `value` bytes reserved.
    pub(in crate::dsl) fn set_reservation(&self, dir: &Arc<Dir>, value: u64) {
        let delta = self.change_dir(dir, |state| {
            let phys = state.phys_mut();
            let used = phys.used_bytes.get();
            let before = used.max(phys.reserved.get());
            phys.reserved = value.into();
            used.max(value) as i64 - before as i64
        });
        if let Some(parent) = dir.parent() {
            self.did_use(&parent, UsedKind::ChildReservation, SpaceDelta { used: delta, ..SpaceDelta::default() });
        }
    }

    /// Space is lost to blocks that cannot be read: it is still allocated, and no dataset's.
    #[doc(alias = "dp_leak_dir")]
    pub(in crate::dsl) fn leak(&self, space: Space) {
        self.leaked.lock().add(space.positive());
    }

    /// Whether space was leaked that [`Ledger::take_leaked`] has not given yet.
    pub(in crate::dsl) fn has_leaked(&self) -> bool {
        !self.leaked.lock().is_zero() || self.meta.context.io.has_leaked()
    }

    /// What was leaked and is to be counted. Nothing in the oldest pools, which have no place for it.
    pub(in crate::dsl) fn take_leaked(&self) -> Option<SpaceDelta> {
        let pieces = self.meta.context.io.take_leaked();
        self.leak(Space { used: pieces, compressed: pieces, uncompressed: pieces });
        let leaked = std::mem::take(&mut *self.leaked.lock());
        Some(leaked).filter(|leaked| !leaked.is_zero() && self.mos_dir.get().is_some())
    }

    /// Counts the MOS's own space.
    pub(in crate::dsl) fn count_mos(&self) {
        let delta = self.mos_space.take();
        if let Some(mos_dir) = self.mos_dir.get()
            && !delta.is_zero()
        {
            self.did_use(mos_dir, UsedKind::Head, delta);
        }
    }
}
