//! What top-level vdevs consist of, and how that changes.
//!
//! # Theory
//! Devices come and go while a pool is in use. What a vdev consists of is a value that is never changed, and exchanged as a whole
//! ([`TopVdev::exchange`](super::TopVdev::exchange)): a reader that holds one goes on with it. An I/O that is under way names leaves by number
//! ([`LeafId`](super::LeafId)), and a number is given once while the pool is open: what an I/O learns of a leaf after an exchange is
//! noted on just that leaf, or on none if it has gone; never on another that took its place.
//!
//! What was written is judged with the leaves that are there when it is judged, and nothing is exchanged meanwhile. So a leaf goes
//! either before that, and does not count, or afterwards: then all that the others missed is noted already, and the exchange can
//! be refused for it.

mod exchange;
mod moving;
pub(super) mod outage;
mod reshape;
mod sitting;
mod snapshot;

#[cfg(test)]
mod tests;

pub(in crate::vdev) use moving::{CountedIo, HeldRange};
pub use moving::{Moves, Moving};
pub(in crate::vdev) use sitting::Sitting;
pub use snapshot::Members;
