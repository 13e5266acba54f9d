//! Devices that leave a mirror: `zpool detach`.
//!
//! # Theory
//! One group takes the device out of the description, and out of what the top-level vdev consists of. Only when that group is on disk
//! are its labels cleared: a crash before leaves a label that is older than the pool's configuration, which does not have the device.

use std::sync::Arc;

use crate::bail;
use crate::dmu::SyncTx;
use crate::error::{Result, Within};
use crate::pool::checkpoint;
use crate::pool::config::configuration::Configuration;
use crate::pool::devices::{in_one_group, vdev_zaps};
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::label::clear_labels;
use crate::vdev::{Leaf, TopVdev, VdevTree, key};

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
    let Some((top, _)) = layers.vdevs.find_leaf(guid) else { bail!(NotFound, "no device has guid {guid}") };
    in_one_group(writer, move |writer, tx| take_out(writer.layers(), writer.configuration(), &top, guid, tx))
}

/// Takes a device out, in the sync thread. The inner error is a refusal: nothing has changed.
pub(in crate::pool) fn take_out(layers: &Layers, configuration: &Configuration, top: &TopVdev, guid: u64, tx: &SyncTx<'_>) -> Result<Result<()>> {
    Ok(take(layers, configuration, top, guid, tx)?.map(|leaf| layers.vdevs.note_departing(leaf)))
}

/// As [`take_out`], for a device that somebody else has from then on.
pub(in crate::pool) fn take(layers: &Layers, configuration: &Configuration, top: &TopVdev, guid: u64, tx: &SyncTx<'_>) -> Result<Result<Arc<Leaf>>> {
    let Some(maps) = &layers.space_maps else { bail!(ReadOnly, "the space maps are not open") };
    let before = top.config();
    let leaf = match top.detach_leaf(guid) {
        Ok(leaf) => leaf,
        Err(refused) => return Ok(Err(refused)),
    };
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

/// The group is on disk that took devices out: they belong to nobody.
pub(in crate::pool) fn let_go(vdevs: &VdevTree) {
    for leaf in vdevs.take_departed() {
        if let Some(Err(error)) = leaf.disk().map(|disk| clear_labels(&*disk)) {
            tracing::warn!("{}: it was detached, but its labels cannot be cleared: {error}", leaf.name());
        }
        leaf.close();
    }
}
