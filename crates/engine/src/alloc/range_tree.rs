//! A set of byte ranges.
//!
//! # Theory
//!
//! The tree maps the *end* of each segment to its start.  Allocation mostly takes bytes from the front of a segment, and
//! keyed by the end that only changes a value: the tree keeps its shape.  The segment that holds or follows an offset is the
//! first with an end beyond it, one lookup.
//!
//! A tree made with [`RangeTree::indexed`] also knows its segments by size: for each power of two the set of segments of
//! that size class.  A segment changes class only when its size crosses a power of two, which is rare, so the index costs
//! little; best fit is exact about "large enough" and approximate about "smallest".
//!
//! # Invariants
//!
//! 1. Segments are not empty, do not overlap and do not touch.
//! 2. `bytes` is the sum of the segments' sizes.
//! 3. In an indexed tree each segment is in exactly the class of its size.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::error::{Error, ErrorKind};

/// Size classes: one for each power of two.
pub const CLASSES: usize = 64;

/// Segments looked at in the class of the wanted size before a larger class is taken.
const BEST_FIT_TRIES: usize = 64;

/// A range was added that is there in part, or removed that is not there in whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeError {
    /// What was wrong with it.
    pub fault: RangeFault,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range.
    pub size: u64,
}

/// What is wrong with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeFault {
    /// Bytes of it are in the set already.
    Overlaps,
    /// Bytes of it are not in the set.
    Absent,
    /// It is empty or passes the end of the address space.
    Malformed,
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = match self.fault {
            RangeFault::Overlaps => "is there already",
            RangeFault::Absent => "is not there",
            RangeFault::Malformed => "is no range",
        };
        write!(f, "range {:#x}+{:#x} {fault}", self.offset, self.size)
    }
}

impl std::error::Error for RangeError {}

impl From<RangeError> for Error {
    #[track_caller]
    fn from(error: RangeError) -> Self {
        Error::new(ErrorKind::Corrupt, error.to_string())
    }
}

fn class_of(size: u64) -> usize {
    size.ilog2() as usize
}

/// The segments of each size class, by their ends.
#[derive(Debug, Clone)]
struct SizeIndex {
    classes: [BTreeSet<u64>; CLASSES],
}

/// A set of byte ranges, which see the module.
#[derive(Debug, Clone, Default)]
pub struct RangeTree {
    start_by_end: BTreeMap<u64, u64>,
    bytes: u64,
    index: Option<Box<SizeIndex>>,
}

impl RangeTree {
    /// An empty set.
    pub const fn new() -> Self {
        Self { start_by_end: BTreeMap::new(), bytes: 0, index: None }
    }

    /// An empty set that knows its segments by size.
    pub fn indexed() -> Self {
        let index = SizeIndex { classes: [const { BTreeSet::new() }; CLASSES] };
        Self { index: Some(Box::new(index)), ..Self::new() }
    }

    /// The same set, with the index by size.
    pub fn into_indexed(mut self) -> Self {
        if self.index.is_none() {
            let mut index = SizeIndex { classes: [const { BTreeSet::new() }; CLASSES] };
            for (end, start) in &self.start_by_end {
                index.classes[class_of(end - start)].insert(*end);
            }
            self.index = Some(Box::new(index));
        }
        self
    }

    /// Bytes in the set.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.start_by_end.is_empty()
    }

    /// How many segments the set has.
    pub fn segment_count(&self) -> usize {
        self.start_by_end.len()
    }

    /// The segments as (offset, size), in order.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.start_by_end.iter().map(|(end, start)| (*start, end - start))
    }

    /// The segments from the one that holds or follows `offset`, as (offset, size).
    pub fn segments_from(&self, offset: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let from = offset.saturating_add(1);
        self.start_by_end.range(from..).map(|(end, start)| (*start, end - start))
    }

    /// How many segments there are of each size class.
    pub fn class_counts(&self) -> [u64; CLASSES] {
        let mut counts = [0; CLASSES];
        match &self.index {
            Some(index) => {
                for (count, class) in counts.iter_mut().zip(&index.classes) {
                    *count = class.len() as u64;
                }
            }
            None => self.segments().for_each(|(_, size)| counts[class_of(size)] += 1),
        }
        counts
    }

    /// The largest size class with a segment, and how many it has; needs the index.
    pub fn largest_class(&self) -> Option<(usize, u64)> {
        let index = self.index.as_ref()?;
        let (class, ends) = index.classes.iter().enumerate().rev().find(|(_, ends)| !ends.is_empty())?;
        Some((class, ends.len() as u64))
    }

    /// The size of the largest segment.
    pub fn largest(&self) -> u64 {
        let sizes = |ends: &BTreeSet<u64>| {
            ends.iter().map(|end| end - self.start_by_end.get(end).copied().unwrap_or(*end)).max()
        };
        match (&self.index, self.largest_class()) {
            (Some(index), Some((class, _))) => sizes(&index.classes[class]).unwrap_or(0),
            _ => self.segments().map(|(_, size)| size).max().unwrap_or(0),
        }
    }

    /// All bytes of the range are in the set.
    pub fn contains(&self, offset: u64, size: u64) -> bool {
        self.segments_from(offset)
            .next()
            .is_some_and(|(start, length)| start <= offset && size <= start + length - offset)
    }

    /// Some byte of the range is in the set.
    pub fn overlaps(&self, offset: u64, size: u64) -> bool {
        self.segments_from(offset).next().is_some_and(|(start, _)| start < offset.saturating_add(size))
    }

    fn end_of(offset: u64, size: u64) -> Result<u64, RangeError> {
        let end = offset.checked_add(size).filter(|_| size > 0);
        end.ok_or(RangeError { fault: RangeFault::Malformed, offset, size })
    }

    fn insert_segment(&mut self, start: u64, end: u64) {
        self.start_by_end.insert(end, start);
        if let Some(index) = &mut self.index {
            index.classes[class_of(end - start)].insert(end);
        }
    }

    fn remove_segment(&mut self, start: u64, end: u64) {
        self.start_by_end.remove(&end);
        if let Some(index) = &mut self.index {
            index.classes[class_of(end - start)].remove(&end);
        }
    }

    /// The segment that ends at `end` starts elsewhere now.
    fn move_start(&mut self, end: u64, from: u64, to: u64) {
        self.start_by_end.insert(end, to);
        if let Some(index) = &mut self.index {
            let (old, new) = (class_of(end - from), class_of(end - to));
            if old != new {
                index.classes[old].remove(&end);
                index.classes[new].insert(end);
            }
        }
    }

    /// Adds a range of which no byte is in the set.
    pub fn add(&mut self, offset: u64, size: u64) -> Result<(), RangeError> {
        let end = Self::end_of(offset, size)?;
        let mut near = self.start_by_end.range(offset..).map(|(end, start)| (*start, *end));
        let mut right = near.next();
        let left = right.filter(|(_, end)| *end == offset);
        if left.is_some() {
            right = near.next();
        }
        if right.is_some_and(|(start, _)| start < end) {
            return Err(RangeError { fault: RangeFault::Overlaps, offset, size });
        }
        let right = right.filter(|(start, _)| *start == end);
        let start = left.map_or(offset, |(start, _)| start);
        if let Some((left_start, left_end)) = left {
            self.remove_segment(left_start, left_end);
        }
        match right {
            Some((right_start, right_end)) => self.move_start(right_end, right_start, start),
            None => self.insert_segment(start, end),
        }
        self.bytes += size;
        Ok(())
    }

    /// Removes a range of which all bytes are in the set.
    pub fn remove(&mut self, offset: u64, size: u64) -> Result<(), RangeError> {
        let end = Self::end_of(offset, size)?;
        let absent = RangeError { fault: RangeFault::Absent, offset, size };
        let found = self.start_by_end.range(offset.saturating_add(1)..).next();
        let (segment_start, segment_end) = found.map(|(end, start)| (*start, *end)).ok_or(absent)?;
        if segment_start > offset || segment_end < end {
            return Err(absent);
        }
        if segment_end == end {
            self.remove_segment(segment_start, segment_end);
        } else {
            self.move_start(segment_end, segment_start, end);
        }
        if segment_start < offset {
            self.insert_segment(segment_start, offset);
        }
        self.bytes -= size;
        Ok(())
    }

    /// Adds every segment of `other`.
    pub fn add_all(&mut self, other: &Self) -> Result<(), RangeError> {
        other.segments().try_for_each(|(offset, size)| self.add(offset, size))
    }

    /// Removes every segment of `other`.
    pub fn remove_all(&mut self, other: &Self) -> Result<(), RangeError> {
        other.segments().try_for_each(|(offset, size)| self.remove(offset, size))
    }

    /// Removes what there is of a range, and yields the pieces that were there.
    pub fn remove_present(&mut self, offset: u64, size: u64) -> Vec<(u64, u64)> {
        let end = offset.saturating_add(size);
        let pieces: Vec<_> = self
            .segments_from(offset)
            .take_while(|(start, _)| *start < end)
            .map(|(start, length)| (start.max(offset), (start + length).min(end)))
            .map(|(start, end)| (start, end - start))
            .collect();
        for (start, length) in &pieces {
            self.remove(*start, *length).unwrap_or_else(|error| unreachable!("{error}"));
        }
        pieces
    }

    /// Adds a range here, except for the bytes of it that are in `opposite`: those are removed there.
    ///
    /// With "allocated since" and "freed since" as the two sets this keeps the net change: a byte that was freed and is
    /// allocated again has not changed.
    pub fn add_or_cancel(&mut self, opposite: &mut Self, offset: u64, size: u64) -> Result<(), RangeError> {
        let end = Self::end_of(offset, size)?;
        let mut at = offset;
        for (start, length) in opposite.remove_present(offset, size) {
            if at < start {
                self.add(at, start - at)?;
            }
            at = start + length;
        }
        if at < end {
            self.add(at, end - at)?;
        }
        Ok(())
    }

    /// The first place from `cursor` on with room for `size` bytes, looking no further than `distance` bytes of address
    /// space, but at `tries` segments at least.
    pub fn first_fit(&self, cursor: u64, size: u64, distance: u64, tries: usize) -> Option<u64> {
        let mut first = None;
        for (looked, (start, length)) in self.segments_from(cursor).enumerate() {
            let from = start.max(cursor);
            if start + length - from >= size {
                return Some(from);
            }
            if looked >= tries && start - *first.get_or_insert(start) > distance {
                return None;
            }
            first.get_or_insert(start);
        }
        None
    }

    /// The start of a segment of at least `size` bytes, of the smallest size class that has one; needs the index.
    pub fn best_fit(&self, size: u64) -> Option<u64> {
        let index = self.index.as_ref()?;
        let class = class_of(size.max(1));
        let start_of = |end: &u64| self.start_by_end.get(end).copied();
        let fits = |end: &&u64| start_of(end).is_some_and(|start| *end - start >= size);
        if let Some(end) = index.classes[class].iter().take(BEST_FIT_TRIES).find(fits) {
            return start_of(end);
        }
        if let Some(end) = index.classes.iter().skip(class + 1).find_map(BTreeSet::first) {
            return start_of(end);
        }
        index.classes[class].iter().skip(BEST_FIT_TRIES).find(fits).and_then(start_of)
    }
}

#[cfg(test)]
mod tests;
