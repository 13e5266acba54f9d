//! How a fat ZAP grows: leaves split, the pointer table doubles.
//!
//! # Theory
//! A full leaf of prefix length p is split into two of length p + 1, which needs a table indexed by at least p + 1 bits.
//! The embedded table doubles in one step, into a block of its own. A table in blocks of its own doubles by one block per
//! change, so that no single change writes a large table; until the copy is complete both are kept up to date.

use ondisk::corruption::Corruption;
use ondisk::zap_fat::{self, FatHeader, Pointer, PointerTable};
use ondisk::zap_hash;
use ondisk::zap_leaf::{self, Leaf};

use crate::zap::blocks::WriteBlocks;
use crate::zap::fat::fat_zap::{Fat, leaf_error};
use crate::bail;
use crate::error::{ErrorKind, Result};

/// Names that differ in this many upper bits of their hashes can always be in different leaves.
pub(in crate::zap) const SURE_BITS: u32 = 16;
/// A table of no more pointers than this may always grow.
const POINTERS_MIN: u64 = 1 << SURE_BITS;
/// One that is larger has this many for each leaf at the most. Where names spread as they should it has a few; but who chooses names of one
/// hash, as anybody can with a CRC, would make a table of half a gigabyte out of some hundred of them.
const POINTERS_PER_LEAF_MAX: u64 = 1 << 10;

/// The upper bits of the hashes that a table with this many leaves and `shift` bits may use.
pub(in crate::zap) fn sure_bits(leaf_count: u64, shift: u32, flags: u64) -> u32 {
    let of_leaves = leaf_count.saturating_mul(POINTERS_PER_LEAF_MAX).max(1).ilog2();
    // The last doublings are refused in `grow_table`.
    of_leaves.max(SURE_BITS).min(zap_hash::hash_bits(flags) - 2).max(shift)
}

/// Makes room in the leaf of `hash`, which is block `number`: splits it, after growing the table if needed.
pub(in crate::zap) fn expand_leaf(fat: &Fat, blocks: &impl WriteBlocks, hash: u64, number: u64) -> Result<()> {
    let prefix_length = fat.with_leaf(blocks, hash, |leaf| Ok(leaf.prefix_length()))?;
    loop {
        let shift = zap_fat::header(&blocks.read(0)?)?.pointer_table.shift.get() as u32;
        if prefix_length < shift {
            return split_leaf(fat, blocks, hash, number, prefix_length, shift);
        }
        if prefix_length > shift {
            return Err(Corruption::new("ZAP leaf", "prefix length", u64::from(prefix_length)).into());
        }
        grow_table(fat, blocks)?;
    }
}

fn split_leaf(fat: &Fat, blocks: &impl WriteBlocks, hash: u64, number: u64, prefix_length: u32, shift: u32) -> Result<()> {
    let first = (zap_hash::index(hash, prefix_length + 1) | 1) << (shift - (prefix_length + 1));
    let count = 1u64 << (shift - (prefix_length + 1));
    // All pointers of the upper half must name this leaf, or the table is damaged and a split would lose entries.
    let block_0 = blocks.read(0)?;
    let header = zap_fat::header(&block_0)?;
    for index in [first, first + count - 1] {
        let pointer = fat.pointer(blocks, &block_0, &header, index)?;
        if pointer != number {
            return Err(Corruption::new("ZAP pointer table", "leaf block", pointer).into());
        }
    }
    drop(block_0);
    prepare_pointers(fat, blocks, first, count)?;
    let mut leaf = blocks.read(number)?.to_vec();
    let mut sibling = vec![0; 1 << fat.block_shift];
    let mut upper = Leaf::initialize(sibling.as_mut_slice(), fat.is_sorted());
    Leaf::open(leaf.as_mut_slice())?.split(&mut upper, fat.name_integer_size(), fat.is_sorted()).map_err(leaf_error)?;
    let sibling_number = allocate_blocks(fat, blocks, 1)?;
    // The new one first: where it cannot be written, the names that it was to get are still in the old one.
    blocks.write(sibling_number, sibling)?;
    blocks.write(number, leaf)?;
    fat.change_header(blocks, |header| header.leaf_count = (header.leaf_count.get() + 1).into())?;
    set_pointers(fat, blocks, first, count, sibling_number)
}

/// Takes blocks at the end of the object.
fn allocate_blocks(fat: &Fat, blocks: &impl WriteBlocks, count: u64) -> Result<u64> {
    let mut first = 0;
    fat.change_header(blocks, |header| {
        first = header.next_free_block.get();
        header.next_free_block = (first + count).into();
    })?;
    Ok(first)
}

/// Makes the blocks that [`set_pointers`] will change blocks of this group, with what is in them. What cannot be read is found while nothing
/// has happened: half of a leaf's pointers changed, or its entries in a leaf that none leads to, would be damage.
pub(in crate::zap) fn prepare_pointers(fat: &Fat, blocks: &impl WriteBlocks, first: u64, count: u64) -> Result<()> {
    each_part(fat, blocks, first, count, &|_, _, _| Ok(()))
}

/// Makes `count` pointers from `first` name the leaf `leaf`.
pub(in crate::zap) fn set_pointers(fat: &Fat, blocks: &impl WriteBlocks, first: u64, count: u64, leaf: u64) -> Result<()> {
    each_part(fat, blocks, first, count, &|table, first, count| fill(table, first, count, leaf))
}

/// Changes a part of a table: its pointers, the first one and how many.
type ChangePart<'a> = &'a dyn Fn(&mut [Pointer], usize, usize) -> Result<()>;

/// Calls `change` for each block that has some of these pointers, in the table and in the one that will take its place.
fn each_part(fat: &Fat, blocks: &impl WriteBlocks, first: u64, count: u64, change: ChangePart<'_>) -> Result<()> {
    let table = zap_fat::header(&blocks.read(0)?)?.pointer_table;
    if table.block_count.get() == 0 {
        return blocks.modify(0, |block| change(zap_fat::embedded_table_mut(block), first as usize, count as usize));
    }
    each_part_in_blocks(fat, blocks, table.start_block.get(), first, count, change)?;
    if table.next_start_block.get() != 0 {
        // Blocks that are not copied yet will be overwritten by the copy; to set them now does no harm.
        each_part_in_blocks(fat, blocks, table.next_start_block.get(), first * 2, count * 2, change)?;
    }
    Ok(())
}

fn each_part_in_blocks(fat: &Fat, blocks: &impl WriteBlocks, start_block: u64, mut first: u64, mut count: u64, change: ChangePart<'_>) -> Result<()> {
    let per_block = 1u64 << (fat.block_shift - 3);
    while count > 0 {
        let within = first % per_block;
        let here = count.min(per_block - within);
        blocks.modify(start_block + first / per_block, |block| change(zap_fat::table_mut(block), within as usize, here as usize))?;
        first += here;
        count -= here;
    }
    Ok(())
}

fn fill(table: &mut [Pointer], first: usize, count: usize, leaf: u64) -> Result<()> {
    match table.get_mut(first..first + count) {
        Some(pointers) => {
            pointers.fill(leaf.into());
            Ok(())
        }
        None => Err(Corruption::new("ZAP pointer table", "index", first as u64).into()),
    }
}

/// One step of doubling the table.
fn grow_table(fat: &Fat, blocks: &impl WriteBlocks) -> Result<()> {
    let block_0 = blocks.read(0)?;
    let header = zap_fat::header(&block_0)?;
    let table = header.pointer_table;
    // More index bits than a hash has would be useless; this near to it something is very wrong.
    if table.shift.get() + 2 >= u64::from(zap_hash::hash_bits(fat.flags)) {
        bail!(NoSpace, "the pointer table of a ZAP cannot grow further");
    }
    let pointers = 2u64 << table.shift.get();
    if pointers > POINTERS_MIN && pointers > header.leaf_count.get().saturating_mul(POINTERS_PER_LEAF_MAX) {
        bail!(NoSpace, "too many names of a ZAP have the same hash");
    }
    if table.block_count.get() == 0 {
        let pointers = double(zap_fat::embedded_table(&block_0));
        drop(block_0);
        let start = allocate_blocks(fat, blocks, 1)?;
        blocks.write(start, pointers)?;
        return fat.change_header(blocks, |header| {
            header.pointer_table.start_block = start.into();
            header.pointer_table.block_count = 1.into();
            header.pointer_table.shift = (table.shift.get() + 1).into();
        });
    }
    drop(block_0);
    copy_table_block(fat, blocks, &header)
}

/// Copies one block of the table into two of the larger one; after the last, the larger one is the table.
fn copy_table_block(fat: &Fat, blocks: &impl WriteBlocks, header: &FatHeader) -> Result<()> {
    let table = header.pointer_table;
    let count = table.block_count.get();
    let mut next = table.next_start_block.get();
    let mut copied = if next == 0 { 0 } else { table.blocks_copied.get() };
    let pointers = double(zap_fat::table(&blocks.read(table.start_block.get() + copied)?));
    if next == 0 {
        next = allocate_blocks(fat, blocks, count * 2)?;
    }
    let (lower, upper) = pointers.split_at(1 << fat.block_shift);
    blocks.write(next + 2 * copied, lower.to_vec())?;
    blocks.write(next + 2 * copied + 1, upper.to_vec())?;
    copied += 1;
    let done = copied >= count;
    let changed = if done {
        PointerTable {
            start_block: next.into(),
            block_count: (count * 2).into(),
            shift: (table.shift.get() + 1).into(),
            next_start_block: 0.into(),
            blocks_copied: 0.into(),
        }
    } else {
        PointerTable { next_start_block: next.into(), blocks_copied: copied.into(), ..table }
    };
    fat.change_header(blocks, |header| header.pointer_table = changed)?;
    if done {
        blocks.free(table.start_block.get(), count)?;
    }
    Ok(())
}

/// Each pointer twice.
fn double(pointers: &[Pointer]) -> Vec<u8> {
    pointers.iter().flat_map(|pointer| [pointer.get(), pointer.get()]).flat_map(u64::to_le_bytes).collect()
}

/// After an addition: continues a table copy, or begins one if the leaf at `number` will soon need it. That is only a precaution: what cannot be
/// done now is no failure of the addition, which its caller would undo as if the entry were not there.
pub(in crate::zap) fn grow_if_leaf_is_nearly_full(fat: &Fat, blocks: &impl WriteBlocks, number: u64) {
    if let Err(error) = grow_in_time(fat, blocks, number)
        && error.kind() != ErrorKind::NoSpace
    {
        tracing::warn!("the pointer table of a ZAP cannot grow: {error}");
    }
}

fn grow_in_time(fat: &Fat, blocks: &impl WriteBlocks, number: u64) -> Result<()> {
    let table = zap_fat::header(&blocks.read(0)?)?.pointer_table;
    let growing = table.next_start_block.get() != 0;
    let nearly_full = {
        let block = blocks.read(number)?;
        let leaf = Leaf::open(block.as_slice())?;
        u64::from(leaf.prefix_length()) == table.shift.get() && leaf.free_chunks() < zap_leaf::LOW_WATER
    };
    if growing || nearly_full { grow_table(fat, blocks) } else { Ok(()) }
}
