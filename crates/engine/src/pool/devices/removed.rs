//! Vdevs that were removed: their maps, and what is no longer needed of them.
//!
//! # Theory
//! The map of the vdev that was removed last can be read without any other, the map of the one before with it, and so on. Until
//! all are loaded nothing else of the pool is read, as it may be anywhere. When a block that was moved is freed, its
//! part of the map is of no use any more; a space map for each removed vdev says so, from which OpenZFS makes maps shorter.
//!
//! How vdevs are removed, and maps made shorter: [`crate::pool::removal`].

use std::sync::Arc;

use ondisk::feature::Feature;
use ondisk::indirect::{MAPPING_OBJECT, NO_VDEV, PREVIOUS_VDEV, REMOVAL_ACTIVE, REMOVAL_NONE, REMOVING, RemovalPhys};

use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::Mos;
use crate::dsl::meta::key;
use crate::error::{Result, Within};
use crate::pool::layers::Layers;
use crate::pool::removal::{mapping, stored};
use crate::vdev::{IndirectMap, VdevKind, VdevTree};

/// Gives every removed vdev of `vdevs` its map, and the one that is being removed.
///
/// # Errors
/// A map cannot be read or makes no sense.
#[doc(alias = "spa_remove_init")]
pub(in crate::pool) fn load_maps(mos: &Mos, vdevs: &Arc<VdevTree>) -> Result<()> {
    let removal = stored(mos)?;
    if removal.state == REMOVAL_ACTIVE
        && let Some(top) = vdevs.top(removal.vdev).filter(|top| !top.is_placeholder())
    {
        let map = mapping::read(mos, top.config().number(MAPPING_OBJECT)).within(|| format!("vdev {}, which is being removed", removal.vdev))?;
        top.set_map(Some(map));
    }
    let mut next = removal.previous;
    while next != NO_VDEV {
        let top = vdevs.top(next).filter(|top| top.kind() == VdevKind::Indirect);
        let Some(top) = top else { bail!(Corrupt, "vdev {next} is said to be removed, and is not") };
        if top.map().is_some() {
            bail!(Corrupt, "vdev {next} was removed twice");
        }
        let config = top.config();
        let map = mapping::read(mos, config.number(MAPPING_OBJECT)).within(|| format!("removed vdev {next}"))?;
        top.set_map(Some(map));
        next = config.get(PREVIOUS_VDEV).unwrap_or(NO_VDEV);
    }
    Ok(())
}

/// Whether a vdev is being removed.
pub(in crate::pool) fn is_removing(mos: &Mos) -> Result<bool> {
    Ok(stored(mos)?.state == REMOVAL_ACTIVE)
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
    Ok(Some((top, mapping::read(mos, object).within(|| format!("vdev {top}, which is being removed"))?)))
}

/// The last removal, if there was one.
///
/// # Errors
/// The MOS cannot be read.
pub(in crate::pool) fn last_removal(layers: &Layers) -> Result<Option<Removal>> {
    let Some(value) = layers.mos().zap_get(key::DIRECTORY, REMOVING)? else { return Ok(None) };
    let phys = RemovalPhys::from_words(&value.to_u64s())?;
    let removed = layers.vdevs.tops().into_iter().filter(|top| top.kind() == VdevKind::Indirect);
    let map_bytes = removed.filter_map(|top| top.map()).map(|map| map.bytes()).sum();
    Ok(Some(Removal { phys, map_bytes }).filter(|_| phys.state != REMOVAL_NONE))
}

/// Whether [`sync_obsolete`] has something to write.
pub(in crate::pool) fn has_obsolete(vdevs: &VdevTree) -> bool {
    vdevs.tops().iter().any(|top| top.has_obsolete())
}

/// Notes what is no longer needed of the maps of removed vdevs. Returns the vdevs that there was something of.
pub(in crate::pool) fn sync_obsolete(layers: &Layers, tx: &SyncTx<'_>) -> Result<Vec<u64>> {
    let mut changed = Vec::new();
    let Some(maps) = &layers.space_maps else { return Ok(changed) };
    for top in layers.vdevs.tops() {
        let ranges = top.take_obsolete();
        // Without the feature nobody counts.
        if !ranges.is_empty() && layers.meta().features.is_enabled(Feature::ObsoleteCounts) {
            maps.append_obsolete(tx, top.zap(), top.asize(), &ranges).within(|| format!("removed vdev {}", top.id()))?;
            changed.push(top.id());
        }
    }
    Ok(changed)
}
