//! What there is: sets of objects, an object, its tree of blocks on disk.

pub(super) mod allocate;
pub(super) mod dnode;
pub(super) mod objset;
pub(super) mod presence;
pub(super) mod tree;
