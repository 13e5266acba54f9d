//! Objects that form datasets and snapshots.
//!
//! # Theory
//! The pool's own object set (the MOS) has records of two kinds: *directories*, which form the tree of names, and *datasets*, each
//! of which is one version of one file system or volume. Around them: properties, deadlists (what a snapshot needs and
//! its successor does not), the lists of what is still to be freed, the features, and the history.
//!
//! ```text
//!   Dsl (tree.rs)      finds directories and datasets, keeps the open object sets
//!     Dir              name, properties, quota, space of everything below
//!       Dataset        where the object set is, what it refers to; pays for its blocks (dataset_sync.rs)
//!         Deadlist     blocks that go when the snapshot before goes; made of Bpobj
//!   SyncTasks          administrative changes, done by the sync thread (synctask.rs)
//! ```
//!
//! # Path
//! called by pool and `tarnfs`; calls dmu, zap. `pool/sync.rs` drives: [`Dsl::sync_datasets`], [`Dsl::free_in_background`],
//! [`Dsl::flush`], [`Dsl::run_tasks`].

mod accounting_sync;
pub mod bpobj;
pub mod bptree;
mod child_names;
mod create_sync;
mod dataset;
mod dataset_sync;
pub mod deadlist;
mod destroy_sync;
mod dir;
mod dir_sync;
pub mod feature;
mod facts;
mod free_sync;
pub mod history;
mod in_flight;
pub mod meta;
pub mod mos;
pub mod names;
mod new_pool;
mod prop;
pub(crate) mod prop_sync;
pub mod prop_table;
mod rename_sync;
mod resume;
mod scan_sync;
mod settings;
mod snapshot_destroy_sync;
mod space;
mod sync;
mod synctask;
mod traverse;
mod tree;
mod written_sync;

#[cfg(test)]
mod tests;

pub use create_sync::{Fill, NewDataset};
pub use dataset::Dataset;
pub use dir::Dir;
pub use facts::MASTER_NODE_ENTRIES;
pub use free_sync::FreeBudget;
pub use meta::{Meta, Space, SpaceDelta};
pub use mos::Mos;
pub use new_pool::NewTree;
pub use prop::{PropertyValue, Source};
pub use prop_sync::PropertyChange;
pub use space::{PoolSpace, SpaceCheck};
pub use traverse::{SPILL_BLOCK, Traversal, Visit, Visited};
pub use tree::{Dsl, FREE_DIR, LEAK_DIR, MOS_DIR, MosSpace, ORIGIN_DIR};
