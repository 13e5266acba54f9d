//! Blocks that are shared instead of copied.
//!
//! # Theory
//! A file may be given the pointer to a block that another file wrote: the contents are the same, and a table counts the
//! references. That works for blocks that are on disk as they are now; what is newer in memory has to be written first. Until
//! the group is synced the pointer is a version of the block like any other ([`Contents::Cloned`]), and a write goes over it.
//! The reference is counted when the group is written: before any block of that group is freed.

use std::ops::Range;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;

use crate::dmu::blocks::dirty_block::Contents;
use crate::dmu::{Dnode, Tx};
use crate::error::Result;

impl Dnode {
    /// The pointers to these blocks; `None` if something of them is not on disk as it is now. To be called in a transaction
    /// of the group that will share the blocks, with the range locked.
    ///
    /// # Errors
    /// An indirect block cannot be read, or the object was freed.
    pub fn synced_pointers(&self, blocks: Range<u64>) -> Result<Option<Vec<BlkPtr>>> {
        self.check_alive()?;
        let mut pointers = Vec::new();
        for block in blocks {
            let dirty = self.blocks.read().get(&block).cloned();
            if dirty.is_some_and(|dirty| dirty.newest().is_some()) || self.is_pending_free(block) {
                return Ok(None);
            }
            pointers.push(self.synced_pointer(0, block)?);
        }
        Ok(Some(pointers))
    }

    /// Makes `block` the block that `pointer` leads to, which is on disk and as large as a block of this object.
    ///
    /// # Errors
    /// The object was freed.
    pub fn clone_block(self: &Arc<Self>, tx: &Tx, block: u64, pointer: &BlkPtr) -> Result<()> {
        self.put_version(tx, block, Contents::Cloned(Box::new(*pointer)))
    }
}
