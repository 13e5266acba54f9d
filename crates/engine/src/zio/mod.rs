//! How one block gets there and back.
//!
//! # Theory
//! [`BlockIo`] stands between objects, which know blocks by their pointers, and vdevs, which know bytes by their
//! addresses. On the way down a block is compressed, encrypted (not yet), checksummed, given one to three places and written; on the way up a
//! place is read, verified, decrypted, decompressed and turned into our byte order. Errors of media end here: a copy with
//! the wrong checksum is replaced by one with the right one, and only when there is none the reader hears of it.
//!
//! ```text
//! write_many   compress -> encrypt -> checksum (stages) -> place (alloc, gang) -> issue (devices)
//! read         devices -> verify (checksum_stage) -> heal -> decrypt -> decompress -> byte order (stages)
//! free         pieces of gangs, then every copy -> alloc
//! ```
//!
//! # On disk
//! Gang headers (`gang`); block pointers are [`ondisk::blkptr`].
//!
//! # Locks
//! No lock is held across I/O but the turn to give places, while a gang block is written.
//!
//! # Path
//! Called by `arc` (read), `dmu` in syncing context (write), `dsl` (free); calls `alloc` and `vdev`.

use std::fmt;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::object_type::ObjectType;

mod block_io;
mod correct;
mod devices;
mod free;
mod gang;
mod leaf_io;
mod log;
mod lost;
mod read;
mod spaces;
mod stages;
mod write;

#[cfg(test)]
mod tests;

pub use block_io::{BlockCounters, BlockFeatures, BlockIo, BlockThreads};
pub use devices::{BlockDevice, BlockDevices, SharedVdevs};
pub use crate::sync::Executor;
pub use free::BlockTables;
#[cfg(test)]
pub(crate) use leaf_io::write_blocks;
#[cfg(test)]
pub(crate) use leaf_io::scan_range;
pub use leaf_io::{read_range, write_range, write_range_durable};
pub use log::LogRoom;
pub use lost::LostBlocks;
pub use stages::sealed::{RawBlock, Seal};
pub use read::{NotRight, Run, ScanTally, Tallied, WhileThere, WrongCopy};

/// Which block of which object this is: for error messages and for the verifier of some checksums.
#[doc(alias = "zbookmark_phys")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bookmark {
    /// The dataset's object number; 0 for the MOS.
    pub objset: u64,
    /// The object.
    pub object: u64,
    /// 0 is data; above it indirect blocks; -1 the objset itself, -2 the intent log.
    pub level: i8,
    /// Which block of that level.
    pub block: u64,
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<dataset {}, object {}, level {}, block {}>", self.objset, self.object, self.level, self.block)
    }
}

/// A block as somebody else has compressed it.
#[derive(Debug, Clone)]
pub struct PackedBlock {
    /// The compressed bytes, without what fills up a unit.
    pub bytes: Vec<u8>,
    /// `ZIO_COMPRESS_*`
    pub compression: u8,
}

/// One block to be written.
pub struct WriteRequest {
    /// The logical contents (whole block; length = logical size, a multiple of 512), but for [`Seal::Raw`].
    pub data: Arc<Vec<u8>>,
    /// Goes into the pointer.
    pub object_type: ObjectType,
    /// Goes into the pointer.
    pub level: u8,
    /// `ZIO_CHECKSUM_*` (already resolved: never inherit or on).
    pub checksum: u8,
    /// `ZIO_COMPRESS_*` (already resolved).
    pub compression: u8,
    /// zstd level (`ZIO_ZSTD_LEVEL_*` number; 0 = default); unused by the others.
    pub compression_level: u8,
    /// How many DVAs: 1 to 3.
    pub copies: u8,
    /// Up to this physical size it goes to the special devices, while those have room (`special_small_blocks`); 0: it does not.
    pub small_bytes: u64,
    /// What this block replaces (a hole if nothing): its birth decides hole birth; with `rewrite` its DVAs are used again.
    pub previous: BlkPtr,
    /// `previous` was born in this same txg: if the physical size fits exactly, write over it instead of allocating.
    pub rewrite: bool,
    /// Never store the payload in the pointer (objset blocks, spill blocks of old pools).
    pub no_embed: bool,
    /// Which block this is.
    pub bookmark: Bookmark,
    /// The same contents, compressed: they are stored so, whatever `compression` says.
    pub packed: Option<PackedBlock>,
    /// How encryption protects it.
    pub seal: Seal,
}

