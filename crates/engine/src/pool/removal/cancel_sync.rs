//! A removal that is given up.

use std::sync::Arc;

use ondisk::feature::Feature;
use ondisk::indirect::{BIRTHS_OBJECT, COUNTS_ARE_PRECISE, MAPPING_OBJECT, REMOVAL_CANCELED};

use super::{mapping, objects, store, stored};
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::SpaceCheck;
use crate::error::Result;
use crate::pool::leaf_work;
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::{TopVdev, key};

/// Blocks of the MOS that change, about.
const BLOCKS: u64 = 16;
/// In a vdev's ZAP: what a user has said of allocations on it.
const ALLOCATING: &str = "allocating";

/// Gives up the removal that is under way (`zpool remove -s`), and returns when that is on disk.
///
/// # Errors
/// `NotFound`: there is none.
#[doc(alias = "spa_vdev_remove_cancel")]
pub(in crate::pool) fn cancel(writer: &Arc<GroupWriter>) -> Result<()> {
    let (checked, done) = (writer.clone(), writer.clone());
    let check = move |_: &Arc<crate::dsl::Dsl>| match checked.removals().is_active() {
        true => Ok(()),
        false => bail!(NotFound, "there are no active operations"),
    };
    let change = move |_: &Arc<crate::dsl::Dsl>, tx: &SyncTx<'_>| match done.removals().running() {
        Some(top) => cancel_sync(&done, &top, tx),
        None => Ok(()),
    };
    writer.layers().dsl.run_task(BLOCKS, SpaceCheck::ExtraReserved, check, change)?;
    leaf_work::resume(writer);
    Ok(())
}

/// The vdev stays, in the sync thread: what was copied is freed, and nothing is left of the map.
///
/// # Errors
/// What stops the pool.
#[doc(alias = "spa_vdev_remove_cancel_sync")]
pub(super) fn cancel_sync(writer: &GroupWriter, top: &Arc<TopVdev>, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    let (meta, mos) = (layers.meta(), layers.mos());
    let (map, births) = objects(top)?;
    free_copies(writer, top, tx)?;
    meta.features.decrement(mos, Feature::DeviceRemoval, tx)?;
    if mos.zap_remove(top.zap(), COUNTS_ARE_PRECISE, tx)? {
        meta.features.decrement(mos, Feature::ObsoleteCounts, tx)?;
    }
    let Some(maps) = &layers.space_maps else { bail!(ReadOnly, "the space maps are not open") };
    maps.free_obsolete(tx, top.zap())?;
    top.take_obsolete();
    top.take_uncopied();
    top.set_map(None);
    mapping::free(meta, map, tx)?;
    mos.free(births, tx)?;
    let is_closed = mos.zap_u64(top.zap(), ALLOCATING)? == Some(0);
    top.update_config(|config| {
        [MAPPING_OBJECT, BIRTHS_OBJECT, key::REMOVING].into_iter().for_each(|name| config.remove(name));
        if !is_closed {
            config.remove(key::NON_ALLOCATING);
        }
    });
    writer.open_when_written(top);
    let mut removal = stored(mos)?;
    (removal.state, removal.end_time) = (REMOVAL_CANCELED, layers.context.host.wall_clock().0);
    store(mos, &removal, tx)?;
    writer.removals().state.lock().top = None;
    writer.configuration().set_dirty();
    let (name, path) = (writer.configuration().name(), top.config().string(key::PATH));
    layers.dsl.record_event("vdev remove canceled", &format!("{name} vdev {} {}", top.id(), path.as_deref().unwrap_or("-")), tx)
}

/// Frees the new places of all that is in use of the vdev (invariant 2 of the module), one metaslab after the other.
fn free_copies(writer: &GroupWriter, top: &TopVdev, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    let (Some(maps), Some(map)) = (&layers.space_maps, top.map()) else { bail!(ReadOnly, "the space maps are not open") };
    let (vdev, allocator) = (top.id() as u32, layers.context.io.allocator());
    let metaslab = 1_u64 << top.metaslab_shift();
    let mut at = 0;
    while at < map.end() {
        let until = map.end().min(at + metaslab);
        for (offset, size) in maps.in_use(vdev, at, until)?.segments() {
            map.copied(offset, size).into_iter().try_for_each(|copy| allocator.free(copy, tx.txg()))?;
        }
        at = until;
    }
    Ok(())
}
