//! Devices that come to a pool and go from it: members of its tree, and those beside it.

pub(in crate::control::pools) mod auxiliary;
mod top_level;
