//! RAID-Z with one, two or three columns of parity: where a block lies on the children.
//!
//! # Theory
//! A vdev of `width` children is addressed in sectors, child after child: sector `n` is on child `n % width`, in line
//! `n / width`. A block takes sectors one behind the other from its address on. They are handed out column by column: the
//! first children have a column of parity each, and those further on a column of data, which is one sector longer for
//! the first of them where the data does not come out even. A block that is not as wide as the vdev has fewer columns,
//! each with parity of its own row: so no block is written in part, and none shares parity with another.
//!
//! The number of sectors that a block takes is rounded up to a multiple of parity and one, so that no hole is too small
//! for a block. What is rounded is never read.
//!
//! Single parity would be mostly on the same child where blocks have the size of a line: so every other MiB of addresses the
//! first two columns change places.

use std::ops::Range;

use super::Content;

/// The bit of the address by which parity and the first column of data change places.
pub(super) const ROTATION_BIT: u64 = 1 << 20;

/// A vdev of several children with parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raidz {
    /// How many children.
    pub width: u64,
    /// How many columns of parity a block has: 1 to 3.
    pub parity: u64,
    /// log2 of the sector.
    pub ashift: u32,
}

/// What one child has of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) child: usize,
    /// On the child.
    pub(super) offset: u64,
    pub(super) length: usize,
    pub(super) content: Content,
    /// Its number among the sectors of the vdev, where that matters ([`super::Column::sector`]).
    pub(super) sector: u64,
}

impl Raidz {
    /// What `physical` bytes take on all children together.
    #[doc(alias = "vdev_raidz_psize_to_asize")]
    pub fn allocated_size(&self, physical: u64) -> u64 {
        let parity = self.parity;
        let data = physical.div_ceil(1 << self.ashift).max(1);
        (data + parity * data.div_ceil(self.width - parity)).next_multiple_of(parity + 1) << self.ashift
    }

    /// The sectors of a range that are on one child, as a range of that.
    pub(super) fn on_child(&self, child: u64, range: &Range<u64>) -> Range<u64> {
        // The first line whose sector on the child is not before an address.
        let line = |address: u64| (address >> self.ashift).saturating_sub(child).div_ceil(self.width) << self.ashift;
        line(range.start)..line(range.end)
    }

    /// The columns of `length` bytes at `offset`, parity first.
    #[doc(alias = "vdev_raidz_map_alloc")]
    pub(super) fn columns(&self, offset: u64, length: u64) -> Vec<Part> {
        let parity = self.parity;
        let sector = 1_u64 << self.ashift;
        let first = offset >> self.ashift;
        let sectors = length.div_ceil(sector).max(1);
        // Whole lines of data, and sectors in a line that is not whole.
        let (lines, over) = (sectors / (self.width - parity), sectors % (self.width - parity));
        // So many columns have a sector in the last line.
        let longer = if over == 0 { 0 } else { over + parity };
        let count = if lines == 0 { longer } else { self.width };
        let mut at = 0;
        let mut parts: Vec<Part> = (0..count)
            .map(|column| {
                let position = first + column;
                let size = ((lines + u64::from(column < longer)) << self.ashift) as usize;
                let content = if column < parity {
                    Content::Parity(column as usize)
                } else {
                    let end = (at + size).min(length as usize);
                    let range = at.min(end)..end;
                    at += size;
                    Content::Data(range)
                };
                // The first column decides the line; those that go on from the first child are a line further down.
                let line = first / self.width + u64::from(first % self.width + column >= self.width);
                Part { child: (position % self.width) as usize, offset: line << self.ashift, length: size, content, sector: 0 }
            })
            .collect();
        if parity == 1
            && offset & ROTATION_BIT != 0
            && let [first, second, ..] = parts.as_mut_slice()
        {
            std::mem::swap(&mut first.child, &mut second.child);
            std::mem::swap(&mut first.offset, &mut second.offset);
        }
        parts
    }
}
