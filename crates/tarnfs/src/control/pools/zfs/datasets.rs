//! `zfs create` and `zfs destroy`

use engine::dsl::names::split_parent;
use engine::dsl::prop_table::{DatasetTypes, is_space_property};
use engine::error::ErrorKind;
use ondisk::objset::ObjsetType;

use crate::PropertyChange;
use crate::control::pools::{Failure, FailureKind, Pools, checks, names};
use crate::control::{DatasetCreate, DatasetDestroy, DatasetSet, Setting, Source, Value};
use engine::dsl::PropertyValue;

/// Block size of a volume that nobody chose.
const VOLUME_BLOCK_BYTES: u64 = 16 << 10;

impl Pools {
    pub(in crate::control::pools) fn create_dataset(&mut self, create: &DatasetCreate) -> Result<(), Failure> {
        names::check_dataset(&create.name)?;
        let pool = self.pool_of(&create.name)?.pool.clone();
        if create.parents {
            self.create_ancestors(&create.name)?;
        }
        let features = &pool.engine().dsl.meta.features;
        let is_enabled = |feature| features.is_enabled(feature);
        let failed = |error: crate::Error| creation_failure(&error);
        if let Some(bytes) = create.volume_size {
            let block = |setting: &&Setting| setting.name == "volblocksize";
            let block_bytes = create.properties.iter().find(block).map_or(Some(VOLUME_BLOCK_BYTES), |setting| setting.value.number());
            let block_bytes = block_bytes.ok_or_else(|| Failure::new(FailureKind::BadProperty))?;
            let mut settings: Vec<Setting> = create.properties.iter().filter(|setting| !block(setting)).cloned().collect();
            let copies = settings.iter().find(|setting| setting.name == "copies").and_then(|setting| setting.value.number()).unwrap_or(1);
            for setting in &mut settings {
                if setting.name == "refreservation" && setting.value == Value::Number(u64::MAX) {
                    setting.value = Value::Number(volume_reservation(bytes, block_bytes, copies));
                }
            }
            let changes = checks::changes(&settings, DatasetTypes::VOLUME, true, &is_enabled)?;
            self.check_reservations(&create.name, &changes)?;
            pool.create_volume(&create.name, bytes, block_bytes, changes).map_err(failed)?;
        } else {
            // Quotas of users, groups and projects are the file system's own, which there must be first.
            let (quotas, settings): (Vec<_>, Vec<_>) = create.properties.iter().cloned().partition(|setting| is_space_property(&setting.name));
            let changes = checks::changes(&settings, DatasetTypes::FILESYSTEM, true, &is_enabled)?;
            self.check_reservations(&create.name, &changes)?;
            pool.create_file_system(&create.name, changes).map_err(failed)?;
            if !quotas.is_empty()
                && let Err(failure) = self.set_properties(&DatasetSet { name: create.name.clone(), settings: quotas, no_remount: true, received: false })
            {
                pool.destroy_file_system(&create.name).map_err(failed)?;
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Makes the ancestors that are missing, and mounts each at once: they stay whatever becomes of the dataset, and the command knows of that one only.
    pub(super) fn create_ancestors(&mut self, name: &str) -> Result<(), Failure> {
        let pool = self.pool_of(name)?.pool.clone();
        let mut missing = Vec::new();
        let mut at = name;
        while let Some((parent, _)) = split_parent(at) {
            match pool.engine().dsl.open_dataset(parent) {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::NotFound => missing.push(parent.to_owned()),
                Err(error) => return Err(Failure::about_dataset(&error)),
            }
            at = parent;
        }
        missing.reverse();
        for ancestor in &missing {
            pool.create_file_system(ancestor, Vec::new()).map_err(|error| creation_failure(&error))?;
            self.mount_if_due(ancestor);
        }
        Ok(())
    }

    /// Space that is to be reserved from the first moment must be there.
    pub(super) fn check_reservations(&self, name: &str, changes: &[(String, PropertyChange)]) -> Result<(), Failure> {
        let dsl = &self.pool_of(name)?.pool.engine().dsl;
        let wanted = changes.iter().filter_map(|(name, change)| match (name.as_str(), change) {
            ("reservation" | "refreservation", PropertyChange::Set(PropertyValue::Number(bytes))) => Some(*bytes),
            _ => None,
        });
        let wanted = wanted.max().unwrap_or(0);
        let number = |wanted: &str| {
            changes.iter().find_map(|(name, change)| match change {
                PropertyChange::Set(PropertyValue::Number(bytes)) if name == wanted => Some(*bytes),
                _ => None,
            })
        };
        let limits = [("quota", "reservation"), ("quota", "refreservation"), ("refquota", "refreservation")];
        let beyond = |(limit, reserved): (&str, &str)| {
            number(limit).is_some_and(|limit| limit > 0 && number(reserved).is_some_and(|reserved| reserved > limit))
        };
        if limits.into_iter().any(beyond) {
            return Err(Failure::new(FailureKind::NoSpace));
        }
        let Some((parent, _)) = split_parent(name) else { return Ok(()) };
        if wanted == 0 {
            return Ok(());
        }
        let parent = dsl.open_dataset(parent).map_err(|error| creation_failure(&error))?;
        if wanted > dsl.available(&parent.dir, false) {
            return Err(Failure::new(FailureKind::NoSpace));
        }
        Ok(())
    }

    pub(in crate::control::pools) fn destroy_datasets(&mut self, destroy: &DatasetDestroy) -> Result<(), Failure> {
        let [name] = destroy.names.as_slice() else {
            return Err(Failure::with(FailureKind::InvalidName, "one at a time"));
        };
        let pool = self.pool_of(name)?.pool.clone();
        if name.contains('@') {
            return Err(Failure::new(FailureKind::BadType));
        }
        if name.contains('#') {
            return pool.engine().dsl.snapshot_verbs().destroy_bookmarks(vec![name.clone()]).map_err(|error| Failure::about_dataset(&error));
        }
        pool.engine().dsl.open_dataset(name).map_err(|error| Failure::about_dataset(&error))?;
        let directory = self.own_mount_directory(name);
        let before = self.in_sight();
        if self.mounter.has(name)
            && let Err(failure) = self.mounter.unmount(name, destroy.force)
        {
            let taken_along = self.taken_along(before, &|_| false);
            self.bring_back(&taken_along);
            return Err(failure);
        }
        let taken_along = self.taken_along(before, &|dataset| dataset == name);
        let destroyed = pool.destroy_file_system(name);
        if destroyed.is_err() {
            self.mount_if_due(name);
        }
        self.bring_back(&taken_along);
        destroyed.map_err(|error| destruction_failure(&error))?;
        if let Some(directory) = directory {
            super::mounting::remove_directory(&directory);
        }
        Ok(())
    }

    /// The directory that a file system is mounted on, if nobody chose it for this one.
    pub(super) fn own_mount_directory(&self, name: &str) -> Option<std::path::PathBuf> {
        let (path, source) = self.mountpoint(name).ok()?;
        (path.starts_with('/') && matches!(source, Source::Default | Source::Inherited(_))).then(|| path.into())
    }

    /// Those of a pool, parents before children.
    pub(in crate::control::pools) fn own_mount_directories(&self, pool: &str) -> Vec<std::path::PathBuf> {
        let mut mounted: Vec<String> = self.mounter.list().into_iter().map(|mount| mount.dataset).collect();
        mounted.retain(|dataset| dataset.split(['/', '@']).next() == Some(pool));
        let mut directories: Vec<_> = mounted.iter().filter_map(|dataset| self.own_mount_directory(dataset)).collect();
        directories.sort_by_key(|directory| directory.components().count());
        directories
    }
}

/// What a volume takes when all of it is written: its blocks, and the indirect blocks above them.
pub(super) fn volume_reservation(bytes: u64, block_bytes: u64, copies: u64) -> u64 {
    const POINTERS_PER_BLOCK: u64 = 1024;
    const METADNODE_LEVELS: u64 = 7;
    const INDIRECT_BYTES: u64 = 128 << 10;
    const COPIES_MAX: u64 = 3;
    let mut blocks = bytes / block_bytes.max(1);
    let mut indirect = METADNODE_LEVELS;
    while blocks > 1 {
        blocks = blocks.div_ceil(POINTERS_PER_BLOCK);
        indirect += blocks;
    }
    let indirect = indirect.saturating_mul((copies + 1).min(COPIES_MAX)).saturating_mul(INDIRECT_BYTES);
    bytes.saturating_mul(copies).saturating_add(indirect)
}

fn creation_failure(error: &crate::Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => Failure::with(FailureKind::NoSuchDataset, "parent does not exist"),
        ErrorKind::Invalid => Failure::with(FailureKind::InvalidName, error.message()),
        ErrorKind::TooBig => Failure::with(FailureKind::BadProperty, error.message()),
        _ => Failure::about_dataset(error),
    }
}

fn destruction_failure(error: &crate::Error) -> Failure {
    match error.kind() {
        ErrorKind::Exists => Failure::with(FailureKind::DatasetExists, last_sentence(error.message())),
        _ => Failure::about_dataset(error),
    }
}

/// What follows the names in front.
fn last_sentence(message: &str) -> &str {
    message.rsplit_once(": ").map_or(message, |(_, last)| last)
}

/// For tests of the type alone.
pub(super) fn is_volume(kind: ObjsetType) -> bool {
    kind == ObjsetType::Volume
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_reserves_its_indirect_blocks() {
        // As OpenZFS reckons for 1 GiB in blocks of 16 KiB: 65536 blocks, 64 and 1 above, 7 of the metadnode.
        assert_eq!(volume_reservation(1 << 30, 16 << 10, 1), (1 << 30) + (7 + 64 + 1) * 2 * (128 << 10));
        assert!(volume_reservation(u64::MAX - 16383, 16 << 10, 3) == u64::MAX);
    }
}
