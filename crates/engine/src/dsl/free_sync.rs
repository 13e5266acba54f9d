//! Freeing in the background, a bounded number of blocks in each txg.
//!
//! # Theory
//! Two lists say what is to be freed: single blocks (`free_bpobj`), and destroyed datasets, whose blocks are found by
//! walking them (the bptree). Their space is counted in `$FREE` until it is free, so that the sum over the pool stays right.
//! A crash loses nothing: what was freed and how far the walk came are in the same txg.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::UsedKind;
use ondisk::feature::Feature;

use super::bptree::Bptree;
use super::meta::{SpaceDelta, key};
use super::traverse::Traversal;
use super::tree::Dsl;
use crate::dmu::SyncTx;
use crate::error;
use crate::error::Result;

/// How much may be freed in one txg.
#[derive(Debug, Clone, Copy)]
pub struct FreeBudget {
    /// Blocks.
    pub blocks: u64,
    /// Nanoseconds.
    pub ns: u64,
}

impl Default for FreeBudget {
    fn default() -> Self {
        FreeBudget { blocks: 100_000, ns: 1_000_000_000 }
    }
}

struct Meter {
    left: u64,
    deadline: u64,
}

impl Meter {
    fn is_used_up(&mut self, dsl: &Dsl) -> bool {
        if self.left == 0 || (self.left.is_multiple_of(256) && dsl.meta.context.host.now_ns() > self.deadline) {
            return true;
        }
        self.left -= 1;
        false
    }
}

impl Dsl {
    /// Whether something is left to free in the background: the pool should go on syncing.
    pub fn has_background_frees(&self) -> Result<bool> {
        let listed = match self.free_bpobj() {
            Some(list) => !list.is_empty(&self.meta)?,
            None => false,
        };
        Ok(listed || self.bptree.load(Ordering::Relaxed) != 0)
    }

    /// Frees some of what is to be freed. Called once per txg, in pass 1, after [`Dsl::sync_pass`].
    ///
    /// # Errors
    /// The MOS cannot be read. That a block of a destroyed dataset cannot be read is no error: it is tried again in later txgs.
    pub fn free_in_background(self: &Arc<Self>, budget: FreeBudget, tx: &SyncTx<'_>) -> Result<()> {
        let mut meter = Meter { left: budget.blocks, deadline: self.meta.context.host.now_ns().saturating_add(budget.ns) };
        if let Some(list) = self.free_bpobj()
            && !list.is_empty(&self.meta)?
        {
            let mut freed = SpaceDelta::default();
            list.drain(&self.meta, tx, |bp, _| {
                if meter.is_used_up(self) {
                    return Ok(ControlFlow::Break(()));
                }
                self.free_one(bp, &mut freed, tx);
                Ok(ControlFlow::Continue(()))
            })?;
            self.freed_space(freed)?;
        }
        match self.bptree.load(Ordering::Relaxed) {
            0 => Ok(()),
            tree => self.free_destroyed(Bptree(tree), &mut meter, tx),
        }
    }

    fn free_one(&self, bp: &BlkPtr, freed: &mut SpaceDelta, tx: &SyncTx<'_>) {
        freed.add(self.meta.space_of(bp).negative());
        tx.free(bp);
    }

    fn freed_space(&self, freed: SpaceDelta) -> Result<()> {
        let free_dir = self.special.read().free.clone().ok_or_else(|| error!(Corrupt, "the pool has no $FREE"))?;
        self.did_use(&free_dir, UsedKind::Head, freed);
        Ok(())
    }

    fn free_destroyed(&self, tree: Bptree, meter: &mut Meter, tx: &SyncTx<'_>) -> Result<()> {
        while let Some(entry) = tree.first(&self.meta)? {
            let mut freed = SpaceDelta::default();
            let walk = Traversal::new(&self.meta.context, ondisk::bpobj::DESTROYED_OBJSET, entry.birth_txg.get());
            let result = walk.children_first().resume(&entry.resume).run(&entry.block, &mut |block| {
                // It can be resumed only at a block of data.
                let data = block.at.level == 0 && block.at.object != 0;
                if data && meter.is_used_up(self) {
                    return Ok(ControlFlow::Break(()));
                }
                self.free_one(block.pointer, &mut freed, tx);
                Ok(ControlFlow::Continue(()))
            });
            let stopped = match result {
                Ok(None) => {
                    tree.advance(&self.meta, freed, None, tx)?;
                    self.freed_space(freed)?;
                    continue;
                }
                Ok(Some(resume)) => Some(resume),
                Err(error) => return self.stall(&error, freed),
            };
            tree.advance(&self.meta, freed, stopped, tx)?;
            return self.freed_space(freed);
        }
        self.meta.features.decrement(&self.meta.mos, Feature::AsyncDestroy, tx)?;
        self.meta.mos.zap_remove(key::DIRECTORY, key::BPTREE, tx)?;
        self.meta.mos.free(tree.0, tx)?;
        self.bptree.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// A block of a destroyed dataset cannot be read. Where the walk stopped is not known as a block of data, so what was
    /// freed in this txg cannot be noted: the pool would free it twice.
    fn stall(&self, error: &error::Error, freed: SpaceDelta) -> Result<()> {
        if freed.is_zero() {
            tracing::warn!("freeing a destroyed dataset: {error}");
            self.bptree.store(0, Ordering::Relaxed); // Tried again when the pool is next opened.
            return Ok(());
        }
        Err(error.clone().within("freeing a destroyed dataset"))
    }
}
