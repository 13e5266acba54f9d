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

use ondisk::dsl::{UsedKind, dir_field};
use ondisk::feature::Feature;

use crate::dsl::tree::dataset::Dataset;
use crate::dsl::tree::dir::{Dir, beyond_reservation};
use crate::dsl::meta::SpaceDelta;
use crate::dsl::tree::names::{DatasetName, NAME_BYTES_MAX, NESTING_MAX};
use crate::dsl::space::room::SpaceCheck;
use crate::dsl::tasks::sync_tasks::cannot;
use crate::dsl::tree::tree::Dsl;
use crate::bail;
use crate::dmu::SyncTx;
use crate::error::{ErrorKind, Result};

/// In the object of a wrapped key: the directory whose key wraps it.
const KEY_ROOT_DIR: &str = "DSL_CRYPTO_ROOT_DDOBJ";

/// How many file systems and snapshots a tree has.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    file_systems: u64,
    snapshots: u64,
}

impl Dsl {
    /// Renames a file system or volume with all below it, and waits until that is on disk. Nothing of it may be mounted under
    /// a name that is remembered elsewhere; object sets that are open learn of it.
    ///
    /// # Errors
    /// `NotFound` (it, or the new parent), `Exists`, `Invalid` (another pool, below itself), `NameTooLong`, `NoSpace`.
    #[doc(alias = "dsl_dir_rename")]
    pub fn rename_dataset(self: &Arc<Self>, from: &str, to: &str) -> Result<()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        let (old, new) = (from.clone(), to.clone());
        let check = move |dsl: &Arc<Dsl>| dsl.check_rename(&old, &new).map(|_| ());
        self.run_task(3, SpaceCheck::Reserved, check, move |dsl, tx| {
            let (dir, parent, name) = dsl.check_rename(&from, &to)?;
            dsl.rename_sync(&dir, &parent, &name, &to, tx)?;
            dsl.refresh_settings()
        })
    }

    /// The directory that is to move, where to, and its new last name.
    fn check_rename(self: &Arc<Self>, from: &str, to: &str) -> Result<(Arc<Dir>, Arc<Dir>, String)> {
        let refuse = |why: &str, kind| cannot("rename", from, why, kind);
        let dir = self.dir_by_name(from)?;
        let Some(old_parent) = dir.parent() else {
            return Err(refuse("operation does not apply to pools", ErrorKind::Invalid));
        };
        if DatasetName::parse(to)?.pool() != DatasetName::parse(from)?.pool() {
            return Err(refuse("datasets must be within same pool", ErrorKind::Invalid));
        }
        let (parent, last) = self.check_new_name("rename to", to)?;
        if parent.object == old_parent.object {
            return self.check_lengths(&dir, from, to).map(|()| (dir, parent, last));
        }
        let mut at = Some(parent.clone());
        while let Some(above) = at {
            if above.object == dir.object {
                return Err(refuse("New dataset name cannot be a descendant of current dataset name", ErrorKind::Invalid));
            }
            at = above.parent();
        }
        self.check_lengths(&dir, from, to)?;
        self.check_key_moves(&dir, &parent, from)?;
        let phys = dir.phys();
        let space = phys.used_bytes.get().max(phys.reserved.get());
        if self.available_after_leaving(&parent, &old_parent, space) < space {
            return Err(refuse("out of space", ErrorKind::NoSpace));
        }
        Ok((dir, parent, last))
    }

    /// What `target` could still use if `space` had left `source`. Above their common ancestor nothing changes; to that one comes back
    /// what reservations on the way do not keep.
    #[doc(alias = "dsl_dir_transfer_possible")]
    fn available_after_leaving(&self, target: &Arc<Dir>, source: &Arc<Dir>, space: u64) -> u64 {
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
        let from_above = self.available_with(&targets[ancestor], false, left.unsigned_abs(), None);
        targets[..ancestor].iter().rev().fold(from_above, |from_above, dir| {
            let phys = dir.phys();
            let used = phys.used_bytes.get().saturating_add(dir.promised());
            let limit = if phys.quota.get() == 0 { u64::MAX } else { phys.quota.get() };
            from_above.saturating_add(phys.reserved.get().saturating_sub(used)).min(limit.saturating_sub(used))
        })
    }

    /// No name below may become too long.
    fn check_lengths(self: &Arc<Self>, dir: &Arc<Dir>, from: &str, to: &str) -> Result<()> {
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
            let head = self.dataset(dir.phys().head_dataset.get())?;
            if head.snapshots()?.iter().any(|(snapshot, _)| name.len() + 1 + snapshot.len() > NAME_BYTES_MAX) {
                return Err(too_long());
            }
            for (child, child_dir) in self.children(&dir)? {
                waiting.push((child_dir, format!("{name}/{child}")));
            }
        }
        Ok(())
    }

    /// What is encrypted with a key of something above it stays below that.
    fn check_key_moves(&self, dir: &Dir, parent: &Dir, from: &str) -> Result<()> {
        let root_of = |dir: &Dir| match dir.crypto_key {
            0 => Ok(None),
            key => self.meta.mos.zap_u64(key, KEY_ROOT_DIR),
        };
        match root_of(dir)? {
            None => Ok(()),
            Some(root) if root == dir.object || root_of(parent)? == Some(root) => Ok(()),
            Some(_) => Err(cannot("rename", from, "cannot move encrypted child outside of its encryption root", ErrorKind::Denied)),
        }
    }

    fn rename_sync(self: &Arc<Self>, dir: &Arc<Dir>, parent: &Arc<Dir>, name: &str, to: &str, tx: &SyncTx<'_>) -> Result<()> {
        let Some(old_parent) = dir.parent() else { bail!(Invalid, "{}: a pool cannot be renamed", dir.full_name()) };
        let head = self.dataset(dir.phys().head_dataset.get())?;
        self.record_dataset_event(&head, "rename", &format!("-> {to}"), tx)?;
        if parent.object != old_parent.object {
            self.move_counts(dir, &old_parent, parent, tx)?;
            self.move_space(dir, &old_parent, parent);
        }
        let mos = &self.meta.mos;
        mos.zap_remove(old_parent.phys().child_dirs.get(), &dir.name(), tx)?;
        mos.zap_add_u64(parent.phys().child_dirs.get(), name, dir.object, tx)?;
        self.change_dir(dir, |state| state.phys.parent = parent.object.into());
        dir.relink(Some(parent.clone()), name.to_owned());
        Ok(())
    }

    fn move_space(&self, dir: &Arc<Dir>, from: &Arc<Dir>, to: &Arc<Dir>) {
        let space = dir.space();
        let unused = dir.phys().reserved.get().saturating_sub(space.used);
        for (parent, sign) in [(from, -1), (to, 1)] {
            let of = |bytes: u64| sign * bytes as i64;
            let all = SpaceDelta { used: of(space.used), compressed: of(space.compressed), uncompressed: of(space.uncompressed) };
            self.did_use(parent, UsedKind::Child, all);
            if unused > 0 {
                self.did_use(parent, UsedKind::ChildReservation, SpaceDelta { used: of(unused), ..SpaceDelta::default() });
            }
        }
    }

    /// Where a limit is set file systems and snapshots are counted, in every directory from there on.
    fn move_counts(self: &Arc<Self>, dir: &Arc<Dir>, from: &Arc<Dir>, to: &Arc<Dir>, tx: &SyncTx<'_>) -> Result<()> {
        if !self.meta.features.is_active(Feature::FilesystemLimits) {
            return Ok(());
        }
        let counts = self.ensure_counts(dir, tx)?;
        let moved = [(dir_field::FILESYSTEM_COUNT, counts.file_systems + 1), (dir_field::SNAPSHOT_COUNT, counts.snapshots)];
        for (field, count) in moved {
            self.adjust_count(from, field, -(count as i64), tx)?;
            self.adjust_count(to, field, count as i64, tx)?;
        }
        Ok(())
    }

    /// What is below `dir`, written down there and in everything below it where it is not yet.
    fn ensure_counts(self: &Arc<Self>, dir: &Arc<Dir>, tx: &SyncTx<'_>) -> Result<Counts> {
        let mut counts = Counts::default();
        for (_, child) in self.children(dir)? {
            let below = self.ensure_counts(&child, tx)?;
            counts.file_systems += below.file_systems + 1;
            counts.snapshots += below.snapshots;
        }
        let head = self.dataset(dir.phys().head_dataset.get())?;
        counts.snapshots += head.snapshots()?.len() as u64;
        self.zapify(dir.object, tx)?;
        for (field, count) in [(dir_field::FILESYSTEM_COUNT, counts.file_systems), (dir_field::SNAPSHOT_COUNT, counts.snapshots)] {
            if !self.meta.mos.zap_contains(dir.object, field)? {
                self.meta.mos.zap_add_u64(dir.object, field, count, tx)?;
            }
        }
        Ok(counts)
    }

    /// Renames a snapshot; with `recursive` those of the same name of everything below, where there are any.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NameTooLong`.
    #[doc(alias = "dsl_dataset_rename_snapshot")]
    pub fn rename_snapshot(self: &Arc<Self>, head: &str, from: &str, to: &str, recursive: bool) -> Result<()> {
        let (head, from, to) = (head.to_owned(), from.to_owned(), to.to_owned());
        DatasetName::parse(&format!("{head}@{to}"))?;
        let names = (head.clone(), from.clone(), to.clone());
        let check = move |dsl: &Arc<Dsl>| dsl.check_snapshot_rename(&names.0, &names.1, &names.2, recursive).map(|_| ());
        self.run_task(1, SpaceCheck::Reserved, check, move |dsl, tx| {
            for (head, object) in dsl.check_snapshot_rename(&head, &from, &to, recursive)? {
                let snapshot = dsl.dataset(object)?;
                dsl.record_dataset_event(&snapshot, "rename", &format!("-> @{to}"), tx)?;
                dsl.note_snapshots_changed(&head.dir, tx)?;
                let names = head.phys().snapshot_names.get();
                dsl.meta.mos.zap_remove(names, &from, tx)?;
                dsl.meta.mos.zap_add_u64(names, &to, object, tx)?;
            }
            dsl.refresh_settings()
        })
    }

    /// The heads that have a snapshot called `from`, and its object.
    fn check_snapshot_rename(self: &Arc<Self>, head: &str, from: &str, to: &str, recursive: bool) -> Result<Vec<(Arc<Dataset>, u64)>> {
        let mut found = Vec::new();
        let mut waiting = vec![self.dir_by_name(head)?];
        while let Some(dir) = waiting.pop() {
            let head = self.dataset(dir.phys().head_dataset.get())?;
            let name = format!("{}@{from}", dir.full_name());
            if let Some(object) = head.snapshot_object(from)? {
                if head.snapshot_object(to)?.is_some() {
                    return Err(cannot("rename", &name, "dataset already exists", ErrorKind::Exists));
                }
                if dir.full_name().len() + 1 + to.len() > NAME_BYTES_MAX {
                    return Err(cannot("rename", &name, "name is too long", ErrorKind::NameTooLong));
                }
                found.push((head, object));
            }
            if recursive {
                waiting.extend(self.children(&dir)?.into_iter().map(|(_, child)| child));
            }
        }
        if found.is_empty() {
            return Err(cannot("rename", &format!("{head}@{from}"), "dataset does not exist", ErrorKind::NotFound));
        }
        Ok(found)
    }
}
