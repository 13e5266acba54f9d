//! `zpool add`, `zpool remove`

use std::sync::Arc;

use engine::error::ErrorKind;
use engine::vdev::{TopVdev, VdevConfig, VdevKind};

use super::auxiliary::is_called;
use super::beside::words;
use super::super::create::{NewDevices, creation_failure};
use crate::control::pools::{Failure, FailureKind, Pools};
use crate::control::{PoolAdd, PoolRemove};

impl Pools {
    pub(in crate::control::pools) fn add_vdevs(&mut self, add: &PoolAdd) -> Result<(), Failure> {
        let imported = self.find(&add.name)?;
        let devices = NewDevices::of(&add.vdevs)?;
        if devices.is_empty() {
            return Err(Failure::new(FailureKind::BadVdevs));
        }
        let stored = match add.ashift {
            None => imported.pool.engine().stored_property("ashift").map_err(|error| Failure::about_pool(&error))?,
            Some(_) => None,
        };
        let ashift = add.ashift.or_else(|| stored.and_then(|value| u32::try_from(value.number()).ok())).filter(|ashift| *ashift != 0);
        let claimed = self.claim_devices(&devices, ashift, add.force)?;
        self.check_auxiliary(imported, &claimed.auxiliary)?;
        if !claimed.tops.is_empty() {
            imported.pool.engine().add_vdevs(claimed.tops, add.any_ashift).map_err(|error| addition_failure(&error))?;
        }
        self.add_auxiliary(imported, &claimed.auxiliary)?;
        self.note_named_event("vdev_add", &add.name);
        self.write_cachefile(&add.name);
        Ok(())
    }

    pub(in crate::control::pools) fn remove_vdev(&mut self, remove: &PoolRemove) -> Result<(), Failure> {
        let Some(device) = &remove.device else { return self.cancel_removal(&remove.name) };
        if self.remove_auxiliary(&remove.name, device)? {
            self.note_named_event("vdev_remove_aux", &remove.name);
            self.write_cachefile(&remove.name);
            return Ok(());
        }
        let engine = self.find(&remove.name)?.pool.engine().clone();
        let mut tops = engine.vdevs.tops();
        tops.retain(|top| !matches!(top.kind(), VdevKind::Hole | VdevKind::Missing));
        let guid = find_named(&tops, device)?;
        let is_log = tops.iter().any(|top| top.is_log() && top.config().find(guid).is_some());
        if !is_log {
            // It is gone only when all is copied.
            engine.remove_top(guid).map_err(|error| removal_failure(&error))?;
            self.write_cachefile(&remove.name);
            return Ok(());
        }
        engine.remove_log(guid).map_err(|error| match error.kind() {
            ErrorKind::Invalid => Failure::with(FailureKind::PoolNotSupported, "it is one side of a mirror: remove the mirror by its name"),
            ErrorKind::Busy => Failure::with(FailureKind::PoolBusy, error.message()),
            ErrorKind::Exists => Failure::with(FailureKind::PoolNotSupported, words(&error)),
            _ => Failure::about_pool(&error),
        })?;
        self.note_named_event("vdev_remove_dev", &remove.name);
        self.write_cachefile(&remove.name);
        Ok(())
    }

    fn cancel_removal(&mut self, name: &str) -> Result<(), Failure> {
        let engine = self.find(name)?.pool.engine().clone();
        engine.cancel_removal().map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::with(FailureKind::Other, "there are no active operations"),
            _ => Failure::about_pool(&error),
        })
    }
}

/// Why a vdev that holds data cannot be removed: the engine has the words of OpenZFS.
fn removal_failure(error: &crate::Error) -> Failure {
    let kind = match error.kind() {
        ErrorKind::Busy | ErrorKind::Conflict => FailureKind::PoolBusy,
        ErrorKind::Invalid => FailureKind::BadVdevs,
        ErrorKind::NoSpace => FailureKind::NoSpace,
        ErrorKind::Io => FailureKind::Io,
        ErrorKind::NotSupported | ErrorKind::Exists => FailureKind::PoolNotSupported,
        _ => return Failure::about_pool(error),
    };
    Failure::with(kind, words(error))
}

/// Why devices could not be added.
fn addition_failure(error: &crate::Error) -> Failure {
    match error.kind() {
        ErrorKind::Invalid if error.message().contains("the new vdev has sectors") => {
            Failure::with(FailureKind::BadVdevs, "adding devices with different physical sector sizes is not allowed")
        }
        ErrorKind::Unsupported => Failure::with(FailureKind::Unsupported, "pool must be upgraded to add these vdevs"),
        _ => creation_failure(error),
    }
}

/// The guid of the one vdev in `tops` that somebody calls `name`.
fn find_named(tops: &[Arc<TopVdev>], name: &str) -> Result<u64, Failure> {
    let mut found = tops.iter().filter_map(|top| named(top, name));
    match (found.next(), found.next()) {
        (Some(guid), None) => Ok(guid),
        (Some(_), Some(_)) => Err(Failure::with(FailureKind::BadDevice, "several devices of the pool have that name: use the whole path or the guid")),
        (None, _) => Err(Failure::with(FailureKind::BadDevice, "no such device in pool")),
    }
}

/// The guid of the vdev in `top` that somebody calls `name`.
fn named(top: &TopVdev, name: &str) -> Option<u64> {
    let config = top.config();
    let group = |vdev: &VdevConfig| !vdev.kind.is_leaf() && vdev.group_name() == name;
    std::iter::once(&config).chain(config.leaves()).find(|vdev| is_called(vdev, name) || group(vdev)).map(|vdev| vdev.guid)
}

#[cfg(test)]
mod tests {
    use engine::host::RealHost;
    use engine::vdev::{Bias, NewLeaf, NewTop, VdevTree};

    use super::*;

    /// Of two log devices with one name in different directories the first was removed, whichever was meant.
    #[test]
    fn a_name_that_two_devices_have_is_not_that_of_one() {
        let top = |path: &str, bias| {
            let disk = Arc::new(disk::MemDisk::new(path, 64 << 20));
            NewTop { leaves: vec![NewLeaf { disk, path: path.into(), whole_disk: false }], bias, ..NewTop::default() }
        };
        let tree = VdevTree::create(&RealHost, vec![top("/a/data", Bias::None), top("/a/log", Bias::Log), top("/b/log", Bias::Log)], 4).unwrap();
        let tops = tree.tops();
        let find = |name: &str| find_named(&tops, name).map_err(|_| ());
        assert_eq!(find("/b/log"), Ok(tops[2].guid()));
        assert_eq!(find("data"), Ok(tops[0].guid()));
        assert_eq!(find(&tops[1].guid().to_string()), Ok(tops[1].guid()));
        assert_eq!(find("log"), Err(()));
        assert_eq!(find("none"), Err(()));
    }
}
