//! Writing transaction groups, and the signs of life between them.

mod group;
pub(in crate::pool) mod heartbeat;
