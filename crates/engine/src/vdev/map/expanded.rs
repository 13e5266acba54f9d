//! RAID-Z that has got a device more: blocks keep the width that they were written with.
//!
//! # Theory
//! When a device comes to a vdev of `width` children, the sectors of the vdev are moved: number `n`, which was on child `n % width`, comes to child
//! `n % (width + 1)`. So a block has the addresses that it had, and the same parity of the same sectors, but its columns are no columns of the children any more:
//! each sector is a column of its own here, in as many rows as the block has. In its last row columns may be absent; they count as zeros for the parity.
//!
//! Which width a block has follows from the group in which it was written ([`Widths`]); what is written when all is moved has the new one, and lies as on a vdev that was
//! made so.
//!
//! While sectors are moved ([`Reflow`]) a row lies in the new places if all of it was moved and the uberblock says so, and else where it was. What is written to places whose
//! sectors were moved, but of which no uberblock says so yet, is written to both.

use super::Content;
use super::raidz::{Part, ROTATION_BIT};

/// The widths that blocks of a vdev have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Widths {
    first: u64,
    /// From these groups on, ascending, with the width.
    later: Vec<(u64, u64)>,
}

impl Widths {
    /// All blocks are as wide.
    pub fn one(width: u64) -> Widths {
        Widths { first: width, later: Vec::new() }
    }

    /// Of a vdev of so many children, the last of which came for `expanded` (the groups from which on blocks are wider) or, with `is_expanding`, is being filled.
    #[doc(alias = "vdev_raidz_init")]
    pub fn new(children: u64, expanded: &[u64], is_expanding: bool) -> Widths {
        let last = children - u64::from(is_expanding);
        let first = last - expanded.len() as u64;
        Widths { first, later: expanded.iter().copied().zip(first + 1..).collect() }
    }

    /// The width of a block that was written in the group `birth`.
    #[doc(alias = "vdev_raidz_get_logical_width")]
    pub fn of(&self, birth: u64) -> u64 {
        self.later.iter().rev().find(|(from, _)| *from <= birth).map_or(self.first, |(_, width)| *width)
    }

    /// The width that all blocks had at first: what space counts for users stays what it was.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The width that blocks are written with now.
    pub fn last(&self) -> u64 {
        self.later.last().map_or(self.first, |(_, width)| *width)
    }
}

/// How far the sectors of a vdev have been moved to one child more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reflow {
    /// Up to here, in bytes of the vdev, the last uberblock says so.
    pub synced: u64,
    /// Up to here sectors have been moved.
    pub moved: u64,
    /// What is moved is in the scratch area: its real place is being written.
    pub in_scratch: bool,
}

/// Bytes in front of the data of a child that hold its first sectors while their place is written.
#[doc(alias = "VDEV_BOOT_SIZE")]
pub const SCRATCH_BYTES: u64 = ondisk::label::BOOT_BYTES;

/// A block of another width than the vdev has children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Narrow {
    /// The width of the block.
    pub(super) width: u64,
    /// How many children there are.
    pub(super) children: u64,
    pub(super) parity: u64,
    pub(super) ashift: u32,
}

/// The rows of a block: where they are read, and where what is written has to be besides.
pub(super) struct Rows {
    pub(super) rows: Vec<Vec<Part>>,
    /// As `rows`, with nothing but the columns that have another place too, in rows that have any; for a column without one there is `None` for its place.
    pub(super) shadows: Vec<Vec<(Part, bool)>>,
}

impl Narrow {
    /// The columns, parity first, of `length` bytes at `offset`.
    #[doc(alias = "vdev_raidz_map_alloc_expanded")]
    pub(super) fn rows(&self, offset: u64, length: usize, reflow: Option<Reflow>) -> Rows {
        let Narrow { width, parity, ashift, .. } = *self;
        let sectors = (length as u64).div_ceil(1 << ashift).max(1);
        let (lines, over) = (sectors / (width - parity), sectors % (width - parity));
        // So many columns have a sector in the last row; 0: all have.
        let longer = if over == 0 { 0 } else { over + parity };
        let total = sectors + parity * (lines + u64::from(over > 0));
        let (rows, columns) = (total.div_ceil(width), total.min(width));
        let mut made = Rows { rows: Vec::new(), shadows: Vec::new() };
        for row in 0..rows {
            let first = (offset >> ashift) + row * width;
            let place = Place::of(self, first + columns, reflow);
            let (mut parts, mut shadow) = (Vec::new(), Vec::new());
            for column in 0..columns {
                let is_absent = row + 1 == rows && longer != 0 && column >= longer;
                let content = if column < parity {
                    Content::Parity(column as usize)
                } else if is_absent {
                    Content::Data(0..0)
                } else {
                    let data = column - parity;
                    let index = if over == 0 || data < over { data * rows + row } else { over * rows + (data - over) * (rows - 1) + row };
                    let start = ((index << ashift) as usize).min(length);
                    Content::Data(start..(start + (1 << ashift)).min(length))
                };
                let length = if is_absent { 0 } else { 1 << ashift };
                let (part, other) = place.part(self, first + column, content, length, reflow);
                parts.push(part);
                shadow.push(other);
            }
            if parity == 1 && columns > 1 && offset & ROTATION_BIT != 0 {
                swap_places(&mut parts);
                let (mut places, is_there): (Vec<Part>, Vec<bool>) = shadow.into_iter().unzip();
                swap_places(&mut places);
                let mut is_there = is_there;
                is_there.swap(0, 1);
                shadow = places.into_iter().zip(is_there).collect();
            }
            if shadow.iter().any(|(_, is_there)| *is_there) {
                made.shadows.push(shadow);
            }
            made.rows.push(parts);
        }
        made
    }
}

/// Single parity changes places with the first column of data.
fn swap_places(parts: &mut [Part]) {
    if let [first, second, ..] = parts {
        std::mem::swap(&mut first.child, &mut second.child);
        std::mem::swap(&mut first.offset, &mut second.offset);
        std::mem::swap(&mut first.sector, &mut second.sector);
    }
}

/// Where a row is.
struct Place {
    /// Over so many children.
    children: u64,
    in_scratch: bool,
}

impl Place {
    /// Of the row that ends with sector `end`.
    fn of(block: &Narrow, end: u64, reflow: Option<Reflow>) -> Place {
        match reflow {
            Some(reflow) if end > reflow.synced >> block.ashift => Place { children: block.children - 1, in_scratch: false },
            Some(reflow) => Place { children: block.children, in_scratch: reflow.in_scratch },
            None => Place { children: block.children, in_scratch: false },
        }
    }

    /// A sector, and the other place where it has to be written, if the second says so.
    fn part(&self, block: &Narrow, sector: u64, content: Content, length: usize, reflow: Option<Reflow>) -> (Part, (Part, bool)) {
        let at = |children: u64| ((sector % children) as usize, (sector / children) << block.ashift);
        let (child, mut offset) = at(self.children);
        if self.in_scratch {
            // Below the data: see `Side::offset`.
            offset = offset.wrapping_sub(SCRATCH_BYTES);
        }
        let part = Part { child, offset, length, content, sector };
        let moved = reflow.is_some_and(|reflow| sector < reflow.moved >> block.ashift);
        let (child, offset) = at(block.children);
        let has_other = length > 0 && moved && self.children != block.children;
        let other = Part { child, offset, ..part.clone() };
        (part, (other, has_other))
    }
}
