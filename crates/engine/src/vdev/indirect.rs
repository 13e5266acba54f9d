//! A top-level vdev that was removed, or is being removed: its addresses lead to others.
//!
//! # Theory
//! Block pointers still name a vdev whose devices are long gone. Its map says for each run of bytes where it was moved to;
//! one block may have been moved in parts. A vdev that something was moved to may have been removed too, so that one
//! address takes several steps. What is no longer needed of a map is noted as *obsolete*, for each step.
//!
//! While a vdev is being removed, its map grows, by what is copied in each group. It is read as ever, from its own devices: the map is asked only when something is
//! freed, which has to come free in both places ([`VdevTree::resolve_to_free`]).
//!
//! # Invariants
//! 1. Runs are in order and do not overlap, so that a look-up is a binary search.
//! 2. A range is found whole or not at all: a gap in it is damage.
//!
//! # Path
//! The map is set by pool when it is opened; zio asks [`VdevTree::resolve`] for whatever it reads or frees.

use std::sync::{Arc, OnceLock};

use ondisk::dva::Dva;
use ondisk::indirect::{Mapping, MappingPhys};

use super::{IoMap, TopVdev, VdevKind, VdevTree};
use crate::bail;
use crate::error::Result;

/// Most places that one block is believed to be in.
const PIECES_MAX: usize = 1 << 16;

/// Where what was on a removed vdev is now.
#[derive(Debug, Default, Clone)]
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
        self.targets = OnceLock::new();
        Ok(())
    }

    /// Where the last run ends: what lies behind it has not been moved.
    pub fn end(&self) -> u64 {
        self.runs.last().map_or(0, Mapping::end)
    }

    /// Bytes that the map takes on disk, and in the memory of OpenZFS.
    pub fn bytes(&self) -> u64 {
        (self.runs.len() * size_of::<MappingPhys>()) as u64
    }

    /// The runs, in order.
    pub fn all(&self) -> &[Mapping] {
        &self.runs
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
        self.copies_of(offset, length).into_iter().map(|copy| copy.target).collect()
    }

    /// The same with where each part was.
    pub fn copies_of(&self, offset: u64, length: u64) -> Vec<Mapping> {
        let end = offset.saturating_add(length);
        let first = self.runs.partition_point(|run| run.end() <= offset);
        let runs = self.runs.iter().skip(first).take_while(|run| run.source < end);
        runs.map(|run| {
            let (from, to) = (run.source.max(offset), run.end().min(end));
            Mapping { source: from, target: Dva::new(run.target.vdev, run.target.offset + (from - run.source), to - from) }
        })
        .filter(|copy| copy.target.allocated > 0)
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
                    Some(top) if top.kind() == VdevKind::Indirect => {
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

    /// The places, all on vdevs that are there, that come free when an address does. What it needed of the maps of removed vdevs is not needed any more.
    /// Of a vdev that is being removed that is the place itself, and where it has been copied to.
    ///
    /// # Errors
    /// The address leads nowhere.
    #[doc(alias = "free_from_removing_vdev")]
    pub fn resolve_to_free(&self, address: Dva) -> Result<Vec<Dva>> {
        let mut places = self.resolve(address, &mut |top, range| top.note_obsolete(range.offset, range.allocated))?;
        for at in 0..places.len() {
            let place = places[at];
            let Some(top) = self.top(place.vdev.into()) else { continue };
            let Some(map) = top.map() else { continue };
            let copies = map.copies_of(place.offset, place.allocated);
            let (copied, end) = (copies.iter().map(|copy| copy.target.allocated).sum::<u64>(), place.offset.saturating_add(place.allocated));
            let behind = end.saturating_sub(map.end().max(place.offset));
            if copied.saturating_add(behind) != place.allocated {
                bail!(Corrupt, "address {place}: not in the map of the vdev that is being removed");
            }
            top.note_uncopied(behind);
            copies.iter().for_each(|copy| top.note_obsolete(copy.source, copy.target.allocated));
            places.extend(copies.into_iter().map(|copy| copy.target));
        }
        Ok(places)
    }

    /// Nothing is found any more by an address on a removed vdev; where it led to may be in use all the same.
    #[doc(alias = "spa_vdev_indirect_mark_obsolete")]
    pub fn note_obsolete(&self, range: Dva) {
        let top = self.top(range.vdev.into()).filter(|top| top.kind() == VdevKind::Indirect);
        match top.filter(|top| top.map().is_some_and(|map| map.pieces(range.offset, range.allocated).is_some())) {
            Some(top) => top.note_obsolete(range.offset, range.allocated),
            None => tracing::error!("address {range} is said not to be needed any more, and is in the map of no removed vdev"),
        }
    }

    /// Was something moved from a removed vdev to where `dva` begins? What is there may be known by another address too.
    pub fn was_moved_to(&self, dva: Dva) -> bool {
        self.tops().iter().any(|top| top.kind() == VdevKind::Indirect && top.map().is_some_and(|map| map.leads_to(dva)))
    }

    /// What an I/O of a removed vdev is in I/Os of the leaves that have now what was on it.
    ///
    /// # Errors
    /// The address leads nowhere.
    pub(crate) fn map_removed(&self, top: &TopVdev, offset: u64, length: usize, birth: u64) -> Result<IoMap> {
        let mut map = IoMap::default();
        for place in self.resolve(Dva::new(top.id() as u32, offset, length as u64), &mut |_, _| ())? {
            let Some(top) = self.top(place.vdev.into()) else { bail!(Corrupt, "address {place}: there is no such vdev") };
            map.append(top.io_map(place.offset, place.allocated as usize, birth)?);
        }
        Ok(map)
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
        assert_eq!(map.copies_of(0x2800, 0x1000), [run(0x2800, 2, 0x9800, 0x800), run(0x3000, 5, 0x1000, 0x800)]);
        assert_eq!((map.end(), IndirectMap::default().end()), (0xa000, 0));
        for (offset, length) in [(0, 0x1000), (0x800, 0x1000), (0x3000, 0x2000), (0x9800, 0x1000), (u64::MAX, 2)] {
            assert_eq!(map.pieces(offset, length), None, "{offset:#x}");
        }
        assert!(map_of(vec![run(0x1000, 2, 0, 0x2000), run(0x2000, 2, 0, 0x1000)]).is_err());
    }
}
