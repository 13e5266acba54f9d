//! Finding data and holes.

use std::ops::Range;

use crate::dmu::Dnode;
use crate::dmu::objects::tree::span_shift;
use crate::arc::Pointers;
use crate::bail;
use crate::error::Result;

/// Indirect blocks that one search goes through. A file on a damaged pool may have more than could be read in a lifetime, all the
/// same one.
const INDIRECT_MAX: usize = 1 << 18;

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

    /// The first block at or after `block` that has no contents (it may lie behind the last block). In a file that is larger than
    /// any disk the search is given up after [`INDIRECT_MAX`] indirect blocks, and the answer is the end.
    ///
    /// # Errors
    /// An indirect block cannot be read.
    pub fn next_hole_block(&self, block: u64) -> Result<u64> {
        self.find_hole(block, false)
    }

    /// As [`Dnode::next_data_block`], but blocks of zeros that are not on disk yet are holes, as they will be there where they are compressed.
    ///
    /// # Errors
    /// An indirect block cannot be read.
    pub fn next_data_block_to_be(&self, block: u64) -> Result<Option<u64>> {
        let mut from = block;
        while let Some(found) = self.next_data_block(from)? {
            if !self.is_zeros_in_memory(found) {
                return Ok(Some(found));
            }
            from = found + 1;
        }
        Ok(None)
    }

    /// As [`Dnode::next_hole_block`], in the same way.
    ///
    /// # Errors
    /// An indirect block cannot be read.
    pub fn next_hole_block_to_be(&self, block: u64) -> Result<u64> {
        self.find_hole(block, true)
    }

    fn is_zeros_in_memory(&self, block: u64) -> bool {
        let dirty = self.blocks.read().get(&block).cloned();
        dirty.is_some_and(|dirty| dirty.is_zeros())
    }

    fn find_hole(&self, block: u64, or_zeros: bool) -> Result<u64> {
        let (mut at, end) = (block, self.max_block().saturating_add(1));
        for _ in 0..INDIRECT_MAX {
            if at >= end {
                return Ok(at);
            }
            let (siblings, pointers) = self.synced_siblings(at)?;
            let is_hole = |block: u64| {
                let on_disk = || pointers.get((block - siblings.start) as usize).is_none_or(|pointer| pointer.is_hole());
                self.is_hole_in_memory(block).unwrap_or_else(on_disk) || or_zeros && self.is_zeros_in_memory(block)
            };
            match (at..siblings.end.min(end)).find(|&block| is_hole(block)) {
                // Since the pointers were read the block may have got to disk, and memory have forgotten it. `is_hole` asks memory first; if there are data, the pointers are read again.
                Some(hole) if self.is_hole(hole)? || or_zeros && self.is_zeros_in_memory(hole) => return Ok(hole),
                Some(data) => at = data,
                None => at = siblings.end.min(end),
            }
        }
        Ok(end)
    }

    /// What memory says of a block, if anything.
    fn is_hole_in_memory(&self, block: u64) -> Option<bool> {
        let dirty = self.blocks.read().get(&block).and_then(|dirty| dirty.has_data());
        dirty.map(|has_data| !has_data).or_else(|| self.is_pending_free(block).then_some(true))
    }

    /// The blocks whose pointers lie beside that of `block` on disk, and these pointers; empty if they are all holes.
    fn synced_siblings(&self, block: u64) -> Result<(Range<u64>, Pointers)> {
        let tree = self.disk.read();
        if tree.levels <= 1 {
            // Behind the last pointer there is nothing.
            return Ok((0..if block < tree.pointers.len() as u64 { tree.pointers.len() as u64 } else { u64::MAX }, Pointers::from(&tree.pointers[..])));
        }
        let span = span_shift(tree.indirect_shift.max(8), 1);
        let index = block >> span;
        let siblings = index << span..((index + 1) << span).max(1 << span);
        let pointer = self.walk(&tree, 1, index)?;
        let pointers = if pointer.is_hole() { Pointers::from(&[][..]) } else { self.read_indirect(&tree, &pointer, 1, index)? };
        Ok((siblings, pointers))
    }

    fn next_dirty_data(&self, from: u64) -> Option<u64> {
        let blocks = self.blocks.read();
        blocks.range(from..).find(|(_, dirty)| dirty.has_data() == Some(true)).map(|(&block, _)| block)
    }

    /// The first block at or after `from` that has a pointer on disk. Whole holes are stepped over.
    pub(in crate::dmu) fn next_synced_data(&self, from: u64) -> Result<Option<u64>> {
        let tree = self.disk.read();
        if tree.pointers.is_empty() {
            return Ok(None);
        }
        let shift = tree.indirect_shift.max(8);
        let mut at = from;
        let end_shift = if tree.levels > 1 { span_shift(shift, tree.levels - 1) } else { 0 };
        for step in 0_usize.. {
            if at > tree.max_block || (at >> end_shift) >= tree.pointers.len() as u64 {
                break;
            }
            if step >= INDIRECT_MAX {
                bail!(Corrupt, "{}: {step} indirect blocks without contents", self.bookmark(1, at));
            }
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
                    let first = (at & mask) as usize;
                    let beyond = data.kept().get(first..).unwrap_or_default().iter().position(|bp| !bp.is_hole());
                    let found = beyond.map(|more| (first + more) as u64);
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
