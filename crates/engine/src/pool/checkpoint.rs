//! Checkpoints: a state of the pool that OpenZFS was asked to keep.
//!
//! # Theory
//! The MOS keeps the uberblock of that time, and each top-level vdev a space map of what was freed since and may not be given out.
//! To take a checkpoint, to discard one and to write a pool that has one is OpenZFS's. Without that uberblock, and with the feature
//! still active, what was kept is being freed.
//!
//! # On disk
//! `com.delphix:zpool_checkpoint` of the MOS's directory: the uberblock, as words. `com.delphix:pool_checkpoint_sm` of a
//! top-level vdev's ZAP: a space map that has frees only.

use ondisk::feature::Feature;
use ondisk::space_map::SpaceMapPhys;
use ondisk::uberblock::Uberblock;
use zerocopy::FromBytes;

use super::layers::Layers;
use super::space_maps::read_frees;
use crate::alloc::RangeTree;
use crate::bail;
use crate::dmu::ObjectId;
use crate::dsl::Mos;
use crate::dsl::meta::key;
use crate::error::{Result, Within};
use crate::vdev::{TopVdev, VdevTree};

/// Key of the MOS's directory: the uberblock that a checkpoint keeps.
const CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
/// In a top-level vdev's ZAP: frees since the checkpoint.
const CHECKPOINT_MAP: &str = "com.delphix:pool_checkpoint_sm";

/// A checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "pool_checkpoint_stat_t")]
pub struct Checkpoint {
    /// Its space is being freed.
    pub discarding: bool,
    /// When it was made, in seconds since 1970.
    pub time: u64,
}

/// The uberblock of the checkpoint.
pub(in crate::pool) fn uberblock(mos: &Mos) -> Result<Option<Uberblock>> {
    let Some(value) = mos.zap_get(key::DIRECTORY, CHECKPOINT)? else { return Ok(None) };
    // Older ones are shorter: what they lack is zero.
    let mut bytes = value.to_le_bytes();
    bytes.resize(bytes.len().max(Uberblock::BYTES), 0);
    Ok(Some(Uberblock::decode(&bytes).within(|| "the uberblock of the checkpoint")?))
}

/// Refuses to write a pool that has a checkpoint: what was freed since would be given out.
pub(in crate::pool) fn refuse(mos: &Mos, vdevs: &VdevTree) -> Result<()> {
    for top in vdevs.data_tops() {
        if top.zap() != 0 && mos.zap_contains(top.zap(), CHECKPOINT_MAP)? {
            bail!(Unsupported, "the pool has a checkpoint: discard it with OpenZFS first");
        }
    }
    Ok(())
}

/// The checkpoint, if there is one.
///
/// # Errors
/// The MOS cannot be read.
pub(in crate::pool) fn checkpoint(layers: &Layers) -> Result<Option<Checkpoint>> {
    if !layers.meta().features.is_active(Feature::PoolCheckpoint) {
        return Ok(None);
    }
    let kept = uberblock(layers.mos())?;
    Ok(Some(Checkpoint { discarding: kept.is_none(), time: kept.map_or(0, |uberblock| uberblock.timestamp) }))
}

/// What of a top-level vdev only the checkpoint keeps: freed since, and not to be given out.
///
/// # Errors
/// The MOS cannot be read, or the map makes no sense.
pub(in crate::pool) fn checkpoint_ranges(layers: &Layers, top: &TopVdev) -> Result<RangeTree> {
    match checkpoint_map(layers, top.zap())? {
        Some(map) => read_frees(&layers.mos().0, map, top.asize(), top.ashift() as u8),
        None => Ok(RangeTree::new()),
    }
}

/// The same of all vdevs, in bytes.
pub(in crate::pool) fn kept_by_checkpoint(layers: &Layers) -> Result<u64> {
    if !layers.meta().features.is_active(Feature::PoolCheckpoint) {
        return Ok(0);
    }
    layers.vdevs.data_tops().iter().try_fold(0, |sum: u64, top| Ok(sum.saturating_add(checkpoint_bytes(layers, top.zap())?)))
}

/// The space map of what only the checkpoint keeps of a top-level vdev, named by its ZAP.
fn checkpoint_map(layers: &Layers, top_zap: ObjectId) -> Result<Option<ObjectId>> {
    if top_zap == 0 { Ok(None) } else { layers.mos().zap_u64(top_zap, CHECKPOINT_MAP) }
}

/// The bytes of a top-level vdev, named by its ZAP, that only the checkpoint keeps.
///
/// # Errors
/// The MOS cannot be read.
pub(in crate::pool) fn checkpoint_bytes(layers: &Layers, top_zap: u64) -> Result<u64> {
    let Some(map) = checkpoint_map(layers, top_zap)? else { return Ok(0) };
    let mut bonus = layers.mos().bonus(map)?.to_vec();
    bonus.resize(bonus.len().max(size_of::<SpaceMapPhys>()), 0);
    let header = SpaceMapPhys::read_from_prefix(&bonus).map_or(0, |(header, _)| header.allocated.get());
    Ok(header.min(0).unsigned_abs())
}
