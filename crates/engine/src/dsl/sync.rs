//! One pass over one txg: what the DSL does in it.
//!
//! # Theory
//! The order matters. Datasets first, since writing them changes records. Then the records, then the MOS that they are in.
//! Administrative changes come last in pass 1: they see datasets that are completely written; what they change in the MOS
//! is written in pass 2. From pass 2 on only the MOS changes, until nothing does.

use std::sync::Arc;

use ondisk::blkptr::BlkPtr;

use crate::dsl::tree::tree::Dsl;
use crate::dmu::SyncTx;
use crate::error::Result;

impl Dsl {
    /// Writes what the txg changed in all datasets.
    ///
    /// # Errors
    /// A write failed: the pool cannot go on.
    pub fn sync_datasets(&self, tx: &SyncTx<'_>) -> Result<()> {
        for (dataset, objset) in self.dirty_objsets(tx.txg()) {
            dataset.sync(&objset, tx)?;
        }
        Ok(())
    }

    /// One pass: datasets, records, MOS, and in pass 1 the administrative changes. Returns where the MOS is.
    ///
    /// # Errors
    /// A write or a change failed: the pool cannot go on.
    pub fn sync_pass(self: &Arc<Self>, tx: &SyncTx<'_>) -> Result<BlkPtr> {
        self.sync_datasets(tx)?;
        self.flush(tx)?;
        let mos = &self.meta.mos.0;
        mos.sync(tx)?;
        let pointer = mos.sync_root(tx)?;
        if tx.pass == 1 {
            self.run_tasks(tx)?;
        }
        Ok(pointer)
    }

    /// Whether another pass is needed.
    pub fn is_dirty(&self, txg: u64) -> bool {
        self.has_dirty_records() || self.meta.mos.0.is_dirty(txg) || !self.dirty_objsets(txg).is_empty()
    }
}
