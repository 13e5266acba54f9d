//! The hot spares and cache devices of imported pools.
//!
//! # Theory
//! They are held while the pool is imported, so that nobody else takes them, also while they stand in for a device. Several pools of this daemon may have the same
//! spare: then they hold it together, and it stands in for one device at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use disk::{Access, DiskRef, Footprint};
use engine::arc::NewCacheDevice;
use engine::error::ErrorKind;
use engine::pool::auxiliary::{Auxiliary, NewAuxiliary, find_auxiliary};
use engine::vdev::{NewLeaf, VdevConfig, key};
use parking_lot::Mutex;

use super::super::create::creation_failure;
use crate::control::auxiliary::AuxiliaryStatus;
use crate::control::pools::{Failure, FailureKind, Imported, Pools};
use crate::control::scan::is_device;
use crate::control::{SAME_DEVICE, VdevState, VdevStatus};

/// A spare that a verb brings in: while this is there, nothing else takes it.
pub(in crate::control::pools) struct ReservedSpare {
    /// All that are on their way in.
    all: Arc<Mutex<BTreeSet<u64>>>,
    guid: u64,
}

impl Drop for ReservedSpare {
    fn drop(&mut self) {
        self.all.lock().remove(&self.guid);
    }
}

/// Those of one pool.
#[derive(Default)]
pub(crate) struct AuxiliaryDevices {
    pub(in crate::control::pools) status: AuxiliaryStatus,
    /// The devices, by guid.
    pub(in crate::control::pools) held: BTreeMap<u64, DiskRef>,
}

impl AuxiliaryDevices {
    /// Those of a pool, which caches blocks on its cache devices from now on.
    fn new(engine: &engine::pool::Pool, listed: &Auxiliary, held: BTreeMap<u64, DiskRef>) -> AuxiliaryDevices {
        let cache = |config: &VdevConfig| Some(NewCacheDevice { config: config.clone(), disk: held.get(&config.guid)?.clone() });
        engine.use_caches(listed.caches.iter().filter_map(cache).collect());
        AuxiliaryDevices { status: AuxiliaryStatus::of(listed, &held), held }
    }

    /// The device of the spare or cache at this place, and its guid.
    fn at(&self, place: &Footprint) -> Option<(u64, &DiskRef)> {
        let found = self.held.iter().find(|(_, disk)| disk::footprint(disk.name()).overlaps(place));
        found.map(|(guid, disk)| (*guid, disk))
    }

    /// The hot spares that are there.
    pub(in crate::control::pools) fn spares(&self) -> impl Iterator<Item = (u64, DiskRef)> {
        self.held.iter().filter(|(guid, _)| self.is_spare(**guid)).map(|(guid, disk)| (*guid, disk.clone()))
    }

    /// Spares that were there when somebody looked, and are not held.
    fn missing(&self) -> Vec<(u64, String)> {
        let is_missing = |spare: &&VdevStatus| spare.state == VdevState::Healthy && !self.held.contains_key(&spare.guid);
        self.status.spares.iter().filter(is_missing).filter_map(|spare| Some((spare.guid, spare.path.clone()?))).collect()
    }

    fn is_spare(&self, guid: u64) -> bool {
        self.status.spares.iter().any(|spare| spare.guid == guid)
    }
}

impl Pools {
    /// Takes those of a pool that are there. One that is in use elsewhere is not.
    pub(in crate::control::pools) fn hold_auxiliary(&self, imported: &Imported, listed: &Auxiliary, found: BTreeMap<u64, DiskRef>) -> AuxiliaryDevices {
        if imported.pool.engine().is_read_only() {
            let is_cache = |guid: &u64| listed.caches.iter().any(|cache| cache.guid == *guid);
            let status = AuxiliaryStatus::of(listed, &found);
            let held = found.into_iter().filter(|(guid, _)| is_cache(guid)).collect();
            return AuxiliaryDevices { status, ..AuxiliaryDevices::new(imported.pool.engine(), listed, held) };
        }
        let hold = |(guid, disk): (u64, DiskRef)| {
            listed.find(guid)?;
            if let Some((_, leaf)) = imported.pool.engine().vdevs.find_leaf(guid) {
                return Some((guid, leaf.disk()?));
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
        AuxiliaryDevices::new(imported.pool.engine(), listed, found.into_iter().filter_map(hold).collect())
    }

    /// Lets go of spares that are devices of a pool which is about to be imported: they stand in there.
    pub(in crate::control::pools) fn lend_spares(&self, devices: &[u64]) {
        self.pools.values().for_each(|other| other.auxiliary.lock().held.retain(|guid, _| !devices.contains(guid)));
    }

    /// Holds again what was lent: what the pool uses is held with it.
    pub(in crate::control::pools) fn hold_lent_spares(&self) {
        for (imported, spare) in self.pools.values().flat_map(|imported| imported.auxiliary.lock().missing().into_iter().map(move |spare| (imported, spare))) {
            let (guid, path) = spare;
            let used = self.pools.values().find_map(|other| other.pool.engine().vdevs.find_leaf(guid)).and_then(|(_, leaf)| leaf.disk());
            let held = self.pools.values().find_map(|other| other.auxiliary.lock().held.get(&guid).cloned());
            let found = || disk::open(&path, Access::Write).ok().filter(|found| find_auxiliary(vec![found.clone()]).contains_key(&guid));
            if let Some(disk) = used.or(held).or_else(found) {
                imported.auxiliary.lock().held.insert(guid, disk);
            }
        }
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

    /// The spare of a pool at this place.
    pub(in crate::control::pools) fn spare_of(&self, imported: &Imported, place: &Footprint) -> Option<(u64, DiskRef)> {
        let auxiliary = imported.auxiliary.lock();
        let (guid, disk) = auxiliary.at(place)?;
        auxiliary.is_spare(guid).then(|| (guid, disk.clone()))
    }

    /// Keeps a spare for the caller, unless it stands in for a device, or is on its way in, in whatever pool. The agent looks and reserves under the same lock.
    pub(in crate::control::pools) fn reserve_spare(&self, guid: u64) -> Option<ReservedSpare> {
        let all = self.beside.reserved().clone();
        let is_kept = {
            let mut coming = all.lock();
            let is_used = self.pools.values().any(|imported| imported.pool.engine().vdevs.find_leaf(guid).is_some());
            !is_used && coming.insert(guid)
        };
        is_kept.then(|| ReservedSpare { all, guid })
    }

    /// Has a pool a spare in use that other pools have, too?
    pub(in crate::control::pools) fn uses_shared_spare(&self, imported: &Imported) -> bool {
        let auxiliary = imported.auxiliary.lock();
        let used = auxiliary.status.spares.iter().map(|spare| spare.guid).filter(|guid| imported.pool.engine().vdevs.find_leaf(*guid).is_some());
        let is_other = |other: &Imported| other.load_guid != imported.load_guid;
        used.into_iter().any(|guid| self.pools.values().any(|other| is_other(other) && other.auxiliary.lock().is_spare(guid)))
    }

    /// A device of a pool has changed its place: a spare of it that became a device like any other is none of other pools either.
    pub(in crate::control::pools) fn spares_changed(&self, imported: &Imported) -> Result<(), Failure> {
        let gone = relist(imported)?;
        for other in self.pools.values().filter(|other| other.load_guid != imported.load_guid) {
            let engine = other.pool.engine();
            let is_running = !engine.is_read_only() && engine.vdevs.gate().failure().is_none();
            let had: Vec<u64> = gone.iter().copied().filter(|guid| is_running && other.auxiliary.lock().is_spare(*guid)).collect();
            for guid in &had {
                engine.remove_auxiliary(*guid).map_err(|error| Failure::about_pool(&error))?;
            }
            if !had.is_empty() {
                relist(other)?;
            }
        }
        Ok(())
    }

    /// Refuses what [`Pools::add_auxiliary`] would refuse: what is added before cannot be taken away again.
    pub(in crate::control::pools) fn check_auxiliary(&self, imported: &Imported, new: &[NewAuxiliary]) -> Result<(), Failure> {
        if new.is_empty() {
            return Ok(());
        }
        imported.pool.engine().check_auxiliary(new).map_err(|error| auxiliary_failure(&error))
    }

    /// Makes devices spares and caches of a pool.
    pub(in crate::control::pools) fn add_auxiliary(&self, imported: &Imported, new: &[NewAuxiliary]) -> Result<(), Failure> {
        if new.is_empty() {
            // New dRAID vdevs may have brought spares.
            return relist(imported).map(drop);
        }
        let engine = imported.pool.engine();
        let added = engine.add_auxiliary(new);
        if let Err(error) = &added
            && !error.goes_on()
        {
            return Err(auxiliary_failure(error));
        }
        let listed = engine.auxiliary().map_err(|error| Failure::about_pool(&error))?;
        let mut auxiliary = imported.auxiliary.lock();
        let mut held = std::mem::take(&mut auxiliary.held);
        let guids: Vec<Option<u64>> = match &added {
            Ok(guids) => guids.iter().copied().map(Some).collect(),
            // The pool stopped before that was on disk: the list has them nevertheless.
            Err(_) => new.iter().map(|device| guid_at(&listed, &device.leaf.path)).collect(),
        };
        held.extend(guids.into_iter().zip(new).filter_map(|(guid, device)| Some((guid?, device.leaf.disk.clone()))));
        *auxiliary = AuxiliaryDevices::new(engine, &listed, held);
        added.map(drop).map_err(|error| auxiliary_failure(&error))
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
        relist(imported)?;
        Ok(true)
    }
}

/// Why devices cannot become spares or caches of a pool.
fn auxiliary_failure(error: &crate::Error) -> Failure {
    match error.kind() {
        ErrorKind::Busy => Failure::with(FailureKind::BadDevice, SAME_DEVICE),
        _ => creation_failure(error),
    }
}

/// The guid of a device that was listed last under this path.
fn guid_at(listed: &Auxiliary, path: &str) -> Option<u64> {
    let is_there = |device: &&VdevConfig| device.string(key::PATH).is_some_and(|other| other == path);
    listed.spares.iter().chain(&listed.caches).rev().find(is_there).map(|device| device.guid)
}

/// Reads anew which devices a pool has; those that it does not have any more.
fn relist(imported: &Imported) -> Result<Vec<u64>, Failure> {
    let listed = imported.pool.engine().auxiliary().map_err(|error| Failure::about_pool(&error))?;
    let mut auxiliary = imported.auxiliary.lock();
    let known = auxiliary.status.spares.iter().chain(&auxiliary.status.caches);
    let gone: Vec<u64> = known.map(|device| device.guid).filter(|guid| listed.find(*guid).is_none()).collect();
    let mut held = std::mem::take(&mut auxiliary.held);
    held.retain(|guid, _| !gone.contains(guid));
    *auxiliary = AuxiliaryDevices::new(imported.pool.engine(), &listed, held);
    Ok(gone)
}

/// A spare of a pool, as it comes in.
///
/// # Errors
/// The list of spares cannot be read.
pub(in crate::control::pools) fn spare_leaf(engine: &engine::pool::Pool, guid: u64, disk: DiskRef) -> Result<NewLeaf, Failure> {
    let listed = engine.auxiliary().map_err(|error| Failure::about_pool(&error))?;
    let spare = listed.spares.iter().find(|spare| spare.guid == guid);
    let path = spare.and_then(|spare| spare.string(key::PATH)).unwrap_or_else(|| disk.name().to_owned());
    Ok(NewLeaf { disk, path, whole_disk: spare.is_some_and(|spare| spare.flag(key::WHOLE_DISK)) })
}

/// Is a device called so: by its name, path or guid?
pub(in crate::control::pools) fn is_called(device: &VdevConfig, name: &str) -> bool {
    let by_path = device.string(key::PATH).is_some_and(|path| is_device(&path, device.flag(key::WHOLE_DISK), name));
    by_path || device.guid.to_string() == name
}
