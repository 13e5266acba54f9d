//! Devices that were given what belongs to older groups.
//!
//! # Theory
//! What a device has missed is known by groups. A block that is copied or moved to another place keeps its group: a device that took such a write, and lost it before it was durable,
//! would get it from no resilver of the groups in which that happened. So what was moved is made durable while it is still known that it was, and a device that cannot do that is as one that
//! is new: it has missed everything.
//!
//! # Path
//! Called by expansions and rebuilds in each of their groups, before the groups that devices have missed are written down.

use std::sync::Arc;

use crate::bail;
use crate::error::Result;
use crate::pool::devices::beside::attach::GROUPS_UNDER_WAY;
use crate::pool::sync::writer::GroupWriter;
use crate::txg::TXG_INITIAL;
use crate::vdev::{Leaf, TopVdev};

/// A device that has not all of what was moved is as one that is new.
pub(in crate::pool) fn has_missed_all(writer: &GroupWriter, leaf: &Leaf) {
    leaf.note_missed(TXG_INITIAL, writer.layers().context.groups.open_txg() + GROUPS_UNDER_WAY);
}

/// Makes durable what was moved to these devices of a vdev.
///
/// # Errors
/// More of them cannot than there is parity for.
pub(in crate::pool) fn make_durable(writer: &GroupWriter, top: &TopVdev, leaves: &[Arc<Leaf>]) -> Result<()> {
    let failed: Vec<&Arc<Leaf>> = leaves.iter().filter(|leaf| !leaf.is_open() || leaf.flush().is_err()).collect();
    if failed.len() > top.layout().columns().1 {
        bail!(Suspended, "vdev {}: {} devices failed to make durable what was moved to them", top.id(), failed.len());
    }
    for leaf in failed {
        tracing::warn!("{}: what was moved to it is not durable: it has to get everything again", leaf.name());
        has_missed_all(writer, leaf);
    }
    Ok(())
}
