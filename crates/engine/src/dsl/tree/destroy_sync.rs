//! Destroying a file system or volume.
//!
//! # Theory
//! The directory and the dataset go at once; the blocks go later: where the object set was is put on the bptree, and its
//! space moves to `$FREE`. Pools without the feature `async_destroy` free all blocks in the same txg.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ondisk::dsl::{UsedKind, crypto_field, dataset_field, dir_field};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use crate::dsl::dead::bptree::Bptree;
use crate::dsl::tree::dataset::Dataset;
use crate::dsl::dead::deadlist::Deadlist;
use crate::dsl::tree::dir::Dir;
use crate::dsl::meta::{Space, key};
use crate::dsl::space::room::SpaceCheck;
use crate::dsl::tasks::sync_tasks::cannot;
use crate::dsl::dead::traverse::Traversal;
use crate::dsl::tree::tree::Dsl;
use crate::dmu::{SpaceOwner, SyncTx};
use crate::error;
use crate::error::{Error, ErrorKind, Result};

impl Dsl {
    /// Destroys a file system or volume that has no snapshots and no children, and waits until that is on disk.
    /// Its blocks are freed in the background.
    ///
    /// # Errors
    /// `NotFound`; `Busy` (it is in use, or its intent log is not replayed); `Exists` (it has children or snapshots).
    pub fn destroy_dataset(self: &Arc<Self>, name: &str) -> Result<()> {
        let name = name.to_owned();
        let checked = name.clone();
        let check = move |dsl: &Arc<Dsl>| dsl.check_destroy(&checked).map(|_| ());
        self.run_task(1, SpaceCheck::ExtraReserved, check, move |dsl, tx| {
            let dataset = dsl.check_destroy(&name)?;
            dsl.destroy_head_sync(&dataset, tx)
        })
    }

    fn check_destroy(self: &Arc<Self>, name: &str) -> Result<Arc<Dataset>> {
        let refuse = |why: &str, kind| cannot("destroy", name, why, kind);
        let dataset = self.dataset_by_name(name)?;
        if dataset.is_snapshot {
            return Err(refuse("it is a snapshot", ErrorKind::NotSupported));
        }
        if dataset.dir.parent().is_none() {
            return Err(refuse("operation does not apply to pools", ErrorKind::Invalid));
        }
        if dataset.prev().is_some_and(|prev| prev.phys().next_snapshot.get() == dataset.object) {
            return Err(refuse("filesystem has snapshots", ErrorKind::Exists));
        }
        if self.meta.mos.zap_count(dataset.dir.phys().child_dirs.get())? != 0 {
            return Err(refuse("filesystem has children", ErrorKind::Exists));
        }
        if let Some(origin) = dataset.prev()
            && self.goes_with_last_clone(&origin)?
            && self.is_open(&origin)
        {
            return Err(refuse("its origin, which goes with it, is busy", ErrorKind::Busy));
        }
        if dataset.phys().block.is_hole() {
            return Ok(dataset);
        }
        let objset = match self.objset(&dataset) {
            // All below it is leaked, and nobody can have it open.
            Err(error) if self.meta.context.io.is_lost(&error) => return Ok(dataset),
            objset => objset?,
        };
        if ondisk::zil::header_needs_replay(&objset.zil_header()) {
            return Err(refuse("its intent log is not replayed", ErrorKind::Busy));
        }
        // One here, one in the table of open object sets; while a txg is written, the sync thread has some too.
        if self.is_making_changes() && Arc::strong_count(&objset) > 2 {
            return Err(refuse("dataset is busy", ErrorKind::Busy));
        }
        Ok(dataset)
    }

    /// Destroys a head without snapshots, and its directory. Checked before.
    pub(in crate::dsl) fn destroy_head_sync(self: &Arc<Self>, dataset: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
        let mos = &self.meta.mos;
        let after = dataset.phys().prev_snapshot_txg.get();
        let is_async = self.meta.features.is_enabled(Feature::AsyncDestroy);
        let how = if is_async { "bptree" } else { "synchronous" };
        self.record_dataset_event(dataset, "destroy", &format!("({how}, mintxg={after})"), tx)?;
        if dataset.state.lock().reserved != 0 {
            dataset.set_refreservation(0);
        }
        if !dataset.phys().block.is_hole() {
            match self.objset(dataset) {
                Err(error) if tx.context.io.is_lost(&error) => tracing::error!("{}: destroyed, and what it held is leaked: {error}", dataset.dir.full_name()),
                objset => objset?.destroy_log(tx)?,
            }
        }
        for feature in dataset.features() {
            dataset.deactivate_feature(feature, tx)?;
        }
        dataset.remove_livelist(tx)?;
        self.forget_in_scan(dataset.object, tx)?;
        let origin = match dataset.prev() {
            Some(origin) if self.goes_with_last_clone(&origin)? => Some(origin),
            _ => None,
        };
        self.unlink_from_origin(dataset, tx)?;
        // What is on the deadlist the origin still refers to; that it has no other snapshots was checked.
        Deadlist::destroy(&self.meta, dataset.phys().deadlist.get(), tx)?;
        self.destroy_remap_deadlist(dataset.object, tx)?;
        if is_async {
            self.queue_blocks(dataset, tx)?;
        } else {
            self.free_blocks(dataset, tx)?;
        }
        let phys = dataset.phys();
        mos.free(phys.snapshot_names.get(), tx)?;
        self.destroy_bookmarks(dataset.object, tx)?;
        self.clear_boot_dataset(dataset.object, tx)?;
        self.change_dir(&dataset.dir, |state| state.phys.head_dataset = 0.into());
        self.forget_dataset(dataset.object);
        self.free_zapified(dataset.object, tx)?;
        self.destroy_dir_sync(&dataset.dir, tx)?;
        origin.map_or(Ok(()), |origin| self.destroy_snapshot_sync(&origin, tx))
    }

    /// A head that is a clone is one no more.
    fn unlink_from_origin(self: &Arc<Self>, dataset: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
        let Some(prev) = dataset.prev() else { return Ok(()) };
        let theirs = prev.phys();
        let key = ondisk::dsl::number_key(dataset.object);
        if theirs.next_clones.get() != 0 {
            self.meta.mos.zap_remove(theirs.next_clones.get(), &key, tx)?;
        }
        prev.change(|state| {
            let left = state.phys.children.get().saturating_sub(1);
            state.phys.children = left.into();
        });
        match prev.dir.phys().clones.get() {
            0 => Ok(()),
            clones => self.meta.mos.zap_remove(clones, &key, tx).map(|_| ()),
        }
    }

    /// The object set goes on the bptree.
    fn queue_blocks(&self, dataset: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
        let free_dir = self.special.read().free.clone().ok_or_else(|| error!(Corrupt, "the pool has no $FREE"))?;
        let phys = dataset.phys();
        let space: Space = dataset.dir.space();
        if phys.block.is_hole() {
            return Ok(());
        }
        if self.bptree.load(Ordering::Relaxed) == 0 {
            let tree = match self.meta.mos.zap_u64(key::DIRECTORY, key::BPTREE)? {
                // It is counted. (Counted twice it would be in use for ever, and OpenZFS refuses a pool where it is, and no tree is.)
                Some(stalled) => stalled,
                None => {
                    self.meta.features.increment(&self.meta.mos, Feature::AsyncDestroy, tx)?;
                    let tree = Bptree::create(&self.meta, tx)?.0;
                    self.meta.mos.zap_add_u64(key::DIRECTORY, key::BPTREE, tree, tx)?;
                    tree
                }
            };
            self.bptree.store(tree, Ordering::Relaxed);
        }
        let tree = Bptree(self.bptree.load(Ordering::Relaxed));
        tree.push(&self.meta, phys.block, phys.prev_snapshot_txg.get(), space, tx)?;
        self.did_use(&dataset.dir, UsedKind::Head, space.negative());
        self.did_use(&free_dir, UsedKind::Head, space.positive());
        Ok(())
    }

    /// All blocks are freed now.
    fn free_blocks(&self, dataset: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
        let phys = dataset.phys();
        let is_lost = |error: &Error| tx.context.io.is_lost(error);
        let walk = Traversal::new(&self.meta.context, dataset.object, phys.prev_snapshot_txg.get()).children_first().pass_over(&is_lost);
        walk.run(&phys.block, &mut |block| {
            if !block.pointer.is_embedded() {
                dataset.killed(tx, block.pointer)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        // Embedded blocks have an uncompressed size only, which is all that is left, but for what could not be found.
        let left = dataset.dir.space();
        if left.used > 0 {
            self.leak(left);
        }
        self.did_use(&dataset.dir, UsedKind::Head, left.negative());
        Ok(())
    }

    /// What a device removal moved that only snapshots had: the list goes, the blocks are the snapshots'.
    #[doc(alias = "dsl_dataset_destroy_remap_deadlist")]
    fn destroy_remap_deadlist(&self, object: u64, tx: &SyncTx<'_>) -> Result<()> {
        let meta = &self.meta;
        if meta.mos.info(object)?.object_type != ObjectType::ZAP_METADATA {
            return Ok(());
        }
        let Some(list) = meta.mos.zap_u64(object, dataset_field::REMAP_DEADLIST)? else { return Ok(()) };
        Deadlist::destroy(meta, list, tx)?;
        meta.features.decrement(&meta.mos, Feature::ObsoleteCounts, tx)
    }

    fn destroy_bookmarks(&self, object: u64, tx: &SyncTx<'_>) -> Result<()> {
        if self.meta.mos.info(object)?.object_type != ObjectType::ZAP_METADATA {
            return Ok(());
        }
        for _ in self.counting_bookmarks(object)?.into_iter().flat_map(|(_, bookmarks)| bookmarks) {
            self.meta.features.decrement(&self.meta.mos, Feature::BookmarkWritten, tx)?;
        }
        if let Some(bookmarks) = self.meta.mos.zap_u64(object, dataset_field::BOOKMARKS)? {
            self.meta.mos.free(bookmarks, tx)?;
            self.meta.features.decrement(&self.meta.mos, Feature::Bookmarks, tx)?;
        }
        Ok(())
    }

    /// The pool's property `bootfs` does not name a dataset that is gone.
    pub(in crate::dsl) fn clear_boot_dataset(&self, object: u64, tx: &SyncTx<'_>) -> Result<()> {
        let Some(props) = self.meta.mos.zap_u64(key::DIRECTORY, key::PROPS)? else { return Ok(()) };
        if self.meta.mos.zap_u64(props, "bootfs")? == Some(object) {
            self.meta.mos.zap_remove(props, "bootfs", tx)?;
        }
        Ok(())
    }

    /// One directory less uses a master key (0: it is not encrypted). The last one takes it along.
    fn release_key(&self, key: u64, tx: &SyncTx<'_>) -> Result<()> {
        let mos = &self.meta.mos;
        if key == 0 {
            return Ok(());
        }
        match mos.zap_u64(key, crypto_field::REFERENCES)? {
            Some(users @ 2..) => mos.zap_set_u64(key, crypto_field::REFERENCES, users - 1, tx),
            _ => mos.free(key, tx),
        }
    }

    /// Frees a directory that has neither head nor children.
    fn destroy_dir_sync(&self, dir: &Arc<Dir>, tx: &SyncTx<'_>) -> Result<()> {
        let mos = &self.meta.mos;
        self.set_reservation(dir, 0);
        let phys = dir.phys();
        if phys.used_bytes.get() != 0 {
            tracing::warn!("{}: {} bytes are still counted after it is destroyed", dir.full_name(), phys.used_bytes);
        }
        if phys.delegations.get() != 0 {
            // One entry for each user and group, with a ZAP of what they may do.
            for (_, permissions) in mos.zap_entries(phys.delegations.get())? {
                mos.free(permissions.first(), tx)?;
            }
        }
        for zap in [phys.child_dirs, phys.props, phys.clones, phys.delegations] {
            if zap.get() != 0 {
                mos.free(zap.get(), tx)?;
            }
        }
        if let Some(parent) = dir.parent() {
            self.adjust_count(&parent, dir_field::FILESYSTEM_COUNT, -1, tx)?;
            mos.zap_remove(parent.phys().child_dirs.get(), &dir.name(), tx)?;
        }
        self.release_key(dir.crypto_key, tx)?;
        self.forget_dir(dir.object);
        self.free_zapified(dir.object, tx)
    }
}
