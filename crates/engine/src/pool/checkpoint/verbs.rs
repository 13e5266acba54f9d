//! `zpool checkpoint`: taking one, and giving it up.

use std::sync::Arc;

use ondisk::feature::Feature;

use super::{CHECKPOINT, checkpoint, refuse_change};
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::dsl::{Dsl, SpaceCheck};
use crate::error::Result;
use crate::pool::devices::removed;
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;

/// Blocks of the MOS that change, about.
const BLOCKS: u64 = 4;
/// A space map has so many bits for the number of a sector, without the feature for more.
const OFFSET_BITS: u32 = 47;

/// Keeps the pool as it is, and returns when that is on disk.
///
/// # Errors
/// `Exists`: there is a checkpoint, or one is being freed. `Busy`: a vdev is being removed. `NotSupported`: the pool has not the feature.
#[doc(alias = "spa_checkpoint")]
pub(in crate::pool) fn take(writer: &Arc<GroupWriter>) -> Result<()> {
    let layers = writer.layers();
    // What was changed before this call is to be in it.
    writer.sync_all()?;
    let (checked, done) = (writer.clone(), writer.clone());
    layers.dsl.run_task(BLOCKS, SpaceCheck::Normal, move |_| check_take(checked.layers()), move |dsl, tx| take_sync(&done, dsl, tx))
}

fn check_take(layers: &Layers) -> Result<()> {
    let features = &layers.meta().features;
    if !features.is_enabled(Feature::PoolCheckpoint) {
        bail!(NotSupported, "operation not supported on this type of pool");
    }
    let has_room = |top: &crate::vdev::TopVdev| top.zap() != 0 && (features.is_active(Feature::SpacemapV2) || top.asize() >> top.ashift() >> OFFSET_BITS == 0);
    if !layers.vdevs.data_tops().iter().all(|top| has_room(top)) {
        bail!(NotSupported, "device exceeds supported size");
    }
    if removed::is_removing(layers.mos())? {
        bail!(Busy, "device removal in progress");
    }
    refuse_change(layers)
}

/// In the sync thread, before the group frees anything.
fn take_sync(writer: &GroupWriter, dsl: &Dsl, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    let mut kept = writer.uberblock();
    kept.checkpoint_txg = kept.txg;
    layers.mos().zap_set_numbers(key::DIRECTORY, CHECKPOINT, &kept.to_words(), tx)?;
    layers.meta().features.increment(layers.mos(), Feature::PoolCheckpoint, tx)?;
    layers.context.io.set_checkpoint_txg(kept.txg);
    dsl.record_event("spa checkpoint", &format!("checkpointed uberblock txg={}", kept.txg), tx)
}

/// Gives up what is kept; it is freed in the groups that follow.
///
/// # Errors
/// `NotFound`: there is no checkpoint. `Exists`: it is being freed already.
#[doc(alias = "spa_checkpoint_discard")]
pub(in crate::pool) fn discard(writer: &Arc<GroupWriter>) -> Result<()> {
    let (checked, done) = (writer.clone(), writer.clone());
    let check = move |_: &Arc<Dsl>| match checkpoint(checked.layers())? {
        None => bail!(NotFound, "checkpoint does not exist"),
        Some(found) if found.discarding => refuse_change(checked.layers()),
        Some(_) => Ok(()),
    };
    writer.layers().dsl.run_task(BLOCKS, SpaceCheck::None, check, move |dsl, tx| {
        let layers = done.layers();
        layers.mos().zap_remove(key::DIRECTORY, CHECKPOINT, tx)?;
        layers.context.io.set_checkpoint_txg(0);
        dsl.record_event("spa discard checkpoint", "started discarding checkpointed state from the pool", tx)
    })
}
