//! Work on the free space of single devices: it is written (`zpool initialize`), or the device is told that it is not needed (`zpool trim`).
//!
//! # Theory
//! A [`Work`] goes through the free space of a vdev from its start to its end, and does something with what lies on one of its devices: a window at a time,
//! which nobody may allocate meanwhile ([`Withheld`](crate::alloc::Withheld)). Free is what was freed in groups that are on disk and out of reach of
//! the last uberblocks ([`GroupWriter::is_settled`](crate::pool::sync::writer::GroupWriter::is_settled)); what a checkpoint keeps is not. A thread does it, or where the host has none, a step goes with each group.
//!
//! How far it is, is written with each group: what was done before the group was closed is on the device when the group is, as its flush comes
//! later. So after a crash it goes on where it was, or a little before. The work begins again by itself when the pool is opened and when the device
//! is back, as long as its state says that it is under way.
//!
//! `autotrim` does the same, unasked, with what came free lately, and notes nothing down.
//!
//! # On disk
//! In the ZAP of the device, as OpenZFS has it: the state, when it changed, and the end of what is done, with the labels at the start of the device.
//!
//! # Path
//! `pool/verbs` begins and ends it, `pool/sync` writes its state; calls `alloc` and the leaves.

pub(in crate::pool) mod autotrim;
mod record;
pub(in crate::pool) mod verbs;
mod work;
mod works;

pub use record::WorkState;
pub use verbs::WorkCommand;
pub use work::{WorkKind, WorkProgress};
pub(in crate::pool) use works::{Works, open, resume};
