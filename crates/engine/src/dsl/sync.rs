//! One pass over one txg: what the DSL does in it.
//!
//! # Theory
//! The order matters. Datasets first, since writing them changes records. Then the records, then the MOS that they are in.
//! Administrative changes come last in pass 1: they see datasets that are completely written; what they change in the MOS
//! is written in pass 2. From pass 2 on only the MOS changes, until nothing does.

use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::UsedKind;

use super::LEAK_DIR;
use super::dead::frees_sync::FreeBudget;
use super::dsl::{Dsl, Parts};
use super::tree::create_sync::create_dir_sync;
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::txg::Txg;

impl Dsl {
    /// One pass: datasets, records, MOS, and in pass 1 the administrative changes. Returns where the MOS is.
    ///
    /// # Errors
    /// A write or a change failed: the pool cannot go on.
    pub fn sync_pass(self: &Arc<Self>, tx: &SyncTx<'_>) -> Result<BlkPtr> {
        for (dataset, objset) in self.parts.objsets.dirty(tx.txg()) {
            dataset.sync(&objset, tx)?;
        }
        flush_records(&self.parts, tx)?;
        let mos = &self.meta.mos.0;
        mos.sync(tx)?;
        let pointer = mos.sync_root(tx)?;
        if tx.pass == 1 {
            self.tasks.run(self, || self.parts.tree.lock_config(), tx)?;
        }
        Ok(pointer)
    }

    /// Frees some of what is to be freed. Called once per txg, in pass 1, after [`Dsl::sync_pass`].
    ///
    /// # Errors
    /// The MOS cannot be read. That a block of a destroyed dataset cannot be read is no error: it is tried again in later txgs.
    pub fn free_in_background(&self, budget: FreeBudget, tx: &SyncTx<'_>) -> Result<()> {
        self.parts.frees.free_some(budget, tx)
    }

    /// Whether another pass is needed.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        let Parts { records, ledger, objsets, .. } = &self.parts;
        !records.is_empty() || ledger.has_leaked() || self.meta.mos.0.is_dirty(txg) || objsets.has_dirty(txg)
    }

    /// Whether `txg` has administrative changes queued.
    pub fn has_tasks(&self, txg: Txg) -> bool {
        self.tasks.has_any(txg)
    }

    /// The txg is on disk: its promises are void, and what it freed is free.
    pub fn clear_in_flight(&self, txg: Txg) {
        if let Ok(root) = self.root_dir() {
            self.parts.room.group_done(&root, txg);
        }
        self.parts.tree.live_dirs().iter().for_each(|dir| dir.group_done(txg));
        self.parts.tree.live_datasets().iter().for_each(|dataset| dataset.group_done(txg));
    }
}

/// Counts the MOS's own space and what was leaked, and writes all records that changed into the MOS. In each pass, before the MOS is
/// written.
fn flush_records(parts: &Parts, tx: &SyncTx<'_>) -> Result<()> {
    parts.ledger.count_mos();
    if let Some(leaked) = parts.ledger.take_leaked() {
        let root = parts.tree.root_dir()?;
        let dir = match parts.tree.find_child(&root, LEAK_DIR)? {
            Some(dir) => dir,
            None => parts.tree.dir(create_dir_sync(parts, Some(&root), LEAK_DIR, tx)?, Some(LEAK_DIR))?,
        };
        parts.ledger.did_use(&dir, UsedKind::Head, leaked);
    }
    parts.records.flush(&parts.meta.mos, tx)
}
