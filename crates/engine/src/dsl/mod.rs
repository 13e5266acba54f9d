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

mod dead;
pub mod feature;
pub mod meta;
pub mod mos;
mod new_pool;
mod props;
mod snapshots;
mod space;
mod sync;
mod tasks;
mod tree;

#[cfg(test)]
mod tests;

pub use dead::free_sync::FreeBudget;
pub use dead::traverse::{SPILL_BLOCK, Traversal, Visit, Visited};
pub use dead::{bpobj, bptree, deadlist};
pub use meta::{Meta, Space, SpaceDelta};
pub use mos::Mos;
pub use new_pool::NewTree;
pub use props::prop::{PropertyValue, Source};
pub use props::prop_sync::PropertyChange;
pub(crate) use props::prop_sync;
pub use props::{MASTER_NODE_ENTRIES, prop_table};
pub use space::room::{PoolSpace, SpaceCheck};
pub use tasks::history;
pub use tree::create_sync::{Fill, NewDataset};
pub use tree::dataset::Dataset;
pub use tree::dir::Dir;
pub use tree::names;
pub use tree::tree::{Dsl, FREE_DIR, LEAK_DIR, MOS_DIR, MosSpace, ORIGIN_DIR};
