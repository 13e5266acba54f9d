//! Checkpoints: a state of the pool that is kept, to go back to it (`zpool checkpoint`).
//!
//! # Theory
//! The MOS keeps the uberblock of that time, and each top-level vdev a space map of what was freed since and may not be given out: from the group
//! on that keeps the uberblock, a block that is freed and was born before stays allocated ([`crate::zio::BlockIo::free`]). So all that the kept
//! uberblock leads to is as it was.
//!
//! To discard the checkpoint the uberblock is forgotten, in one group; what was kept is freed in the groups that follow, a piece in each, from the
//! ends of the space maps on (`discard_sync`). Meanwhile the feature is still active, which tells both states from none.
//!
//! To go back for good the kept uberblock is written to the labels with the number of a new group, before anything else is: from then on it is the
//! pool, and what was written since the checkpoint is free by its space maps (`rewind`). Its field `checkpoint_txg` stays, which says that
//! logs that were not claimed then are void: their blocks may have been given to others.
//!
//! A vdev cannot leave the pool while there is a checkpoint, which has it.
//!
//! # On disk
//! `com.delphix:zpool_checkpoint` of the MOS's directory: the uberblock, as words. `com.delphix:pool_checkpoint_sm` of a
//! top-level vdev's ZAP: a space map that has frees only.

use ondisk::feature::Feature;
use ondisk::space_map::SpaceMapPhys;
use ondisk::uberblock::Uberblock;
use zerocopy::FromBytes;

use super::layers::Layers;
use super::space_maps::{CHECKPOINT_MAP, read_frees};
use super::sync::writer::GroupWriter;
use crate::alloc::RangeTree;
use crate::bail;
use crate::dmu::ObjectId;
use crate::dsl::Mos;
use crate::dsl::meta::key;
use crate::error::{Result, Within};
use crate::vdev::TopVdev;

pub(in crate::pool) mod discard_sync;
pub(in crate::pool) mod rewind;
pub(in crate::pool) mod verbs;

pub use rewind::rewind_to_checkpoint;

/// Key of the MOS's directory: the uberblock that a checkpoint keeps.
const CHECKPOINT: &str = "com.delphix:zpool_checkpoint";

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

/// Has what is freed kept from now on, if there is a checkpoint, or goes on with freeing what one had: when the pool is opened, before anything is
/// freed.
pub(in crate::pool) fn open(writer: &GroupWriter) -> Result<()> {
    let layers = writer.layers();
    if layers.meta().features.is_active(Feature::PoolCheckpoint) {
        match uberblock(layers.mos())? {
            Some(kept) => layers.context.io.set_checkpoint_txg(kept.txg),
            None => writer.hasten(),
        }
    }
    Ok(())
}

/// Refuses a change of the vdevs, which a checkpoint needs as they are.
///
/// # Errors
/// `Exists`: there is one, or what it kept is being freed.
pub(in crate::pool) fn refuse_change(layers: &Layers) -> Result<()> {
    match checkpoint(layers)? {
        Some(Checkpoint { discarding: true, .. }) => bail!(Exists, "currently discarding checkpoint"),
        Some(_) => bail!(Exists, "checkpoint exists"),
        None => Ok(()),
    }
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
