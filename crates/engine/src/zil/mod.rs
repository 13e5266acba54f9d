//! The intent log: what a crash may not lose.
//!
//! # Theory
//! A program that asks for durability (`fsync`) cannot wait for a transaction group to be written. So every operation
//! is also described in a *record*, kept in memory until its group is on disk. A commit writes the needed records to
//! the object set's intent log, a chain of blocks that starts in the set's own block. After a crash the log is
//! *claimed* and then *replayed* when the pool is imported: the operations that it describes are done again.
//!
//! Records of names (create, remove, rename, link) are in one list, in their order. Records of one file's contents and attributes are
//! in a list of that file's own, and join the common list when this file is synced, or is renamed: so that an `fsync` writes little.
//!
//! ```text
//!  operation -> Zil::log            records in memory, by group and file
//!  fsync     -> Zil::commit         takes records, fills blocks, writes them, waits until they and those before are stable
//!  sync      -> Zil::sync           what the group has on disk is freed; the header follows the first block still needed
//!  import    -> claim, replay
//! ```
//!
//! # On disk
//! [`ondisk::zil`]: header, blocks, records.
//!
//! # Invariants
//! 1. A block that a group allocates can be reached from the header that is written with this group or an earlier one: the group
//!    is not written before all blocks that lead there are stable.
//! 2. A commit whose records are stable has all records before them in the log too.
//! 3. A block is freed by the first group that has all its records on disk, and that follows its own allocation.
//! 4. The chain of a header that was claimed is never written to.
//!
//! # Locks
//! `Zil::issuer`, then one list of records, or all of them in the order of their slots; `Zil::chain` alone, for moments. Lists may be locked under the
//! attributes of an inode. None is held while a range lock is waited
//! for or a group is joined: the holder of a range may wait for a group, and the group for the log.
//!
//! # Path
//! called by tarnfs::zpl (log, commit, replay), pool (claim), dsl through [`crate::dmu::ObjsetLog`]; calls dmu, zio.

mod ahead;
mod block;
mod claim;
mod commit;
mod itx;
mod log;
mod replay;
mod soon;
mod walk;

pub use claim::{claim, claim_encrypted, claimed_blocks, give_up_later};
pub use commit::fill::{LogSource, PlacedBlock, Placing, WantedWrite};
pub use log::Zil;
pub(crate) use log::header_of;
pub use replay::{Replay, Replayed};
pub use walk::{Extent, LogBlock, walk};

use ondisk::zil::LogHeader;
use zerocopy::FromZeros;

/// The header of an object set without a log.
fn empty_header() -> LogHeader {
    LogHeader::new_zeroed()
}
