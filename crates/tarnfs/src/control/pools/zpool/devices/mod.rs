//! Devices that come to a pool and go from it, members of its tree and those beside it: verbs on them, how they are shown, and what becomes of those that fail.

pub(in crate::control::pools) mod auxiliary;
pub(super) mod beside;
pub(in crate::control::pools) mod diagnosis;
mod leaf_work;
pub(in crate::control::pools) mod shown;
mod top_level;
