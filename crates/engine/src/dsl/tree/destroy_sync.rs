//! Destroying a file system or volume.
//!
//! # Theory
//! The directory and the dataset go at once; the blocks go later: where the object set was is put on the bptree, and its
//! space moves to `$FREE`. Pools without the feature `async_destroy` free all blocks in the same txg.

use std::ops::ControlFlow;
use std::sync::Arc;

use ondisk::dsl::{UsedKind, crypto_field, dataset_field, dir_field};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use super::dir::Dir;
use crate::dmu::{SpaceOwner, SyncTx};
use crate::dsl::counts::adjust_count;
use crate::dsl::dataset::Dataset;
use crate::dsl::dataset::livelist_sync::give_livelist;
use crate::dsl::dead::deadlist::Deadlist;
use crate::dsl::dead::scan_sync;
use crate::dsl::dead::traverse::Traversal;
use crate::dsl::dsl::Parts;
use crate::dsl::meta::key;
use crate::dsl::snapshots::bookmarks_sync::destroy_bookmarks;
use crate::dsl::snapshots::destroy_sync::{destroy_snapshot_sync, goes_with_last_clone, is_origin_in_use};
use crate::dsl::tasks::sync_tasks::cannot;
use crate::error::{Error, ErrorKind, Result};

/// The dataset, if it can be destroyed. `is_second`: in the sync thread, where nobody can open it meanwhile.
pub(in crate::dsl) fn check_destroy(parts: &Parts, name: &str, is_second: bool) -> Result<Arc<Dataset>> {
    let refuse = |why: &str, kind| cannot("destroy", name, why, kind);
    let dataset = parts.tree.dataset_by_name(name)?;
    if dataset.is_snapshot {
        return Err(refuse("it is a snapshot", ErrorKind::NotSupported));
    }
    if dataset.dir.parent().is_none() {
        return Err(refuse("operation does not apply to pools", ErrorKind::Invalid));
    }
    if parts.receives.is_under_way(dataset.object) {
        return Err(refuse("dataset is busy", ErrorKind::Busy));
    }
    if dataset.prev().is_some_and(|prev| prev.phys().next_snapshot.get() == dataset.object) {
        return Err(refuse("filesystem has snapshots", ErrorKind::Exists));
    }
    if parts.meta.mos.zap_count(dataset.dir.phys().child_dirs.get())? != 0 {
        return Err(refuse("filesystem has children", ErrorKind::Exists));
    }
    if is_origin_in_use(parts, &dataset)? {
        return Err(refuse("its origin, which goes with it, is busy", ErrorKind::Busy));
    }
    if dataset.phys().block.is_hole() {
        return Ok(dataset);
    }
    let objset = match parts.objsets.objset(&dataset) {
        // All below it is leaked, and nobody can have it open.
        Err(error) if parts.meta.context.io.is_lost(&error) => return Ok(dataset),
        objset => objset?,
    };
    if ondisk::zil::header_needs_replay(&objset.zil_header()) {
        return Err(refuse("its intent log is not replayed", ErrorKind::Busy));
    }
    // One here, one in the table of open object sets; while a txg is written, the sync thread has some too.
    let is_used = || Arc::strong_count(&objset) > 2 || parts.objsets.is_changed_later(dataset.object, &parts.meta.context.groups);
    if is_second && is_used() {
        return Err(refuse("dataset is busy", ErrorKind::Busy));
    }
    Ok(dataset)
}

/// Destroys a head without snapshots, and its directory. Checked before.
pub(in crate::dsl) fn destroy_head_sync(parts: &Parts, dataset: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    if !dataset.phys().block.is_hole() {
        match parts.objsets.objset(dataset) {
            Err(error) if tx.context.io.is_lost(&error) => tracing::error!("{}: destroyed, and what it held is leaked: {error}", dataset.dir.full_name()),
            objset => objset?.destroy_log(tx)?,
        }
    }
    destroy_head_without_log_sync(parts, dataset, tx)
}

/// As [`destroy_head_sync`], of a head whose intent log is gone, whatever its object set says.
pub(in crate::dsl) fn destroy_head_without_log_sync(parts: &Parts, dataset: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    let after = dataset.phys().prev_snapshot_txg.get();
    let is_async = parts.meta.features.is_enabled(Feature::AsyncDestroy);
    if dataset.limits().reserved() != 0 {
        dataset.set_refreservation(0);
    }
    let livelist = give_livelist(dataset, tx)?;
    let (how, after) = match livelist {
        Some((_, first, _)) => ("livelist", first),
        None if is_async => ("bptree", after),
        None => ("synchronous", after),
    };
    parts.record_dataset_event(dataset, "destroy", &format!("({how}, mintxg={after})"), tx)?;
    for feature in dataset.features() {
        dataset.deactivate_feature(feature, tx)?;
    }
    scan_sync::forget(mos, dataset.object, tx)?;
    let origin = match dataset.prev() {
        Some(origin) if goes_with_last_clone(parts, &origin)? => Some(origin),
        _ => None,
    };
    unlink_from_origin(parts, dataset, tx)?;
    // What is on the deadlist the origin still refers to; that it has no other snapshots was checked.
    Deadlist::destroy(&parts.meta, dataset.phys().deadlist.get(), tx)?;
    destroy_remap_deadlist(parts, dataset.object, tx)?;
    if let Some((livelist, _, space)) = livelist {
        parts.frees.queue_livelist(&dataset.dir, livelist, space, tx)?;
    } else if is_async {
        let phys = dataset.phys();
        parts.frees.queue_objset(&dataset.dir, phys.block, phys.prev_snapshot_txg.get(), dataset.dir.space(), tx)?;
    } else {
        free_blocks(parts, dataset, tx)?;
    }
    let phys = dataset.phys();
    mos.free(phys.snapshot_names.get(), tx)?;
    destroy_bookmarks(&parts.meta, dataset.object, tx)?;
    clear_boot_dataset(parts, dataset.object, tx)?;
    parts.ledger.change_dir(&dataset.dir, |state| state.phys_mut().head_dataset = 0.into());
    parts.forget_dataset(dataset.object);
    parts.meta.free_zapified(dataset.object, tx)?;
    destroy_dir_sync(parts, &dataset.dir, tx)?;
    origin.map_or(Ok(()), |origin| destroy_snapshot_sync(parts, &origin, tx))
}

/// A head that is a clone is one no more.
fn unlink_from_origin(parts: &Parts, dataset: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    let Some(prev) = dataset.prev() else { return Ok(()) };
    let theirs = prev.phys();
    let key = ondisk::dsl::number_key(dataset.object);
    if theirs.next_clones.get() != 0 {
        parts.meta.mos.zap_remove(theirs.next_clones.get(), &key, tx)?;
    }
    prev.change(|state| {
        let left = state.phys_mut().children.get().saturating_sub(1);
        state.phys_mut().children = left.into();
    });
    match prev.dir.phys().clones.get() {
        0 => Ok(()),
        clones => parts.meta.mos.zap_remove(clones, &key, tx).map(|_| ()),
    }
}

/// All blocks are freed now.
fn free_blocks(parts: &Parts, dataset: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    let phys = dataset.phys();
    let is_lost = |error: &Error| tx.context.io.is_lost(error);
    let walk = Traversal::new(&parts.meta.context, dataset.object, phys.prev_snapshot_txg.get()).children_first().pass_over(&is_lost);
    walk.run(&phys.block, &mut |block| {
        if !block.pointer.is_embedded() {
            dataset.killed(tx, block.pointer)?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    // Embedded blocks have an uncompressed size only, which is all that is left, but for what could not be found.
    let left = dataset.dir.space();
    if left.used > 0 {
        parts.ledger.leak(left);
    }
    parts.ledger.did_use(&dataset.dir, UsedKind::Head, left.negative());
    Ok(())
}

/// What a device removal moved that only snapshots had: the list goes, the blocks are the snapshots'.
#[doc(alias = "dsl_dataset_destroy_remap_deadlist")]
fn destroy_remap_deadlist(parts: &Parts, object: u64, tx: &SyncTx<'_>) -> Result<()> {
    let meta = &parts.meta;
    if meta.mos.info(object)?.object_type != ObjectType::ZAP_METADATA {
        return Ok(());
    }
    let Some(list) = meta.mos.zap_u64(object, dataset_field::REMAP_DEADLIST)? else { return Ok(()) };
    Deadlist::destroy(meta, list, tx)?;
    meta.features.decrement(&meta.mos, Feature::ObsoleteCounts, tx)
}

/// The pool's property `bootfs` does not name a dataset that is gone.
pub(in crate::dsl) fn clear_boot_dataset(parts: &Parts, object: u64, tx: &SyncTx<'_>) -> Result<()> {
    let Some(props) = parts.meta.mos.zap_u64(key::DIRECTORY, key::PROPS)? else { return Ok(()) };
    if parts.meta.mos.zap_u64(props, "bootfs")? == Some(object) {
        parts.meta.mos.zap_remove(props, "bootfs", tx)?;
    }
    Ok(())
}

/// One directory less uses a master key (0: it is not encrypted). The last one takes it along.
fn release_key(parts: &Parts, key: u64, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    if key == 0 {
        return Ok(());
    }
    match mos.zap_u64(key, crypto_field::REFERENCES)? {
        Some(users @ 2..) => mos.zap_set_u64(key, crypto_field::REFERENCES, users - 1, tx),
        _ => mos.free(key, tx),
    }
}

/// Frees a directory that has neither head nor children.
fn destroy_dir_sync(parts: &Parts, dir: &Arc<Dir>, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    parts.ledger.set_reservation(dir, 0);
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
        adjust_count(&parts.meta, &parent, dir_field::FILESYSTEM_COUNT, -1, tx)?;
        mos.zap_remove(parent.phys().child_dirs.get(), &dir.name(), tx)?;
    }
    release_key(parts, dir.crypto_key, tx)?;
    parts.forget_dir(dir.object);
    parts.meta.free_zapified(dir.object, tx)
}
