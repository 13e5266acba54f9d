//! The interface of a ZAP to the object that holds it.
//!
//! Two small traits, so that the tests run a ZAP on blocks in memory.

use std::sync::Arc;

use crate::error::Result;

/// Reading.
pub(super) trait ReadBlocks {
    /// Bytes of one block.
    fn block_size(&self) -> usize;
    /// A whole block; zeros where nothing was written.
    fn read(&self, block: u64) -> Result<Arc<Vec<u8>>>;
    /// Longest name with its final zero.
    fn name_max(&self) -> usize;
    /// Largest block of a micro ZAP.
    fn micro_max(&self) -> usize;
}

/// Changing, within a transaction.
pub(super) trait WriteBlocks: ReadBlocks {
    /// Changes a block in place.
    fn modify<T>(&self, block: u64, change: impl FnOnce(&mut [u8]) -> Result<T>) -> Result<T>;
    /// Gives a block new contents.
    fn write(&self, block: u64, contents: Vec<u8>) -> Result<()>;
    /// Changes the size of the only block.
    fn set_block_size(&self, size: usize) -> Result<()>;
    /// Frees blocks.
    fn free(&self, first: u64, count: u64) -> Result<()>;
}
