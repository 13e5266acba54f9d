//! Which bytes of the pool are free.
//!
//! # Theory
//!
//! Each top-level vdev is a [`Group`] of equally large [`Metaslab`]s; the groups that serve one purpose form a class
//! ([`ClassKind`]), and [`Allocator`] is all of it.  An allocation picks a group (rotating, so that data is striped over the
//! vdevs, biased towards emptier ones), a metaslab in it (the one in use, until it no longer fits), and a range in that.
//!
//! Only metaslabs that are allocated from have their free space in memory: it is read when first needed, through
//! [`LoadSpaceMap`], because it is stored in objects, and objects are made of allocated blocks.
//!
//! # The life of a range
//!
//! ```text
//!            allocate                    begin_pass (sync)             sync_done
//! free ─────────────────> allocating[txg] ───────────────> written ─────────────> in use
//!  ^ ^                        │                                                     │ free (syncing context)
//!  │ └────── unallocate ──────┘                                                     v
//!  │                                                                             freeing
//!  │  sync_done, two written later           sync_done               begin_pass       │
//!  └──────────────────────────── deferred <─────────── freed <─────────────────────┘
//! ```
//!
//! Freed space waits for two more txgs that have an uberblock, so that the pool can still be opened at one of the uberblocks before. (OpenZFS counts
//! txgs in which nothing changes, too, and has less to go back to.)  What a checkpoint
//! has stays in use when it is freed, and is only noted down (`keeping`), until the checkpoint is discarded.
//!
//! # Invariants
//!
//! 1. A range is in exactly one of the sets of the picture.
//! 2. A metaslab whose free space is in memory stays so while any of its sets but `deferred` has bytes.
//! 3. `free` and `deferred` together with what the open txgs have allocated are what the disk calls free.
//!
//! # Path
//!
//! `zio` calls [`Allocator::allocate`] and [`Allocator::free`]; `pool/space_maps` drives the sync side of each metaslab.

mod allocator;
mod group;
mod log_area;
mod metaslab;
mod range_tree;
mod space;
mod withheld;

pub use allocator::{Allocator, ClassKind, Request};
pub use group::{Group, GroupConfig, SpaceUse};
pub use log_area::{LogArea, Piece};
pub use metaslab::{Changes, Metaslab, SyncDone};
pub use range_tree::{CLASSES as SIZE_CLASSES, RangeError, RangeFault, RangeTree};
pub use space::{fragmentation, slop_bytes};
pub use withheld::Withheld;

use crate::error::Result;

/// Reads which bytes of a metaslab the disk calls free, as of the last txg that is synced.
///
/// Called with [`Metaslab::exclude_load`] held, from whatever thread allocates: an implementation may read blocks, but must
/// not allocate or wait for a txg.
pub trait LoadSpaceMap: Send + Sync {
    /// The free ranges of metaslab `metaslab` of top-level vdev `vdev`, as offsets in the vdev.
    fn load(&self, vdev: u32, metaslab: u64) -> Result<RangeTree>;
}

#[cfg(test)]
mod tests;
