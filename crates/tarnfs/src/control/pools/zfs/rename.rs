//! `zfs rename`

use engine::dsl::names::DatasetName;
use engine::error::ErrorKind;

use super::mounting::NotMounted;
use crate::control::DatasetRename;
use crate::control::pools::{Failure, FailureKind, Pools, names};

impl Pools {
    pub(in crate::control::pools) fn rename(&mut self, rename: &DatasetRename) -> Result<(), Failure> {
        match (rename.from.split_once('@'), rename.to.split_once('@')) {
            (Some((head, from)), Some((new_head, to))) if head == new_head => self.rename_snapshot(rename, head, from, to),
            (None, None) => self.rename_dataset(rename),
            _ => Err(Failure::with(FailureKind::InvalidName, "snapshots must be part of same dataset")),
        }
    }

    fn rename_snapshot(&mut self, rename: &DatasetRename, head: &str, from: &str, to: &str) -> Result<(), Failure> {
        let pool = self.pool_of(head)?.pool.clone();
        if DatasetName::parse(&rename.to).is_err() || to.contains('%') {
            return Err(Failure::with(FailureKind::InvalidName, "invalid character in name"));
        }
        let renamed = pool.engine().dsl.rename_snapshot(head, from, to, rename.recursive);
        if pool.is_renamed(&rename.from, &renamed) {
            for other in self.mounted_heads_below(head).into_iter().filter(|other| rename.recursive || other == head) {
                self.mounter.renamed(&format!("{other}@{from}"), &format!("{other}@{to}"));
            }
            self.mounter.refresh(&pool);
        }
        renamed.map_err(|error| match (error.kind(), rename.recursive) {
            (ErrorKind::Exists, true) => Failure::with(FailureKind::DatasetExists, "a child dataset already has a snapshot with the new name"),
            _ => Failure::about_dataset(&error),
        })
    }

    /// A file system and those below it that are mounted, or of which a snapshot is.
    fn mounted_heads_below(&self, name: &str) -> Vec<String> {
        let is_below = |head: &str| head == name || head.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        let heads = self.mounter.list().into_iter().map(|mount| mount.dataset.split('@').next().unwrap_or_default().to_owned());
        let mut heads: Vec<String> = heads.filter(|head| is_below(head)).collect();
        heads.sort();
        heads.dedup();
        heads
    }

    /// What is mounted of the tree is unmounted, and mounted again under its new name: where it belongs may depend on that. What
    /// somebody else mounts (`mountpoint=legacy` or `none`), and all of it if that is asked for, stays mounted where it is.
    fn rename_dataset(&mut self, rename: &DatasetRename) -> Result<(), Failure> {
        names::check_dataset(&rename.to)?;
        let pool = self.pool_of(&rename.from)?.pool.clone();
        let target_pool = rename.to.split('/').next().unwrap_or_default();
        if target_pool != pool.name() {
            return Err(Failure::with(FailureKind::InvalidName, "datasets must be within same pool"));
        }
        if rename.from == rename.to {
            return Ok(());
        }
        if rename.parents {
            self.create_ancestors(&rename.to)?;
        }
        let mut mounted = Vec::new();
        for dataset in self.mounted_below(&rename.from) {
            if !rename.no_remount && self.mountpoint(&dataset)?.0.starts_with('/') {
                mounted.push(dataset);
            }
        }
        self.mounter.check_rename(&rename.from)?;
        let directories = self.own_mount_directories_below(&mounted);
        let before = self.in_sight();
        for dataset in mounted.iter().rev() {
            // Unmounting its parent may have taken it along.
            if self.mounter.is_mounted(dataset)
                && let Err(failure) = self.put_away(dataset, rename.force)
            {
                self.mount_all_again(&mounted);
                let taken_along = self.taken_along(before, &|_| false);
                self.bring_back(&taken_along);
                return Err(failure);
            }
        }
        let taken_along = self.taken_along(before, &|dataset| mounted.iter().any(|other| other == dataset));
        let renamed = pool.engine().dsl.rename_dataset(&rename.from, &rename.to);
        let is_renamed = pool.is_renamed(&rename.from, &renamed);
        let now: Vec<String> = match is_renamed {
            true => mounted.iter().map(|name| format!("{}{}", rename.to, &name[rename.from.len()..])).collect(),
            false => mounted,
        };
        if is_renamed {
            self.mounter.renamed(&rename.from, &rename.to);
            directories.iter().rev().for_each(|directory| super::mounting::remove_directory(directory));
        }
        let mut left = self.mount_all_again(&now);
        left.extend(self.bring_back(&taken_along));
        let mut refreshed = Ok(());
        if is_renamed {
            // What it inherits comes from elsewhere now: what has stayed mounted learns of it.
            refreshed = pool.refresh_mount_options();
            if refreshed.is_ok() {
                self.mounter.refresh(&pool);
            }
        }
        renamed.map_err(|error| rename_failure(&error))?;
        refreshed.map_err(|error| Failure::about_dataset(&error))?;
        NotMounted::answer(&left)
    }

    fn put_away(&mut self, dataset: &str, force: bool) -> Result<(), Failure> {
        if force { self.mounter.unmount(dataset, true) } else { self.mounter.put_away(dataset, None, false) }
    }

    /// What is mounted of a dataset and those below it, parents before children.
    fn mounted_below(&self, name: &str) -> Vec<String> {
        let is_below = |dataset: &str| dataset == name || dataset.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        let mut mounted: Vec<String> = self.mounter.list().into_iter().map(|mount| mount.dataset).filter(|dataset| is_below(dataset)).collect();
        mounted.sort();
        mounted.dedup();
        mounted
    }

    pub(super) fn own_mount_directories_below(&self, mounted: &[String]) -> Vec<std::path::PathBuf> {
        mounted.iter().filter_map(|dataset| self.own_mount_directory(dataset)).collect()
    }
}

fn rename_failure(error: &crate::Error) -> Failure {
    let sentence = error.message().rsplit_once(": ").map_or(error.message(), |(_, last)| last).to_owned();
    match error.kind() {
        ErrorKind::NotFound if sentence.contains("parent") => Failure::with(FailureKind::NoSuchDataset, sentence),
        ErrorKind::Invalid => Failure::with(FailureKind::InvalidName, sentence),
        ErrorKind::Denied => Failure::with(FailureKind::Encryption, sentence),
        _ => Failure::about_dataset(error),
    }
}
