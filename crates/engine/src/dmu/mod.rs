//! Objects made of blocks.
//!
//! # Theory
//! An [`Objset`] is a numbered set of objects; an object ([`Dnode`]) is an array of equal blocks with a small bonus
//! buffer. On disk the dnodes are the contents of one more object, the *meta-dnode*, whose own dnode stands in the objset's
//! root block. Nothing on disk is changed in place: a change of one block gives it a new place, hence changes the indirect
//! block that points at it, and so on up to the root.
//!
//! In memory a change is remembered per transaction group. [`Dnode::write`] puts the new contents of a block into the
//! dnode's table of *dirty blocks*, with the group's number: a block may have one version per living group, so that
//! the next group goes on while the last is being written. Nothing above level 0 is changed in open context.
//! The sync thread then takes what one group changed, object by object, and builds the new tree bottom up
//! ([`Objset::sync`], `sync/dnode_sync.rs`). When the new roots are installed, the written blocks are in the cache under their
//! new addresses, and the table forgets them.
//!
//! ```text
//!  open context                        the sync thread
//!  Dnode::write / free_range / ...     Objset::sync -> DnodeSync: free, write level 0, 1, ... -> meta-dnode
//!     dirty blocks, by txg                             -> Objset::sync_root -> block pointer of the objset
//! ```
//!
//! # Invariants
//! 1. A block with an unsynced version is in `Dnode::blocks`; readers look there first, then at freed ranges, then at
//!    the tree on disk.
//! 2. New roots are installed before the table forgets the blocks: a reader that misses the one sees the other.
//! 3. A reader holds the tree lock while it walks indirect blocks, so that none of those can be freed under it.
//! 4. A reader and a writer of the same bytes exclude each other above (range lock, ZAP lock). A writer of another part of
//!    the block does not wait: the pointer that a slow reader has in hand may be freed, and that one asks again for what
//!    the checksum does not tell (`blocks/read.rs`).
//!
//! # Locks
//! `Dnode::state`, then the lock of one dirty block, then `Dnode::early`, never the other way round; `Dnode::disk` (the synced tree; held across
//! I/O by readers) is taken alone, or under a `Presence`.
//!
//! # Path
//! called by zap, dsl, zil and tarnfs::zpl; calls arc and zio.

mod blocks;
mod context;
mod log;
mod membership;
mod objects;
mod settings;
mod sync;
mod tx;

#[cfg(test)]
mod tests;

pub use objects::allocate::DnodeSpec;
pub use context::DmuContext;
pub use blocks::raw::RawHead;
pub use objects::dnode::{Dnode, DnodeInfo};
pub use log::ObjsetLog;
pub use membership::Membership;
pub use objects::objset::{Objset, ObjsetOptions, USED_BY_GROUP, USED_BY_PROJECT, USED_BY_USER};
pub use objects::presence::Presence;
pub use sync::objset_sync::AccountingChange;
pub use settings::{Caching, Direct, FileOwner, FileOwnerOf, ObjsetSettings, RedundantMetadata};
pub use tx::{LostTree, OpenTx, Refusal, SpaceOwner, SyncTx, Tx, ask_for_room};

/// An object's number in its set.
pub type ObjectId = u64;
