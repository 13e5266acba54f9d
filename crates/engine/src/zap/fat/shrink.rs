//! How a fat ZAP shrinks: two empty sibling leaves become one.
//!
//! # Theory
//! Siblings have prefixes of one length that differ in the last bit. Only empty ones are merged, so that nothing is rehashed:
//! the pointers of sibling 1 are set to sibling 0, whose prefix loses its last bit; that may make it an empty sibling again.

use ondisk::zap_fat;
use ondisk::zap_leaf::Leaf;

use crate::zap::blocks::{ReadBlocks, WriteBlocks};
use crate::zap::fat::fat_zap::Fat;
use crate::zap::fat::grow::{prepare_pointers, set_pointers};
use crate::error::Result;

/// Prefix, its length, and number of entries of a leaf.
fn describe(fat: &Fat, blocks: &impl ReadBlocks, hash: u64) -> Result<(u64, u32, u16)> {
    fat.with_leaf(blocks, hash, |leaf| Ok((leaf.prefix(), leaf.prefix_length(), leaf.entry_count())))
}

/// Merges the leaf of `hash`, which is empty, with its sibling as long as that is empty too.
pub(in crate::zap) fn merge_empty_leaves(fat: &Fat, blocks: &impl WriteBlocks, hash: u64) -> Result<()> {
    let mut freed_last = false;
    loop {
        let (prefix, length, entries) = describe(fat, blocks, hash)?;
        let header = zap_fat::header(&blocks.read(0)?)?;
        let shift = header.pointer_table.shift.get() as u32;
        if length == 0 || entries != 0 || length > shift {
            break;
        }
        let sibling_hash = (prefix ^ 1) << (64 - length);
        let (_, sibling_length, sibling_entries) = describe(fat, blocks, sibling_hash)?;
        if sibling_length != length || sibling_entries != 0 {
            break;
        }
        let kept = fat.leaf_block(blocks, (prefix & !1) << (64 - length))?;
        let removed = fat.leaf_block(blocks, (prefix | 1) << (64 - length))?;
        let count = 1u64 << (shift - length);
        prepare_pointers(fat, blocks, (prefix | 1) << (shift - length), count)?;
        blocks.modify(kept, |_| Ok(()))?;
        set_pointers(fat, blocks, (prefix | 1) << (shift - length), count, kept)?;
        blocks.modify(kept, |block| {
            Leaf::open(block)?.set_prefix(prefix >> 1, length - 1);
            Ok(())
        })?;
        fat.change_header(blocks, |header| header.leaf_count = header.leaf_count.get().saturating_sub(1).into())?;
        blocks.free(removed, 1)?;
        freed_last |= removed + 1 == header.next_free_block.get();
    }
    if freed_last { lower_next_free_block(fat, blocks) } else { Ok(()) }
}

/// Gives back the free blocks at the end.
fn lower_next_free_block(fat: &Fat, blocks: &impl WriteBlocks) -> Result<()> {
    let block_0 = blocks.read(0)?;
    let header = zap_fat::header(&block_0)?;
    let table = header.pointer_table;
    if table.next_start_block.get() != 0 {
        return Ok(());
    }
    let mut last = if table.block_count.get() == 0 { 0 } else { table.start_block.get() + table.block_count.get() - 1 };
    if table.block_count.get() == 0 {
        last = zap_fat::embedded_table(&block_0).iter().map(|pointer| pointer.get()).fold(last, u64::max);
    } else {
        for block in 0..table.block_count.get() {
            let block = blocks.read(table.start_block.get() + block)?;
            last = zap_fat::table(&block).iter().map(|pointer| pointer.get()).fold(last, u64::max);
        }
    }
    drop(block_0);
    fat.change_header(blocks, |header| {
        if last < header.next_free_block.get() {
            header.next_free_block = (last + 1).into();
        }
    })
}
