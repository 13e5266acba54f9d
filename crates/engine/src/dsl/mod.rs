//! Objects that form datasets and snapshots.
//!
//! # Theory
//! The pool's own object set (the MOS) has records of two kinds: *directories*, which form the tree of names, and *datasets*, each
//! of which is one version of one file system or volume. Around them: properties, deadlists (what a snapshot needs and
//! its successor does not), the lists of what is still to be freed, the features, and the history.
//!
//! ```text
//!   Dsl                puts the parts together (dsl.rs); what can be done with it (verbs.rs; received/verbs.rs)
//!     Parts            lowest first: Meta, Records, Ledger, Frees, Room, OpenObjsets, Tree, History
//!     SyncTasks        administrative changes, done by the sync thread (tasks)
//!   Dir                name, properties, quota, space of everything below (tree)
//!     Dataset          where the object set is, what it refers to; pays for its blocks (dataset)
//!       Deadlist       blocks that go when the snapshot before goes; made of Bpobj (dead)
//! ```
//!
//! # Path
//! called by pool and `tarnfs`; calls dmu, zap. `pool/sync` drives: [`Dsl::sync_pass`], [`Dsl::free_in_background`].

mod counts;
mod dataset;
mod dead;
mod keys;
#[allow(clippy::module_inception)]
mod dsl;
pub mod feature;
pub mod meta;
pub mod mos;
mod new_pool;
mod props;
mod received;
mod snapshots;
mod space;
mod sync;
mod tasks;
mod tree;
mod verbs;

#[cfg(test)]
mod tests;

pub use dataset::Dataset;
pub use dead::frees_sync::FreeBudget;
pub use dead::traverse::{SPILL_BLOCK, Traversal, Visit, Visited};
pub use dead::{bpobj, bptree, deadlist};
pub use dsl::Dsl;
pub use meta::{Meta, Space, SpaceDelta};
pub use mos::Mos;
pub use new_pool::NewTree;
pub use props::delegation::Identity;
pub use props::delegation_sync::GrantChange;
pub use props::prop::{PropertyValue, PropertyValues, Source, StoredProperty};
pub(crate) use props::prop_sync;
pub use props::prop_sync::PropertyChange;
pub use props::{MASTER_NODE_ENTRIES, prop_table};
pub use received::{RECEIVED_BELOW, ReceiveTarget, ReceiveVerbs, ReceivedDataset, ResumePoint, ResumePoints, SavedState, StreamHead};
pub use snapshots::changed::{EachChanged, MaybeChanged, PassOver, changed_objects};
pub use snapshots::bookmark_verbs_sync::{NewBookmark, SentBookmark};
pub use snapshots::destroy_sync::BEING_HELD;
pub use snapshots::redaction_sync::{NewRedaction, redaction_bonus};
pub use snapshots::rolling_back::RollbackBegun;
pub use snapshots::verbs::SnapshotVerbs;
pub use snapshots::snapshot_sync::{NewSnapshots, Refusals};
pub use snapshots::verbs::Pending;
pub use space::mos_space::MosSpace;
pub use space::room::{PoolSpace, SpaceCheck};
pub use tasks::actor::{Acting, Actor, act_as, actor};
pub use tasks::history;
pub use tree::clone_sync::NewClone;
pub use tree::create_sync::{Fill, NewDataset};
pub use tree::dir::Dir;
pub use tree::names;

/// The directory that the MOS's own space is counted in.
pub const MOS_DIR: &str = "$MOS";
/// The directory that space being freed in the background is counted in.
pub const FREE_DIR: &str = "$FREE";
/// The directory of the empty snapshot that every file system is a clone of.
pub const ORIGIN_DIR: &str = "$ORIGIN";
/// The directory that space lost to unreadable blocks is counted in.
pub const LEAK_DIR: &str = "$LEAK";
