//! dRAID: groups of columns that are dealt out to all children, and room for spares among them.
//!
//! # Theory
//! The space is a sequence of *groups*. A group is `width` (data and parity) columns wide and [`ROW_BYTES`] high, and a block lies in it as wide as it is: it takes
//! whole lines, and what its data leaves of the last one is zeros, on disk too. So parity of a line can be computed without knowing which block is there.
//!
//! A *row* is [`ROW_BYTES`] of all children but as many as there are spares. Groups are put into rows one behind the other, and where a row ends a group goes on in the
//! next. After `groups` groups a row is just full: that is a *slice*. In each slice the children come in another order, and those that come last are its spares. The
//! orders are shuffled by a generator with a fixed beginning ([`seeds`]); each is used once with each number added to all.
//!
//! # On disk
//! The number of children decides on the orders. What is made is checked against the checksum that belongs to them: another order would be another pool.

mod seeds;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::Content;
use super::raidz::Part;
use seeds::SEEDS;

/// The height of a row: the largest block fits into one column.
#[doc(alias = "VDEV_DRAID_ROWHEIGHT")]
pub const ROW_BYTES: u64 = 16 << 20;
/// What each child keeps free at its end.
#[doc(alias = "VDEV_DRAID_REFLOW_RESERVE")]
const RESERVED_BYTES: u64 = 2 * ROW_BYTES;
/// The first number of the generator.
#[doc(alias = "VDEV_DRAID_SEED")]
const SEED: u64 = 0x000d_7a1d_5eed;
/// The fewest and the most children.
pub const CHILDREN: std::ops::RangeInclusive<u64> = 2..=255;
/// The most children whose room is kept free.
pub const SPARES_MAX: u64 = 100;
/// From so many children on there are twice as many orders.
const MANY_CHILDREN: usize = 32;

/// A dRAID vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draid {
    shape: Shape,
    ashift: u32,
    orders: Arc<[u8]>,
}

/// The numbers that describe a dRAID vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Columns of data in a group.
    pub data: u64,
    /// Columns of parity in a group.
    pub parity: u64,
    /// Children whose room is kept free.
    pub spares: u64,
    /// All children.
    pub children: u64,
    /// Groups in a slice.
    pub groups: u64,
}

impl Shape {
    /// Columns of a group.
    pub fn width(self) -> u64 {
        self.data + self.parity
    }

    /// Children that hold data in a slice.
    pub fn disks(self) -> u64 {
        self.children.saturating_sub(self.spares)
    }

    /// The shape with as few groups in a slice as fill whole rows.
    #[must_use]
    pub fn with_fewest_groups(self) -> Shape {
        if [self.data, self.parity, self.spares].iter().any(|part| *part > self.children) {
            return self;
        }
        let (mut divisor, mut rest) = (self.width(), self.disks());
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        Shape { groups: self.disks() / divisor.max(1), ..self }
    }

    /// Can there be such a vdev?
    pub fn is_possible(self) -> bool {
        let Shape { data, parity, spares, children, groups } = self;
        let is_small = (1..=3).contains(&parity) && CHILDREN.contains(&children) && (1..children).contains(&data) && spares <= SPARES_MAX.min(children);
        is_small && self.width() <= self.disks() && (1..=*CHILDREN.end()).contains(&groups) && (self.width() * groups).is_multiple_of(self.disks())
    }
}

impl Draid {
    /// A vdev of this shape.
    ///
    /// # Panics
    /// There is no such shape.
    pub fn new(shape: Shape, ashift: u32) -> Draid {
        assert!(shape.is_possible(), "{shape:?}");
        Draid { shape, ashift, orders: orders(shape.children as usize) }
    }

    /// The numbers that describe it.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Bytes of the smallest piece: one sector of each column. All that is allocated begins at a multiple of it.
    pub fn line_bytes(&self) -> u64 {
        self.shape.width() << self.ashift
    }

    fn group_bytes(&self) -> u64 {
        self.shape.width() * ROW_BYTES
    }

    fn rows_of_slice(&self) -> u64 {
        self.shape.width() * self.shape.groups / self.shape.disks()
    }

    /// What `physical` bytes take on all children together.
    #[doc(alias = "vdev_draid_psize_to_asize")]
    pub fn allocated_size(&self, physical: u64) -> u64 {
        physical.div_ceil(self.shape.data << self.ashift).max(1) * self.line_bytes()
    }

    /// What each child has of a vdev with so many bytes.
    #[doc(alias = "vdev_draid_min_asize")]
    pub fn leaf_bytes(&self, asize: u64) -> u64 {
        RESERVED_BYTES + asize.div_ceil(self.shape.disks()).next_multiple_of(ROW_BYTES)
    }

    /// The bytes of a vdev whose smallest child has so many: whole rows, and of them whole groups.
    #[doc(alias = "vdev_draid_open")]
    pub fn asize_of(&self, leaf_bytes: u64) -> u64 {
        let rows = leaf_bytes.saturating_sub(RESERVED_BYTES) / ROW_BYTES;
        (rows * ROW_BYTES).saturating_mul(self.shape.disks()) / self.group_bytes() * self.group_bytes()
    }

    /// The child at a place in the order of a slice.
    #[doc(alias = "vdev_draid_permute_id")]
    fn child(&self, slice: u64, place: u64) -> usize {
        let children = self.shape.children;
        let orders = self.orders.len() as u64 / children;
        let turn = slice % (orders * children);
        let order = &self.orders[(turn / children * children) as usize..][..children as usize];
        ((u64::from(order[place as usize]) + turn % children) % children) as usize
    }

    /// The child that is spare number `spare` where its bytes are at `offset`.
    #[doc(alias = "vdev_draid_spare_get_child")]
    pub fn spare_child(&self, spare: u64, offset: u64) -> usize {
        let slice = offset / (self.rows_of_slice() * ROW_BYTES);
        self.child(slice, self.shape.children - 1 - spare.min(self.shape.spares.saturating_sub(1)))
    }

    /// The children that these spares are, in each way that there is in some slice.
    pub(super) fn spare_places(&self, spares: &[u64]) -> BTreeSet<Vec<usize>> {
        let slices = self.orders.len() as u64;
        let height = self.rows_of_slice() * ROW_BYTES;
        (0..slices).map(|slice| spares.iter().map(|spare| self.spare_child(*spare, slice * height)).collect()).collect()
    }

    /// See [`Layout::rebuild_piece`](super::Layout::rebuild_piece): whole lines of one group.
    #[doc(alias = "vdev_draid_rebuild_asize")]
    pub(super) fn rebuild_piece(&self, offset: u64, allocated: u64, segment: u64) -> (u64, u64) {
        let group_left = self.group_bytes() - offset % self.group_bytes();
        // No more data than the largest block has.
        let most = (segment.min(ROW_BYTES / self.shape.data) >> self.ashift).max(1);
        let lines = most.min(allocated.min(group_left) / self.line_bytes());
        (lines * self.line_bytes(), (lines * self.shape.data) << self.ashift)
    }

    /// Where the group ends in which `offset` lies.
    pub(super) fn group_end(&self, offset: u64) -> u64 {
        (offset / self.group_bytes() + 1) * self.group_bytes()
    }

    /// What of a range of whole lines lies on a child: from the first group in which there is something to the last.
    #[doc(alias = "vdev_draid_xlate")]
    pub(super) fn on_child(&self, child: usize, range: &Range<u64>) -> Option<Range<u64>> {
        let (mut found, mut at): (Option<Range<u64>>, u64) = (None, range.start);
        while at < range.end {
            let end = range.end.min(self.group_end(at));
            if let Some(own) = self.in_group(child, at, end) {
                found = Some(found.map_or(own.start, |found| found.start)..own.end);
            }
            at = end;
        }
        found
    }

    /// What of a range of one group lies on a child.
    fn in_group(&self, child: usize, start: u64, end: u64) -> Option<Range<u64>> {
        let disks = self.shape.disks();
        let group = start / self.group_bytes();
        let slice = group / self.shape.groups;
        let first = group % self.shape.groups * self.shape.width();
        let place = (first % disks..first % disks + self.shape.width()).find(|place| self.child(slice, place % disks) == child)?;
        let row = slice * self.rows_of_slice() + first / disks + place / disks;
        let lines = |offset: u64| (offset - group * self.group_bytes()).div_ceil(self.line_bytes()) << self.ashift;
        let own = row * ROW_BYTES + lines(start)..row * ROW_BYTES + lines(end);
        Some(own).filter(|own| !own.is_empty())
    }

    /// The rows of columns, parity first, of `length` bytes at `offset`: two where a group ends in the middle.
    #[doc(alias = "vdev_draid_map_alloc_row")]
    pub(super) fn rows(&self, offset: u64, length: usize) -> Vec<Vec<Part>> {
        let (mut at, mut done, mut rows) = (offset, 0, Vec::new());
        loop {
            let left = (length - done) as u64;
            let room = self.group_bytes() - at % self.group_bytes();
            // Of lines that end with the group only whole ones are left to it.
            let here = left.min(room / self.shape.width() * self.shape.data);
            rows.push(self.row(at, done..done + here as usize));
            done += here as usize;
            at += self.allocated_size(here);
            if done >= length || here == 0 {
                return rows;
            }
        }
    }

    /// The columns of a part of the buffer that lies in one group.
    fn row(&self, offset: u64, range: Range<usize>) -> Vec<Part> {
        let Shape { data, parity, .. } = self.shape;
        let (width, disks) = (self.shape.width(), self.shape.disks());
        let sector = 1_u64 << self.ashift;
        let group = offset / self.group_bytes();
        let slice = group / self.shape.groups;
        let first = group % self.shape.groups * width;
        // The line in the group, and where the group's first column begins on its child.
        let line = offset % self.group_bytes() / self.line_bytes() * sector;
        let start = (slice * self.rows_of_slice() + first / disks) * ROW_BYTES + line;
        let sectors = (range.len() as u64).div_ceil(sector).max(1);
        let (lines, over) = (sectors / data, sectors % data);
        let height = (sectors.div_ceil(data) * sector) as usize;
        let mut next = range.start;
        (0..width)
            .map(|column| {
                let place = first % disks + column;
                let content = if column < parity {
                    Content::Parity(column as usize)
                } else {
                    let own = ((lines + u64::from(column - parity < over)) * sector) as usize;
                    let part = next..(next + own).min(range.end).max(next);
                    next = part.end;
                    Content::Data(part)
                };
                let offset = if place < disks { start } else { start + ROW_BYTES };
                Part { child: self.child(slice, place % disks), offset, length: height, content, sector: 0 }
            })
            .collect()
    }
}

/// The orders of so many children, one behind the other. They are made once.
fn orders(children: usize) -> Arc<[u8]> {
    static MADE: [OnceLock<Arc<[u8]>>; 256] = [const { OnceLock::new() }; 256];
    MADE[children].get_or_init(|| shuffled(children)).clone()
}

#[doc(alias = "vdev_draid_generate_perms")]
fn shuffled(children: usize) -> Arc<[u8]> {
    let (seed, checksum) = SEEDS[children - 2];
    let mut random = Random(SEED, seed);
    let mut order: Vec<u8> = (0..children).map(|child| child as u8).collect();
    let mut orders = Vec::new();
    for _ in 0..if children < MANY_CHILDREN { 256 } else { 512 } {
        for last in (1..children).rev() {
            order.swap(last, (random.next() % (last as u64 + 1)) as usize);
        }
        orders.extend_from_slice(&order);
    }
    assert_eq!(sum_of_words(&orders), checksum, "the orders of {children} children are not those of the format");
    orders.into()
}

/// The first word of the Fletcher-4 checksum: the sum of all words of four bytes.
fn sum_of_words(bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    bytes.chunks(4).map(word).sum()
}

/// The generator xoroshiro128++.
struct Random(u64, u64);

impl Random {
    fn next(&mut self) -> u64 {
        let (first, mut second) = (self.0, self.1);
        let number = first.wrapping_add(second).rotate_left(17).wrapping_add(first);
        second ^= first;
        self.0 = first.rotate_left(49) ^ second ^ (second << 21);
        self.1 = second.rotate_left(28);
        number
    }
}

#[cfg(test)]
mod tests;
