//! The piece of a removal that is done in one group.

use std::sync::Arc;

use ondisk::dva::Dva;
use ondisk::feature::Feature;
use ondisk::indirect::Mapping;

use super::mapping::{self, NewRun};
use super::{begin_end_sync, cancel_sync, objects, store, stored};
use crate::alloc::{Allocator, RangeTree, Request};
use crate::bail;
use crate::dmu::SyncTx;
use crate::error::{ErrorKind, Result};
use crate::pool::space_maps::SpaceMaps;
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::Parameter;
use crate::txg::Txg;
use crate::vdev::TopVdev;

/// A piece lasts no longer than this while somebody waits for the group, and in no case longer than that.
const WAITED_NS: u64 = 50_000_000;
const LONGEST_NS: u64 = 2_000_000_000;

/// Copies some of what is on a vdev that is being removed, in the first pass, when the datasets of the group are written and before anything is freed.
///
/// # Errors
/// What stops the pool.
#[doc(alias = "spa_vdev_remove_thread")]
pub(in crate::pool) fn sync(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    let removals = writer.removals();
    let state = removals.state.lock().clone();
    let Some(top) = state.top else { return Ok(()) };
    if state.has_failed {
        tracing::warn!("vdev {}: its removal is given up: not all of it could be copied", top.id());
        return cancel_sync::cancel_sync(writer, &top, tx);
    }
    if state.begun >= tx.txg() || !removals.has_work(writer.layers()) {
        return Ok(());
    }
    let Some(maps) = &writer.layers().space_maps else { bail!(ReadOnly, "the space maps are not open") };
    let mut piece = Piece::new(writer, maps, &top, state.begun, tx);
    let stop = piece.run()?;
    let copied = piece.copied;
    let runs = std::mem::take(&mut piece.runs);
    if !runs.is_empty() {
        note(writer, &top, &runs, copied, tx)?;
    }
    {
        let mut state = removals.state.lock();
        state.is_stuck = stop == Stop::Stuck && runs.is_empty();
        state.has_failed = stop == Stop::Failed;
    }
    if stop == Stop::AtEnd && runs.is_empty() { begin_end_sync::end(writer, &top, tx) } else { Ok(()) }
}

/// What was copied is in the map.
#[doc(alias = "vdev_mapping_sync")]
fn note(writer: &GroupWriter, top: &TopVdev, runs: &[NewRun], copied: u64, tx: &SyncTx<'_>) -> Result<()> {
    let mos = writer.layers().mos();
    let (map, births) = objects(top)?;
    mapping::append(mos, map, runs, tx)?;
    top.extend_map(&runs.iter().map(|new| new.run).collect::<Vec<_>>())?;
    mapping::append_birth(mos, births, runs.last().map_or(0, |new| new.run.end()), tx)?;
    let mut removal = stored(mos)?;
    removal.copied = removal.copied.saturating_add(copied);
    store(mos, &removal, tx)
}

/// Why a piece is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Time is up, or enough is copied.
    Enough,
    /// All is copied.
    AtEnd,
    /// There is no room just now, or it cannot be told what is to be copied.
    Stuck,
    /// Something cannot be read, or not be written.
    Failed,
}

struct Piece<'a> {
    writer: &'a GroupWriter,
    maps: &'a SpaceMaps,
    allocator: &'a Allocator,
    top: &'a Arc<TopVdev>,
    /// In this group and later ones nothing was written to the vdev.
    since: Txg,
    tx: &'a SyncTx<'a>,
    began: u64,
    runs: Vec<NewRun>,
    /// Bytes that were in use of what is copied.
    copied: u64,
    /// No longer range was to be had in this group.
    longest: u64,
}

impl<'a> Piece<'a> {
    fn new(writer: &'a GroupWriter, maps: &'a SpaceMaps, top: &'a Arc<TopVdev>, since: Txg, tx: &'a SyncTx<'a>) -> Self {
        let context = &writer.layers().context;
        let longest = context.tunables.now(Parameter::RemoveMaxSegment).next_multiple_of(1 << top.ashift());
        Piece { writer, maps, allocator: context.io.allocator(), top, since, tx, began: context.host.now_ns(), runs: Vec::new(), copied: 0, longest }
    }

    fn now(&self, parameter: Parameter) -> u64 {
        self.writer.layers().context.tunables.now(parameter)
    }

    /// Copies from where the map ends, one metaslab after the other.
    ///
    /// # Errors
    /// What stops the pool.
    fn run(&mut self) -> Result<Stop> {
        let (end, metaslab) = (self.top.metaslab_count() << self.top.metaslab_shift(), 1 << self.top.metaslab_shift());
        let mut at = self.top.map().map_or(0, |map| map.end());
        while at < end {
            let until = end.min((at / metaslab + 1) * metaslab);
            let used = match self.maps.in_use(self.top.id() as u32, at, until) {
                Ok(used) => used,
                Err(error) => {
                    tracing::warn!(%error, "what is on a vdev that is being removed is not known: it waits");
                    return Ok(Stop::Stuck);
                }
            };
            let stop = self.copy_all(&used, at)?;
            if stop != Stop::AtEnd {
                return Ok(stop);
            }
            at = until;
        }
        Ok(Stop::AtEnd)
    }

    /// Copies what is in use of a metaslab.
    fn copy_all(&mut self, used: &RangeTree, from: u64) -> Result<Stop> {
        let mut at = from;
        loop {
            let mut parts = gather(used, at, self.longest, self.now(Parameter::RemovalMaxSpan));
            if parts.is_empty() {
                return Ok(Stop::AtEnd);
            }
            let target = match self.allocate(&mut parts) {
                Ok(target) => target,
                Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(Stop::Stuck),
                Err(error) => return Err(error),
            };
            let source = parts[0].0;
            let from = Dva::new(self.top.id() as u32, source, target.allocated);
            let copied = self.writer.layers().context.io.copy(from, target, self.since, self.tx.txg());
            if let Err(error) = copied {
                tracing::warn!(%error, "what is on a vdev that is being removed cannot be copied");
                self.allocator.unallocate(target, self.tx.txg())?;
                // What is not there may come back.
                return Ok(if error.kind() == ErrorKind::NoDevice { Stop::Stuck } else { Stop::Failed });
            }
            let gaps = self.free_gaps(&parts, target)?;
            let is_counted = self.writer.layers().meta().features.is_enabled(Feature::ObsoleteCounts);
            self.runs.push(NewRun { run: Mapping { source, target }, obsolete: if is_counted { gaps as u32 } else { 0 } });
            self.copied += target.allocated - gaps;
            at = source + target.allocated;
            if self.is_over() {
                return Ok(Stop::Enough);
            }
        }
    }

    /// Allocates room for all of the parts, or for as many of the first ones as there is room for in one place.
    #[doc(alias = "spa_vdev_copy_segment")]
    fn allocate(&mut self, parts: &mut Vec<(u64, u64)>) -> Result<Dva> {
        let unit = 1_u64 << self.top.ashift();
        let class = self.allocator.group(self.top.id() as u32)?.config().class;
        loop {
            let wanted = span(parts);
            match self.allocator.allocate(&Request::new(class, wanted, 1, self.tx.txg())) {
                Ok(places) => {
                    if let Some(place) = places.first().filter(|place| place.allocated == wanted) {
                        return Ok(*place);
                    }
                    // Sectors or parity are others than when it was checked. The pool is as good as before: only this waits.
                    places.iter().try_for_each(|place| self.allocator.unallocate(*place, self.tx.txg()))?;
                    bail!(NoSpace, "vdev {}: {wanted} bytes of it take another room elsewhere", self.top.id());
                }
                Err(error) if error.kind() == ErrorKind::NoSpace && wanted > unit => {
                    self.longest = wanted - unit;
                    shorten(parts, (wanted / 2).next_multiple_of(unit));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives back what was copied only because it lies between; returns how many bytes that is.
    fn free_gaps(&self, parts: &[(u64, u64)], target: Dva) -> Result<u64> {
        let mut bytes = 0;
        for pair in parts.windows(2) {
            let (gap, end) = (pair[0].0 + pair[0].1, pair[1].0);
            self.allocator.free(Dva::new(target.vdev, target.offset + (gap - parts[0].0), end - gap), self.tx.txg())?;
            bytes += end - gap;
        }
        Ok(bytes)
    }

    fn is_over(&self) -> bool {
        let context = &self.writer.layers().context;
        let passed = context.host.now_ns().saturating_sub(self.began);
        let is_late = passed >= LONGEST_NS || passed >= WAITED_NS && context.groups.wanted_txg() >= self.tx.txg();
        is_late || self.copied >= self.now(Parameter::RemoveMaxCopyBytes)
    }
}

/// Ranges in use from `from` on that are copied as one: not more than `longest` bytes with what is between, of which no gap is longer than `gap`.
#[doc(alias = "spa_vdev_copy_impl")]
fn gather(used: &RangeTree, from: u64, longest: u64, gap: u64) -> Vec<(u64, u64)> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for (offset, size) in used.segments_from(from) {
        let (offset, end) = (offset.max(from), offset + size);
        match (parts.first(), parts.last()) {
            (Some((first, _)), Some((last, length))) => {
                if offset - (last + length) > gap || end - first > longest {
                    break;
                }
                parts.push((offset, end - offset));
            }
            _ => parts.push((offset, (end - offset).min(longest))),
        }
        if parts.last().is_some_and(|(last, length)| last + length < end) {
            break;
        }
    }
    parts
}

/// The bytes of parts, with what is between.
fn span(parts: &[(u64, u64)]) -> u64 {
    match (parts.first(), parts.last()) {
        (Some((first, _)), Some((last, length))) => last + length - first,
        _ => 0,
    }
}

/// Leaves out parts, so that no more than `most` bytes are left: whole ones, if one is left then.
fn shorten(parts: &mut Vec<(u64, u64)>, most: u64) {
    while parts.len() > 1 && span(parts) > most {
        parts.pop();
    }
    if let [(_, size)] = parts.as_mut_slice() {
        *size = (*size).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_close_together_is_copied_as_one() {
        let mut used = RangeTree::new();
        for (offset, size) in [(0x1000, 0x1000), (0x3000, 0x1000), (0x8000, 0x4000)] {
            used.add(offset, size).unwrap();
        }
        assert_eq!(gather(&used, 0, 1 << 20, 0x1000), [(0x1000, 0x1000), (0x3000, 0x1000)]);
        assert_eq!(gather(&used, 0, 1 << 20, 0x4000), [(0x1000, 0x1000), (0x3000, 0x1000), (0x8000, 0x4000)]);
        // The next one is left for the next run, whole; the first is cut.
        assert_eq!(gather(&used, 0, 0x2000, 0x4000), [(0x1000, 0x1000)]);
        assert_eq!(gather(&used, 0x4000, 0x1000, 0x4000), [(0x8000, 0x1000)]);
        assert_eq!(gather(&used, 0x9800, 1 << 20, 0), [(0x9800, 0x2800)]);
        assert_eq!(gather(&used, 0xc000, 1 << 20, 0), []);
        let mut parts = gather(&used, 0, 1 << 20, 0x4000);
        assert_eq!(span(&parts), 0xb000);
        shorten(&mut parts, 0x5800);
        assert_eq!(parts, [(0x1000, 0x1000), (0x3000, 0x1000)]);
        shorten(&mut parts, 0x800);
        assert_eq!(parts, [(0x1000, 0x800)]);
    }
}
