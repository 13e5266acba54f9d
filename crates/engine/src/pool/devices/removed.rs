//! Vdevs that were removed: their maps, and what is no longer needed of them.
//!
//! # Theory
//! The map of the vdev that was removed last can be read without any other, the map of the one before with it, and so on. Until
//! all are loaded nothing else of the pool is read, as it may be anywhere. When a block that was moved is freed, its
//! part of the map is of no use any more; a space map for each removed vdev says so, from which OpenZFS makes maps shorter.
//!
//! A removal that goes on, and a map that is being made shorter, are OpenZFS's to finish.

use std::sync::Arc;

use ondisk::feature::Feature;
use ondisk::indirect::{CONDENSING, MAPPING_OBJECT, MappingHeaderPhys, MappingPhys, NO_VDEV, PREVIOUS_VDEV, REMOVAL_ACTIVE, REMOVAL_NONE, REMOVING, RemovalPhys};
use zerocopy::FromBytes;

use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::Mos;
use crate::dsl::meta::key;
use crate::error::{Result, Within};
use crate::pool::layers::Layers;
use crate::vdev::{IndirectMap, VdevKind, VdevTree};

/// Runs that a map may have (24 bytes each).
const RUNS_MAX: u64 = 1 << 26;
/// Runs that are read at a time: a map is only believed as far as it makes sense, so a damaged pool cannot have us take more
/// memory than what is really there.
const RUNS_PER_STEP: usize = 1 << 14;

/// Gives every removed vdev of `vdevs` its map.
///
/// # Errors
/// A map cannot be read or makes no sense; for writing, also a removal that goes on.
pub(in crate::pool) fn load_maps(mos: &Mos, vdevs: &Arc<VdevTree>, read_only: bool) -> Result<()> {
    let Some(value) = mos.zap_get(key::DIRECTORY, REMOVING)? else { return Ok(()) };
    let removal = RemovalPhys::from_words(&value.to_u64s())?;
    if !read_only && removal.state == REMOVAL_ACTIVE {
        bail!(Unsupported, "vdev {} is being removed: let OpenZFS finish that, or import with -o readonly=on", removal.vdev);
    }
    if !read_only && mos.zap_contains(key::DIRECTORY, CONDENSING)? {
        bail!(Unsupported, "the map of a removed vdev is being condensed: let OpenZFS finish that, or import with -o readonly=on");
    }
    let mut next = removal.previous;
    while next != NO_VDEV {
        let top = vdevs.top(next).filter(|top| top.kind() == VdevKind::Indirect);
        let Some(top) = top else { bail!(Corrupt, "vdev {next} is said to be removed, and is not") };
        if top.map().is_some() {
            bail!(Corrupt, "vdev {next} was removed twice");
        }
        let config = top.config();
        let map = read_map(mos, config.number(MAPPING_OBJECT)).within(|| format!("removed vdev {next}"))?;
        top.set_map(map);
        next = config.get(PREVIOUS_VDEV).unwrap_or(NO_VDEV);
    }
    Ok(())
}

/// Whether a vdev is being removed.
pub(in crate::pool) fn is_removing(mos: &Mos) -> Result<bool> {
    let Some(value) = mos.zap_get(key::DIRECTORY, REMOVING)? else { return Ok(false) };
    Ok(RemovalPhys::from_words(&value.to_u64s())?.state == REMOVAL_ACTIVE)
}

fn read_map(mos: &Mos, object: u64) -> Result<IndirectMap> {
    let bonus = mos.bonus(object)?;
    let Ok((header, _)) = MappingHeaderPhys::read_from_prefix(bonus.as_slice()) else {
        bail!(Corrupt, "map in object {object}: bonus of {} bytes", bonus.len());
    };
    let entries = header.entries.get();
    let there = mos.info(object)?.length / size_of::<MappingPhys>() as u64;
    if entries > there.min(RUNS_MAX) {
        bail!(Corrupt, "map in object {object}: {entries} runs, and room for {there}");
    }
    let mut map = IndirectMap::default();
    let mut left = entries as usize;
    let mut at = 0;
    while left > 0 {
        let count = left.min(RUNS_PER_STEP);
        let bytes = mos.read(object, at, count * size_of::<MappingPhys>())?;
        for raw in bytes.chunks_exact(size_of::<MappingPhys>()) {
            let Ok(raw) = MappingPhys::read_from_bytes(raw) else { bail!(Corrupt, "map in object {object}: a part of a run") };
            map.push(raw.decode()?).within(|| format!("map in object {object}"))?;
        }
        if bytes.len() != count * size_of::<MappingPhys>() {
            bail!(Corrupt, "map in object {object}: it ends before its {entries} runs");
        }
        left -= count;
        at += bytes.len() as u64;
    }
    Ok(map)
}

/// The last removal of a vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "pool_removal_stat_t")]
pub struct Removal {
    /// What the MOS says of it.
    pub phys: RemovalPhys,
    /// Bytes of the maps of all removed vdevs.
    pub map_bytes: u64,
}

/// The vdev that is being removed, if there is one, and what has been copied of it.
pub(in crate::pool) fn half_removed(layers: &Layers) -> Result<Option<(u32, IndirectMap)>> {
    let mos = layers.mos();
    let Some(value) = mos.zap_get(key::DIRECTORY, REMOVING)? else { return Ok(None) };
    let removal = RemovalPhys::from_words(&value.to_u64s())?;
    let top = layers.vdevs.top(removal.vdev).filter(|top| removal.state == REMOVAL_ACTIVE && top.kind() != VdevKind::Indirect);
    let Some((top, object)) = top.map(|top| (top.id() as u32, top.config().number(MAPPING_OBJECT))).filter(|(_, object)| *object != 0) else { return Ok(None) };
    Ok(Some((top, read_map(mos, object).within(|| format!("vdev {top}, which is being removed"))?)))
}

/// The last removal, if there was one.
///
/// # Errors
/// The MOS cannot be read.
pub(in crate::pool) fn last_removal(layers: &Layers) -> Result<Option<Removal>> {
    let Some(value) = layers.mos().zap_get(key::DIRECTORY, REMOVING)? else { return Ok(None) };
    let phys = RemovalPhys::from_words(&value.to_u64s())?;
    let runs: usize = layers.vdevs.tops().iter().filter_map(|top| top.map().map(|map| map.runs())).sum();
    Ok(Some(Removal { phys, map_bytes: (runs * size_of::<MappingPhys>()) as u64 }).filter(|_| phys.state != REMOVAL_NONE))
}

/// Whether [`sync_obsolete`] has something to write.
pub(in crate::pool) fn has_obsolete(vdevs: &VdevTree) -> bool {
    vdevs.tops().iter().any(|top| top.has_obsolete())
}

/// Notes what is no longer needed of the maps of removed vdevs.
pub(in crate::pool) fn sync_obsolete(layers: &Layers, tx: &SyncTx<'_>) -> Result<()> {
    let Some(maps) = &layers.space_maps else { return Ok(()) };
    for top in layers.vdevs.tops() {
        let ranges = top.take_obsolete();
        // Without the feature nobody counts.
        if !ranges.is_empty() && layers.meta().features.is_enabled(Feature::ObsoleteCounts) {
            maps.append_obsolete(tx, top.zap(), top.asize(), &ranges).within(|| format!("removed vdev {}", top.id()))?;
        }
    }
    Ok(())
}
