//! Where bytes live and how they are protected.
//!
//! # Theory
//! A pool's storage is a tree. Its root has *top-level* vdevs, numbered from 0; a DVA names one of them and an offset
//! in it. A top-level vdev is a device, a *leaf*, or a tree of them: a mirror, in which any member may be on its way in
//! or out (`replacing`, `spare`). What an I/O of a top-level vdev is in I/Os of leaves, and what the answers of leaves
//! are worth, pure functions say ([`map`]); zio makes the I/Os. Flushes and labels go to every leaf as they are, and
//! are made here.
//!
//! A leaf that missed a write is *behind*: it is written as before but only read when nothing else is left (or all others are behind and
//! have missed just what is wanted), and the checksum above finds what is stale.
//!
//! # On disk
//! The description of the tree ([`VdevConfig`]) is an nvlist in every label and in the MOS; labels and the rings of
//! uberblocks are read and written by `label.rs`.
//!
//! # Invariants
//! 1. Data I/O never touches labels: offsets count from behind the front labels and end before the back ones.
//! 2. A write succeeded if it can be read again (of a mirror, if one leaf has it), and every leaf that failed is behind from then on.
//! 3. A leaf that is behind never makes a flush succeed, unless all are; nor does one of which anybody has been told since the write that a flush failed.
//!
//! # Path
//! Called by zio (data) and pool (labels), calls `disk`.

mod bias;
mod config;
mod create;
mod departures;
mod flush;
mod indirect;
pub mod label;
mod leaf;
pub mod map;
mod members;
mod size;
mod top;
mod tree;

/// For who reads what nobody knows the group of.
pub const BIRTH_UNKNOWN: u64 = u64::MAX;

#[cfg(test)]
mod tests;

pub use bias::Bias;
pub use config::{VdevConfig, VdevKind, key};
pub(crate) use create::kind_of;
pub use create::{DraidColumns, NewLeaf, NewTop};
pub use departures::{Departing, Departures};
pub use flush::{FlushMark, LogMark};
pub use indirect::IndirectMap;
pub use leaf::{Class, FailureMode, Gate, Leaf, LeafStats, Reason, RequestKind, Requests, Traffic, VdevState, VdevStatus};
pub use map::{IoMap, Layout, LeafId, Node, View};
pub use members::{Members, Moves, Moving};
pub use size::{ASHIFT_MAX, ASHIFT_MIN, default_ashift, metaslab_shift};
pub use top::TopVdev;
pub(crate) use tree::leaf_status;
pub use tree::{Devices, VdevTree};
