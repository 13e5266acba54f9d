//! Renaming file systems, volumes and snapshots.
//!
//! # Theory
//! A name is an entry in the dictionary of the directory above, so a rename moves one entry, whatever is below it. What goes
//! along is the sums: everything that the tree uses and has reserved leaves the old parent and all above it, and comes to the
//! new one; where both have an ancestor in common, that one sees no difference. A snapshot's name is an entry in its head's
//! dictionary of snapshots.
//!
//! # On disk
//! `ondisk::dsl::DirPhys::child_dirs`, `ondisk::dsl::DatasetPhys::snapshot_names`; the counts of `filesystem_limit`.

use std::sync::Arc;

use ondisk::dsl::UsedKind;
use ondisk::feature::Feature;

use super::create_sync::check_new_name;
use super::dir::{Dir, beyond_reservation};
use super::names::{DatasetName, NAME_BYTES_MAX, NESTING_MAX};
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::counts::{Limited, check_limits, common_ancestor, counts_of, move_counts, note_snapshots_changed};
use crate::dsl::dataset::Dataset;
use crate::dsl::dsl::Parts;
use crate::dsl::keys::root_sync::root_of;
use crate::dsl::meta::SpaceDelta;
use crate::dsl::tasks::actor::actor;
use crate::dsl::tasks::sync_tasks::cannot;
use crate::error::{ErrorKind, Result};

/// Renames a file system or volume with all below it. Object sets that are open learn of it.
pub(in crate::dsl) fn rename_dataset_sync(parts: &Parts, from: &str, to: &str, tx: &SyncTx<'_>) -> Result<()> {
    let (dir, parent, name) = check_rename(parts, from, to)?;
    rename_sync(parts, &dir, &parent, &name, to, tx)?;
    parts.objsets.refresh_settings()
}

/// The directory that is to move, where to, and its new last name.
pub(in crate::dsl) fn check_rename(parts: &Parts, from: &str, to: &str) -> Result<(Arc<Dir>, Arc<Dir>, String)> {
    let refuse = |why: &str, kind| cannot("rename", from, why, kind);
    let dir = parts.tree.dir_by_name(from)?;
    let Some(old_parent) = dir.parent() else {
        return Err(refuse("operation does not apply to pools", ErrorKind::Invalid));
    };
    // The pool's own have no head, or one that no user may touch.
    if dir.name().starts_with('$') || dir.phys().head_dataset.get() == 0 {
        return Err(refuse("reserved name", ErrorKind::Invalid));
    }
    if DatasetName::parse(to)?.pool() != DatasetName::parse(from)?.pool() {
        return Err(refuse("datasets must be within same pool", ErrorKind::Invalid));
    }
    let (parent, last) = check_new_name(parts, "rename to", to)?;
    if parent.object == old_parent.object {
        return check_lengths(parts, &dir, from, to).map(|()| (dir, parent, last));
    }
    let mut at = Some(parent.clone());
    while let Some(above) = at {
        if above.object == dir.object {
            return Err(refuse("New dataset name cannot be a descendant of current dataset name", ErrorKind::Invalid));
        }
        at = above.parent();
    }
    check_lengths(parts, &dir, from, to)?;
    check_key_moves(parts, &dir, &parent, from)?;
    let phys = dir.phys();
    let space = phys.used_bytes.get().max(phys.reserved.get());
    if available_after_leaving(parts, &parent, &old_parent, space) < space {
        return Err(refuse("out of space", ErrorKind::NoSpace));
    }
    check_limits_of_new_place(parts, &dir, &old_parent, &parent)?;
    Ok((dir, parent, last))
}

/// What moves must fit the limits of those directories that did not have it before.
fn check_limits_of_new_place(parts: &Parts, dir: &Arc<Dir>, from: &Arc<Dir>, to: &Arc<Dir>) -> Result<()> {
    if actor().is_superuser || !parts.meta.features.is_active(Feature::FilesystemLimits) {
        return Ok(());
    }
    let counts = counts_of(&parts.meta, &parts.tree, dir)?;
    let ancestor = common_ancestor(from, to);
    check_limits(parts, to, counts.file_systems + 1, Limited::FileSystems, ancestor.as_deref())?;
    check_limits(parts, to, counts.snapshots, Limited::Snapshots, ancestor.as_deref())
}

/// What `target` could still use if `space` had left `source`. Above their common ancestor nothing changes; to that one comes back
/// what reservations on the way do not keep.
#[doc(alias = "dsl_dir_transfer_possible")]
pub(super) fn available_after_leaving(parts: &Parts, target: &Arc<Dir>, source: &Arc<Dir>, space: u64) -> u64 {
    let above = |dir: &Arc<Dir>| {
        let mut path = vec![dir.clone()];
        while let Some(parent) = path.last().and_then(|dir| dir.parent()) {
            path.push(parent);
        }
        path
    };
    let targets = above(target);
    let mut left = -(space.min(i64::MAX as u64) as i64);
    let mut ancestor = None;
    for dir in above(source) {
        ancestor = targets.iter().position(|target| target.object == dir.object);
        if ancestor.is_some() {
            break;
        }
        let phys = dir.phys();
        left = beyond_reservation(phys.used_bytes.get(), phys.reserved.get(), left);
    }
    let Some(ancestor) = ancestor else { return 0 };
    let from_above = parts.room.available_with(&targets[ancestor], false, left.unsigned_abs(), None);
    targets[..ancestor].iter().rev().fold(from_above, |from_above, dir| {
        let phys = dir.phys();
        let used = phys.used_bytes.get().saturating_add(dir.promised());
        let limit = if phys.quota.get() == 0 { u64::MAX } else { phys.quota.get() };
        from_above.saturating_add(phys.reserved.get().saturating_sub(used)).min(limit.saturating_sub(used))
    })
}

/// No name below may become too long.
fn check_lengths(parts: &Parts, dir: &Arc<Dir>, from: &str, to: &str) -> Result<()> {
    let too_long = || cannot("rename", from, "a name below it would be too long", ErrorKind::NameTooLong);
    let depth = |name: &str| name.split('/').count();
    if to.len() <= from.len() && depth(to) <= depth(from) {
        return Ok(());
    }
    let mut waiting = vec![(dir.clone(), to.to_owned())];
    while let Some((dir, name)) = waiting.pop() {
        if name.len() > NAME_BYTES_MAX || depth(&name) > NESTING_MAX {
            return Err(too_long());
        }
        let head = parts.tree.dataset(dir.phys().head_dataset.get())?;
        if head.snapshots()?.iter().any(|(snapshot, _)| name.len() + 1 + snapshot.len() > NAME_BYTES_MAX) {
            return Err(too_long());
        }
        for (child, child_dir) in parts.tree.children(&dir)? {
            waiting.push((child_dir, format!("{name}/{child}")));
        }
    }
    Ok(())
}

/// What is encrypted with a key of something above it stays below that.
fn check_key_moves(parts: &Parts, dir: &Dir, parent: &Dir, from: &str) -> Result<()> {
    match root_of(parts, dir)? {
        None => Ok(()),
        Some(root) if root == dir.object || root_of(parts, parent)? == Some(root) => Ok(()),
        Some(_) => Err(cannot("rename", from, "cannot move encrypted child outside of its encryption root", ErrorKind::Denied)),
    }
}

fn rename_sync(parts: &Parts, dir: &Arc<Dir>, parent: &Arc<Dir>, name: &str, to: &str, tx: &SyncTx<'_>) -> Result<()> {
    let Some(old_parent) = dir.parent() else { bail!(Invalid, "{}: a pool cannot be renamed", dir.full_name()) };
    let head = parts.tree.dataset(dir.phys().head_dataset.get())?;
    parts.record_dataset_event(&head, "rename", &format!("-> {to}"), tx)?;
    if parent.object != old_parent.object {
        move_counts(&parts.meta, &parts.tree, dir, &old_parent, parent, tx)?;
        move_space(parts, dir, &old_parent, parent);
    }
    let mos = &parts.meta.mos;
    mos.zap_remove(old_parent.phys().child_dirs.get(), &dir.name(), tx)?;
    mos.zap_add_u64(parent.phys().child_dirs.get(), name, dir.object, tx)?;
    parts.ledger.change_dir(dir, |state| state.phys_mut().parent = parent.object.into());
    dir.relink(Some(parent.clone()), name.to_owned());
    Ok(())
}

fn move_space(parts: &Parts, dir: &Arc<Dir>, from: &Arc<Dir>, to: &Arc<Dir>) {
    let space = dir.space();
    let unused = dir.phys().reserved.get().saturating_sub(space.used);
    for (parent, sign) in [(from, -1), (to, 1)] {
        let of = |bytes: u64| sign * bytes as i64;
        let all = SpaceDelta { used: of(space.used), compressed: of(space.compressed), uncompressed: of(space.uncompressed) };
        parts.ledger.did_use(parent, UsedKind::Child, all);
        if unused > 0 {
            parts.ledger.did_use(parent, UsedKind::ChildReservation, SpaceDelta { used: of(unused), ..SpaceDelta::default() });
        }
    }
}

/// Renames a snapshot; with `recursive` those of the same name of everything below, where there are any.
#[doc(alias = "dsl_dataset_rename_snapshot")]
pub(in crate::dsl) fn rename_snapshot_sync(parts: &Parts, head: &str, from: &str, to: &str, recursive: bool, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    for (head, object) in check_snapshot_rename(parts, head, from, to, recursive)? {
        let snapshot = parts.tree.dataset(object)?;
        parts.record_dataset_event(&snapshot, "rename", &format!("-> @{to}"), tx)?;
        note_snapshots_changed(&parts.meta, &head.dir, tx)?;
        let names = head.phys().snapshot_names.get();
        // Where case does not matter, it may be written in another way there.
        if !mos.zap_remove(names, from, tx)? {
            let name = parts.tree.snapshot_names().name_of(mos, names, object)?;
            mos.zap_remove(names, &name, tx)?;
        }
        mos.zap_add_u64(names, to, object, tx)?;
    }
    parts.objsets.refresh_settings()
}

/// The heads that have a snapshot called `from`, and its object.
pub(in crate::dsl) fn check_snapshot_rename(parts: &Parts, head: &str, from: &str, to: &str, recursive: bool) -> Result<Vec<(Arc<Dataset>, u64)>> {
    let mut found = Vec::new();
    let mut waiting = vec![parts.tree.dir_by_name(head)?];
    while let Some(dir) = waiting.pop() {
        let head = parts.tree.dataset(dir.phys().head_dataset.get())?;
        let name = format!("{}@{from}", dir.full_name());
        if let Some(object) = head.snapshot_object(from)? {
            if head.snapshot_object(to)?.is_some() {
                return Err(cannot("rename", &name, "dataset already exists", ErrorKind::Exists));
            }
            if dir.full_name().len() + 1 + to.len() > NAME_BYTES_MAX {
                return Err(cannot("rename", &name, "name is too long", ErrorKind::NameTooLong));
            }
            parts.meta.mos.zap_check_room(head.phys().snapshot_names.get(), to)?;
            found.push((head, object));
        }
        if recursive {
            waiting.extend(parts.tree.children(&dir)?.into_iter().map(|(_, child)| child));
        }
    }
    if found.is_empty() {
        return Err(cannot("rename", &format!("{head}@{from}"), "dataset does not exist", ErrorKind::NotFound));
    }
    Ok(found)
}
