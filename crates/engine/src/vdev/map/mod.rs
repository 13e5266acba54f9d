//! What an I/O of a top-level vdev is in I/Os of its leaves: pure functions.
//!
//! # Theory
//! A top-level vdev is a tree: leaves, and groups whose layout says how the bytes of the group lie on its children
//! ([`Layout`]). Whatever is in the tree, an I/O of it comes to the same form, an [`IoMap`]: *rows*, one behind the other
//! in the buffer; a row has *columns*; a column of data is a part of the buffer, and a column of parity is computed from
//! the columns of data of its row. A column has *sides*: leaves that hold the same bytes of it. So an I/O of a mirror is a
//! row of one column that has a side on each member, and one of RAID-Z is a row of columns that have a side each, or
//! several where a child is being replaced. A block of a removed vdev is the rows of all places that it was moved to.
//!
//! Reading is a conversation: [`Reading`] says which sides to ask, is told what they gave, and finds the combination of
//! answers for which the checksum is right. Only then each side is judged ([`Verdict`]): by comparing what it gave with
//! what is right, never by having been part of a combination that was wrong.
//!
//! Writing needs one side of every column, except for as many columns of a row as it has parity ([`IoMap::is_written`]).
//!
//! Columns of some layouts have bytes behind what they have of the buffer, and whole columns may have nothing of it: such bytes are zeros, on disk too, and count in
//! the parity. What is read there is compared, and never used.
//!
//! # Invariants
//! 1. The columns of data of all rows are the buffer, each byte once; when something is written to two places it is there twice.
//! 2. The columns of parity stand in front of those of data in a row.
//! 3. Nothing here does I/O, takes a lock or reads a clock.
//!
//! # Path
//! `TopVdev` and the maps of removed vdevs make maps; zio executes them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::members::{CountedIo, HeldRange};

pub mod draid;
mod expanded;
mod layout;
pub(super) mod mirror;
mod raidz;
mod reading;

#[cfg(test)]
mod tests;

use transform::parity;

pub use expanded::{Reflow, SCRATCH_BYTES, Widths};
pub use layout::{Columns, Layout, Node, Wanted, deflated_size};
pub use mirror::View;
pub use raidz::Raidz;
pub use reading::{Answer, Ask, Reading, Verdict};

/// A leaf of the pool: its top-level vdev, and its number among the leaves that this has had since the pool was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafId {
    /// The number of the top-level vdev.
    pub vdev: u32,
    /// Which of its leaves ([`Leaf::number`](crate::vdev::Leaf::number)).
    pub leaf: u32,
}

/// A leaf that has the bytes of a column, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    /// The leaf.
    pub leaf: LeafId,
    /// The offset of the column in the data of the leaf. What lies in front of that, in the scratch area, has offsets that are negative.
    pub offset: u64,
    /// It stands for a distributed spare that has not all that it is to have.
    pub is_stale: bool,
}

/// What a column holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// This part of the buffer, and zeros behind it up to the length of the column.
    Data(Range<usize>),
    /// The parity of this number (0: the exclusive or) of the row.
    Parity(usize),
}

/// What one leaf holds of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// What it is.
    pub content: Content,
    /// Its bytes on disk. 0: it is absent, and counts as zeros.
    pub length: usize,
    /// The number of the sector, where columns are single sectors whose children have changed ([`Widths`]).
    pub sector: u64,
    /// The leaves that have it.
    pub sides: Vec<Side>,
}

impl Column {
    /// The part of the buffer that the column is, if it is data.
    pub fn range(&self) -> Option<Range<usize>> {
        match &self.content {
            Content::Data(range) => Some(range.clone()),
            Content::Parity(_) => None,
        }
    }

    fn is_data(&self) -> bool {
        matches!(self.content, Content::Data(_))
    }

    /// Is it nothing but zeros, whatever the block is?
    fn is_empty(&self) -> bool {
        matches!(&self.content, Content::Data(range) if range.is_empty())
    }
}

/// Columns that are protected together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// Parity, then data.
    pub columns: Vec<Column>,
}

impl Row {
    /// How many columns of parity there are.
    pub fn parity(&self) -> usize {
        self.columns.iter().filter(|column| !column.is_data()).count()
    }

    /// All its columns of parity where the buffer is `data`.
    fn parity_of(&self, data: &[u8]) -> Vec<Vec<u8>> {
        let parts: Vec<&[u8]> = self.columns.iter().filter_map(Column::range).map(|range| &data[range]).collect();
        parity::generate(self.parity(), &parts, self.columns.first().map_or(0, |column| column.length))
    }
}

/// Where a column's side stands in a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Index of the row.
    pub row: usize,
    /// Index of the column in the row.
    pub column: usize,
    /// Index of the side in the column.
    pub side: usize,
}

/// Keeps ranges of a vdev from being moved while an I/O of them is made.
#[derive(Debug, Clone, Default)]
pub struct Hold {
    /// Of I/Os of which nobody needs to know more than that there are some.
    counted: Option<CountedIo>,
    ranges: Vec<Arc<HeldRange>>,
}

impl Hold {
    pub(in crate::vdev) fn counted(io: CountedIo) -> Hold {
        Hold { counted: Some(io), ranges: Vec::new() }
    }

    pub(in crate::vdev) fn of_range(range: HeldRange) -> Hold {
        Hold { counted: None, ranges: vec![Arc::new(range)] }
    }

    #[cfg(test)]
    pub(in crate::vdev) fn is_counted(&self) -> bool {
        self.counted.is_some()
    }

    /// Holds what another one holds, of the same vdev.
    fn append(&mut self, other: Hold) {
        // For several I/Os that are one now, one count is enough.
        self.counted = self.counted.take().or(other.counted);
        self.ranges.extend(other.ranges);
    }
}

/// Two I/Os are the same wherever they are held.
impl PartialEq for Hold {
    fn eq(&self, _: &Hold) -> bool {
        true
    }
}

impl Eq for Hold {}

/// One I/O of a top-level vdev, as I/Os of leaves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IoMap {
    /// Mostly one behind the other.
    pub rows: Vec<Row>,
    /// Bytes of the buffer.
    pub length: usize,
    /// Of how many children sectors may have been damaged together, most first; none: columns are damaged as they are.
    pub widths: Vec<u64>,
    /// Where columns of a read have been moved to, of which no uberblock says so yet: a repair goes there, too.
    pub moved: Vec<Row>,
    /// What the I/O is of stays where it is while this is there.
    pub hold: Hold,
}

impl IoMap {
    /// The same `length` bytes at `offset` of each of these leaves.
    pub fn mirror(leaves: impl IntoIterator<Item = LeafId>, offset: u64, length: usize) -> IoMap {
        let sides = leaves.into_iter().map(|leaf| Side { leaf, offset, is_stale: false }).collect();
        let column = Column { content: Content::Data(0..length), length, sector: 0, sides };
        IoMap { rows: vec![Row { columns: vec![column] }], length, ..IoMap::default() }
    }

    /// Puts the rows of another I/O behind these: the bytes of both are one buffer.
    pub fn append(&mut self, other: IoMap) {
        let start = self.length;
        self.length += other.length;
        self.hold.append(other.hold);
        self.moved.extend(other.moved);
        self.rows.extend(other.rows.into_iter().map(|mut row| {
            for column in &mut row.columns {
                if let Content::Data(range) = &mut column.content {
                    *range = range.start + start..range.end + start;
                }
            }
            row
        }));
    }

    /// Every side of every column.
    pub fn sides(&self) -> impl Iterator<Item = (Position, &Column, Side)> {
        self.rows.iter().enumerate().flat_map(|(row, columns)| {
            columns.columns.iter().enumerate().flat_map(move |(column, found)| {
                let at = move |side| Position { row, column, side };
                found.sides.iter().enumerate().map(move |(side, place)| (at(side), found, *place))
            })
        })
    }

    /// The column and the side of a position of this map.
    pub fn at(&self, at: Position) -> (&Column, Side) {
        let column = &self.rows[at.row].columns[at.column];
        (column, column.sides[at.side])
    }

    /// The other places of a column of a read ([`IoMap::moved`]).
    pub fn moved_to(&self, column: &Column) -> impl Iterator<Item = Side> {
        let columns = self.moved.iter().flat_map(|row| &row.columns);
        columns.filter(move |other| other.sector == column.sector).flat_map(|other| other.sides.iter().copied())
    }

    /// What a column has to hold where the buffer is `data`.
    pub fn bytes_of<'a>(&self, row: usize, column: usize, data: &'a [u8]) -> Cow<'a, [u8]> {
        let (row, column) = (&self.rows[row], &self.rows[row].columns[column]);
        match &column.content {
            Content::Data(range) if range.len() == column.length => Cow::Borrowed(&data[range.clone()]),
            Content::Data(range) => {
                let mut bytes = data[range.clone()].to_vec();
                bytes.resize(column.length, 0);
                Cow::Owned(bytes)
            }
            Content::Parity(number) => Cow::Owned(row.parity_of(data).swap_remove(*number)),
        }
    }

    /// The parity of each row where the buffer is `data`.
    pub fn parity_of(&self, data: &[u8]) -> Vec<Vec<Vec<u8>>> {
        self.rows.iter().map(|row| row.parity_of(data)).collect()
    }

    /// Is the buffer all of one column, whose bytes need no other form?
    pub fn is_plain(&self) -> bool {
        matches!(self.rows.as_slice(), [row] if matches!(row.columns.as_slice(), [column] if column.length == self.length))
    }

    /// Can all be read again, where just these sides have been written?
    pub fn is_written(&self, has: impl Fn(Position) -> bool) -> bool {
        self.rows.iter().enumerate().all(|(row, columns)| {
            let is_on_a_side = |(column, found): (usize, &Column)| (0..found.sides.len()).any(|side| has(Position { row, column, side }));
            // What has no place cannot be missing there.
            let has_place = |(_, found): &(usize, &Column)| !found.sides.is_empty();
            let absent = columns.columns.iter().enumerate().filter(has_place).filter(|found| !is_on_a_side(*found)).count();
            absent <= columns.parity()
        })
    }
}
