//! Datasets: one version of a file system or volume, live or snapshot, and their object sets.
//!
//! # Path
//! [`Dataset`] is what transactions ask for space and what is told of blocks that are born and killed (`owner_sync.rs`).

mod accounting_sync;
#[allow(clippy::module_inception)]
pub(in crate::dsl) mod dataset;
pub(in crate::dsl) mod livelist_sync;
pub(in crate::dsl) mod objsets;
mod owner_sync;
mod promise;
mod settings;
mod state;
pub(in crate::dsl) mod swap_sync;

pub use dataset::Dataset;
