//! Freeing a range of an object: what was there reads as zeros and takes no space.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::dmu::blocks::dirty_block::Contents;
use crate::dmu::objects::dnode::add_range;
use crate::dmu::{Dnode, Tx};
use crate::error::Result;
use crate::txg::slot;

impl Dnode {
    /// Frees `length` bytes at `offset` (`u64::MAX`: to the end). Parts of blocks are overwritten with zeros.
    ///
    /// # Errors
    /// A block that is covered in part cannot be read. (An indirect block of which everything goes need not be readable: what is below it is
    /// leaked.)
    pub fn free_range(self: &Arc<Self>, tx: &Tx, offset: u64, length: u64) -> Result<()> {
        self.check_alive()?;
        let size = self.block_bytes();
        let object_end = (self.max_block() + 1).saturating_mul(size);
        let end = offset.saturating_add(length).min(object_end);
        if offset >= end {
            return Ok(());
        }
        let first = offset.div_ceil(size);
        let last = end / size;
        self.check_border(tx, first)?;
        if last <= self.max_block() {
            self.check_border(tx, last)?;
        }
        if first > last {
            // Inside one block.
            return self.zero_part(tx, offset / size, (offset % size) as usize..(end % size) as usize);
        }
        if !offset.is_multiple_of(size) {
            self.zero_part(tx, offset / size, (offset % size) as usize..size as usize)?;
        }
        if !end.is_multiple_of(size) {
            self.zero_part(tx, end / size, 0..(end % size) as usize)?;
        }
        if first < last {
            self.free_blocks(tx, first..last);
        }
        Ok(())
    }

    fn zero_part(self: &Arc<Self>, tx: &Tx, block: u64, part: Range<usize>) -> Result<()> {
        if part.is_empty() || self.is_hole(block)? {
            return Ok(());
        }
        self.modify_block(tx, block, |contents| contents[part].fill(0))
    }

    fn free_blocks(self: &Arc<Self>, tx: &Tx, range: Range<u64>) {
        let index = slot(tx.txg());
        let mut undirtied = 0;
        let used = self.used_bytes();
        let mut state = self.state.write();
        let size = state.header.block_bytes;
        tx.note_freeing(used.min((range.end - range.start).saturating_mul(size)));
        // Asked here, under the lock: a writer of blocks behind the range may have come since its end was the object's.
        // What was sent raw ends where its sender says.
        if state.header.max_block < range.end && !self.objset.settings.load().is_encrypted {
            state.header.max_block = state.header.max_block.min(range.start.saturating_sub(1));
        }
        if state.frees[index].is_empty() {
            self.pending_frees.fetch_add(1, Ordering::AcqRel);
        }
        add_range(&mut state.frees[index], range.clone());
        let dirty = self.dirty(&mut state, tx);
        let mut later = dirty.blocks.split_off(&range.start);
        let mut beyond = later.split_off(&range.end);
        undirtied += later.len() as u64;
        dirty.blocks.append(&mut beyond);
        drop(state);
        let freed_versions = self.free_versions(tx, range);
        if !freed_versions.is_empty() {
            let mut state = self.state.write();
            self.dirty(&mut state, tx).freed_versions.extend(freed_versions);
        }
        if !tx.is_syncing() {
            self.objset.context.dirty.remove(tx.txg(), undirtied * size);
        }
    }

    /// Drops this group's versions of the blocks; where an older one is still unsynced, puts "freed" above it.
    fn free_versions(&self, tx: &Tx, range: Range<u64>) -> Vec<u64> {
        let mut marked = Vec::new();
        let mut blocks = self.blocks.write();
        let mut empty = Vec::new();
        for (&block, dirty) in blocks.range(range) {
            let mut versions = dirty.versions.lock();
            versions.retain(|(txg, _)| *txg != tx.txg());
            if versions.is_empty() {
                empty.push(block);
            } else {
                versions.push((tx.txg(), Contents::Freed));
                marked.push(block);
            }
        }
        for block in empty {
            blocks.remove(&block);
        }
        marked
    }
}
