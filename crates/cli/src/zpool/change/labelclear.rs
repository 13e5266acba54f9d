//! `zpool labelclear`: makes a device forget that it was part of a pool.

use std::path::Path;

use disk::{Access, DiskRef};
use engine::pool::config::PoolState;
use engine::vdev::label::{DeviceLabels, clear_labels};
use ondisk::nvlist::NvList;
use tarnfs::control::AllocationClass;

use crate::session::{Outcome, Session, complain};
use crate::zpool::spec::{pools, vdev_spec};

/// `-1`, which is what this command exits with where there is nothing to clear.
const NO_LABEL: u8 = 255;

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (force, device) = pools::forced_operand(session, words, "missing vdev name")?;
    match clear(session, &device, force) {
        Ok(()) => Ok(0),
        Err(code) => Ok(code),
    }
}

/// A name without a directory may be that of a device.
fn open(name: &str, access: Access) -> std::io::Result<DiskRef> {
    match disk::open(name, access) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !name.contains('/') => disk::open(&format!("/dev/{name}"), access),
        other => other,
    }
}

/// In which way a device is part of a pool, and of which one; "": of none that anybody could want. `None`: the label does not say.
/// That is what it says of itself: whether the pool could be imported does not matter.
fn member_of(config: &NvList) -> Option<(&'static str, &str)> {
    let state = config.u64("state").and_then(PoolState::from_number)?;
    if matches!(state, PoolState::Spare | PoolState::CacheDevice) || config.u64("txg") == Some(0) {
        return Some(("", "?"));
    }
    let pool = config.str("name")?;
    Some(match state {
        PoolState::Destroyed => ("", pool),
        PoolState::Exported => ("exported", pool),
        _ => ("potentially active", pool),
    })
}

/// May the labels of a device be cleared? The number is the exit code, if not.
fn check(session: &mut Session<'_>, name: &str, labels: &DeviceLabels, force: bool) -> Result<String, u8> {
    let Some(config) = labels.newest_config() else {
        complain!(session, "failed to clear label for {name}");
        return Err(NO_LABEL);
    };
    let (what, pool) = match member_of(config) {
        Some(member) => member,
        None if force => ("", "?"),
        None => {
            complain!(session, "failed to check state for {name}\nuse '-f' to clear its label whatever it says");
            return Err(1);
        }
    };
    if !what.is_empty() && !force {
        complain!(session, "use '-f' to override the following error:\n{name} is a member of {what} pool \"{pool}\"");
        return Err(1);
    }
    Ok(pool.to_owned())
}

/// The number is the exit code.
fn clear(session: &mut Session<'_>, device: &str, force: bool) -> Result<(), u8> {
    let found = match open(device, Access::Inspect) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !device.starts_with('/') => {
            complain!(session, "failed to find device {device}, try specifying absolute path instead");
            return Err(1);
        }
        Err(error) => {
            let words = if Path::new(device).is_dir() { "Is a directory".to_owned() } else { error.to_string() };
            complain!(session, "failed to open {device}: {words}");
            return Err(1);
        }
    };
    let name = found.name().to_owned();
    let pool = check(session, &name, &DeviceLabels::read(&*found), force)?;
    drop(found);
    // The daemon that has the pool imported has claimed the device: force does not help against that.
    let disk = match open(&name, Access::Write) {
        Ok(disk) => disk,
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
            let user = vdev_spec::user_of(session, Path::new(&name));
            let (pool, state, advice) = match &user {
                Some((pool, AllocationClass::Spare)) => (pool, "SPARE", "Remove it from the pool"),
                Some((pool, AllocationClass::Cache)) => (pool, "L2CACHE", "Remove it from the pool"),
                Some((pool, _)) => (pool, "ACTIVE", "Export or destroy the pool"),
                None => (&pool, "ACTIVE", "Export or destroy the pool"),
            };
            complain!(session, "{name} is a member ({state}) of pool \"{pool}\". {advice} first to clear its label.");
            return Err(1);
        }
        Err(error) => {
            complain!(session, "failed to open {name}: {}", error);
            return Err(1);
        }
    };
    // Now that it is ours: somebody may have had it since.
    check(session, &name, &DeviceLabels::read(&*disk), force)?;
    if let Err(error) = clear_labels(&*disk) {
        complain!(session, "failed to clear label for {name}: {error}");
        return Err(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(values: &[(&str, u64)], name: Option<&str>) -> NvList {
        let mut list = NvList::new();
        values.iter().for_each(|(key, value)| list.push(*key, *value));
        name.iter().for_each(|name| list.push("name", *name));
        list
    }

    /// A device whose label was sound and whose pool could not be put together (no uberblock, no tree) was cleared without `-f`.
    #[test]
    fn a_label_counts_although_its_pool_cannot_be_imported() {
        let exported = label(&[("state", 1), ("txg", 7)], Some("tank"));
        assert_eq!(member_of(&exported), Some(("exported", "tank")));
        assert_eq!(member_of(&label(&[("state", 0), ("txg", 7)], Some("tank"))), Some(("potentially active", "tank")));
        assert_eq!(member_of(&label(&[("state", 2), ("txg", 7)], Some("tank"))), Some(("", "tank")));
        assert_eq!(member_of(&label(&[("state", 3)], None)), Some(("", "?")), "a spare that nobody has");
        for unreadable in [label(&[("state", 9), ("txg", 7)], Some("tank")), label(&[("txg", 7)], Some("tank")), label(&[("state", 0), ("txg", 7)], None)] {
            assert_eq!(member_of(&unreadable), None, "{unreadable:?}");
        }
    }
}
