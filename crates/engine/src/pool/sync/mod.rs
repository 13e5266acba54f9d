//! Writing transaction groups: the threads, the passes, the commit point, and the signs of life between groups.

mod group;
pub(in crate::pool) mod heartbeat;
mod threads;
pub(in crate::pool) mod writer;
