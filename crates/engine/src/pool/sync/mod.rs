//! Writing transaction groups: the threads, the passes, the commit point, and the signs of life between groups.

pub(in crate::pool) mod claim;
mod group;
pub(in crate::pool) mod heartbeat;
#[cfg(test)]
mod heartbeat_tests;
mod threads;
pub(in crate::pool) mod writer;
