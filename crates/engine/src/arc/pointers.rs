//! A block of pointers, without the holes at its end.
//!
//! # Theory
//! The root of a dataset of five objects is five levels of indirect blocks of 128 KB with one pointer each. What the cache keeps of such a block, and what
//! it gives, ends with the last pointer that is not all zeros.

use std::sync::Arc;

use ondisk::blkptr::{BLKPTR_BYTES, BlkPtr};
use transform::compress::is_zero;
use zerocopy::IntoBytes;

/// The pointers of an indirect block.
#[derive(Debug, Clone)]
pub struct Pointers {
    /// As many as there are up to the last that is not all zeros, or more.
    data: Arc<Vec<u8>>,
    /// So many there are.
    count: usize,
}

impl Pointers {
    /// `data` is the beginning of a block of `bytes`, behind which it has zeros.
    pub(super) fn new(data: Arc<Vec<u8>>, bytes: u64) -> Pointers {
        Pointers { data, count: bytes as usize / BLKPTR_BYTES }
    }

    /// A pointer; `None`: the block has no such place.
    pub fn get(&self, index: usize) -> Option<BlkPtr> {
        let kept = || self.kept().get(index).copied().unwrap_or(BlkPtr::ZERO);
        (index < self.count).then(kept)
    }

    /// The pointers from the first on; behind them are only holes.
    pub fn kept(&self) -> &[BlkPtr] {
        let kept = BlkPtr::slice_of(&self.data);
        kept.get(..self.count).unwrap_or(kept)
    }

    /// How many the block has, holes and all.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The whole block.
    pub fn to_block(&self) -> Vec<u8> {
        let bytes = self.count * BLKPTR_BYTES;
        let mut block = Vec::with_capacity(bytes);
        block.extend_from_slice(self.data.get(..bytes).unwrap_or(&self.data));
        block.resize(bytes, 0);
        block
    }
}

impl From<&[BlkPtr]> for Pointers {
    fn from(pointers: &[BlkPtr]) -> Pointers {
        Pointers { data: Arc::new(pointers.as_bytes().to_vec()), count: pointers.len() }
    }
}

/// How many bytes of a block of pointers there are up to the last that is not all zeros.
pub(super) fn kept_bytes(block: &[u8]) -> usize {
    block.chunks(BLKPTR_BYTES).rposition(|pointer| !is_zero(pointer)).map_or(0, |last| ((last + 1) * BLKPTR_BYTES).min(block.len()))
}
