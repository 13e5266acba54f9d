//! The hot spares and cache devices of imported pools.
//!
//! # Theory
//! They are held while the pool is imported, so that nobody else takes them. Several pools of this daemon may have the same spare: then they hold it together.

use std::collections::BTreeMap;

use disk::{Access, DiskRef, Footprint};
use engine::error::ErrorKind;
use engine::pool::auxiliary::{Auxiliary, NewAuxiliary};
use engine::vdev::{VdevConfig, key};

use super::super::create::creation_failure;
use crate::control::auxiliary::AuxiliaryStatus;
use crate::control::pools::{Failure, FailureKind, Imported, Pools};
use crate::control::SAME_DEVICE;

/// Those of one pool.
#[derive(Default)]
pub(crate) struct AuxiliaryDevices {
    pub(in crate::control::pools) status: AuxiliaryStatus,
    /// The devices, by guid.
    pub(in crate::control::pools) held: BTreeMap<u64, DiskRef>,
}

impl AuxiliaryDevices {
    fn new(listed: &Auxiliary, held: BTreeMap<u64, DiskRef>) -> AuxiliaryDevices {
        AuxiliaryDevices { status: AuxiliaryStatus::of(listed, &held), held }
    }

    /// The device of the spare or cache at this place, and its guid.
    fn at(&self, place: &Footprint) -> Option<(u64, &DiskRef)> {
        let found = self.held.iter().find(|(_, disk)| disk::footprint(disk.name()).overlaps(place));
        found.map(|(guid, disk)| (*guid, disk))
    }

    fn is_spare(&self, guid: u64) -> bool {
        self.status.spares.iter().any(|spare| spare.guid == guid)
    }
}

impl Pools {
    /// Takes those of a pool that are there. One that is in use elsewhere is not.
    pub(in crate::control::pools) fn hold_auxiliary(&self, imported: &Imported, listed: &Auxiliary, found: BTreeMap<u64, DiskRef>) -> AuxiliaryDevices {
        if imported.pool.engine().is_read_only() {
            return AuxiliaryDevices { status: AuxiliaryStatus::of(listed, &found), held: BTreeMap::new() };
        }
        let tree = imported.pool.engine().vdevs.config();
        let hold = |(guid, disk): (u64, DiskRef)| {
            if listed.find(guid).is_none() || tree.find(guid).is_some() {
                return None;
            }
            let shared = self.pools.values().find_map(|other| other.auxiliary.lock().held.get(&guid).cloned());
            match shared.map_or_else(|| disk::open(disk.name(), Access::Write), Ok) {
                Ok(held) => Some((guid, held)),
                Err(error) => {
                    tracing::warn!("{}: {error}", disk.name());
                    None
                }
            }
        };
        AuxiliaryDevices::new(listed, found.into_iter().filter_map(hold).collect())
    }

    /// The pool that has a device as a spare or cache.
    pub(in crate::control::pools) fn auxiliary_user(&self, place: &Footprint) -> Option<&String> {
        self.pools.iter().find(|(_, imported)| imported.auxiliary.lock().at(place).is_some()).map(|(name, _)| name)
    }

    /// A spare of some pool that others may have, too: its guid and the device.
    pub(in crate::control::pools) fn shared_spare(&self, place: &Footprint) -> Option<(u64, DiskRef)> {
        self.pools.values().find_map(|imported| {
            let auxiliary = imported.auxiliary.lock();
            let (guid, disk) = auxiliary.at(place)?;
            auxiliary.is_spare(guid).then(|| (guid, disk.clone()))
        })
    }

    /// Makes devices spares and caches of a pool.
    pub(in crate::control::pools) fn add_auxiliary(&self, imported: &Imported, new: &[NewAuxiliary]) -> Result<(), Failure> {
        if new.is_empty() {
            return Ok(());
        }
        let engine = imported.pool.engine();
        let guids = engine.add_auxiliary(new).map_err(|error| match error.kind() {
            ErrorKind::Busy => Failure::with(FailureKind::BadDevice, SAME_DEVICE),
            _ => creation_failure(&error),
        })?;
        let listed = engine.auxiliary().map_err(|error| Failure::about_pool(&error))?;
        let mut auxiliary = imported.auxiliary.lock();
        let mut held = std::mem::take(&mut auxiliary.held);
        held.extend(guids.into_iter().zip(new.iter().map(|device| device.leaf.disk.clone())));
        *auxiliary = AuxiliaryDevices::new(&listed, held);
        Ok(())
    }

    /// Takes a spare or a cache device from its pool, if it has one of that name.
    pub(in crate::control::pools) fn remove_auxiliary(&self, pool: &str, name: &str) -> Result<bool, Failure> {
        let imported = self.find(pool)?;
        let engine = imported.pool.engine();
        let listed = engine.auxiliary().map_err(|error| Failure::about_pool(&error))?;
        let Some(guid) = listed.spares.iter().chain(&listed.caches).find(|device| is_called(device, name)).map(|device| device.guid) else {
            return Ok(false);
        };
        engine.remove_auxiliary(guid).map_err(|error| match error.kind() {
            ErrorKind::Busy => Failure::with(FailureKind::PoolBusy, "Pool busy; removal may already be in progress"),
            _ => Failure::about_pool(&error),
        })?;
        let listed = engine.auxiliary().map_err(|error| Failure::about_pool(&error))?;
        let mut auxiliary = imported.auxiliary.lock();
        let mut held = std::mem::take(&mut auxiliary.held);
        held.remove(&guid);
        *auxiliary = AuxiliaryDevices::new(&listed, held);
        Ok(true)
    }
}

/// Is a device called so: by its path, the last name of that, or its guid?
fn is_called(device: &VdevConfig, name: &str) -> bool {
    let path = device.string(key::PATH).unwrap_or_default();
    path == name || path.rsplit('/').next() == Some(name) || device.guid.to_string() == name
}
