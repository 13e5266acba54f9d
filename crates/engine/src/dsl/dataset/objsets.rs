//! The object sets that are open.
//!
//! # Theory
//! An object set is opened on first use, and kept while somebody uses it or it has changes that are not on disk.
//!
//! [`Dsl`](crate::dsl::Dsl) alone owns this: a dataset, which is kept here with its object set, knows it weakly.
//!
//! # Invariants
//! 1. An object set with unsynced changes is in the table.
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
use crate::dmu::{FileOwnerOf, Objset, SyncTx};
use crate::error::Result;
use crate::txg::{Txg, TxgGroups};

/// See the module.
pub(in crate::dsl) struct OpenObjsets {
    /// Finds the owner of a file.
    file_owner: Option<FileOwnerOf>,
    /// guards: the open object sets, by the dataset's object
    table: Mutex<BTreeMap<u64, (Arc<Dataset>, Arc<Objset>)>>,
}

impl OpenObjsets {
    /// With nothing open yet.
    pub(in crate::dsl) fn new(file_owner: Option<FileOwnerOf>) -> Self {
        OpenObjsets { file_owner, table: Mutex::default() }
    }

    /// The object set of a dataset.
    pub(in crate::dsl) fn objset(&self, dataset: &Arc<Dataset>) -> Result<Arc<Objset>> {
        loop {
            if let Some((_, objset)) = self.table.lock().get(&dataset.object) {
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
        let mut table = self.table.lock();
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

    /// An object set was just created for a dataset.
    pub(in crate::dsl) fn insert(&self, dataset: &Arc<Dataset>, objset: &Arc<Objset>) {
        self.table.lock().insert(dataset.object, (dataset.clone(), objset.clone()));
    }

    /// The dataset is destroyed.
    pub(in crate::dsl) fn forget(&self, dataset: u64) {
        self.table.lock().remove(&dataset);
    }

    /// Whether somebody uses the object set of a dataset.
    pub(in crate::dsl) fn is_open(&self, dataset: &Dataset) -> bool {
        self.table.lock().get(&dataset.object).is_some_and(|(_, objset)| Arc::strong_count(objset) > 1)
    }

    /// All that are open, with their datasets.
    pub(in crate::dsl) fn all(&self) -> Vec<(Arc<Dataset>, Arc<Objset>)> {
        self.table.lock().values().cloned().collect()
    }

    /// Those that `txg` changed.
    pub(in crate::dsl) fn dirty(&self, txg: Txg) -> Vec<(Arc<Dataset>, Arc<Objset>)> {
        let mut open = self.all();
        open.retain(|(_, objset)| !objset.is_snapshot() && objset.is_dirty(txg));
        open
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
        self.table.lock().retain(|_, (_, objset)| {
            let living = groups.synced_txg()..=groups.open_txg();
            // One that an import has yet to replay must not be gone when it gets there, however long claiming took.
            let is_wanted = Arc::strong_count(objset) > 1 || objset.log().is_some_and(|log| log.waits_for_replay());
            is_wanted || (!objset.is_snapshot() && living.into_iter().any(|txg| objset.is_dirty(txg)))
        });
    }

    /// The pool is closed: what is not written is lost.
    pub(in crate::dsl) fn clear(&self) {
        self.table.lock().clear();
    }
}
