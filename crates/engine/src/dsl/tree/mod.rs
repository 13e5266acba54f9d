//! The tree of names: directories and datasets, found, made, renamed and destroyed.
//!
//! # Path
//! A file for each verb that changes the tree (`_sync`), and one for each noun.

mod child_names;
pub(in crate::dsl) mod create_sync;
pub(in crate::dsl) mod dataset;
mod destroy_sync;
pub(in crate::dsl) mod dir;
pub mod names;
mod rename_sync;
#[allow(clippy::module_inception)]
pub(in crate::dsl) mod tree;
