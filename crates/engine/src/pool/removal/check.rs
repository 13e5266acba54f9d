//! Which vdevs can be removed, as OpenZFS has it.

use std::sync::Arc;

use ondisk::feature::Feature;
use ondisk::indirect::REMOVAL_ACTIVE;

use super::stored;
use crate::alloc::ClassKind;
use crate::bail;
use crate::error::Result;
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::{Bias, TopVdev, VdevKind, key};

/// Refuses a vdev that cannot be removed now.
///
/// # Errors
/// `NotSupported`: such a vdev cannot be. `Conflict`: it is being removed. `Busy`: another one is, or it has not all of its data. `NoSpace`: the others have not enough room. `Invalid`:
/// the pool has vdevs of other sectors, or with parity. `Io`: it cannot be read.
#[doc(alias = "spa_vdev_remove_top_check")]
pub(super) fn check(writer: &GroupWriter, top: &Arc<TopVdev>) -> Result<()> {
    let layers = writer.layers();
    if !layers.meta().features.is_enabled(Feature::DeviceRemoval) || top.zap() == 0 {
        bail!(NotSupported, "operation not supported on this type of pool");
    }
    if top.is_removing() {
        bail!(Conflict, "removal for this vdev is already in progress.");
    }
    check_room(layers, top)?;
    if stored(layers.mos())?.state == REMOVAL_ACTIVE || writer.expansion().is_active() {
        bail!(Busy, "Pool busy; removal may already be in progress");
    }
    let members = top.members();
    // Of each byte some side has everything.
    if members.leaves.iter().all(|leaf| !leaf.is_open() || !leaf.missing_txgs().is_empty()) {
        bail!(Busy, "Pool busy; removal may already be in progress");
    }
    if !top.state().is_readable() {
        bail!(Io, "I/O error");
    }
    if !are_alike(layers, top) {
        bail!(Invalid, "invalid config; all top-level vdevs must have the same sector size and not be raidz.");
    }
    Ok(())
}

fn check_room(layers: &Layers, top: &TopVdev) -> Result<()> {
    let allocator = layers.context.io.allocator();
    let group = allocator.group(top.id() as u32)?;
    let (room, wanted) = if group.config().class == ClassKind::Normal {
        if top.config().number(key::NON_ALLOCATING) != 0 {
            return Ok(());
        }
        let own = group.space_use().space;
        (layers.dsl.available(&layers.dsl.root_dir()?, true), group.data_share(own.saturating_sub(group.embedded_log_bytes())))
    } else {
        (allocator.space_use(ClassKind::Normal).free(), group.space_use().allocated)
    };
    if room < wanted {
        bail!(NoSpace, "out of space");
    }
    Ok(())
}

/// Have all vdevs the same sectors, no parity, and mirrors of nothing but devices?
fn are_alike(layers: &Layers, top: &TopVdev) -> bool {
    let tops = layers.vdevs.data_tops();
    let units = |bias: Bias| tops.iter().filter(move |other| other.bias() == bias).map(|other| other.ashift());
    let is_one_unit = |bias: Bias| units(bias).all(|ashift| ashift == top.ashift());
    let is_plain = |other: &Arc<TopVdev>| match other.kind() {
        VdevKind::Mirror => other.config().children.iter().all(|child| child.kind.is_leaf()),
        kind => kind.is_leaf(),
    };
    is_one_unit(Bias::None) && is_one_unit(top.bias()) && tops.iter().all(is_plain)
}
