//! Devices that come to a pool and go from it, members of its tree and those beside it: verbs on them, and how they are shown.

pub(in crate::control::pools) mod auxiliary;
pub(super) mod beside;
mod leaf_work;
pub(in crate::control::pools) mod shown;
mod top_level;
pub(in crate::control::pools) mod vdev_properties;
