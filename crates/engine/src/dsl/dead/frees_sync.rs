//! Freeing in the background, a bounded number of blocks in each txg.
//!
//! # Theory
//! Three lists say what is to be freed: single blocks (`free_bpobj`), destroyed datasets, whose blocks are found by
//! walking them (the bptree), and destroyed clones, whose blocks are on their livelists. A fourth one (`obsolete_bpobj`) has addresses on removed vdevs by which nothing is
//! found any more, though what was there may be in use by the address to which it was moved: nothing is freed, but the vdevs learn which parts of their maps are not needed. Their space is counted in `$FREE` until it is free, so that the sum over the pool stays right.
//! A crash loses nothing: what was freed and how far the walk came are in the same txg.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::UsedKind;
use ondisk::feature::Feature;

use super::bpobj::Bpobj;
use super::bptree::Bptree;
use super::deleted_clones_sync::DeletedClones;
use super::traverse::{SPILL_BLOCK, Traversal};
use crate::dmu::SyncTx;
use crate::dsl::meta::{Meta, Space, SpaceDelta, key};
use crate::dsl::space::ledger_sync::Ledger;
use crate::dsl::tree::dir::Dir;
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
    fn is_used_up(&self, meta: &Meta) -> bool {
        let left = self.left.get();
        if left == 0 || (left.is_multiple_of(256) && meta.context.host.now_ns() > self.deadline) {
            return true;
        }
        self.left.set(left - 1);
        false
    }
}

/// What is still to be freed.
pub(in crate::dsl) struct Frees {
    meta: Arc<Meta>,
    ledger: Arc<Ledger>,
    /// `$FREE`; none in the oldest pools
    dir: OnceLock<Arc<Dir>>,
    /// Single blocks.
    list: OnceLock<Bpobj>,
    /// The list cannot be read: it is not tried again before the pool is next opened.
    is_list_lost: AtomicBool,
    /// Destroyed datasets; 0: there are none, or none of which more can be freed before the pool is next opened.
    bptree: AtomicU64,
    /// Addresses on removed vdevs that nobody has any more; 0: none, or none that can be read before the pool is next opened.
    obsolete: AtomicU64,
    deleted_clones: DeletedClones,
}

impl Frees {
    /// Without lists yet.
    pub(in crate::dsl) fn new(meta: Arc<Meta>, ledger: Arc<Ledger>) -> Self {
        let (dir, list) = (OnceLock::new(), OnceLock::new());
        Frees { meta, ledger, dir, list, is_list_lost: AtomicBool::new(false), bptree: AtomicU64::new(0), obsolete: AtomicU64::new(0), deleted_clones: DeletedClones::default() }
    }

    /// What is being freed is counted in this directory from now on.
    pub(in crate::dsl) fn set_dir(&self, dir: Arc<Dir>) {
        self.dir.get_or_init(|| dir);
    }

    /// The pool has this list of single blocks.
    pub(in crate::dsl) fn set_list(&self, list: Bpobj) {
        self.list.get_or_init(|| list);
    }

    /// The pool has this tree of destroyed datasets; 0: none.
    pub(in crate::dsl) fn set_tree(&self, object: u64) {
        self.bptree.store(object, Ordering::Relaxed);
    }

    /// The pool has this list of addresses on removed vdevs; 0: none.
    pub(in crate::dsl) fn set_obsolete(&self, object: u64) {
        self.obsolete.store(object, Ordering::Relaxed);
    }

    /// The list of addresses on removed vdevs that nobody has any more, made if there is none.
    #[doc(alias = "dsl_pool_create_obsolete_bpobj")]
    pub(in crate::dsl) fn obsolete_list(&self, tx: &SyncTx<'_>) -> Result<Bpobj> {
        let meta = &self.meta;
        let list = match meta.mos.zap_u64(key::DIRECTORY, key::OBSOLETE_BPOBJ)? {
            Some(object) => Bpobj(object),
            None => {
                let list = Bpobj::create(meta, tx)?;
                meta.mos.zap_add_u64(key::DIRECTORY, key::OBSOLETE_BPOBJ, list.0, tx)?;
                meta.features.increment(&meta.mos, Feature::ObsoleteCounts, tx)?;
                list
            }
        };
        self.set_obsolete(list.0);
        Ok(list)
    }

    /// Clones that were destroyed, with their livelists.
    pub(in crate::dsl) fn deleted_clones(&self) -> &DeletedClones {
        &self.deleted_clones
    }

    /// The list of single blocks.
    pub(in crate::dsl) fn list(&self) -> Option<Bpobj> {
        self.list.get().copied()
    }

    fn dir(&self) -> Result<&Arc<Dir>> {
        self.dir.get().ok_or_else(|| error!(Corrupt, "the pool has no $FREE"))
    }

    /// Whether something is left to free in the background: the pool should go on syncing.
    pub(in crate::dsl) fn has_any(&self) -> Result<bool> {
        Ok(self.has_listed_frees()? || self.bptree.load(Ordering::Relaxed) != 0 || self.obsolete.load(Ordering::Relaxed) != 0 || self.deleted_clones.has_any())
    }

    /// What is still counted as used and will be freed.
    pub(in crate::dsl) fn being_freed(&self) -> u64 {
        match self.has_any() {
            Ok(true) => self.dir.get().map_or(0, |dir| dir.phys().used_bytes.get()),
            _ => 0,
        }
    }

    /// Space that `dir` used is to be freed: it is counted in `$FREE` from now on.
    pub(in crate::dsl) fn take_over(&self, dir: &Arc<Dir>, kind: UsedKind, space: Space) -> Result<()> {
        let free_dir = self.dir()?;
        self.ledger.did_use(dir, kind, space.negative());
        self.ledger.did_use(free_dir, UsedKind::Head, space.positive());
        Ok(())
    }

    /// The object set at `block` was destroyed: its blocks born after `after`, which take `space` of `dir`, are to be freed.
    pub(in crate::dsl) fn queue_objset(&self, dir: &Arc<Dir>, block: BlkPtr, after: u64, space: Space, tx: &SyncTx<'_>) -> Result<()> {
        self.dir()?;
        if block.is_hole() {
            return Ok(());
        }
        let meta = &self.meta;
        if self.bptree.load(Ordering::Relaxed) == 0 {
            let tree = match meta.mos.zap_u64(key::DIRECTORY, key::BPTREE)? {
                // It is counted. (Counted twice it would be in use for ever, and OpenZFS refuses a pool where it is, and no tree is.)
                Some(stalled) => stalled,
                None => {
                    meta.features.increment(&meta.mos, Feature::AsyncDestroy, tx)?;
                    let tree = Bptree::create(meta, tx)?.0;
                    meta.mos.zap_add_u64(key::DIRECTORY, key::BPTREE, tree, tx)?;
                    tree
                }
            };
            self.bptree.store(tree, Ordering::Relaxed);
        }
        Bptree(self.bptree.load(Ordering::Relaxed)).push(meta, block, after, space, tx)?;
        self.take_over(dir, UsedKind::Head, space)
    }

    /// A clone was destroyed: what is alive on its livelist, which takes `space` of `dir`, is to be freed.
    #[doc(alias = "dsl_async_clone_destroy")]
    pub(in crate::dsl) fn queue_livelist(&self, dir: &Arc<Dir>, livelist: u64, space: Space, tx: &SyncTx<'_>) -> Result<()> {
        let free_dir = self.dir()?;
        self.deleted_clones.queue(&self.meta, livelist, tx)?;
        // What pointers hold is on no list, and has a size before compression only: that is gone at once.
        self.ledger.did_use(dir, UsedKind::Head, dir.space().negative());
        self.ledger.did_use(free_dir, UsedKind::Head, space.positive());
        Ok(())
    }

    fn has_listed_frees(&self) -> Result<bool> {
        if self.is_list_lost.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let listed = self.list().map_or(Ok(false), |list| Ok(!list.is_empty(&self.meta)?));
        listed.or_else(|error| self.give_free_list_up(error).map(|()| false))
    }

    /// The list cannot be read: what is on it stays in `$FREE`.
    fn give_free_list_up(&self, error: Error) -> Result<()> {
        if !self.meta.context.io.is_lost(&error) {
            return Err(error);
        }
        tracing::error!("the list of blocks to free cannot be read: {error}");
        self.is_list_lost.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Frees some of what is to be freed. Called once per txg, in pass 1, after [`Dsl::sync_pass`](crate::dsl::Dsl::sync_pass).
    ///
    /// # Errors
    /// The MOS cannot be read. That a block of a destroyed dataset cannot be read is no error: it is tried again in later txgs.
    pub(in crate::dsl) fn free_some(&self, budget: FreeBudget, tx: &SyncTx<'_>) -> Result<()> {
        let meter = Meter { left: Cell::new(budget.blocks), deadline: self.meta.context.host.now_ns().saturating_add(budget.ns) };
        if let Some(list) = self.list()
            && self.has_listed_frees()?
        {
            let mut freed = SpaceDelta::default();
            let drained = list.drain(&self.meta, tx, |bp, _| {
                if meter.is_used_up(&self.meta) {
                    return Ok(ControlFlow::Break(()));
                }
                self.free_one(bp, &mut freed, tx);
                Ok(ControlFlow::Continue(()))
            });
            drained.map(drop).or_else(|error| self.give_free_list_up(error))?;
            self.freed_space(freed)?;
        }
        self.tell_obsolete(&meter, tx)?;
        self.free_deleted_clones(&meter, tx)?;
        match self.bptree.load(Ordering::Relaxed) {
            0 => self.leak_what_is_left(),
            tree => self.free_destroyed(Bptree(tree), &meter, tx),
        }
    }

    /// Tells removed vdevs which parts of their maps are not needed. A list that cannot be read is left alone until the pool is next opened.
    #[doc(alias = "dsl_scan_obsolete_block_cb")]
    fn tell_obsolete(&self, meter: &Meter, tx: &SyncTx<'_>) -> Result<()> {
        let meta = &self.meta;
        let list = match self.obsolete.load(Ordering::Relaxed) {
            0 => return Ok(()),
            object => Bpobj(object),
        };
        let devices = meta.context.io.devices();
        let drained = list.drain(meta, tx, |bp, _| {
            if meter.is_used_up(meta) {
                return Ok(ControlFlow::Break(()));
            }
            bp.first_dva().into_iter().for_each(|range| devices.note_obsolete(range));
            Ok(ControlFlow::Continue(()))
        });
        match drained {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if meta.context.io.is_lost(&error) => {
                tracing::error!("the list of what is not needed of removed vdevs cannot be read: {error}");
                self.set_obsolete(0);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        meta.mos.zap_remove(key::DIRECTORY, key::OBSOLETE_BPOBJ, tx)?;
        list.destroy(meta, tx)?;
        self.set_obsolete(0);
        meta.features.decrement(&meta.mos, Feature::ObsoleteCounts, tx)
    }

    /// Frees blocks of clones. A livelist that cannot be read is left alone until the pool is next opened, with all that come after it.
    fn free_deleted_clones(&self, meter: &Meter, tx: &SyncTx<'_>) -> Result<()> {
        if !self.deleted_clones.has_any() {
            return Ok(());
        }
        let mut freed = SpaceDelta::default();
        let is_enough = || meter.left.get() == 0 || self.meta.context.host.now_ns() > meter.deadline;
        let mut free = |bp: &BlkPtr| {
            meter.left.set(meter.left.get().saturating_sub(1));
            self.free_one(bp, &mut freed, tx);
        };
        let result = self.deleted_clones.free_some(&self.meta, &is_enough, &mut free, tx);
        self.freed_space(freed)?;
        match result {
            Err(error) if self.meta.context.io.is_lost(&error) || error.kind() == ErrorKind::Corrupt => {
                tracing::error!("the livelist of a destroyed clone cannot be read: {error}");
                self.deleted_clones.set(0);
                Ok(())
            }
            result => result,
        }
    }

    /// Nothing is to be freed any more. What still counts as being freed could not be found.
    fn leak_what_is_left(&self) -> Result<()> {
        let Some(free_dir) = self.dir.get() else { return Ok(()) };
        let left = free_dir.space();
        if left.used == 0 || self.has_listed_frees()? || self.is_list_lost.load(Ordering::Relaxed) {
            return Ok(());
        }
        for waiting in [key::BPTREE, key::DELETED_CLONES] {
            if self.meta.mos.zap_u64(key::DIRECTORY, waiting)?.is_some() {
                return Ok(());
            }
        }
        self.ledger.did_use(free_dir, UsedKind::Head, left.negative());
        self.ledger.leak(left);
        Ok(())
    }

    fn free_one(&self, bp: &BlkPtr, freed: &mut SpaceDelta, tx: &SyncTx<'_>) {
        freed.add(self.meta.space_of(bp).negative());
        tx.free(bp);
    }

    fn freed_space(&self, freed: SpaceDelta) -> Result<()> {
        self.ledger.did_use(self.dir()?, UsedKind::Head, freed);
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
            let pause = || blocks.get() > 0 && meter.is_used_up(&self.meta);
            let walk = Traversal::new(&meta.context, ondisk::bpobj::DESTROYED_OBJSET, entry.birth_txg.get());
            let is_lost = |error: &Error| error.is_loss() && error.kind() != ErrorKind::Io && meta.context.io.devices().is_whole();
            let walk = walk.children_first().resume(&entry.resume).pause_if(&pause).pass_over(&is_lost);
            let result = walk.run(&entry.block, &mut |block| {
                // OpenZFS would pass over a spill block that it is to go on at.
                let data = block.at.level == 0 && block.at.object != 0 && block.at.block != SPILL_BLOCK;
                if data && meter.is_used_up(&self.meta) {
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
