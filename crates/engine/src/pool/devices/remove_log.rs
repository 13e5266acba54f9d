//! Removing a device that is for the intent log alone.
//!
//! # Theory
//! Nothing stays on such a device for long. So nothing is allocated on it any more, every dataset begins its log anew elsewhere, and when
//! the groups that hold the records are on disk, the device is empty. What is known of it goes in one group: a hole keeps its
//! number, since DVAs name vdevs by number. When that is on disk its labels say that it left; a crash before that leaves a label that is older
//! than the pool's configuration, which does not have the device.
//!
//! A device that is missing can be removed in the same way.

use std::sync::Arc;

use super::vdev_zaps;
use crate::alloc::Group;
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::SpaceCheck;
use crate::error::{Result, Within};
use crate::pool::checkpoint;
use crate::pool::open::heads::begin_logs_anew;
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::{Departing, TopVdev, key};

/// Groups that must pass before what was allocated on the device is surely counted: those that are open, closing and syncing.
const GROUPS_MIN: usize = 3;
/// Groups after which the device ought to be empty: freed space waits for two more.
const GROUPS_MAX: usize = 12;
/// Blocks of the MOS that change, about.
const BLOCKS: u64 = 8;
/// Pool version that can have holes among its vdevs.
const VERSION_HOLES: u64 = 26;

/// Removes the log device, or mirror of log devices, with this guid (`zpool remove`), and returns when that is on disk. One call at a time.
///
/// # Errors
/// It is no such device, or a log that nobody could replay is on it.
#[doc(alias = "spa_vdev_remove_log")]
pub(in crate::pool) fn remove_log(writer: &Arc<GroupWriter>, guid: u64) -> Result<()> {
    let name = writer.configuration().name();
    remove_log_vdev(writer, guid).within(|| format!("pool {name}"))
}

fn remove_log_vdev(writer: &Arc<GroupWriter>, guid: u64) -> Result<()> {
    let layers = writer.layers();
    checkpoint::refuse_change(layers)?;
    let Some(top) = layers.vdevs.data_tops().into_iter().find(|top| top.config().find(guid).is_some()) else {
        bail!(NotFound, "no vdev has guid {guid}");
    };
    let shown = top.config().display_name();
    if !top.is_log() {
        bail!(Unsupported, "{shown} holds data: only log devices can be removed");
    }
    if top.guid() != guid {
        bail!(Invalid, "the device is part of {shown}: remove that, whole");
    }
    if layers.is_read_only() || writer.configuration().get().version < VERSION_HOLES {
        bail!(ReadOnly, "it is read-only, or of a version that cannot do without a vdev");
    }
    let group = layers.context.io.allocator().group(top.id() as u32)?;
    group.set_usable(false);
    layers.context.io.give_up_log_device(top.id() as u32);
    let removed = empty_log(writer, &group).and_then(|()| {
        let (forgetting, gone, empty) = (writer.clone(), top.clone(), group.clone());
        let check = move |_: &Arc<crate::dsl::Dsl>| {
            if empty.is_usable() {
                bail!(Busy, "intent logs are written there again");
            }
            check_empty(&empty)
        };
        layers.dsl.run_task(BLOCKS, SpaceCheck::Reserved, check, move |_, tx| forget_vdev(&forgetting, &gone, tx))
    });
    if let Err(error) = removed {
        // What has begun goes on when the pool does.
        if !error.goes_on() {
            group.set_usable(top.state().is_readable());
        }
        return Err(error).within(|| format!("cannot remove {shown}"));
    }
    // It can be used for something else.
    layers.vdevs.departures().wait();
    Ok(())
}

/// Stops using a log device, or mirror of log devices, and returns when nothing is on it that anybody needs.
///
/// # Errors
/// A log that nobody could replay is on it; it is used as before.
pub(super) fn pause_log(writer: &GroupWriter, top: &TopVdev) -> Result<Arc<Group>> {
    let group = writer.layers().context.io.allocator().group(top.id() as u32)?;
    group.set_usable(false);
    writer.layers().context.io.give_up_log_device(top.id() as u32);
    match empty_log(writer, &group) {
        Ok(()) => Ok(group),
        Err(error) => {
            group.set_usable(top.state().is_readable());
            Err(error)
        }
    }
}

/// Waits until nothing is on a device that is not used any more.
fn empty_log(writer: &GroupWriter, group: &Group) -> Result<()> {
    let _logs = begin_logs_anew(&writer.layers().dsl)?;
    for passed in 1..=GROUPS_MAX {
        writer.write_group()?;
        if passed >= GROUPS_MIN && check_empty(group).is_ok() {
            return Ok(());
        }
    }
    check_empty(group)
}

/// Takes an empty vdev out of the pool, in the sync thread.
fn forget_vdev(writer: &GroupWriter, top: &TopVdev, tx: &SyncTx<'_>) -> Result<()> {
    let (layers, configuration) = (writer.layers(), writer.configuration());
    let Some(maps) = &layers.space_maps else { bail!(ReadOnly, "the space maps are not open") };
    let config = top.config();
    for missed in config.leaves().iter().filter_map(|leaf| leaf.get(key::DTL)).filter(|log| *log != 0) {
        maps.free_ranges(tx, missed)?;
    }
    maps.remove_vdev(tx, top.id() as u32)?;
    vdev_zaps::free(layers.mos(), top, tx)?;
    layers.vdevs.detach(top.id());
    for leaf in top.leaves() {
        layers.vdevs.departures().note(Departing { leaf, ashift: top.ashift(), label: None, top: None });
    }
    // Another vdev may get its number.
    writer.works().forget(top.id());
    configuration.set_dirty();
    layers.dsl.record_event("vdev remove", &format!("{} vdev (log) {}", configuration.name(), config.display_name()), tx)
}

fn check_empty(group: &Group) -> Result<()> {
    let used = group.space_use();
    if used.allocated + used.deferred != 0 {
        bail!(Busy, "{} bytes of intent logs are still there: datasets whose log was not replayed keep it", used.allocated + used.deferred);
    }
    Ok(())
}
