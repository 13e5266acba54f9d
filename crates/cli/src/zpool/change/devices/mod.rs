//! The verbs of `zpool` on devices of a pool that is there.

pub(in crate::zpool) mod add;
pub(in crate::zpool) mod beside;
pub(in crate::zpool) mod leaf_work;
pub(in crate::zpool) mod remove;
pub(in crate::zpool) mod split;
