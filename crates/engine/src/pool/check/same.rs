//! Which data blocks are the same: what deduplication would make of a pool (`zdb -S`).
//!
//! # Theory
//! Two blocks with one checksum, length and compression are taken for the same, as a dedup table would take them. Blocks
//! without a checksum and metadata never get into such a table. What is referenced twice in the same place (a clone) counts twice.

use std::collections::HashMap;

use ondisk::algorithm::ChecksumAlgorithm;
use ondisk::blkptr::{BlkPtr, BlockPointer};

/// What a dedup table knows a block by.
type Key = ([u64; 4], u64, u64, u8);

/// Blocks and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SameTotals {
    /// Blocks.
    pub blocks: u64,
    /// Bytes before compression.
    pub logical: u64,
    /// Bytes after compression.
    pub physical: u64,
    /// Bytes on disk, all copies, without the share of parity.
    pub used: u64,
}

impl SameTotals {
    /// Adds another.
    pub fn add(&mut self, other: SameTotals) {
        self.blocks += other.blocks;
        self.logical += other.logical;
        self.physical += other.physical;
        self.used += other.used;
    }

    fn share(self, of: u64) -> SameTotals {
        SameTotals { blocks: self.blocks / of, logical: self.logical / of, physical: self.physical / of, used: self.used / of }
    }
}

/// The data blocks of a pool by what is in them.
#[derive(Debug, Clone, Default)]
pub struct SameBlocks {
    blocks: HashMap<Key, SameTotals>,
}

impl SameBlocks {
    /// Adds a reference to a block that takes `used` bytes.
    pub(super) fn add(&mut self, bp: &BlkPtr, used: u64) {
        let Ok(BlockPointer::Data(block)) = bp.decode() else { return };
        if bp.is_metadata() || block.checksum_algorithm == ChecksumAlgorithm::Off {
            return;
        }
        let (logical, physical) = (block.logical_size, block.physical_size);
        let key = (block.checksum, logical, physical, block.compression as u8);
        self.blocks.entry(key).or_default().add(SameTotals { blocks: 1, logical, physical, used });
    }

    /// By power of two of how often a block is referenced, from the seldom ones up: what one copy of each takes, and what is
    /// there now.
    pub fn histogram(&self) -> Vec<(u64, SameTotals, SameTotals)> {
        let mut buckets = [(SameTotals::default(), SameTotals::default()); 64];
        for totals in self.blocks.values() {
            let (once, all) = &mut buckets[totals.blocks.ilog2() as usize];
            once.add(totals.share(totals.blocks));
            all.add(*totals);
        }
        let filled = buckets.into_iter().enumerate().filter(|(_, (once, _))| once.blocks > 0);
        filled.map(|(power, (once, all))| (1 << power, once, all)).collect()
    }
}
