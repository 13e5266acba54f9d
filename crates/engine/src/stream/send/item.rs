//! What a stream is made of, before it is records.

use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::object_type::ObjectType;

use crate::error::Result;

/// The block number of an object's spill block.
#[doc(alias = "DMU_SPILL_BLKID")]
pub(in crate::stream) const SPILL: u64 = u64::MAX - 1;

/// Blocks of an object: first, and the one after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stream) struct Blocks {
    /// Object 0: blocks of dnodes.
    pub(in crate::stream) object: u64,
    pub(in crate::stream) first: u64,
    pub(in crate::stream) end: u64,
    /// Bytes of one.
    pub(in crate::stream) bytes: u64,
}

/// A block with contents.
#[derive(Debug, Clone)]
pub(in crate::stream) struct DataBlock {
    pub(in crate::stream) object: u64,
    pub(in crate::stream) block: u64,
    pub(in crate::stream) bytes: u64,
    pub(in crate::stream) object_type: ObjectType,
    pub(in crate::stream) pointer: BlkPtr,
}

/// One part of a stream, in its order.
#[derive(Debug, Clone)]
pub(in crate::stream) enum Item {
    /// A block of dnodes begins: its number, and the pointer to it.
    ObjectRange(u64, BlkPtr),
    /// The dnode of an object, as it is on disk, and the pointer to its block; all zeros is a free one. The spill block if it is older.
    Object { object: u64, dnode: Arc<[u8]>, within: BlkPtr, spill: Option<DataBlock> },
    Hole(Blocks),
    Redacted(Blocks),
    /// Left out of the stream before this one; to be looked up.
    RedactedBefore(Blocks),
    Data(DataBlock),
}

/// What takes parts one after the other.
pub(in crate::stream) type Take<'t> = dyn FnMut(Item) -> Result<()> + 't;
