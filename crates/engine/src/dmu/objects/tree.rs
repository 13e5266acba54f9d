//! The way from an object's roots down to one block pointer.

use std::ops::Range;

use ondisk::blkptr::BlkPtr;
use ondisk::dnode as disk;

use crate::dmu::{Dnode, Tx};
use crate::arc::Pointers;
use crate::error::{Result, Within};
use crate::{bail, error};

/// log2 of how many pointers an indirect block holds.
pub(in crate::dmu) fn fanout_shift(indirect_shift: u8) -> u32 {
    u32::from(indirect_shift) - disk::BLKPTR_SHIFT
}

/// How many blocks of level 0 a pointer at `level` covers: log2, saturating at 63.
pub(in crate::dmu) fn span_shift(indirect_shift: u8, level: u8) -> u32 {
    (fanout_shift(indirect_shift) * u32::from(level)).min(63)
}

/// Entry `index` of the indirect block `data`.
pub(in crate::dmu) fn entry(data: &[u8], index: usize) -> Option<BlkPtr> {
    BlkPtr::slice_of(data).get(index).copied()
}

impl Dnode {
    /// The pointer to block `block` of `level`, in the tree on disk. A hole above gives that hole.
    pub(in crate::dmu) fn synced_pointer(&self, level: u8, block: u64) -> Result<BlkPtr> {
        let disk = self.disk.read();
        self.walk(&disk, level, block)
    }

    /// The pointer in `tree`, whose lock the caller holds.
    pub(in crate::dmu) fn walk(&self, tree: &disk::Dnode, level: u8, block: u64) -> Result<BlkPtr> {
        let reads = |pointer: &BlkPtr, at, index| self.read_indirect(tree, pointer, at, index).map(Some);
        self.walk_with(tree, level, block, reads).map(|pointer| pointer.unwrap_or(BlkPtr::ZERO))
    }

    /// The pointer to a data block, if all that leads to it is in memory.
    pub(in crate::dmu) fn known_pointer(&self, block: u64) -> Option<BlkPtr> {
        let tree = self.disk.read();
        let reads = |pointer: &BlkPtr, at, index| match self.objset.context.cache.is_here(pointer) {
            true => self.read_indirect(&tree, pointer, at, index).map(Some),
            false => Ok(None),
        };
        self.walk_with(&tree, 0, block, reads).ok().flatten()
    }

    /// As [`Dnode::walk`]; `read` gets indirect blocks, or ends the walk.
    fn walk_with(&self, tree: &disk::Dnode, level: u8, block: u64, read: impl Fn(&BlkPtr, u8, u64) -> Result<Option<Pointers>>) -> Result<Option<BlkPtr>> {
        if level >= tree.levels {
            return Ok(Some(BlkPtr::ZERO));
        }
        let first = block.checked_shl(span_shift(tree.indirect_shift.max(8), level)).unwrap_or(u64::MAX);
        let fanout = if tree.levels > 1 { fanout_shift(tree.indirect_shift) } else { 0 };
        let root = if tree.levels > 1 { first >> span_shift(tree.indirect_shift, tree.levels - 1) } else { first };
        let Some(mut pointer) = usize::try_from(root).ok().and_then(|root| tree.pointers.get(root).copied()) else {
            return Ok(Some(BlkPtr::ZERO));
        };
        let mut at = tree.levels - 1;
        while at > level {
            if pointer.is_hole() {
                return Ok(Some(pointer));
            }
            let Some(data) = read(&pointer, at, first >> span_shift(tree.indirect_shift, at))? else { return Ok(None) };
            at -= 1;
            let index = (first >> span_shift(tree.indirect_shift, at)) & ((1 << fanout) - 1);
            pointer = data
                .get(index as usize)
                .ok_or_else(|| error!(Corrupt, "{}: indirect block is too short", self.bookmark(at as i8, block)))?;
        }
        Ok(Some(pointer))
    }

    /// Fails if an indirect block above `block` cannot be read. That of a user's object is asked for before it is changed: to a caller that wants to
    /// change it, it is an error; in the sync thread it would be everybody's.
    pub(in crate::dmu) fn check_reachable(&self, tx: &Tx, block: u64) -> Result<()> {
        if tx.is_syncing() {
            return Ok(());
        }
        self.synced_pointer(0, block).map(drop)
    }

    /// The same for the indirect blocks of which only a part lies before (or behind) the border in front of `block`.
    pub(in crate::dmu) fn check_border(&self, tx: &Tx, block: u64) -> Result<()> {
        if tx.is_syncing() {
            return Ok(());
        }
        let disk = self.disk.read();
        let is_inside = |level: &u8| block & ((1 << span_shift(disk.indirect_shift.max(8), *level)) - 1) != 0;
        match (1..disk.levels).find(is_inside) {
            Some(level) => {
                let below = level - 1;
                let shift = if below == 0 { 0 } else { span_shift(disk.indirect_shift.max(8), below) };
                self.walk(&disk, below, block >> shift).map(drop)
            }
            None => Ok(()),
        }
    }

    /// The blocks on disk in a range of data blocks that have levels below `level`, as far as there is a way to them; at most `max`.
    pub fn blocks_within(&self, range: &Range<u64>, level: u8, max: usize) -> Vec<BlkPtr> {
        let tree = self.disk.read().clone();
        let top = tree.levels.saturating_sub(1);
        let mut waiting: Vec<(u8, u64, BlkPtr)> = tree.pointers.iter().enumerate().map(|(block, pointer)| (top, block as u64, *pointer)).collect();
        let mut found = Vec::new();
        while let Some((at, block, pointer)) = waiting.pop() {
            let span = if at == 0 { 0 } else { span_shift(tree.indirect_shift, at) };
            let (first, end) = (block << span, (block + 1).checked_shl(span).unwrap_or(u64::MAX));
            if pointer.is_hole() || first >= range.end || end <= range.start || found.len() >= max {
                continue;
            }
            if at < level {
                found.push(pointer);
            }
            if at > 0
                && let Ok(data) = self.read_indirect(&tree, &pointer, at, block)
            {
                let first = block * data.count() as u64;
                waiting.extend(data.kept().iter().enumerate().map(|(index, child)| (at - 1, first + index as u64, *child)));
            }
        }
        found
    }

    /// The end of what lies below the highest indirect block above `block` that cannot be read; `None`: they all can, or nothing is behind it.
    pub(in crate::dmu) fn end_of_lost(&self, block: u64) -> Option<u64> {
        let disk = self.disk.read();
        let span = |level: u8| if level == 0 { 0 } else { span_shift(disk.indirect_shift.max(8), level) };
        let level = (1..disk.levels).rev().find(|level| self.walk(&disk, level - 1, block >> span(level - 1)).is_err())?;
        ((block >> span(level)) + 1).checked_shl(span(level)).filter(|end| *end > block)
    }

    /// Reads an indirect block, and refuses one that cannot belong there.
    pub(in crate::dmu) fn read_indirect(&self, tree: &disk::Dnode, pointer: &BlkPtr, level: u8, block: u64) -> Result<Pointers> {
        let at = self.bookmark(level as i8, block);
        if pointer.level() != level || pointer.logical_size() != 1 << tree.indirect_shift {
            bail!(
                Corrupt,
                "{at}: the pointer says level {} and {} bytes, the dnode level {level} and {} bytes",
                pointer.level(),
                pointer.logical_size(),
                1u64 << tree.indirect_shift
            );
        }
        self.objset.context.cache.read_pointers(pointer, &at).within(|| "indirect block")
    }

    /// The pointer to data block `block` as it is on disk; holes too (inspection: zdb and the checker).
    ///
    /// # Errors
    /// An indirect block cannot be read.
    pub fn block_pointer(&self, block: u64) -> Result<BlkPtr> {
        self.synced_pointer(0, block)
    }
}
