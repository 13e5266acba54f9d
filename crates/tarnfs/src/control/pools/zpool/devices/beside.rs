//! `zpool attach`, `zpool detach`, `zpool replace`, `zpool offline`, `zpool online`, `zpool reopen`: verbs on single devices

use std::path::Path;

use disk::DiskRef;
use engine::dsl::PropertyValue;
use engine::error::{Error, ErrorKind};
use engine::host::RealHost;
use engine::pool::import::discover;
use engine::pool::{Beside, Fill, Stopped};
use engine::vdev::{Leaf, VdevConfig, VdevKind, VdevState as EngineState, key};

use super::{auxiliary, leaf_work, vdev_properties};
use super::shown::state_of;
use crate::control::pools::zpool::maintenance;
use crate::control::pools::zpool::create::{PoolSettings, When};
use crate::control::pools::{Failure, FailureKind, Imported, Pools, names};
use crate::control::{DeviceAttach, DeviceVerb, PoolDevice, PoolSplit, Reply, VdevState};
use crate::pool::open_options;

/// A device by its name, path or guid, a group by its name or guid: the description.
///
/// # Errors
/// There is none, or there are several.
pub(in crate::control::pools) fn find<'a>(tree: &'a VdevConfig, name: &str) -> Result<&'a VdevConfig, Failure> {
    let mut found = Vec::new();
    gather(tree, name, &mut found);
    // A disk that replaces its own first partition has the path that stands for both.
    let is_exact = |vdev: &&VdevConfig| vdev.string(key::PATH).is_some_and(|path| path == name);
    if found.len() > 1 && found.iter().any(is_exact) {
        found.retain(is_exact);
    }
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(Failure::with(FailureKind::BadDevice, "no such device in pool")),
        _ => Err(Failure::with(FailureKind::BadDevice, "several devices of the pool have that name: use the whole path or the guid")),
    }
}

fn gather<'a>(vdev: &'a VdevConfig, name: &str, found: &mut Vec<&'a VdevConfig>) {
    let is_group = !vdev.kind.is_leaf() && !vdev.kind.is_placeholder() && vdev.group_name() == name;
    if auxiliary::is_called(vdev, name) || is_group {
        found.push(vdev);
    }
    vdev.children.iter().for_each(|child| gather(child, name, found));
}

/// What is where devices should be that are not open.
pub(in crate::control::pools) fn look(engine: &engine::pool::Pool) -> Vec<(u64, DiskRef)> {
    let config = engine.vdevs.config();
    let away: Vec<u64> = engine.vdevs.leaves().iter().filter(|leaf| !leaf.is_open()).map(|leaf| leaf.guid()).collect();
    away.into_iter().filter_map(|guid| Some((guid, open_described(config.find(guid)?)?))).collect()
}

/// The device at the path that a description has.
fn open_described(vdev: &VdevConfig) -> Option<DiskRef> {
    disk::open(&vdev.string(key::PATH)?, disk::Access::Write).ok()
}

impl Pools {
    pub(in crate::control::pools) fn device(&mut self, asked: &PoolDevice) -> Result<Reply, Failure> {
        let imported = self.pools.get(&asked.name).cloned().ok_or_else(|| Failure::new(FailureKind::NoSuchPool))?;
        let engine = imported.pool.engine().clone();
        if engine.is_read_only() {
            return Err(Failure::new(FailureKind::PoolReadOnly));
        }
        imported.agent.wait();
        let tree = engine.vdevs.config();
        if let Some(device) = asked.verb.device() {
            check_not_auxiliary(&engine, &tree, device)?;
        }
        let mut has_spare = false;
        let reply = match &asked.verb {
            DeviceVerb::Attach(attach) => {
                has_spare = self.attach(&imported, &tree, attach)?;
                Reply::Done
            }
            DeviceVerb::Detach { device } => {
                let found = member_of(&tree, device, "only applicable to mirror and replacing vdevs")?;
                engine.detach_device(found.guid).map_err(|error| detach_failure(&error))?;
                Reply::Done
            }
            DeviceVerb::Offline { device, fault, temporary } => {
                let found = leaf_of(&tree, device, "operation not supported on this type of pool")?;
                let how = if *fault { Stopped::Faulted } else { Stopped::Offline };
                engine.stop_device(found.guid, how, *temporary).map_err(|error| offline_failure(&error))?;
                Reply::Done
            }
            DeviceVerb::Online { device, expand } => Reply::Device(online(&engine, &tree, device, *expand)?),
            DeviceVerb::Reopen => {
                let is_gone = |leaf: &Leaf| leaf.is_open() && !Path::new(leaf.name()).exists() && !leaf.name().contains('#');
                let gone = engine.vdevs.leaves().iter().filter(|leaf| is_gone(leaf)).map(|leaf| leaf.guid()).collect();
                engine.reopen_devices(look(&engine), gone).map_err(|error| Failure::about_pool(&error))?;
                Reply::Done
            }
            DeviceVerb::Split(split) => self.split(&engine, split).map(|()| Reply::Done)?,
            DeviceVerb::LeafWork(work) => leaf_work::command(&engine, &tree, work).map(Reply::Refused)?,
            DeviceVerb::SetProperty { guid, setting } => vdev_properties::set(&engine, *guid, setting).map(|()| Reply::Done)?,
            DeviceVerb::Checkpoint { discard } => maintenance::checkpoint(&engine, *discard).map(|()| Reply::Done)?,
        };
        self.spares_changed(&imported)?;
        if has_spare {
            self.note_named_event("vdev_spare", &asked.name);
        }
        if let Some(event) = event_of(&asked.verb) {
            self.note_named_event(event, &asked.name);
        }
        self.write_cachefile(&asked.name);
        Ok(reply)
    }

    fn split(&self, engine: &engine::pool::Pool, split: &PoolSplit) -> Result<(), Failure> {
        names::check_pool(&split.new_name)?;
        if self.pools.contains_key(&split.new_name) {
            return Err(Failure::new(FailureKind::PoolExists));
        }
        let settings = PoolSettings::of(&split.properties, When::Importing)?;
        if settings.read_only {
            return Err(Failure::with(FailureKind::BadProperty, "property 'readonly' can only be set at import time"));
        }
        let options = open_options(false, Some(split.new_name.clone()), Some(self.limits.clone()), RealHost::shared());
        let half = engine.split(&split.devices, options).map_err(|error| match error.kind() {
            ErrorKind::Invalid => Failure::with(FailureKind::PoolNotSupported, "invalid argument for this pool operation"),
            ErrorKind::Exists => Failure::with(FailureKind::PoolNotSupported, words(&error)),
            _ => Failure::about_pool(&error),
        })?;
        let texts = [("comment", settings.comment), ("compatibility", settings.compatibility)];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), PropertyValue::Text(text?))));
        let values: Vec<_> = settings.stored.into_iter().chain(texts).collect();
        let stored = if values.is_empty() { Ok(()) } else { half.set_properties(values) };
        stored.and_then(|()| half.export()).map_err(|error| Failure::about_pool(&error))
    }

    /// Whether what comes in is a hot spare.
    fn attach(&self, imported: &Imported, tree: &VdevConfig, attach: &DeviceAttach) -> Result<bool, Failure> {
        let engine = imported.pool.engine();
        let named = find(tree, &attach.device)?;
        let expands = named.kind == VdevKind::Raidz && !attach.replace;
        let found = if expands { named } else { member_of(tree, &attach.device, "can only attach to mirrors and top-level disks")? };
        let fill = if attach.sequential { Fill::Sequential } else { Fill::Healing };
        if attach.replace && let Some(spare) = distributed_spare(engine, &attach.new)? {
            return engine.attach_distributed(found.guid, spare, fill).map(|()| true).map_err(|error| attach_failure(&error));
        }
        let property = || engine.stored_property("ashift").ok().flatten().and_then(|value| u32::try_from(value.number()).ok());
        let ashift = attach.ashift.or_else(property).filter(|ashift| *ashift != 0);
        if attach.replace && found.string(key::PATH).is_some_and(|path| Path::new(&path) == attach.new) {
            give_up_overwritten(engine, found.guid, &attach.new)?;
        }
        let away = engine.vdevs.leaves().into_iter().filter(|leaf| !leaf.is_open()).map(|leaf| leaf.guid()).collect::<Vec<_>>();
        if expands {
            if attach.sequential {
                return Err(Failure::with(FailureKind::BadDevice, "raidz_expansion does not support sequential reconstruction"));
            }
            let leaf = self.claim_device(&attach.new, attach.force, &|_| false)?;
            return engine.expand_raidz(found.guid, leaf, ashift).map(|()| false).map_err(|error| expansion_failure(&error));
        }
        let spare = self.spare_of(imported, &disk::footprint(&attach.new.to_string_lossy())).filter(|_| attach.replace);
        let stands_in = tree.parent_of(found.guid).is_some_and(|group| group.kind == VdevKind::Spare) && found.flag(key::IS_SPARE);
        if attach.replace && stands_in && spare.is_none() {
            return Err(Failure::with(FailureKind::BadDevice, "can only be replaced by another hot spare"));
        }
        let is_busy = || Failure::with(FailureKind::BadDevice, format!("{} is busy", attach.new.display()));
        let _reserved = spare.as_ref().map(|(guid, _)| self.reserve_spare(*guid).ok_or_else(is_busy)).transpose()?;
        let (leaf, how) = match spare {
            Some((guid, disk)) => (auxiliary::spare_leaf(engine, guid, disk)?, Beside::Spare(guid)),
            None => {
                let leaf = self.claim_device(&attach.new, attach.force, &|guid| guid == found.guid && away.contains(&guid))?;
                (leaf, if attach.replace { Beside::Replacement } else { Beside::Mirror })
            }
        };
        engine.attach_and_fill(found.guid, leaf, (how, fill), ashift).map_err(|error| attach_failure(&error))?;
        Ok(matches!(how, Beside::Spare(_)))
    }
}

/// The guid of the distributed spare of a pool that has this name.
fn distributed_spare(engine: &engine::pool::Pool, name: &Path) -> Result<Option<u64>, Failure> {
    let listed = engine.auxiliary().map_err(|error| Failure::about_pool(&error))?;
    let is_it = |spare: &&VdevConfig| spare.kind == VdevKind::DraidSpare && spare.string(key::PATH).is_some_and(|path| Path::new(&path) == name);
    Ok(listed.spares.iter().find(is_it).map(|spare| spare.guid))
}

fn attach_failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Unsupported | ErrorKind::Invalid => Failure::with(FailureKind::BadDevice, words(error)),
        ErrorKind::Exists => Failure::with(FailureKind::PoolNotSupported, words(error)),
        ErrorKind::Busy if words(error).contains("resilvering") => Failure::with(FailureKind::PoolBusy, words(error)),
        ErrorKind::Busy => Failure::with(FailureKind::BadDevice, words(error)),
        _ => other_failure(error),
    }
}

/// A device that is to be replaced by what is where it is: another program has overwritten it, and it is not used any more.
///
/// # Errors
/// It is what it was, or the others have not all that it has.
fn give_up_overwritten(engine: &engine::pool::Pool, guid: u64, path: &Path) -> Result<(), Failure> {
    let Some((top, leaf)) = engine.vdevs.find_leaf(guid).filter(|(_, leaf)| leaf.is_open()) else { return Ok(()) };
    let found = disk::open(&path.to_string_lossy(), disk::Access::Inspect).map(|disk| discover(vec![disk])).unwrap_or_default();
    if found.iter().any(|found| found.config.guid == engine.guid() && found.devices.iter().any(|device| device.guid == guid)) {
        return Err(Failure::with(FailureKind::BadDevice, format!("{} is part of active pool '{}'", path.display(), engine.name())));
    }
    if top.members().needs(leaf.number()) {
        return Err(Failure::new(FailureKind::NoReplicas));
    }
    engine.reopen_devices(Vec::new(), vec![guid]).map_err(|error| Failure::about_pool(&error))
}

/// Refuses spares that nothing uses, and cache devices.
fn check_not_auxiliary(engine: &engine::pool::Pool, tree: &VdevConfig, device: &str) -> Result<(), Failure> {
    let listed = engine.auxiliary().map_err(|error| Failure::about_pool(&error))?;
    let is_called = |listed: &&VdevConfig| tree.find(listed.guid).is_none() && auxiliary::is_called(listed, device);
    if find(tree, device).is_ok() {
        Ok(())
    } else if listed.spares.iter().any(|spare| is_called(&spare)) {
        Err(Failure::with(FailureKind::BadDevice, "device is reserved as a hot spare"))
    } else if listed.caches.iter().any(|cache| is_called(&cache)) {
        Err(Failure::with(FailureKind::BadDevice, "device is in use as a cache"))
    } else {
        Ok(())
    }
}

fn expansion_failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Unsupported | ErrorKind::Invalid | ErrorKind::Busy | ErrorKind::NoDevice => Failure::with(FailureKind::BadDevice, words(error)),
        ErrorKind::Exists => Failure::with(FailureKind::PoolNotSupported, "checkpoint exists"),
        _ => other_failure(error),
    }
}

/// The device of that name, which must be a device.
fn leaf_of<'a>(tree: &'a VdevConfig, name: &str, refusal: &str) -> Result<&'a VdevConfig, Failure> {
    let found = find(tree, name)?;
    if found.kind.is_leaf() { Ok(found) } else { Err(Failure::with(FailureKind::BadDevice, refusal)) }
}

/// As [`leaf_of`], or the distributed spare of that name.
fn member_of<'a>(tree: &'a VdevConfig, name: &str, refusal: &str) -> Result<&'a VdevConfig, Failure> {
    let found = find(tree, name)?;
    if found.kind == VdevKind::DraidSpare { Ok(found) } else { leaf_of(tree, name, refusal) }
}

fn online(engine: &engine::pool::Pool, tree: &VdevConfig, device: &str, expand: bool) -> Result<VdevState, Failure> {
    let found = leaf_of(tree, device, "operation not supported on this type of pool")?;
    let is_open = engine.vdevs.find_leaf(found.guid).is_some_and(|(_, leaf)| leaf.is_open());
    let disk = if is_open { None } else { open_described(found) };
    let state: EngineState = engine.online_device(found.guid, disk, false).map_err(|error| other_failure(&error))?;
    let by_property = engine.stored_property("autoexpand").ok().flatten().is_some_and(|value| value.number() != 0);
    if state == EngineState::Online && (expand || by_property) {
        engine.expand(Some(found.guid)).map_err(|error| Failure::about_pool(&error))?;
    }
    Ok(state_of(state))
}

/// Why nothing was done, where no other words are for it: a device that was there a moment ago may be gone.
fn other_failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => Failure::with(FailureKind::BadDevice, "no such device in pool"),
        _ => Failure::about_pool(error),
    }
}

/// The engine's sentence, without the pool in front.
pub(in crate::control::pools) fn words(error: &Error) -> String {
    let message = error.message();
    message.strip_prefix("pool ").and_then(|rest| rest.split_once(": ")).map_or(message, |(_, rest)| rest).to_owned()
}

fn detach_failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Unsupported => Failure::with(FailureKind::BadDevice, "only applicable to mirror and replacing vdevs"),
        ErrorKind::Busy => Failure::new(FailureKind::NoReplicas),
        ErrorKind::Exists => Failure::with(FailureKind::PoolNotSupported, words(error)),
        _ => other_failure(error),
    }
}

fn offline_failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Busy if words(error).contains("intent logs") => Failure::with(FailureKind::PoolBusy, "log device has unplayed intent logs"),
        ErrorKind::Busy => Failure::new(FailureKind::NoReplicas),
        _ => other_failure(error),
    }
}

/// The event of a verb.
fn event_of(verb: &DeviceVerb) -> Option<&'static str> {
    match verb {
        DeviceVerb::Attach(_) => Some("vdev_attach"),
        DeviceVerb::Detach { .. } => Some("vdev_remove"),
        DeviceVerb::Online { .. } => Some("vdev_online"),
        DeviceVerb::Split(_) => Some("pool_split"),
        DeviceVerb::Offline { .. } | DeviceVerb::Reopen | DeviceVerb::Checkpoint { .. } | DeviceVerb::LeafWork(_) | DeviceVerb::SetProperty { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_groups_are_found_by_their_names() {
        let leaf = |id: u64, guid: u64, path: &str| {
            let mut leaf = VdevConfig::new(VdevKind::File, id, guid);
            leaf.set_string(key::PATH, path);
            leaf
        };
        let mut replacing = VdevConfig::new(VdevKind::Replacing, 1, 20);
        replacing.children = vec![leaf(0, 21, "/x/c/old"), leaf(1, 22, "/x/c")];
        let mut mirror = VdevConfig::new(VdevKind::Mirror, 0, 10);
        mirror.children = vec![leaf(0, 11, "/x/a"), replacing];
        let mut root = VdevConfig::new(VdevKind::Root, 0, 1);
        root.children = vec![mirror, leaf(1, 30, "/y/a")];
        let guid = |name: &str| find(&root, name).map(|vdev| vdev.guid).map_err(|failure| failure.message);
        assert_eq!((guid("/x/c"), guid("c"), guid("21"), guid("replacing-1"), guid("mirror-0")), (Ok(22), Ok(22), Ok(21), Ok(20), Ok(10)));
        assert_eq!(guid("/x/c/old"), Ok(21));
        assert!(guid("a").unwrap_err().contains("several"));
        assert_eq!(guid("nothing").unwrap_err(), "no such device in pool");
    }

    #[test]
    fn a_whole_disk_is_found_by_the_name_that_is_shown() {
        let disk = |id: u64, path: &str| {
            let mut leaf = VdevConfig::new(VdevKind::Disk, id, 11 + id);
            leaf.set_string(key::PATH, path);
            leaf.set(key::WHOLE_DISK, 1);
            leaf
        };
        let mut root = VdevConfig::new(VdevKind::Root, 0, 1);
        root.children = vec![disk(0, "/dev/sda1"), disk(1, "/dev/disk/by-id/ata-X-part1"), disk(2, "/dev/sdb1"), disk(3, "/dev/sdb")];
        let guid = |name: &str| find(&root, name).map(|vdev| vdev.guid).map_err(|failure| failure.message);
        assert_eq!((guid("sda"), guid("/dev/sda"), guid("sda1"), guid("ata-X")), (Ok(11), Ok(11), Ok(11), Ok(12)));
        // The new disk has the path that is also that of the old one's partition.
        assert_eq!((guid("/dev/sdb"), guid("/dev/sdb1")), (Ok(14), Ok(13)));
        assert!(guid("sdb").unwrap_err().contains("several"));
    }
}
