//! Which changes belong together: transaction groups.
//!
//! # Theory
//! Every change belongs to a transaction group (txg). Three are alive at a time: one *open* to new transactions, one
//! *quiescing* (closed; the transactions in it finish), one *syncing* (being written). A change joins the open group with
//! [`TxgGroups::hold`] and leaves with the drop of the guard; a group can be synced when it has no holders. This module is
//! passive: it calls no other. Two threads of `pool/sync` drive it.
//!
//! ```text
//!   open --quiesce()--> quiescing --(last hold dropped)--> quiesced --begin_sync()--> syncing --end_sync()--> synced
//! ```
//!
//! # Locks
//! Holds are counted in shards, so that two writers on two processors do not share a cache line; `quiesce` takes all
//! shards for an instant to move the open txg on.

mod dirty;
mod groups;

pub use dirty::DirtyBytes;
pub(crate) use groups::bug;
pub use groups::{TxgGroups, TxgHold};

/// A transaction group's number.
pub type Txg = u64;

/// How many groups can have changes in memory at a time; a power of two. Arrays of this size are indexed by [`slot`].
pub const TXG_SIZE: usize = 4;

/// Frees of one group can be allocated again after this many more groups.
pub const TXG_DEFER_SIZE: u64 = 2;

/// How many groups are alive: open, quiescing, syncing.
pub const TXG_CONCURRENT_STATES: u64 = 3;

/// The slot of `txg` in an array of [`TXG_SIZE`].
pub fn slot(txg: Txg) -> usize {
    (txg % TXG_SIZE as u64) as usize
}

/// The first txg of a pool.
pub const TXG_INITIAL: Txg = 4;
