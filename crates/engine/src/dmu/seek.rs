//! Finding data and holes.

use super::Dnode;
use super::tree::{entry, span_shift};
use crate::error::Result;

impl Dnode {
    /// Whether `block` has never been written, or was freed.
    ///
    /// # Errors
    /// An indirect block cannot be read.
    pub fn is_hole(&self, block: u64) -> Result<bool> {
        if let Some(has_data) = self.blocks.read().get(&block).and_then(|dirty| dirty.has_data()) {
            return Ok(!has_data);
        }
        if self.is_pending_free(block) {
            return Ok(true);
        }
        Ok(self.synced_pointer(0, block)?.is_hole())
    }

    /// The first block at or after `block` that has contents; `None` if there is none.
    ///
    /// # Errors
    /// An indirect block cannot be read.
    pub fn next_data_block(&self, block: u64) -> Result<Option<u64>> {
        let mut from = block;
        loop {
            let dirty = self.next_dirty_data(from);
            let synced = self.next_synced_data(from)?;
            let next = match (dirty, synced) {
                (None, None) => return Ok(None),
                (Some(one), None) | (None, Some(one)) => one,
                (Some(one), Some(other)) => one.min(other),
            };
            if !self.is_hole(next)? {
                return Ok(Some(next));
            }
            from = next + 1;
        }
    }

    /// The first block at or after `block` that has no contents (it may lie behind the last block).
    ///
    /// # Errors
    /// An indirect block cannot be read.
    pub fn next_hole_block(&self, block: u64) -> Result<u64> {
        let mut at = block;
        while at <= self.max_block() && !self.is_hole(at)? {
            at += 1;
        }
        Ok(at)
    }

    fn next_dirty_data(&self, from: u64) -> Option<u64> {
        let blocks = self.blocks.read();
        blocks.range(from..).find(|(_, dirty)| dirty.has_data() == Some(true)).map(|(&block, _)| block)
    }

    /// The first block at or after `from` that has a pointer on disk. Whole holes are stepped over.
    pub(super) fn next_synced_data(&self, from: u64) -> Result<Option<u64>> {
        let tree = self.disk.read();
        if tree.pointers.is_empty() {
            return Ok(None);
        }
        let shift = tree.indirect_shift.max(8);
        let mut at = from;
        let end_shift = if tree.levels > 1 { span_shift(shift, tree.levels - 1) } else { 0 };
        while at <= tree.max_block && (at >> end_shift) < tree.pointers.len() as u64 {
            // The highest level at which `at` lies in a hole says how far to step.
            let mut level = tree.levels - 1;
            loop {
                let span = if level == 0 { 0 } else { span_shift(shift, level) };
                let pointer = self.walk(&tree, level, at >> span)?;
                if pointer.is_hole() {
                    at = ((at >> span) + 1).checked_shl(span).filter(|&next| next > at).unwrap_or(u64::MAX);
                    break;
                }
                if level == 0 {
                    return Ok(Some(at));
                }
                if level == 1 {
                    let data = self.read_indirect(&tree, &pointer, 1, at >> span)?;
                    let mask = (1u64 << span) - 1;
                    let found = ((at & mask)..=mask).find(|&i| entry(&data, i as usize).is_some_and(|bp| !bp.is_hole()));
                    match found {
                        Some(index) if ((at & !mask) | index) <= tree.max_block => return Ok(Some((at & !mask) | index)),
                        Some(_) => return Ok(None),
                        None => {
                            at = (at | mask).saturating_add(1);
                            break;
                        }
                    }
                }
                level -= 1;
            }
            if at == u64::MAX {
                break;
            }
        }
        Ok(None)
    }
}
