//! The object sets that are open.
//!
//! # Theory
//! An object set is opened on first use, and kept while somebody uses it or it has changes that are not on disk.
//!
//! [`Dsl`](crate::dsl::Dsl) alone owns this: a dataset, which is kept here with its object set, knows it weakly.
//!
//! # Invariants
//! 1. An object set with unsynced changes is in the table.
//! 2. What is done for each group is done for heads only: there may be ten thousand snapshots open, and a group must not cost more for it.
//!
//! # Locks
//! The table; under it that of datasets, and a dataset's state.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::objset::{ObjsetSize, ObjsetType};
use parking_lot::Mutex;

use super::Dataset;
use crate::bail;
use crate::dmu::{FileOwnerOf, Objset, RawHead, SyncTx};
use crate::error::Result;
use crate::txg::{Txg, TxgGroups};

/// See the module.
pub(in crate::dsl) struct OpenObjsets {
    /// Finds the owner of a file.
    file_owner: Option<FileOwnerOf>,
    table: Mutex<Tables>,
}

/// Open object sets, by the dataset's object.
type Table = BTreeMap<u64, (Arc<Dataset>, Arc<Objset>)>;

/// guarded by: `OpenObjsets::table`
#[derive(Default)]
struct Tables {
    heads: Table,
    snapshots: Table,
}

/// One in so many groups, closed snapshots are forgotten; each group so many of those that are open forget objects.
const SNAPSHOT_TURNS: u64 = 64;

impl Tables {
    fn of(&mut self, dataset: &Dataset) -> &mut Table {
        if dataset.is_snapshot { &mut self.snapshots } else { &mut self.heads }
    }
}

impl OpenObjsets {
    /// With nothing open yet.
    pub(in crate::dsl) fn new(file_owner: Option<FileOwnerOf>) -> Self {
        OpenObjsets { file_owner, table: Mutex::default() }
    }

    /// The object set of a dataset.
    pub(in crate::dsl) fn objset(&self, dataset: &Arc<Dataset>) -> Result<Arc<Objset>> {
        loop {
            if let Some((_, objset)) = self.table.lock().of(dataset).get(&dataset.object) {
                return Ok(objset.clone());
            }
            let root = dataset.phys().block;
            let opened = Objset::open(dataset.objset_options(self.file_owner)?, root)?;
            if let Some(kept) = self.keep(dataset, opened, &root)? {
                return Ok(kept);
            }
        }
    }

    /// The object set that was opened at `root`, or the one that another thread has opened. `None`: it was open meanwhile, was written, and
    /// is closed again, so that what was opened here is old. The dataset may be destroyed by now.
    pub(in crate::dsl) fn keep(&self, dataset: &Arc<Dataset>, opened: Arc<Objset>, root: &BlkPtr) -> Result<Option<Arc<Objset>>> {
        let mut tables = self.table.lock();
        let table = tables.of(dataset);
        if !table.contains_key(&dataset.object) {
            if !dataset.tree().is_current(dataset) {
                bail!(NotFound, "{}: dataset does not exist", dataset.dir.full_name());
            }
            if dataset.phys().block != *root {
                return Ok(None);
            }
        }
        Ok(Some(table.entry(dataset.object).or_insert_with(|| (dataset.clone(), opened)).1.clone()))
    }

    /// Makes the object set of a new dataset; [`OpenObjsets::insert`] puts it into the table.
    pub(in crate::dsl) fn create(&self, dataset: &Arc<Dataset>, objset_type: ObjsetType, size: ObjsetSize, tx: &SyncTx<'_>) -> Result<Arc<Objset>> {
        Ok(Objset::create(dataset.objset_options(self.file_owner)?, tx, objset_type, size))
    }

    /// As [`OpenObjsets::create`], of an encrypted dataset that is received.
    pub(in crate::dsl) fn create_raw(&self, dataset: &Arc<Dataset>, objset_type: ObjsetType, size: ObjsetSize, head: &RawHead, tx: &SyncTx<'_>) -> Result<Arc<Objset>> {
        Objset::create_raw(dataset.objset_options(self.file_owner)?, tx, objset_type, size, head)
    }

    /// An object set was just created for a dataset.
    pub(in crate::dsl) fn insert(&self, dataset: &Arc<Dataset>, objset: &Arc<Objset>) {
        self.table.lock().of(dataset).insert(dataset.object, (dataset.clone(), objset.clone()));
    }

    /// The dataset is destroyed.
    pub(in crate::dsl) fn forget(&self, dataset: u64) {
        let mut tables = self.table.lock();
        let closed = (tables.heads.remove(&dataset), tables.snapshots.remove(&dataset));
        drop(tables);
        drop(closed);
    }

    /// Whether somebody uses the object set of a dataset.
    pub(in crate::dsl) fn is_open(&self, dataset: &Dataset) -> bool {
        self.table.lock().of(dataset).get(&dataset.object).is_some_and(|(_, objset)| Arc::strong_count(objset) > 1)
    }

    /// All that are open, with their datasets.
    pub(in crate::dsl) fn all(&self) -> Vec<(Arc<Dataset>, Arc<Objset>)> {
        let tables = self.table.lock();
        tables.heads.values().chain(tables.snapshots.values()).cloned().collect()
    }

    /// Those of heads.
    pub(in crate::dsl) fn heads(&self) -> Vec<Arc<Objset>> {
        self.table.lock().heads.values().map(|(_, objset)| objset.clone()).collect()
    }

    /// Those of some snapshots, others for each group, or of all: they have no changes, and take their turns to forget objects.
    pub(in crate::dsl) fn snapshots_of_turn(&self, txg: Txg, all: bool) -> Vec<Arc<Objset>> {
        let tables = self.table.lock();
        // An object set does a part of it in each of 16 groups.
        let is_its_turn = |object: &u64| all || (object + txg / SNAPSHOT_TURNS).is_multiple_of(SNAPSHOT_TURNS);
        tables.snapshots.iter().filter(|(object, _)| is_its_turn(object)).map(|(_, (_, objset))| objset.clone()).collect()
    }

    /// Those that `txg` changed.
    pub(in crate::dsl) fn dirty(&self, txg: Txg) -> Vec<(Arc<Dataset>, Arc<Objset>)> {
        self.table.lock().heads.values().filter(|(_, objset)| objset.is_dirty(txg)).cloned().collect()
    }

    /// That of one head, if `txg` changed it.
    pub(in crate::dsl) fn dirty_one(&self, head: u64, txg: Txg) -> Option<(Arc<Dataset>, Arc<Objset>)> {
        self.table.lock().heads.get(&head).filter(|(_, objset)| objset.is_dirty(txg)).cloned()
    }

    /// Did a group after the one that is being written change that of a head? Nobody need have it open any more; but what is changed has a place that the group being
    /// written knows nothing of.
    pub(in crate::dsl) fn is_changed_later(&self, head: u64, groups: &TxgGroups) -> bool {
        let Some(now) = groups.syncing_txg() else { return false };
        (now + 1..=groups.open_txg()).any(|txg| self.dirty_one(head, txg).is_some())
    }

    /// Did `txg` change any?
    pub(in crate::dsl) fn has_dirty(&self, txg: Txg) -> bool {
        self.table.lock().heads.values().any(|(_, objset)| objset.is_dirty(txg))
    }

    /// A property was changed or something was renamed: open object sets learn of it.
    pub(in crate::dsl) fn refresh_settings(&self) -> Result<()> {
        for (dataset, objset) in self.all() {
            objset.set_settings(dataset.settings()?);
            objset.set_name(&dataset.name()?);
        }
        Ok(())
    }

    /// Closes object sets that nobody uses and that have no unsynced changes.
    pub(in crate::dsl) fn close_idle(&self, groups: &TxgGroups) {
        // Dropped when the table is not locked: the last owner may wait for what is read ahead.
        let mut closed = Vec::new();
        let mut keep = |objset: &Arc<Objset>, is_kept: bool| {
            if !is_kept {
                closed.push(objset.clone());
            }
            is_kept
        };
        let mut tables = self.table.lock();
        tables.heads.retain(|_, (_, objset)| {
            let mut living = groups.synced_txg()..=groups.open_txg();
            // One that an import has yet to replay must not be gone when it gets there, however long claiming took.
            let is_wanted = Arc::strong_count(objset) > 1 || objset.log().is_some_and(|log| log.waits_for_replay());
            keep(objset, is_wanted || living.any(|txg| objset.is_dirty(txg)))
        });
        if groups.synced_txg().is_multiple_of(SNAPSHOT_TURNS) {
            tables.snapshots.retain(|_, (_, objset)| keep(objset, Arc::strong_count(objset) > 1));
        }
    }

    /// The pool is closed: what is not written is lost.
    pub(in crate::dsl) fn clear(&self) {
        let closed = std::mem::take(&mut *self.table.lock());
        drop(closed);
    }
}
