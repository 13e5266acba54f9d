//! From micro to fat, and how a ZAP begins.

use ondisk::zap_leaf::Leaf;
use ondisk::{zap_fat, zap_micro};

use super::blocks::WriteBlocks;
use super::fat::fat_zap::Fat;
use super::key::Normalization;
use super::micro::Micro;
use super::value::Integers;
use crate::bail;
use crate::error::Result;

/// Writes an empty micro ZAP into block 0.
pub(super) fn create_micro(blocks: &impl WriteBlocks, salt: u64, normalization: Normalization) -> Result<()> {
    let mut block = vec![0; blocks.block_size()];
    zap_micro::initialize(&mut block, salt, normalization.flags());
    blocks.write(0, block)
}

/// Writes an empty fat ZAP into blocks 0 and 1.
pub(super) fn create_fat(blocks: &impl WriteBlocks, salt: u64, normalization: Normalization, flags: u64) -> Result<Fat> {
    let mut block = vec![0; blocks.block_size()];
    zap_fat::initialize(&mut block, salt, normalization.flags(), flags);
    let fat = Fat::open(&block)?;
    blocks.write(0, block)?;
    let leaf = Leaf::initialize(vec![0; blocks.block_size()], fat.is_sorted());
    blocks.write(1, leaf.into_block())?;
    Ok(fat)
}

/// Makes a micro ZAP fat. Entries keep their collision numbers, hence their positions.
pub(super) fn upgrade(blocks: &impl WriteBlocks, micro: &Micro) -> Result<Fat> {
    // Before the first change: an entry that finds no room later would be lost, with all that come after it.
    if !micro.fits_leaves() {
        bail!(NoSpace, "too many names of a ZAP have nearly the same hash");
    }
    let entries = micro.entries(&blocks.read(0)?);
    blocks.set_block_size(1 << zap_fat::DEFAULT_BLOCK_SHIFT)?;
    let fat = create_fat(blocks, micro.salt, micro.normalization, 0)?;
    for entry in entries {
        let key = fat.name_key(&entry.name)?;
        fat.put(blocks, &key, Some(entry.collision), Integers::U64(&[entry.value]), false)?;
    }
    Ok(fat)
}
