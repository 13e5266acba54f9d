//! How one block gets there and back.
//!
//! SEAM (fixed by the lead; helper B fills it in, in files of its own):
//! * `BlockIo`: one per pool, shared as `Arc<BlockIo>`; owns the vdev tree, the allocation classes, the worker threads,
//!   the pool's checksum salt and what features allow (embedded data, hole birth, ...).
//!   - `fn read(&self, bp: &BlkPtr, at: &Bookmark) -> Result<Arc<Vec<u8>>>`   decompressed, little-endian, verified
//!   - `fn write_many(&self, requests: Vec<WriteRequest>, txg: u64) -> Vec<Result<BlkPtr>>`   in order; the new pointers have
//!     everything but `fill` (the dmu sets it; embedded pointers too)
//!   - `fn free(&self, bp: &BlkPtr, txg: u64) -> Result<()>`   returns the space of every DVA (gang children too)
//!   - `fn deflated_size(&self, bp: &BlkPtr) -> u64`   what OpenZFS's bp_get_dsize computes
//!   - `fn flush(&self) -> Result<()>`
//! * above it `arc::BlockCache`: `read(&self, bp, at) -> Result<Arc<Vec<u8>>>`, `insert(&self, bp, data)`, `prefetch(&self, bp, at)`,
//!   `io(&self) -> &Arc<BlockIo>`.

use std::fmt;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::object_type::ObjectType;

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

/// One block to be written.
pub struct WriteRequest {
    /// The logical contents (whole block; length = logical size, a multiple of 512).
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
    /// What this block replaces (a hole if nothing): its birth decides hole birth; with `rewrite` its DVAs are used again.
    pub previous: BlkPtr,
    /// `previous` was born in this same txg: if the physical size fits exactly, write over it instead of allocating.
    pub rewrite: bool,
    /// Never store the payload in the pointer (objset blocks, spill blocks of old pools).
    pub no_embed: bool,
    /// Which block this is.
    pub bookmark: Bookmark,
}
