//! Fields of directories that are kept up while the tree changes: counts of file systems and snapshots, the time of the last snapshot.
//!
//! # Theory
//! Where a limit is set file systems and snapshots are counted, in every directory from there on downwards.
//!
//! # On disk
//! [`ondisk::dsl::dir_field`]

use std::sync::Arc;

use ondisk::dsl::dir_field;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use crate::dmu::SyncTx;
use crate::dsl::meta::Meta;
use crate::dsl::tree::dir::Dir;
use crate::dsl::tree::tree::Tree;
use crate::error::Result;

/// How many file systems and snapshots a tree has.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::dsl) struct Counts {
    /// Without the one at its root.
    pub(in crate::dsl) file_systems: u64,
    pub(in crate::dsl) snapshots: u64,
}

/// A snapshot of a directory's head was made, destroyed or renamed.
#[doc(alias = "dsl_dir_snap_cmtime_update")]
pub(in crate::dsl) fn note_snapshots_changed(meta: &Meta, dir: &Dir, tx: &SyncTx<'_>) -> Result<()> {
    if !meta.features.is_enabled(Feature::ExtensibleDataset) {
        return Ok(());
    }
    let (seconds, nanoseconds) = meta.context.host.wall_clock();
    meta.zapify(dir.object, tx)?;
    meta.mos.zap_set_numbers(dir.object, dir_field::SNAPSHOTS_CHANGED, &[seconds, nanoseconds.into()], tx)
}

/// Changes the count of file systems or snapshots (`field`) from `dir` upwards, as far as counts are kept.
pub(in crate::dsl) fn adjust_count(meta: &Meta, dir: &Arc<Dir>, field: &str, delta: i64, tx: &SyncTx<'_>) -> Result<()> {
    if delta == 0 || (field == dir_field::FILESYSTEM_COUNT && dir.name().starts_with('$')) {
        return Ok(());
    }
    let mut at = Some(dir.clone());
    while let Some(dir) = at {
        if meta.mos.info(dir.object)?.object_type != ObjectType::ZAP_METADATA {
            break;
        }
        let Some(count) = meta.mos.zap_u64(dir.object, field)? else { break };
        meta.mos.zap_set_u64(dir.object, field, count.saturating_add_signed(delta), tx)?;
        at = dir.parent();
    }
    Ok(())
}

/// What is counted of `dir` leaves `from` and comes to `to`.
pub(in crate::dsl) fn move_counts(meta: &Meta, tree: &Arc<Tree>, dir: &Arc<Dir>, from: &Arc<Dir>, to: &Arc<Dir>, tx: &SyncTx<'_>) -> Result<()> {
    if !meta.features.is_active(Feature::FilesystemLimits) {
        return Ok(());
    }
    let counts = ensure_counts(meta, tree, dir, tx)?;
    let moved = [(dir_field::FILESYSTEM_COUNT, counts.file_systems + 1), (dir_field::SNAPSHOT_COUNT, counts.snapshots)];
    for (field, count) in moved {
        adjust_count(meta, from, field, -(count as i64), tx)?;
        adjust_count(meta, to, field, count as i64, tx)?;
    }
    Ok(())
}

/// A limit is set on `dir`: from now on everything is counted there and below.
#[doc(alias = "dsl_dir_activate_fs_ss_limit")]
pub(in crate::dsl) fn begin_counts(meta: &Meta, tree: &Arc<Tree>, dir: &Arc<Dir>, tx: &SyncTx<'_>) -> Result<()> {
    if !meta.features.is_active(Feature::FilesystemLimits) {
        meta.features.increment(&meta.mos, Feature::FilesystemLimits, tx)?;
    }
    ensure_counts(meta, tree, dir, tx).map(drop)
}

/// What a directory says of itself. Where it says something, all below it do.
fn kept_counts(meta: &Meta, dir: &Dir) -> Result<Option<Counts>> {
    if meta.mos.info(dir.object)?.object_type != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    let Some(file_systems) = meta.mos.zap_u64(dir.object, dir_field::FILESYSTEM_COUNT)? else { return Ok(None) };
    let snapshots = meta.mos.zap_u64(dir.object, dir_field::SNAPSHOT_COUNT)?.unwrap_or(0);
    Ok(Some(Counts { file_systems, snapshots }))
}

/// What is below `dir`, counted where that is not kept; each directory that was counted is shown to `counted`.
fn count(meta: &Meta, tree: &Arc<Tree>, dir: &Arc<Dir>, counted: &dyn Fn(&Dir, Counts) -> Result<()>) -> Result<Counts> {
    if let Some(counts) = kept_counts(meta, dir)? {
        return Ok(counts);
    }
    let mut counts = Counts::default();
    for (_, child) in tree.children(dir)? {
        let below = count(meta, tree, &child, counted)?;
        counts.file_systems += below.file_systems + 1;
        counts.snapshots += below.snapshots;
    }
    let head = tree.dataset(dir.phys().head_dataset.get())?;
    // Those that a receive or a comparison takes for itself do not count.
    counts.snapshots += head.snapshots()?.iter().filter(|(name, _)| !name.starts_with('%')).count() as u64;
    counted(dir, counts)?;
    Ok(counts)
}

/// What is below `dir`.
pub(in crate::dsl) fn counts_of(meta: &Meta, tree: &Arc<Tree>, dir: &Arc<Dir>) -> Result<Counts> {
    count(meta, tree, dir, &|_, _| Ok(()))
}

/// What is below `dir`, written down there and in everything below it where it is not yet.
#[doc(alias = "dsl_dir_init_fs_ss_count")]
fn ensure_counts(meta: &Meta, tree: &Arc<Tree>, dir: &Arc<Dir>, tx: &SyncTx<'_>) -> Result<Counts> {
    count(meta, tree, dir, &|dir, counts| {
        meta.zapify(dir.object, tx)?;
        meta.mos.zap_set_u64(dir.object, dir_field::FILESYSTEM_COUNT, counts.file_systems, tx)?;
        meta.mos.zap_set_u64(dir.object, dir_field::SNAPSHOT_COUNT, counts.snapshots, tx)
    })
}
