//! Freeing in the background, a bounded number of blocks in each txg.
//!
//! # Theory
//! Two lists say what is to be freed: single blocks (`free_bpobj`), and destroyed datasets, whose blocks are found by
//! walking them (the bptree). Their space is counted in `$FREE` until it is free, so that the sum over the pool stays right.
//! A crash loses nothing: what was freed and how far the walk came are in the same txg.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::UsedKind;
use ondisk::feature::Feature;

use crate::dsl::dead::bptree::Bptree;
use crate::dsl::meta::{SpaceDelta, key};
use crate::dsl::dead::traverse::{SPILL_BLOCK, Traversal};
use crate::dsl::tree::tree::Dsl;
use crate::dmu::SyncTx;
use crate::error;
use crate::error::{Error, ErrorKind, Result};

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
    left: Cell<u64>,
    deadline: u64,
}

impl Meter {
    fn is_used_up(&self, dsl: &Dsl) -> bool {
        let left = self.left.get();
        if left == 0 || (left.is_multiple_of(256) && dsl.meta.context.host.now_ns() > self.deadline) {
            return true;
        }
        self.left.set(left - 1);
        false
    }
}

impl Dsl {
    /// Whether something is left to free in the background: the pool should go on syncing.
    pub fn has_background_frees(&self) -> Result<bool> {
        Ok(self.has_listed_frees()? || self.bptree.load(Ordering::Relaxed) != 0)
    }

    fn has_listed_frees(&self) -> Result<bool> {
        if self.is_free_list_lost.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let listed = self.free_bpobj().map_or(Ok(false), |list| Ok(!list.is_empty(&self.meta)?));
        listed.or_else(|error| self.give_free_list_up(error).map(|()| false))
    }

    /// The list cannot be read: what is on it stays in `$FREE`.
    fn give_free_list_up(&self, error: Error) -> Result<()> {
        if !self.meta.context.io.is_lost(&error) {
            return Err(error);
        }
        tracing::error!("the list of blocks to free cannot be read: {error}");
        self.is_free_list_lost.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Frees some of what is to be freed. Called once per txg, in pass 1, after [`Dsl::sync_pass`].
    ///
    /// # Errors
    /// The MOS cannot be read. That a block of a destroyed dataset cannot be read is no error: it is tried again in later txgs.
    pub fn free_in_background(self: &Arc<Self>, budget: FreeBudget, tx: &SyncTx<'_>) -> Result<()> {
        let meter = Meter { left: Cell::new(budget.blocks), deadline: self.meta.context.host.now_ns().saturating_add(budget.ns) };
        if let Some(list) = self.free_bpobj()
            && self.has_listed_frees()?
        {
            let mut freed = SpaceDelta::default();
            let drained = list.drain(&self.meta, tx, |bp, _| {
                if meter.is_used_up(self) {
                    return Ok(ControlFlow::Break(()));
                }
                self.free_one(bp, &mut freed, tx);
                Ok(ControlFlow::Continue(()))
            });
            drained.map(drop).or_else(|error| self.give_free_list_up(error))?;
            self.freed_space(freed)?;
        }
        match self.bptree.load(Ordering::Relaxed) {
            0 => self.leak_what_is_left(),
            tree => self.free_destroyed(Bptree(tree), &meter, tx),
        }
    }

    /// Nothing is to be freed any more. What still counts as being freed could not be found.
    fn leak_what_is_left(&self) -> Result<()> {
        let Some(free_dir) = self.special.read().free.clone() else { return Ok(()) };
        let left = free_dir.space();
        if left.used == 0 || self.has_listed_frees()? || self.is_free_list_lost.load(Ordering::Relaxed) {
            return Ok(());
        }
        for waiting in [key::BPTREE, key::DELETED_CLONES] {
            if self.meta.mos.zap_u64(key::DIRECTORY, waiting)?.is_some() {
                return Ok(());
            }
        }
        self.did_use(&free_dir, UsedKind::Head, left.negative());
        self.leak(left);
        Ok(())
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

    /// A block of a destroyed dataset of which no copy is right is freed, and what is below it is leaked. Where a device is missing, or cannot read, it stays
    /// until it can be read: the datasets behind it do not wait for that.
    fn free_destroyed(&self, tree: Bptree, meter: &Meter, tx: &SyncTx<'_>) -> Result<()> {
        let meta = &self.meta;
        let (mut damaged, mut progress) = (false, false);
        for index in tree.indexes(meta)? {
            let entry = tree.entry(meta, index)?;
            let (mut freed, blocks) = (SpaceDelta::default(), Cell::new(0_u64));
            let pause = || blocks.get() > 0 && meter.is_used_up(self);
            let walk = Traversal::new(&meta.context, ondisk::bpobj::DESTROYED_OBJSET, entry.birth_txg.get());
            let is_lost = |error: &Error| error.is_loss() && error.kind() != ErrorKind::Io && meta.context.io.devices().is_whole();
            let walk = walk.children_first().resume(&entry.resume).pause_if(&pause).pass_over(&is_lost);
            let result = walk.run(&entry.block, &mut |block| {
                // OpenZFS would pass over a spill block that it is to go on at.
                let data = block.at.level == 0 && block.at.object != 0 && block.at.block != SPILL_BLOCK;
                if data && meter.is_used_up(self) {
                    return Ok(ControlFlow::Break(()));
                }
                self.free_one(block.pointer, &mut freed, tx);
                blocks.set(blocks.get() + 1);
                Ok(ControlFlow::Continue(()))
            });
            let some = blocks.get() > 0;
            progress |= some;
            if some {
                self.freed_space(freed)?;
            }
            match result {
                Ok(None) => tree.finish(meta, index, freed, tx)?,
                Ok(Some(resume)) => return tree.set_resume(meta, index, freed, resume, tx),
                Err(error) => {
                    tracing::warn!("freeing a destroyed dataset: {error}");
                    damaged = true;
                    if some {
                        tree.set_resume(meta, index, freed, walk.failed_at().unwrap_or(entry.resume), tx)?;
                    }
                }
            }
        }
        if damaged && !progress {
            self.bptree.store(0, Ordering::Relaxed); // Tried again when the pool is next opened.
        }
        if damaged {
            return Ok(());
        }
        meta.features.decrement(&meta.mos, Feature::AsyncDestroy, tx)?;
        meta.mos.zap_remove(key::DIRECTORY, key::BPTREE, tx)?;
        meta.mos.free(tree.0, tx)?;
        self.bptree.store(0, Ordering::Relaxed);
        self.leak_what_is_left()
    }
}
