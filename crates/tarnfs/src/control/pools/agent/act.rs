//! What the agent does about a device. It waits for groups.

use disk::{Disk, DiskKind, DiskRef};
use engine::error::{Error, ErrorKind, Result};
use engine::pool::{Beside, Fill, Stopped};
use engine::pool::import::discover;
use engine::vdev::{NewLeaf, VdevConfig, VdevState};
use ondisk::label;

use super::super::zpool::devices::auxiliary::spare_leaf;
use super::places::is_on;
use super::{Action, Imported};

/// Does it. What cannot be done is said in the log.
pub(super) fn act(imported: &Imported, action: Action) {
    let (engine, agent) = (imported.pool.engine(), &imported.agent);
    let pool = engine.name();
    match action {
        Action::Stop(guid, how) => match engine.stop_device(guid, how, false) {
            Ok(()) => tracing::error!("pool {pool}: {} has too many errors", name_of(imported, guid)),
            Err(error) => tracing::warn!("pool {pool}: {} has too many errors: {error}", name_of(imported, guid)),
        },
        Action::Removed(guid) => {
            let answers = engine.vdevs.find_leaf(guid).and_then(|(_, leaf)| leaf.disk()).is_some_and(|disk| does_answer(&*disk));
            if answers {
                return;
            }
            match engine.stop_device(guid, Stopped::Removed, false) {
                Ok(()) => {
                    agent.note("resource.fs.zfs.removed", guid);
                    tracing::error!("pool {pool}: {} is gone", name_of(imported, guid));
                }
                Err(error) => tracing::warn!("pool {pool}: {} is gone: {error}", name_of(imported, guid)),
            }
        }
        Action::Spare(guid, spares) => spare(imported, guid, spares),
        Action::Back(guid, path) => come_back(imported, guid, &path),
        Action::Expand => match engine.expand(None) {
            Ok(()) => agent.note("sysevent.fs.zfs.vdev_autoexpand", 0),
            Err(error) => tracing::warn!("pool {pool}: it cannot grow with its devices: {error}"),
        },
    }
}

fn name_of(imported: &Imported, guid: u64) -> String {
    imported.pool.engine().vdevs.find_leaf(guid).map_or_else(|| guid.to_string(), |(_, leaf)| leaf.name().to_owned())
}

fn does_answer(disk: &dyn Disk) -> bool {
    let mut sector = vec![0; disk.sector_bytes().clamp(512, 1 << 16) as usize];
    disk.read_at(&mut sector, 0).is_ok()
}

/// The first spare that can come in does.
fn spare(imported: &Imported, guid: u64, spares: Vec<(u64, Option<DiskRef>)>) {
    let engine = imported.pool.engine();
    let (pool, name) = (engine.name(), name_of(imported, guid));
    let mut is_busy = false;
    for (spare, disk) in spares {
        // It came in for another device a moment ago.
        if engine.vdevs.find_described(spare).is_some() {
            continue;
        }
        let shown = spare_name(imported, spare);
        match come_in(imported, guid, spare, disk) {
            Ok(()) => {
                tracing::warn!("pool {pool}: the spare {shown} stands in for {name}");
                imported.agent.note("sysevent.fs.zfs.vdev_spare", spare);
                imported.agent.note("sysevent.fs.zfs.vdev_attach", spare);
                return;
            }
            Err(error) if error.kind() == ErrorKind::Busy => is_busy = true,
            Err(error) => tracing::warn!("pool {pool}: the spare {shown} cannot stand in for {name}: {error}"),
        }
    }
    // Devices are being filled in another way, until then.
    if is_busy {
        imported.agent.seek_again(guid);
    }
}

fn spare_name(imported: &Imported, spare: u64) -> String {
    let listed = imported.pool.engine().auxiliary().map(|listed| listed.spares).unwrap_or_default();
    listed.iter().find(|listed| listed.guid == spare).map_or_else(|| spare.to_string(), VdevConfig::display_name)
}

/// Lets a spare stand in for a device.
fn come_in(imported: &Imported, guid: u64, spare: u64, disk: Option<DiskRef>) -> Result<()> {
    let engine = imported.pool.engine();
    let Some(disk) = disk else { return engine.attach_distributed(guid, spare, Fill::Sequential) };
    let ashift = engine.stored_property("ashift").ok().flatten().and_then(|value| u32::try_from(value.number()).ok()).filter(|ashift| *ashift != 0);
    let leaf = spare_leaf(engine, spare, disk).map_err(|failure| Error::new(ErrorKind::NotFound, failure.message))?;
    engine.attach_device(guid, leaf, Beside::Spare(spare), ashift)
}

/// Something is where a device should be that is lost.
fn come_back(imported: &Imported, guid: u64, path: &str) {
    let engine = imported.pool.engine();
    let pool = engine.name();
    // A program that uses what is there is not kept from it.
    let Ok(seen) = disk::open(path, disk::Access::Inspect) else { return };
    let is_it = discover(vec![seen.clone()]).iter().any(|other| other.config.guid == engine.guid() && other.devices.iter().any(|device| device.guid == guid));
    let may_replace = || is_on(engine, "autoreplace") && seen.kind() == DiskKind::Block && is_blank(&*seen);
    let is_new = !is_it && may_replace();
    let Some(found) = (is_it || is_new).then(|| disk::open(path, disk::Access::Write).ok()).flatten() else { return };
    if is_it {
        match engine.online_device(guid, Some(found), true) {
            Ok(state) if state >= VdevState::Degraded => {
                imported.agent.note("sysevent.fs.zfs.vdev_online", guid);
                tracing::warn!("pool {pool}: {path} is back");
            }
            Ok(state) => tracing::warn!("pool {pool}: {path} is back, and {state}"),
            Err(error) => tracing::warn!("pool {pool}: {path} is back, and cannot be used: {error}"),
        }
    } else {
        let leaf = NewLeaf { disk: found, path: path.to_owned(), whole_disk: false };
        match engine.attach_device(guid, leaf, Beside::Replacement, None) {
            Ok(()) => {
                imported.agent.note("resource.fs.zfs.autoreplace", guid);
                imported.agent.note("sysevent.fs.zfs.vdev_attach", guid);
                tracing::warn!("pool {pool}: a new disk at {path} takes the part of the one that was lost");
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) => tracing::warn!("pool {pool}: a new disk at {path} cannot take the part of the one that was lost: {error}"),
        }
    }
}

/// Is there nothing at the beginning and at the end of a disk, where tables, file systems and labels are?
fn is_blank(disk: &dyn Disk) -> bool {
    let mut bytes = vec![0; label::START_BYTES as usize];
    let Some(end) = disk.size_bytes().checked_sub(bytes.len() as u64) else { return false };
    [0, end & !((1 << 16) - 1)].into_iter().all(|at| disk.read_at(&mut bytes, at).is_ok() && bytes.iter().all(|byte| *byte == 0))
}
