//! Counting space in directories, and writing the records.

use std::sync::Arc;

use ondisk::dsl::{UsedKind, dir_field};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use zerocopy::IntoBytes;

use crate::dsl::tree::dir::{Dir, DirChange, DirState};
use crate::dsl::meta::{Space, SpaceDelta};
use crate::dsl::tree::tree::{Dsl, LEAK_DIR};
use crate::dmu::SyncTx;
use crate::error::Result;

impl Dsl {
    /// Runs `change` on a directory's record and remembers to write it.
    pub(in crate::dsl) fn change_dir<T>(&self, dir: &Arc<Dir>, change: impl FnOnce(&mut DirState) -> T) -> T {
        let mut state = dir.state.lock();
        let result = change(&mut state);
        let first = !std::mem::replace(&mut state.dirty, true);
        drop(state);
        if first {
            self.dirty.lock().dirs.insert(dir.object, dir.clone());
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

    /// Space is lost to blocks that cannot be read: it is still allocated, and no dataset's.
    #[doc(alias = "dp_leak_dir")]
    pub(in crate::dsl) fn leak(&self, space: Space) {
        self.leaked.lock().add(space.positive());
    }

    fn count_leaks(&self, tx: &SyncTx<'_>) -> Result<()> {
        let pieces = self.meta.context.io.take_leaked();
        self.leak(Space { used: pieces, compressed: pieces, uncompressed: pieces });
        let leaked = std::mem::take(&mut *self.leaked.lock());
        // There are no such directories in the oldest pools.
        if leaked.is_zero() || self.special.read().mos.is_none() {
            return Ok(());
        }
        let root = self.root_dir()?;
        let dir = match self.find_child(&root, LEAK_DIR)? {
            Some(dir) => dir,
            None => self.dir(self.create_dir_sync(Some(&root), LEAK_DIR, tx)?, Some(LEAK_DIR))?,
        };
        self.did_use(&dir, UsedKind::Head, leaked);
        Ok(())
    }

    /// Counts the MOS's own space, and writes all records that changed into the MOS. Called in each pass, before the MOS is
    /// written.
    pub fn flush(&self, tx: &SyncTx<'_>) -> Result<()> {
        let mos_dir = self.special.read().mos.clone();
        let delta = self.mos_space.take();
        if let Some(mos_dir) = mos_dir
            && !delta.is_zero()
        {
            self.did_use(&mos_dir, UsedKind::Head, delta);
        }
        self.count_leaks(tx)?;
        self.flush_records(tx)
    }

    /// Writes all records that changed into the MOS.
    pub(in crate::dsl) fn flush_records(&self, tx: &SyncTx<'_>) -> Result<()> {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        for dir in dirty.dirs.values() {
            let phys = {
                let mut state = dir.state.lock();
                state.dirty = false;
                state.phys
            };
            self.meta.mos.set_bonus(dir.object, phys.as_bytes(), tx)?;
        }
        for dataset in dirty.datasets.values() {
            let phys = {
                let mut state = dataset.state.lock();
                state.dirty = false;
                state.phys
            };
            self.meta.mos.set_bonus(dataset.object, phys.as_bytes(), tx)?;
        }
        Ok(())
    }

    /// Whether a record changed since the last flush, or the MOS's space is to be counted.
    pub fn has_dirty_records(&self) -> bool {
        let dirty = self.dirty.lock();
        !dirty.dirs.is_empty() || !dirty.datasets.is_empty() || !self.leaked.lock().is_zero() || self.meta.context.io.has_leaked()
    }

    /// Makes an object of the DSL a ZAP too, so that it can have more fields.
    pub(in crate::dsl) fn zapify(&self, object: u64, tx: &SyncTx<'_>) -> Result<()> {
        if self.meta.mos.zapify(object, tx)? {
            self.meta.features.increment(&self.meta.mos, Feature::ExtensibleDataset, tx)?;
        }
        Ok(())
    }

    /// Frees an object of the DSL that may be a ZAP.
    pub(in crate::dsl) fn free_zapified(&self, object: u64, tx: &SyncTx<'_>) -> Result<()> {
        if self.meta.mos.info(object)?.object_type == ObjectType::ZAP_METADATA {
            self.meta.features.decrement(&self.meta.mos, Feature::ExtensibleDataset, tx)?;
        }
        self.meta.mos.free(object, tx)
    }

    /// A snapshot of a directory's head was made, destroyed or renamed.
    #[doc(alias = "dsl_dir_snap_cmtime_update")]
    pub(in crate::dsl) fn note_snapshots_changed(&self, dir: &Dir, tx: &SyncTx<'_>) -> Result<()> {
        if !self.meta.features.is_enabled(Feature::ExtensibleDataset) {
            return Ok(());
        }
        let (seconds, nanoseconds) = self.meta.context.host.wall_clock();
        self.zapify(dir.object, tx)?;
        self.meta.mos.zap_set_numbers(dir.object, dir_field::SNAPSHOTS_CHANGED, &[seconds, nanoseconds.into()], tx)
    }

    /// Changes the count of file systems or snapshots (`field`) from `dir` upwards, as far as counts are kept.
    pub(in crate::dsl) fn adjust_count(&self, dir: &Arc<Dir>, field: &str, delta: i64, tx: &SyncTx<'_>) -> Result<()> {
        if delta == 0 || (field == dir_field::FILESYSTEM_COUNT && dir.name().starts_with('$')) {
            return Ok(());
        }
        let mut at = Some(dir.clone());
        while let Some(dir) = at {
            if self.meta.mos.info(dir.object)?.object_type != ObjectType::ZAP_METADATA {
                break;
            }
            let Some(count) = self.meta.mos.zap_u64(dir.object, field)? else { break };
            self.meta.mos.zap_set_u64(dir.object, field, count.saturating_add_signed(delta), tx)?;
            at = dir.parent();
        }
        Ok(())
    }
}
