//! A top-level vdev that was removed: its addresses lead to others.
//!
//! # Theory
//! Block pointers still name a vdev whose devices are long gone. Its map says for each run of bytes where it was moved to;
//! one block may have been moved in parts. A vdev that something was moved to may have been removed too, so that one
//! address takes several steps. What is no longer needed of a map is noted as *obsolete*, for each step.
//!
//! # Invariants
//! 1. Runs are in order and do not overlap, so that a look-up is a binary search.
//! 2. A range is found whole or not at all: a gap in it is damage.
//!
//! # Path
//! The map is set by pool when it is opened; zio asks [`VdevTree::resolve`] for whatever it reads or frees.

use std::sync::{Arc, OnceLock};

use ondisk::dva::Dva;
use ondisk::indirect::Mapping;

use super::{TopVdev, VdevKind, VdevTree};
use crate::bail;
use crate::error::Result;

/// Most places that one block is believed to be in.
const PIECES_MAX: usize = 1 << 16;
/// Most ways that are tried to put a block together that went to several mirrors.
const WAYS_MAX: usize = 4096;

/// Where what was on a removed vdev is now.
#[derive(Debug, Default)]
pub struct IndirectMap {
    runs: Vec<Mapping>,
    /// Where the runs were moved to, in order; made when somebody asks.
    targets: OnceLock<Vec<Dva>>,
}

impl IndirectMap {
    /// Adds the next run.
    ///
    /// # Errors
    /// It is out of order or overlaps the one before.
    pub fn push(&mut self, run: Mapping) -> Result<()> {
        if self.runs.last().is_some_and(|last| last.source + last.target.allocated > run.source) {
            bail!(Corrupt, "the map of a removed vdev is out of order at {:#x}", run.source);
        }
        self.runs.push(run);
        Ok(())
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Something was moved to where `dva` begins.
    fn leads_to(&self, dva: Dva) -> bool {
        let targets = self.targets.get_or_init(|| {
            let mut targets: Vec<Dva> = self.runs.iter().map(|run| run.target).collect();
            targets.sort_unstable_by_key(|target| (target.vdev, target.offset));
            targets
        });
        let after = targets.partition_point(|target| (target.vdev, target.offset) <= (dva.vdev, dva.offset));
        let before = after.checked_sub(1).map(|index| targets[index]);
        before.is_some_and(|target| target.vdev == dva.vdev && dva.offset - target.offset < target.allocated)
    }

    /// The places to which parts of a range were copied; the rest of it has not been.
    pub fn copied(&self, offset: u64, length: u64) -> Vec<Dva> {
        let end = offset.saturating_add(length);
        let first = self.runs.partition_point(|run| run.source + run.target.allocated <= offset);
        let runs = self.runs.iter().skip(first).take_while(|run| run.source < end);
        runs.map(|run| {
            let (from, to) = (run.source.max(offset), (run.source + run.target.allocated).min(end));
            Dva::new(run.target.vdev, run.target.offset + (from - run.source), to - from)
        })
        .filter(|piece| piece.allocated > 0)
        .collect()
    }

    /// The places to which a range was moved, one step on; `None`: not all of it was.
    fn pieces(&self, offset: u64, length: u64) -> Option<Vec<Dva>> {
        let pieces = self.copied(offset, length);
        // They do not overlap: all of it was moved if they are as long together.
        (pieces.iter().map(|piece| piece.allocated).sum::<u64>() == length).then_some(pieces)
    }
}

impl VdevTree {
    /// The places, all on vdevs that are there, where the bytes of an address are; `passed` is told each range of a
    /// removed vdev on the way. Of a vdev that is there the address itself.
    ///
    /// # Errors
    /// The address leads nowhere.
    pub fn resolve(&self, address: Dva, passed: &mut dyn FnMut(&Arc<TopVdev>, Dva)) -> Result<Vec<Dva>> {
        // Each step leads to a vdev that was removed later, so there are no more steps than vdevs.
        let mut steps_left = self.tops().len();
        let mut places = vec![address];
        loop {
            let mut next = Vec::with_capacity(places.len());
            let mut moved = false;
            for place in places {
                match self.top(place.vdev.into()) {
                    Some(top) if *top.kind() == VdevKind::Indirect => {
                        let pieces = top.map().and_then(|map| map.pieces(place.offset, place.allocated));
                        let Some(pieces) = pieces else { bail!(Corrupt, "address {place}: not in the map of the removed vdev") };
                        passed(&top, place);
                        next.extend(pieces);
                        moved = true;
                    }
                    Some(_) => next.push(place),
                    None => bail!(Corrupt, "address {place}: there is no such vdev"),
                }
            }
            if next.len() > PIECES_MAX {
                bail!(Corrupt, "address {address}: it leads to {} places", next.len());
            }
            places = next;
            if !moved {
                return Ok(places);
            }
            if steps_left == 0 {
                bail!(Corrupt, "address {address}: the maps of removed vdevs lead in a circle");
            }
            steps_left -= 1;
        }
    }

    /// Was something moved from a removed vdev to where `dva` begins? What is there may be known by another address too.
    pub fn was_moved_to(&self, dva: Dva) -> bool {
        self.tops().iter().any(|top| *top.kind() == VdevKind::Indirect && top.map().is_some_and(|map| map.leads_to(dva)))
    }

    /// A removed vdev, to read what was on it.
    pub(crate) fn removed(&self, top: &Arc<TopVdev>) -> RemovedVdev<'_> {
        RemovedVdev { tree: self, vdev: top.id() as u32 }
    }
}

/// A removed vdev as something to read from. Where a block went to several mirrors, a *way* to read it is one side of each:
/// the digits of a number.
pub(crate) struct RemovedVdev<'a> {
    tree: &'a VdevTree,
    vdev: u32,
}

/// One part of a range: on this vdev, at this offset, these bytes of the range.
type Part = (Arc<TopVdev>, u64, std::ops::Range<usize>);

impl RemovedVdev<'_> {
    fn parts(&self, offset: u64, length: usize) -> Result<Vec<Part>> {
        let places = self.tree.resolve(Dva::new(self.vdev, offset, length as u64), &mut |_, _| ())?;
        let mut at = 0;
        let mut parts = Vec::with_capacity(places.len());
        for place in places {
            let Some(top) = self.tree.top(place.vdev.into()) else { bail!(Corrupt, "address {place}: there is no such vdev") };
            let end = at + place.allocated as usize;
            parts.push((top, place.offset, at..end));
            at = end;
        }
        Ok(parts)
    }

    /// Reads each part in the way that is best just now; says which way that was.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8], birth: u64) -> Result<usize> {
        let parts = self.parts(offset, buf.len())?;
        let (mut way, mut weight) = (0_usize, 1_usize);
        for (top, at, range) in parts {
            let copy = top.read(at, &mut buf[range], birth)?;
            way = way.saturating_add(copy.saturating_mul(weight));
            weight = weight.saturating_mul(top.copies().max(1));
        }
        Ok(way)
    }

    /// How many ways there are to read a range.
    pub(crate) fn ways(&self, offset: u64, length: usize) -> usize {
        let parts = self.parts(offset, length).unwrap_or_default();
        parts.iter().fold(1, |ways: usize, (top, ..)| ways.saturating_mul(top.copies().max(1))).min(WAYS_MAX)
    }

    /// Reads in one way.
    pub(crate) fn read_way(&self, mut way: usize, offset: u64, buf: &mut [u8]) -> Result<()> {
        for (top, at, range) in self.parts(offset, buf.len())? {
            let sides = top.copies().max(1);
            top.read_copy(way % sides, at, &mut buf[range])?;
            way /= sides;
        }
        Ok(())
    }

    /// Writes what is right over what was read in one way.
    pub(crate) fn repair_way(&self, mut way: usize, offset: u64, data: &[u8]) -> Result<()> {
        for (top, at, range) in self.parts(offset, data.len())? {
            let sides = top.copies().max(1);
            top.repair_copy(way % sides, at, &data[range])?;
            way /= sides;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map_of(runs: Vec<Mapping>) -> Result<IndirectMap> {
        let mut map = IndirectMap::default();
        runs.into_iter().try_for_each(|run| map.push(run)).map(|()| map)
    }

    fn run(source: u64, vdev: u32, offset: u64, length: u64) -> Mapping {
        Mapping { source, target: Dva::new(vdev, offset, length) }
    }

    #[test]
    fn a_range_may_have_gone_to_several_places() {
        let map = map_of(vec![run(0x1000, 2, 0x8000, 0x2000), run(0x3000, 5, 0x1000, 0x1000), run(0x9000, 2, 0, 0x1000)]).unwrap();
        assert_eq!(map.pieces(0x1000, 0x200).unwrap(), [Dva::new(2, 0x8000, 0x200)]);
        assert_eq!(map.pieces(0x2000, 0x2000).unwrap(), [Dva::new(2, 0x9000, 0x1000), Dva::new(5, 0x1000, 0x1000)]);
        assert_eq!(map.pieces(0x9000, 0x1000).unwrap(), [Dva::new(2, 0, 0x1000)]);
        // Gaps: before, between, behind.
        for (offset, length) in [(0, 0x1000), (0x800, 0x1000), (0x3000, 0x2000), (0x9800, 0x1000), (u64::MAX, 2)] {
            assert_eq!(map.pieces(offset, length), None, "{offset:#x}");
        }
        assert!(map_of(vec![run(0x1000, 2, 0, 0x2000), run(0x2000, 2, 0, 0x1000)]).is_err());
    }
}
