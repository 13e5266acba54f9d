//! Devices that are taken out of use and used again: `zpool offline`, `zpool online`, `zpool clear`, `zpool reopen`.
//!
//! # Theory
//! A device that is not used misses every group from then on, and its dirty time log says so. One may be taken out as long as the others
//! have all that it has. A device that comes back must have the label that it had: another pool's, or one that somebody else has written
//! meanwhile, is not it. It is written to again at once, and gets what it missed from a resilver.
//!
//! # On disk
//! `offline`, `faulted` and `degraded` in the description of a device, with `aux_state` for the reason. What is to last only until the
//! pool is exported is not written down.

use std::sync::Arc;

use disk::DiskRef;
use ondisk::label;

use super::caught_up::has_unspared;
use super::{in_one_group, remove_log};
use crate::error::{Error, Result, Within};
use crate::pool::layers::Layers;
use crate::pool::scan::{begin_resilver, want_resilver};
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::label::DeviceLabels;
use crate::vdev::{Leaf, Reason, TopVdev, VdevConfig, VdevState, key};
use crate::{bail, error};

/// Groups that are under way at the same time.
const GROUPS_UNDER_WAY: u64 = 3;
/// The reason in the description of a device that the administrator has declared broken.
const EXTERNAL: &str = "external";

/// How a device is taken out of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// By the administrator, until it is to be used again.
    Offline,
    /// It counts as broken.
    Faulted,
    /// It had too many errors.
    Failing,
    /// It gave what was wrong too often: it is used on.
    Suspect,
    /// It was pulled out.
    Removed,
}

impl Stopped {
    fn reason(self) -> Reason {
        match self {
            Stopped::Offline | Stopped::Faulted => Reason::Persistent,
            Stopped::Failing | Stopped::Suspect => Reason::Errors,
            Stopped::Removed => Reason::None,
        }
    }

    /// The reason in the description.
    fn aux_state(self) -> Option<&'static str> {
        match self {
            Stopped::Offline | Stopped::Faulted => Some(EXTERNAL),
            Stopped::Failing | Stopped::Suspect => Some("err_exceeded"),
            Stopped::Removed => None,
        }
    }
}

/// Takes a device out of use, and returns when that is on disk; `temporary`: until the pool is exported. One call at a time.
///
/// # Errors
/// `Busy`: the others have not all that it has.
#[doc(alias = "vdev_offline")]
pub(in crate::pool) fn stop(writer: &Arc<GroupWriter>, guid: u64, how: Stopped, temporary: bool) -> Result<()> {
    let name = writer.configuration().name();
    stop_device(writer, guid, how, temporary).within(|| format!("pool {name}"))
}

fn stop_device(writer: &Arc<GroupWriter>, guid: u64, how: Stopped, temporary: bool) -> Result<()> {
    let layers = writer.layers();
    check_writable(layers)?;
    let Some((top, leaf)) = layers.vdevs.find_leaf(guid) else { bail!(NotFound, "no device has guid {guid}") };
    let is_lone_log = top.is_log() && top.members().needs(leaf.number());
    let log = if is_lone_log { Some(remove_log::pause_log(writer, &top)?) } else { None };
    let (stopping, paused) = (leaf.clone(), log.clone());
    let stopped = in_one_group(writer, move |writer, tx| {
        // A group that was written meanwhile said that the device is used again.
        if paused.is_some_and(|log| log.is_usable()) {
            return Ok(Err(error!(Busy, "{}: intent logs are written there again", stopping.name())));
        }
        // Not asked for within the exchange, which has the description.
        let (txg, is_log) = (tx.txg(), top.is_log());
        let done = top.exchange(&[], |members, config| {
            let mut config = config.clone();
            // Of what is being replaced it is not certain that it stays: faults of others are to leave room for it.
            let is_needed = !is_log && match how {
                Stopped::Faulted | Stopped::Failing => members.needs_beside_replacements(stopping.number(), &config),
                Stopped::Offline | Stopped::Suspect | Stopped::Removed => members.needs(stopping.number()),
            };
            let Some(described) = config.find_mut(guid) else { bail!(NotFound, "no device has guid {guid}") };
            stop_described(&stopping, described, how, temporary, is_needed)?;
            Ok(config)
        });
        if done.is_ok() && !stopping.is_open() {
            stopping.note_missed(txg, txg + GROUPS_UNDER_WAY);
        }
        writer.configuration().set_dirty();
        Ok(done)
    });
    if let Some(log) = log {
        log.set_usable(stopped.as_ref().is_err_and(|error| !error.goes_on()));
    }
    if !leaf.is_open() {
        leaf.close();
    }
    stopped
}

fn stop_described(leaf: &Leaf, described: &mut VdevConfig, how: Stopped, temporary: bool, is_needed: bool) -> Result<()> {
    match how {
        Stopped::Offline if leaf.state() == VdevState::Offline => {}
        Stopped::Offline | Stopped::Removed if is_needed => bail!(Busy, "{}: the others have not all that it has", leaf.name()),
        Stopped::Offline => leaf.stop(VdevState::Offline, Reason::Persistent),
        Stopped::Removed => {
            leaf.stop(VdevState::Removed, Reason::None);
            described.set(key::REMOVED, 1);
        }
        Stopped::Faulted | Stopped::Failing if !is_needed => {
            leaf.stop(VdevState::Faulted, how.reason());
            described.set(key::FAULTED, 1);
        }
        // What cannot be done without is used for as long as it gives anything.
        Stopped::Faulted | Stopped::Failing | Stopped::Suspect => {
            if leaf.is_open() {
                leaf.set_state(VdevState::Degraded, how.reason());
            }
            described.set(key::DEGRADED, 1);
        }
    }
    match how {
        Stopped::Offline if temporary => described.remove(key::OFFLINE),
        Stopped::Offline => described.set(key::OFFLINE, 1),
        _ if temporary => described.remove(key::AUX_STATE),
        _ => how.aux_state().into_iter().for_each(|state| described.set_string(key::AUX_STATE, state)),
    }
    Ok(())
}

/// Uses a device again that was offline or gone, and returns how it is; `disk`: what was found where it should be; `to_stay`: a spare that stands in for it
/// goes back when the device has everything. One call at a time.
///
/// # Errors
/// There is no such device, or the pool cannot be written.
#[doc(alias = "vdev_online")]
pub(in crate::pool) fn online(writer: &Arc<GroupWriter>, guid: u64, disk: Option<DiskRef>, to_stay: bool) -> Result<VdevState> {
    let name = writer.configuration().name();
    let online = online_device(writer, guid, disk, to_stay).within(|| format!("pool {name}"));
    if online.as_ref().is_err_and(Error::goes_on) {
        begin_to_catch_up(writer);
    }
    let leaf = online?;
    if has_to_catch_up(writer) {
        begin_resilver(writer)?;
    }
    Ok(leaf.state())
}

fn online_device(writer: &Arc<GroupWriter>, guid: u64, disk: Option<DiskRef>, to_stay: bool) -> Result<Arc<Leaf>> {
    check_writable(writer.layers())?;
    let Some((top, leaf)) = writer.layers().vdevs.find_leaf(guid) else { bail!(NotFound, "no device has guid {guid}") };
    let is_faulted = leaf.state() == VdevState::Faulted;
    let found = if leaf.is_open() || is_faulted { None } else { Some(look_at(writer, &top, &leaf, disk)) };
    let coming = leaf.clone();
    in_one_group(writer, move |writer, _| {
        top.update_config(|config| {
            if let Some(described) = config.find_mut(guid) {
                described.remove(key::OFFLINE);
                described.remove(key::REMOVED);
            }
            if to_stay && found.as_ref().is_none_or(|found| found.is_ok()) {
                config.set_unspare(guid);
            }
        });
        match found {
            None => {}
            Some(Ok(disk)) => coming.reopen(disk),
            Some(Err(reason)) => coming.stop(VdevState::Unavailable, reason),
        }
        if top.is_log() {
            writer.open_when_written(&top);
        }
        writer.configuration().set_dirty();
        Ok(Ok(()))
    })?;
    Ok(leaf)
}

/// Uses all of the devices of a top-level vdev, if these are larger than they were: that with the device of this guid, or all. One call at a time.
///
/// # Errors
/// The pool cannot be written.
#[doc(alias = "vdev_expand")]
pub(in crate::pool) fn expand(writer: &Arc<GroupWriter>, guid: Option<u64>) -> Result<()> {
    let layers = writer.layers();
    check_writable(layers)?;
    for top in layers.vdevs.data_tops() {
        if guid.is_some_and(|guid| top.members().leaf_of_guid(guid).is_none()) {
            continue;
        }
        let growing = top.clone();
        in_one_group(writer, move |writer, tx| {
            if growing.look_at_sizes() {
                // Their last labels are in another place, whether the vdev grows or not.
                writer.configuration().write_labels();
                writer.configuration().set_dirty();
            }
            growing.spread_uberblocks();
            let (old, new) = (growing.asize(), growing.asize_max());
            if new > old {
                growing.update_config(|config| config.set(key::ASIZE, new));
                writer.configuration().set_dirty();
                writer.layers().dsl.record_event("vdev expand", &format!("vdev {} from {old} to {new}", growing.id()), tx)?;
            }
            Ok(Ok(()))
        })?;
        // What is allocated there must be found after a crash: only now.
        in_one_group(writer, move |writer, tx| {
            let before = room(writer.layers());
            if let Some(maps) = &writer.layers().space_maps {
                maps.grow_vdev(top.id() as u32, top.asize())?;
            }
            let after = room(writer.layers());
            if after > before {
                let size = format!("pool '{}' size: {after}(+{})", writer.configuration().name(), after - before);
                writer.layers().dsl.record_event("vdev online", &size, tx)?;
            }
            Ok(Ok(()))
        })?;
    }
    writer.refresh_space();
    Ok(())
}

/// Bytes of all vdevs but logs, free or not.
fn room(layers: &Layers) -> u64 {
    let tops = layers.vdevs.data_tops().into_iter().filter(|top| !top.is_log());
    let group = |top: Arc<TopVdev>| layers.context.io.allocator().group(top.id() as u32).ok();
    tops.filter_map(group).map(|group| group.space_use().space).sum()
}

/// Uses all of the devices of a top-level vdev that got one more, in the next groups: in the one it gets its size, in the other that is used.
///
/// # Errors
/// What stopped the pool.
pub(in crate::pool) fn grow_later(writer: &GroupWriter, top: &Arc<TopVdev>) -> Result<()> {
    let (layers, configuration, growing) = (writer.layers().clone(), writer.configuration().clone(), top.clone());
    let txg = writer.layers().dsl.queue_task(move |dsl, tx| {
        let (old, new) = (growing.asize(), growing.asize_max());
        if new <= old {
            return Ok(());
        }
        let now = layers.context.host.wall_clock().0;
        growing.update_config(|config| {
            config.set(key::ASIZE, new);
            config.set(key::EXPANSION_TIME, now);
        });
        configuration.set_dirty();
        dsl.record_event("vdev expand", &format!("vdev {} from {old} to {new}", growing.id()), tx)?;
        // What is allocated there must be found after a crash: only then.
        let maps = layers.space_maps.clone();
        let txg = dsl.queue_task(move |_, _| maps.map_or(Ok(()), |maps| maps.grow_vdev(growing.id() as u32, new)))?;
        hasten(&layers, txg);
        Ok(())
    })?;
    hasten(writer.layers(), txg);
    Ok(())
}

/// Nobody waits for this group, but for what comes of it; a scan that is under way lets it go first.
fn hasten(layers: &Layers, txg: u64) {
    if layers.context.tunables.scan_hastens {
        layers.context.groups.kick(txg);
    }
}

/// Is what was found where a device should be that device? Else why it cannot be used.
fn look_at(writer: &GroupWriter, top: &TopVdev, leaf: &Leaf, disk: Option<DiskRef>) -> std::result::Result<DiskRef, Reason> {
    let Some(disk) = disk else { return Err(Reason::NotFound) };
    if label::data_bytes(disk.size_bytes()).is_none_or(|room| room < top.config().leaf_bytes()) {
        return Err(Reason::TooSmall);
    }
    let labels = DeviceLabels::read(&*disk);
    let written = writer.uberblock().txg;
    // Somebody else has used it since.
    if labels.uberblocks(top.ashift()).iter().any(|found| found.uberblock.txg > written) {
        return Err(Reason::BadLabel);
    }
    let pool = writer.configuration().get().guid;
    let is_it = |config: &ondisk::nvlist::NvList| config.u64("pool_guid") == Some(pool) && config.u64("guid") == Some(leaf.guid());
    if labels.newest_config().is_some_and(is_it) { Ok(disk) } else { Err(Reason::BadLabel) }
}

/// Looks at all devices again: `found` is what is where devices should be that are not open, `gone` are devices that are no longer where they were. One
/// call at a time.
///
/// # Errors
/// The pool cannot be written.
pub(in crate::pool) fn reopen(writer: &Arc<GroupWriter>, found: Vec<(u64, DiskRef)>, gone: Vec<u64>) -> Result<()> {
    let layers = writer.layers();
    let mut changed = false;
    for guid in gone {
        let Some((_, leaf)) = layers.vdevs.find_leaf(guid).filter(|(_, leaf)| leaf.is_open()) else { continue };
        leaf.lose();
        changed = true;
    }
    for (guid, disk) in found {
        let is_away = |leaf: &Leaf| matches!(leaf.state(), VdevState::Unavailable | VdevState::Removed);
        let Some((top, leaf)) = layers.vdevs.find_leaf(guid).filter(|(_, leaf)| is_away(leaf)) else { continue };
        match look_at(writer, &top, &leaf, Some(disk)) {
            Ok(disk) => leaf.reopen(disk),
            Err(reason) => leaf.stop(VdevState::Unavailable, reason),
        }
        changed = true;
    }
    // Not where another host may have the pool by now.
    if writer.check_may_write(layers.context.host.now_ns()).is_ok() {
        layers.vdevs.gate().clear();
    }
    if layers.is_read_only() {
        return Ok(());
    }
    if changed {
        writer.configuration().write_labels();
        begin_to_catch_up(writer);
    }
    let grown: Vec<_> = layers.vdevs.data_tops().into_iter().filter(|top| top.look_at_sizes()).collect();
    if grown.is_empty() { Ok(()) } else { label_ends(writer, grown) }
}

/// Where devices have grown, their last labels are in another place.
fn label_ends(writer: &Arc<GroupWriter>, grown: Vec<Arc<TopVdev>>) -> Result<()> {
    in_one_group(writer, move |writer, _| {
        grown.iter().for_each(|top| top.spread_uberblocks());
        writer.configuration().write_labels();
        writer.configuration().set_dirty();
        Ok(Ok(()))
    })
}

/// Devices that count as broken are tried again, of one guid or all; `found`: what is where those should be that are not open.
pub(in crate::pool) fn forgive(writer: &Arc<GroupWriter>, device: Option<u64>, found: Vec<(u64, DiskRef)>) {
    let layers = writer.layers();
    for top in layers.vdevs.data_tops() {
        for leaf in top.leaves().iter().filter(|leaf| device.is_none_or(|device| device == leaf.guid())) {
            let is_described = |config: &VdevConfig| config.flag(key::FAULTED) || config.flag(key::DEGRADED);
            let was_at_fault = top.config().find(leaf.guid()).is_some_and(is_described);
            if was_at_fault {
                top.update_config(|config| {
                    if let Some(described) = config.find_mut(leaf.guid()) {
                        [key::FAULTED, key::DEGRADED, key::AUX_STATE].iter().for_each(|name| described.remove(name));
                    }
                });
            }
            if leaf.state() == VdevState::Degraded && matches!(leaf.reason(), Reason::Persistent | Reason::Errors) && !leaf.is_behind() {
                leaf.set_state(VdevState::Online, Reason::None);
            }
            let is_used = leaf.is_open() || leaf.state() == VdevState::Offline;
            if is_used && !was_at_fault {
                continue;
            }
            if is_used {
                unspare(&top, leaf);
                continue;
            }
            let disk = found.iter().find(|(guid, _)| *guid == leaf.guid()).map(|(_, disk)| disk.clone());
            match look_at(writer, &top, leaf, disk) {
                Ok(disk) => {
                    leaf.reopen(disk);
                    top.set_config_dirty();
                    unspare(&top, leaf);
                }
                Err(reason) => leaf.stop(VdevState::Unavailable, reason),
            }
        }
    }
}

/// A device is as it should be again: a spare that stands in for it was there because of what is forgiven now.
fn unspare(top: &TopVdev, leaf: &Leaf) {
    if leaf.is_open() && top.config().set_unspare(leaf.guid()) {
        top.update_config(|config| config.set_unspare(leaf.guid()));
    }
}

/// Devices that are there and have missed something get it, and spares that are not needed any more go back.
pub(in crate::pool) fn begin_to_catch_up(writer: &Arc<GroupWriter>) {
    if has_to_catch_up(writer) {
        want_resilver(writer);
    }
}

fn has_to_catch_up(writer: &GroupWriter) -> bool {
    let is_behind = || writer.layers().vdevs.leaves().iter().any(|leaf| leaf.is_open() && leaf.is_behind());
    is_behind() || writer.layers().vdevs.data_tops().iter().any(|top| has_unspared(&top.config()))
}

fn check_writable(layers: &Layers) -> Result<()> {
    if layers.is_read_only() || layers.space_maps.is_none() {
        return Err(error!(ReadOnly, "it is read-only"));
    }
    Ok(())
}
