//! Puts the ranges of redaction lists between what has changed.
//!
//! # Theory
//! Three lines of ranges, each in the order of objects and blocks, become one. Where they overlap, what is to be redacted goes before what
//! has changed, and that before what the stream before this one left out. What is in both lists the receiver does not have, and
//! is not to have: nothing is sent. A range is cut where another one of more weight begins.

use ondisk::dnode::DNODES_PER_BLOCK;

use super::item::{Blocks, DataBlock, Item, Take};
use super::redaction::RedactionList;
use crate::error::Result;

/// See the module.
pub(super) struct Merge<'a, 't, 'f> {
    /// What is to be left out.
    pub(super) redact: Option<RedactionList<'a>>,
    /// What the stream before left out.
    pub(super) before: Option<RedactionList<'a>>,
    pub(super) take: &'t mut Take<'f>,
}

/// Where a part begins and ends, for comparisons.
#[derive(Debug, Clone, Copy)]
struct Extent {
    object: u64,
    first: u64,
    end: u64,
    /// A block of dnodes comes before an object, and that before its contents.
    rank: u8,
}

impl Extent {
    fn of(item: &Item) -> Extent {
        let ranked = |object, first, end, rank| Extent { object, first, end, rank };
        match item {
            Item::ObjectRange(block, _) => ranked(0, *block, block + 1, 0),
            Item::Object { object, .. } => ranked(*object, 0, 0, 1),
            Item::Hole(blocks) | Item::Redacted(blocks) | Item::RedactedBefore(blocks) => Extent::of_blocks(blocks),
            Item::Data(DataBlock { object, block, .. }) => ranked(*object, *block, block.wrapping_add(1), 2),
        }
    }

    fn of_blocks(blocks: &Blocks) -> Extent {
        Extent { object: blocks.object, first: blocks.first, end: blocks.end, rank: 2 }
    }

    /// What decides which one is first.
    fn key(&self) -> (u64, u8, u64) {
        match self.object {
            0 => (self.first.saturating_mul(DNODES_PER_BLOCK), self.rank, 0),
            object => (object, self.rank, self.first),
        }
    }
}

/// The lines, in the order of their weight.
const REDACT: usize = 0;
const CHANGED: usize = 1;
const BEFORE: usize = 2;

impl Merge<'_, '_, '_> {
    /// Takes the next part that has changed.
    pub(super) fn put(&mut self, item: Item) -> Result<()> {
        let mut left = Some(item);
        while left.is_some() {
            if self.front(REDACT).is_none() && self.front(BEFORE).is_none() {
                return left.map_or(Ok(()), |item| (self.take)(item));
            }
            self.step(&mut left)?;
        }
        Ok(())
    }

    /// Nothing more has changed.
    pub(super) fn finish(&mut self) -> Result<()> {
        while self.front(REDACT).is_some() || self.front(BEFORE).is_some() {
            self.step(&mut None)?;
        }
        Ok(())
    }

    fn front(&self, line: usize) -> Option<Blocks> {
        let list = if line == REDACT { &self.redact } else { &self.before };
        list.as_ref().and_then(RedactionList::front)
    }

    /// Takes the first part of the three lines, as far as nothing else begins in it.
    fn step(&mut self, changed: &mut Option<Item>) -> Result<()> {
        let extents = [self.front(REDACT).as_ref().map(Extent::of_blocks), changed.as_ref().map(Extent::of), self.front(BEFORE).as_ref().map(Extent::of_blocks)];
        let mut chosen: Option<(usize, Extent)> = None;
        for (line, extent) in extents.iter().enumerate() {
            if let Some(extent) = extent
                && chosen.is_none_or(|(_, first)| extent.key() < first.key())
            {
                chosen = Some((line, *extent));
            }
        }
        let Some((line, first)) = chosen else { return Ok(()) };
        let begins = |extent: &Option<Extent>| extent.is_some_and(|extent| extent.key() == first.key());
        if first.rank == 0 {
            return changed.take().map_or(Ok(()), |item| (self.take)(item));
        }
        let mut end = first.end;
        for (other, extent) in extents.iter().enumerate() {
            let Some(extent) = extent.filter(|extent| other != line && extent.object <= first.object && extent.object != 0) else { continue };
            if end > extent.first && extent.key() != first.key() {
                end = extent.first;
            } else if end > extent.end {
                end = extent.end;
            }
        }
        let is_left_out = begins(&extents[REDACT]) && begins(&extents[BEFORE]);
        let part = self.cut(line, end, changed)?;
        for other in (0..extents.len()).filter(|other| *other != line && begins(&extents[*other])) {
            self.cut(other, end, changed)?;
        }
        part.filter(|_| !is_left_out).map_or(Ok(()), |item| (self.take)(item))
    }

    /// Takes what is before `end` off a line.
    fn cut(&mut self, line: usize, end: u64, changed: &mut Option<Item>) -> Result<Option<Item>> {
        if line == CHANGED {
            return Ok(match changed.take() {
                Some(Item::Hole(blocks)) if blocks.end != end => {
                    *changed = Some(Item::Hole(Blocks { first: end, ..blocks }));
                    Some(Item::Hole(Blocks { end, ..blocks }))
                }
                Some(Item::Redacted(blocks)) if blocks.end != end => {
                    *changed = Some(Item::Redacted(Blocks { first: end, ..blocks }));
                    Some(Item::Redacted(Blocks { end, ..blocks }))
                }
                whole => whole,
            });
        }
        let Some(list) = (if line == REDACT { &mut self.redact } else { &mut self.before }).as_mut() else { return Ok(None) };
        let Some(front) = list.front() else { return Ok(None) };
        list.begin_at(end)?;
        let blocks = Blocks { end, ..front };
        Ok(Some(if line == REDACT { Item::Redacted(blocks) } else { Item::RedactedBefore(blocks) }))
    }
}
