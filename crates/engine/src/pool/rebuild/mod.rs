//! Sequential rebuilds: what devices have missed is copied in the order of the disks, as the space maps say what is in use.
//!
//! # Theory
//! A resilver follows block pointers, and knows of each block whether it is right. A *rebuild* needs none: it goes through the metaslabs of one top-level vdev, and whatever is
//! allocated is read from devices that have it, or computed from parity, and written to those that have not. So it reads and writes large ranges one behind the other. That is possible
//! where the bytes of a range can be told from its place alone: on mirrors and on dRAID, where lines are whole; not on RAID-Z.
//!
//! Nothing that it copies is verified. So a scrub follows by itself when the last rebuild has ended; what a device that is replaced was the only one to have is read from just that device.
//! What could not be read, or a device refused, is not forgotten: such a device stays behind, and a resilver follows.
//!
//! As a scan, it is done in the sync thread, a piece in each group: there what is in use stays in use, and where the rebuild is is on disk with the group. A crash or an export
//! change nothing: it goes on where that group says.
//!
//! # Why it is complete
//! A device that comes in is written to from its group on, whatever is written. It has missed blocks of the groups up to the ones that were open then
//! ([`RebuildRecord::max_txg`](ondisk::rebuild::RebuildRecord)). The walk begins when these are on disk: a block of theirs is in use then, until it is freed, and stays where it is. What the device
//! misses from there on is in its log beyond these groups; and of a log that goes beyond them nothing is taken out.
//!
//! Blocks of intent logs are written when they have been allocated for a while. A write waits for what is being copied of its range, and the copying for
//! writes ([`TopVdev::hold_writes`](crate::vdev::TopVdev::hold_writes)): so nothing old is put over something new.
//!
//! # On disk
//! [`ondisk::rebuild`], in the ZAP of the vdev; `rebuild_txg` in the description of the device; the feature `device_rebuild` counts those under way.
//!
//! # Path
//! `devices/beside` begins it, `sync` calls [`sync`]; calls `vdev`.

mod begin_end_sync;
mod copy;
mod pieces;
mod piece_sync;
mod rebuilds;

pub(in crate::pool) use begin_end_sync::{begin, forget_ended};
pub(in crate::pool) use piece_sync::sync;
pub use rebuilds::RebuildProgress;
pub(in crate::pool) use rebuilds::{Rebuilds, open};

use std::sync::Arc;

use crate::pool::devices::distributed;
use crate::pool::layers::Layers;
use crate::vdev::TopVdev;

/// The groups that devices of a vdev have missed which can be written: the first, and the one after the last.
#[doc(alias = "vdev_resilver_needed")]
fn missed(layers: &Layers, top: &Arc<TopVdev>) -> Option<(u64, u64)> {
    let of_leaves = top.leaves().into_iter().filter(|leaf| leaf.is_open()).flat_map(|leaf| leaf.missing_txgs());
    let of_spares = distributed::filling(layers, top).into_iter().flat_map(|spare| spare.missed);
    of_leaves.chain(of_spares).reduce(|(start, end), (first, last)| (start.min(first), end.max(last)))
}
