//! The tree of names: directories and datasets, found, made, renamed and destroyed.
//!
//! # Path
//! A file for each verb that changes the tree (`_sync`), and one for each noun. To destroy a snapshot is in `snapshots`.

pub(in crate::dsl) mod clone_sync;
pub(in crate::dsl) mod create_sync;
pub(in crate::dsl) mod destroy_sync;
pub(in crate::dsl) mod dir;
pub(in crate::dsl) mod known_names;
pub mod names;
pub(in crate::dsl) mod promote_sync;
pub(in crate::dsl) mod records;
pub(in crate::dsl) mod rename_sync;
#[allow(clippy::module_inception)]
pub(in crate::dsl) mod tree;
