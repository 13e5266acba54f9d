//! `zpool labelclear`: makes a device forget that it was part of a pool.

use std::path::Path;

use disk::{Access, DiskRef};
use engine::pool::config::PoolState;
use engine::pool::import::discover;
use engine::vdev::label::{DeviceLabels, clear_labels};

use super::pools;
use super::vdev_spec::io_words;
use crate::session::{Outcome, Session, complain};

/// `-1`, which is what this command exits with where there is nothing to clear.
const NO_LABEL: u8 = 255;

pub(super) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
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

/// The number is the exit code.
fn clear(session: &mut Session<'_>, device: &str, force: bool) -> Result<(), u8> {
    let found = match open(device, Access::Inspect) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !device.starts_with('/') => {
            complain!(session, "failed to find device {device}, try specifying absolute path instead");
            return Err(1);
        }
        Err(error) => {
            let words = if Path::new(device).is_dir() { "Is a directory".to_owned() } else { io_words(&error) };
            complain!(session, "failed to open {device}: {words}");
            return Err(1);
        }
    };
    let name = found.name().to_owned();
    if DeviceLabels::read(&*found).newest_config().is_none() {
        complain!(session, "failed to clear label for {name}");
        return Err(NO_LABEL);
    }
    let candidates = discover(vec![found]);
    if let Some(candidate) = candidates.first() {
        let pool = &candidate.config.name;
        let what = match candidate.config.state {
            PoolState::Destroyed => "",
            PoolState::Exported => "exported",
            _ => "potentially active",
        };
        if !what.is_empty() && !force {
            complain!(session, "use '-f' to override the following error:\n{name} is a member of {what} pool \"{pool}\"");
            return Err(1);
        }
    }
    // Whoever has the pool imported has the device locked: force does not help against that.
    let disk = match open(&name, Access::Write) {
        Ok(disk) => disk,
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
            let pool = candidates.first().map_or("?", |candidate| candidate.config.name.as_str());
            complain!(session, "{name} is a member (ACTIVE) of pool \"{pool}\". Export or destroy the pool first to clear its label.");
            return Err(1);
        }
        Err(error) => {
            complain!(session, "failed to open {name}: {}", io_words(&error));
            return Err(1);
        }
    };
    if let Err(error) = clear_labels(&*disk) {
        complain!(session, "failed to clear label for {name}: {error}");
        return Err(1);
    }
    Ok(())
}
