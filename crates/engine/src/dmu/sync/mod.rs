//! What the sync thread does with the objects of one group.

pub(super) mod dnode_sync;
mod free_sync;
pub(super) mod objset_sync;
