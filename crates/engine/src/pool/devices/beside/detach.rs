//! Devices that leave a mirror, a replacement or a spare: `zpool detach`.
//!
//! # Theory
//! One group takes the device out of the description, and out of what the top-level vdev consists of. Only when that group is on disk
//! do its labels say that it left: a crash before leaves a label that is older than the pool's configuration, which does not have the device. A spare that goes back
//! gets the label of one that nobody uses. Without the device that it stood in for, a spare is none any more, and the list of spares loses it, unless it is
//! a distributed one.

use std::sync::Arc;
use std::time::Duration;

use disk::DiskRef;
use ondisk::uberblock::Uberblock;

use crate::bail;
use crate::dmu::SyncTx;
use crate::error::{Result, Within};
use crate::host::HostRef;
use crate::pool::checkpoint;
use crate::pool::config::configuration::Configuration;
use crate::pool::devices::auxiliary::{self, AuxiliaryKind};
use crate::pool::devices::caught_up::caught_up;
use crate::pool::devices::{distributed, in_one_group, vdev_zaps};
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::label::{init_labels, retire_labels, write_uberblock};
use crate::vdev::{Departing, Leaf, TopVdev, VdevConfig, VdevKind, key};

/// How long until it looks again whether a vdev is still read, and how often.
const READERS_PAUSE: Duration = Duration::from_millis(5);
const READERS_WAIT_MAX: u32 = 400;

/// Takes a device out of a mirror, and returns when that is on disk. One call at a time.
///
/// # Errors
/// `Unsupported`: it is not in a mirror. `Busy`: the others have not all that it has.
#[doc(alias = "spa_vdev_detach")]
pub(in crate::pool) fn detach(writer: &Arc<GroupWriter>, guid: u64) -> Result<()> {
    let name = writer.configuration().name();
    detach_device(writer, guid).within(|| format!("pool {name}"))
}

fn detach_device(writer: &Arc<GroupWriter>, guid: u64) -> Result<()> {
    let layers = writer.layers();
    if layers.is_read_only() || layers.space_maps.is_none() {
        bail!(ReadOnly, "it is read-only");
    }
    checkpoint::refuse_change(layers)?;
    let Some((top, _)) = layers.vdevs.find_described(guid) else { bail!(NotFound, "no device has guid {guid}") };
    in_one_group(writer, move |writer, tx| {
        let (layers, configuration) = (writer.layers(), writer.configuration());
        let has_spare = top.config().spare_for_good(guid).is_some();
        if let Err(refused) = take_out(layers, configuration, &top, guid, tx)? {
            return Ok(Err(refused));
        }
        // Other spares that stood in for it.
        if has_spare { caught_up(layers, configuration, tx).map(Ok) } else { Ok(Ok(())) }
    })?;
    // It can be used for something else.
    layers.vdevs.departures().wait();
    Ok(())
}

/// Takes a device out, in the sync thread. The inner error is a refusal: nothing has changed.
pub(in crate::pool) fn take_out(layers: &Layers, configuration: &Configuration, top: &TopVdev, guid: u64, tx: &SyncTx<'_>) -> Result<Result<()>> {
    let before = top.config();
    if let Some(gone) = before.find(guid).filter(|gone| gone.kind == VdevKind::DraidSpare) {
        return distributed::take_out(layers, configuration, top, gone, tx);
    }
    let taken = take(layers, configuration, top, guid, tx)?;
    Ok(taken.map(|leaf| layers.vdevs.departures().note(departing(configuration, top, before.find(guid), leaf))))
}

/// What becomes of a device that was taken out.
pub(in crate::pool) fn departing(configuration: &Configuration, top: &TopVdev, described: Option<&VdevConfig>, leaf: Arc<Leaf>) -> Departing {
    let spare = described.filter(|described| described.flag(key::IS_SPARE));
    let label = spare.map(|spare| auxiliary::label(configuration.get().version, AuxiliaryKind::Spare, spare));
    Departing { leaf, ashift: top.ashift(), label, top: None }
}

/// As [`take_out`], for a device that somebody else has from then on.
pub(in crate::pool) fn take(layers: &Layers, configuration: &Configuration, top: &TopVdev, guid: u64, tx: &SyncTx<'_>) -> Result<Result<Arc<Leaf>>> {
    let Some(maps) = &layers.space_maps else { bail!(ReadOnly, "the space maps are not open") };
    let before = top.config();
    let leaf = match top.detach_leaf(guid) {
        Ok(leaf) => leaf,
        Err(refused) => return Ok(Err(refused)),
    };
    // A distributed one is a part of its vdev, and stays in the list.
    let is_distributed = |spare: &u64| before.find(*spare).is_some_and(|spare| spare.kind == VdevKind::DraidSpare);
    if let Some(spare) = before.spare_for_good(guid).filter(|spare| !is_distributed(spare)) {
        auxiliary::strike_spare_sync(layers.mos(), spare, tx)?;
    }
    if let Some(gone) = before.find(guid) {
        if gone.number(key::DTL) != 0 {
            maps.free_ranges(tx, gone.number(key::DTL))?;
        }
        vdev_zaps::free_of_leaf(layers.mos(), gone, tx)?;
        layers.dsl.record_event("detach", &format!("vdev={}", gone.display_name()), tx)?;
    }
    configuration.set_dirty();
    Ok(Ok(leaf))
}

/// The group is on disk that took devices out: they belong to nobody, or are spares.
pub(in crate::pool) fn let_go(writer: &GroupWriter) {
    let vdevs = writer.layers().vdevs.clone();
    if !vdevs.departures().group_done() {
        return;
    }
    let uberblock = writer.uberblock();
    let host = writer.layers().context.host.clone();
    let work = move || {
        vdevs.departures().release(|departing| {
            relabel(&departing, &uberblock);
            wait_for_readers(&departing, &host);
            departing.leaf.close();
        });
    };
    if !writer.layers().context.host.spawn("departing", Box::new(work.clone())) {
        work();
    }
}

fn relabel(departing: &Departing, uberblock: &Uberblock) {
    let change = |disk: DiskRef| match &departing.label {
        None => retire_labels(&*disk),
        Some(label) => init_labels(&*disk, label).and_then(|()| write_uberblock(&*disk, departing.ashift, uberblock)),
    };
    if let Some(Err(error)) = departing.leaf.disk().map(change) {
        tracing::warn!("{}: it was detached, but its labels cannot be changed: {error}", departing.leaf.name());
    }
}

/// Where all of a vdev is gone, reads that began before have no other side to turn to.
fn wait_for_readers(departing: &Departing, host: &HostRef) {
    let Some(top) = &departing.top else { return };
    for _ in 0..READERS_WAIT_MAX {
        if top.strong_count() == 0 {
            return;
        }
        host.sleep(READERS_PAUSE);
    }
    tracing::warn!("{}: somebody has not let go of it", departing.leaf.name());
}
