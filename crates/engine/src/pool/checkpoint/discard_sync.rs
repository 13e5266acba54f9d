//! What a checkpoint kept is freed, a piece in each group.

use ondisk::feature::Feature;

use crate::bail;
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::pool::scan;
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::Parameter;

/// Bytes that a range takes in memory while it is freed, about: half of the memory is for what a space map has beside ranges.
const RANGE_BYTES: u64 = 32;

/// Whether something of a checkpoint that was given up is to be freed.
pub(in crate::pool) fn is_discarding(writer: &GroupWriter) -> bool {
    let layers = writer.layers();
    let is_kept = layers.context.io.checkpoint_txg() != 0;
    !is_kept && !layers.is_read_only() && layers.meta().features.is_active(Feature::PoolCheckpoint) && !writer.scans().is_ending()
}

/// Frees a piece, in pass 1, after administrative changes and before anything else of the group is freed.
pub(in crate::pool) fn sync(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    if !is_discarding(writer) {
        return Ok(());
    }
    let layers = writer.layers();
    let Some(maps) = &layers.space_maps else { bail!(ReadOnly, "the space maps are not open") };
    let ranges = layers.context.tunables.now(Parameter::DiscardMemoryLimit) / RANGE_BYTES;
    if maps.give_back_kept(tx, ranges.max(1) as usize)? {
        layers.meta().features.decrement(layers.mos(), Feature::PoolCheckpoint, tx)?;
        layers.dsl.record_event("spa discard checkpoint", "finished discarding checkpointed state from the pool", tx)?;
        // Of devices that were resilvered meanwhile nobody could say that they have everything.
        if scan::is_resilver_needed(layers) {
            writer.scans().want_resilver();
        }
    }
    Ok(())
}
