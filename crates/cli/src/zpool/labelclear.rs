//! `zpool labelclear`: makes a device forget that it was part of a pool.

use disk::{Access, DiskRef};
use engine::pool::config::PoolState;
use engine::pool::import::discover;
use engine::vdev::label::{DeviceLabels, clear_labels};

use super::pools;
use crate::session::{Outcome, Session, complain};

pub(super) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (force, device) = pools::forced_operand(session, words, "missing vdev name")?;
    Ok(clear(session, &device, force).map_or(1, |()| 0))
}

/// A name without a directory may be that of a device.
fn open(name: &str, access: Access) -> std::io::Result<DiskRef> {
    match disk::open(name, access) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !name.contains('/') => disk::open(&format!("/dev/{name}"), access),
        other => other,
    }
}

fn clear(session: &mut Session<'_>, device: &str, force: bool) -> Option<()> {
    let found = match open(device, Access::Inspect) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !device.starts_with('/') => {
            complain!(session, "failed to find device {device}, try specifying absolute path instead");
            return None;
        }
        Err(error) => {
            complain!(session, "failed to open {device}: {error}");
            return None;
        }
    };
    let name = found.name().to_owned();
    if DeviceLabels::read(&*found).newest_config().is_none() {
        complain!(session, "failed to read label from {name}");
        return None;
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
            return None;
        }
    }
    // Whoever has the pool imported has the device locked: force does not help against that.
    let disk = match open(&name, Access::Write) {
        Ok(disk) => disk,
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
            let pool = candidates.first().map_or("?", |candidate| candidate.config.name.as_str());
            complain!(session, "{name} is a member (ACTIVE) of pool \"{pool}\". Export or destroy the pool first to clear its label.");
            return None;
        }
        Err(error) => {
            complain!(session, "failed to open {name}: {error}");
            return None;
        }
    };
    if let Err(error) = clear_labels(&*disk) {
        complain!(session, "failed to clear label for {name}: {error}");
        return None;
    }
    Some(())
}
