//! Condensing: the map of a removed vdev is made shorter.
//!
//! # Theory
//! A new map gets all runs of the old one of which something is needed, a piece in each group. What nothing needs of them is known from the counts of the old map and from the space map of
//! what came to that since, which is set aside when this begins; what is freed meanwhile goes to another one, and is counted with the new map. At last the new map takes
//! the place of the old one.

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::feature::Feature;
use ondisk::indirect::{CONDENSING, CondensingPhys, MAPPING_OBJECT, Mapping};
use parking_lot::Mutex;

use super::mapping::{self, NewRun};
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::error::{Result, Within};
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::Parameter;
use crate::vdev::{TopVdev, VdevKind};

/// Runs that are copied in a group.
const RUNS_PER_GROUP: usize = 1 << 14;
const NS_PER_MS: u64 = 1_000_000;

/// What is in memory of it.
#[derive(Default)]
pub(in crate::pool) struct Condensing {
    /// guarded by: itself
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Removed vdevs of whose maps more is not needed than when they were last looked at.
    changed: BTreeSet<u64>,
    work: Option<Work>,
    is_ending: bool,
}

/// The map that is being made shorter.
struct Work {
    top: Arc<TopVdev>,
    phys: CondensingPhys,
    /// How many bytes of each run nothing needs.
    obsolete: Vec<u64>,
    /// The run that is next.
    next: usize,
    /// No run is copied before this, by the host's clock.
    pause_until: u64,
}

impl Condensing {
    /// Less is needed of the maps of these vdevs.
    pub(in crate::pool) fn note_changed(&self, vdevs: &[u64]) {
        self.state.lock().changed.extend(vdevs);
    }

    /// Is there something to do in the next group?
    pub(in crate::pool) fn has_work(&self, layers: &Layers) -> bool {
        let state = self.state.lock();
        !state.is_ending && !layers.is_read_only() && state.work.as_ref().is_some_and(|work| work.pause_until <= layers.context.host.now_ns())
    }

    /// The pool is being closed: nothing more is done. Or it goes on after all.
    pub(in crate::pool) fn set_ending(&self, is_ending: bool) {
        self.state.lock().is_ending = is_ending;
    }
}

/// Goes on with what was under way when the pool was closed.
pub(super) fn open(writer: &GroupWriter) -> Result<()> {
    let layers = writer.layers();
    let removed = layers.vdevs.tops().into_iter().filter(|top| top.kind() == VdevKind::Indirect).map(|top| top.id());
    let mut state = writer.removals().condensing.state.lock();
    state.changed.extend(removed);
    if let Some(value) = layers.mos().zap_get(key::DIRECTORY, CONDENSING)? {
        let phys = CondensingPhys::from_words(&value.to_u64s())?;
        state.work = Some(load(layers, phys).within(|| format!("the map of vdev {}, which is being condensed", phys.vdev))?);
    }
    Ok(())
}

fn load(layers: &Layers, phys: CondensingPhys) -> Result<Work> {
    let top = layers.vdevs.top(phys.vdev).filter(|top| top.kind() == VdevKind::Indirect);
    let (Some(top), Some(maps)) = (top, &layers.space_maps) else { bail!(Corrupt, "it is not removed") };
    let Some(map) = top.map() else { bail!(Corrupt, "it has no map") };
    let mos = layers.mos();
    let mut obsolete = mapping::obsolete_counts(mos, top.config().number(MAPPING_OBJECT), map.all().len())?;
    for (offset, length) in maps.obsolete_ranges(phys.obsolete_map, top.asize())?.segments() {
        count_obsolete(map.all(), &mut obsolete, offset, length)?;
    }
    let done = mapping::read(mos, phys.next_mapping)?.end();
    let next = map.all().partition_point(|run| run.source < done);
    // Before the first run, too: of one run alone the delay would be nothing.
    Ok(Work { top, phys, obsolete, next, pause_until: pause_of(layers) })
}

/// No run is copied before this moment, by the host's clock.
fn pause_of(layers: &Layers) -> u64 {
    let delay = layers.context.tunables.now(Parameter::CondenseEntryDelay);
    layers.context.host.now_ns().saturating_add(delay * NS_PER_MS)
}

/// A range of a map is not needed.
fn count_obsolete(runs: &[Mapping], obsolete: &mut [u64], offset: u64, length: u64) -> Result<()> {
    let end = offset.saturating_add(length);
    let first = runs.partition_point(|run| run.end() <= offset);
    let mut counted = 0;
    for (run, count) in runs.iter().zip(obsolete).skip(first).take_while(|(run, _)| run.source < end) {
        let part = run.end().min(end) - run.source.max(offset);
        counted += part;
        *count += part;
        if *count > run.target.allocated {
            bail!(Corrupt, "more of the run at {:#x} is obsolete than it has", run.source);
        }
    }
    if counted != length {
        bail!(Corrupt, "what is obsolete at {offset:#x} is not in the map");
    }
    Ok(())
}

/// Does a piece, or begins, in the first pass.
///
/// # Errors
/// What stops the pool.
pub(in crate::pool) fn sync(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    let (layers, condensing) = (writer.layers(), &writer.removals().condensing);
    if condensing.has_work(layers) {
        let Some(mut work) = condensing.state.lock().work.take() else { return Ok(()) };
        if step(writer, &mut work, tx)? {
            return end(writer, &work, tx);
        }
        condensing.state.lock().work = Some(work);
        return Ok(());
    }
    let is_idle = condensing.state.lock().work.is_none();
    let changed = if is_idle { std::mem::take(&mut condensing.state.lock().changed) } else { BTreeSet::new() };
    for vdev in changed {
        let Some(top) = layers.vdevs.top(vdev).filter(|top| top.kind() == VdevKind::Indirect) else { continue };
        if should_condense(layers, &top)? {
            let work = begin(writer, &top, tx).within(|| format!("the map of removed vdev {vdev}"))?;
            condensing.state.lock().work = Some(work);
            return Ok(());
        }
    }
    Ok(())
}

/// Is enough of a map not needed any more?
#[doc(alias = "vdev_indirect_should_condense")]
fn should_condense(layers: &Layers, top: &TopVdev) -> Result<bool> {
    let tunables = &layers.context.tunables;
    let (Some(maps), Some(map)) = (&layers.space_maps, top.map()) else { return Ok(false) };
    if tunables.now(Parameter::CondenseEnable) == 0 || top.zap() == 0 || map.all().is_empty() {
        return Ok(false);
    }
    let Some((obsolete, length)) = maps.obsolete_size(top.zap(), top.asize())? else { return Ok(false) };
    let mapped = mapping::bytes(layers.mos(), top.config().number(MAPPING_OBJECT))?;
    let percent = u128::from(obsolete) * 100 / u128::from(mapped.max(1));
    let is_worth_it = percent >= u128::from(tunables.now(Parameter::CondenseObsoletePercent)) && map.bytes() > tunables.now(Parameter::CondenseMinMappingBytes);
    Ok(is_worth_it || length >= tunables.now(Parameter::CondenseMaxObsoleteBytes))
}

#[doc(alias = "spa_condense_indirect_start_sync")]
fn begin(writer: &GroupWriter, top: &Arc<TopVdev>, tx: &SyncTx<'_>) -> Result<Work> {
    let layers = writer.layers();
    let Some(maps) = &layers.space_maps else { bail!(ReadOnly, "the space maps are not open") };
    let next_mapping = mapping::create(layers.meta(), tx)?;
    let phys = CondensingPhys { vdev: top.id(), obsolete_map: maps.set_obsolete_aside(tx, top.zap())?, next_mapping };
    layers.mos().zap_set_numbers(key::DIRECTORY, CONDENSING, &phys.to_words(), tx)?;
    load(layers, phys)
}

/// Copies some runs. `true`: that was the last.
fn step(writer: &GroupWriter, work: &mut Work, tx: &SyncTx<'_>) -> Result<bool> {
    let layers = writer.layers();
    let Some(map) = work.top.map() else { bail!(Corrupt, "vdev {} has no map", work.top.id()) };
    let delay = layers.context.tunables.now(Parameter::CondenseEntryDelay);
    let most = if delay == 0 { RUNS_PER_GROUP } else { 1 };
    let mut runs = Vec::new();
    while let Some(run) = map.all().get(work.next).filter(|_| runs.len() < most) {
        let obsolete = work.obsolete.get(work.next).copied().unwrap_or(0);
        if obsolete < run.target.allocated {
            runs.push(NewRun { run: *run, obsolete: obsolete as u32 });
        }
        work.next += 1;
    }
    if !runs.is_empty() {
        mapping::append(layers.mos(), work.phys.next_mapping, &runs, tx)?;
    }
    work.pause_until = pause_of(layers);
    Ok(work.next >= map.all().len())
}

/// The new map takes the place of the old one.
#[doc(alias = "spa_condense_indirect_complete_sync")]
fn end(writer: &GroupWriter, work: &Work, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    let Some(maps) = &layers.space_maps else { bail!(ReadOnly, "the space maps are not open") };
    let (meta, mos, top) = (layers.meta(), layers.mos(), &work.top);
    let map = mapping::read(mos, work.phys.next_mapping)?;
    mapping::free(meta, top.config().number(MAPPING_OBJECT), tx)?;
    maps.free_obsolete_map(tx, work.phys.obsolete_map)?;
    meta.features.decrement(mos, Feature::ObsoleteCounts, tx)?;
    mos.zap_remove(key::DIRECTORY, CONDENSING, tx)?;
    top.set_map(Some(map));
    top.update_config(|config| config.set(MAPPING_OBJECT, work.phys.next_mapping));
    writer.configuration().set_dirty();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::dva::Dva;

    #[test]
    fn what_is_obsolete_is_counted_by_runs() {
        let run = |source, length| Mapping { source, target: Dva::new(1, source + (1 << 20), length) };
        let runs = [run(0x1000, 0x1000), run(0x2000, 0x2000), run(0x8000, 0x1000)];
        let mut obsolete = vec![0; 3];
        count_obsolete(&runs, &mut obsolete, 0x1800, 0x1000).unwrap();
        assert_eq!(obsolete, [0x800, 0x800, 0]);
        count_obsolete(&runs, &mut obsolete, 0x8000, 0x1000).unwrap();
        assert_eq!(obsolete, [0x800, 0x800, 0x1000]);
        assert!(count_obsolete(&runs, &mut obsolete, 0x3000, 0x2000).is_err(), "a part is in no run");
        assert!(count_obsolete(&runs, &mut obsolete, 0x8000, 0x200).is_err(), "more than there is");
    }
}
