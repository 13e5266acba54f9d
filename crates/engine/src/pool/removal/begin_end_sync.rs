//! The beginning and the end of a removal.

use std::sync::Arc;

use ondisk::feature::Feature;
use ondisk::indirect::{BIRTHS_OBJECT, COUNTS_ARE_PRECISE, MAPPING_OBJECT, NO_VDEV, PREVIOUS_VDEV, REMOVAL_ACTIVE, REMOVAL_FINISHED, RemovalPhys};

use super::check::check;
use super::{mapping, store, stored};
use crate::alloc::{ClassKind, Group};
use crate::dmu::SyncTx;
use crate::dsl::Mos;
use crate::dsl::meta::key as meta_key;
use crate::error::{Result, Within};
use crate::pool::checkpoint;
use crate::pool::devices::{in_one_group, vdev_zaps};
use crate::pool::layers::Layers;
use crate::pool::leaf_work::while_at_rest;
use crate::pool::open::heads::begin_logs_anew;
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::{Departing, IndirectMap, TopVdev, VdevConfig, VdevKind, key};
use crate::{bail, error};

/// Groups that must pass before what was allocated on the vdev is surely counted: those that are open, closing and syncing.
const GROUPS_UNDER_WAY: usize = 3;

/// The top-level vdev with this guid begins to go. One call at a time.
///
/// # Errors
/// As [`check`], and `Exists`: there is a checkpoint. The pool is what it was.
#[doc(alias = "spa_vdev_remove_top")]
pub(in crate::pool) fn begin(writer: &Arc<GroupWriter>, guid: u64) -> Result<()> {
    let layers = writer.layers();
    if layers.is_read_only() || layers.space_maps.is_none() {
        bail!(ReadOnly, "it is read-only");
    }
    checkpoint::refuse_change(layers)?;
    let Some(top) = layers.vdevs.data_tops().into_iter().find(|top| top.guid() == guid) else {
        bail!(NotSupported, "operation not supported on this type of pool");
    };
    check(writer, &top)?;
    let group = layers.context.io.allocator().group(top.id() as u32)?;
    if is_the_last(layers, &top, &group) {
        bail!(Invalid, "invalid config; all top-level vdevs must have the same sector size and not be raidz.");
    }
    group.set_usable(false);
    let going = top.clone();
    // What is free there is nobody's to work on any more.
    let begun = empty_of_logs(writer).and_then(|()| while_at_rest(writer, || in_one_group(writer, move |writer, tx| begin_sync(writer, &going, tx))));
    // What has begun goes on when the pool does.
    if begun.as_ref().is_err_and(|error| !error.goes_on()) {
        group.set_usable(top.config().number(key::NON_ALLOCATING) == 0 && top.state().is_readable());
    }
    writer.refresh_space();
    writer.hasten();
    begun
}

/// Is it the only ordinary vdev where new blocks may go?
fn is_the_last(layers: &Layers, top: &TopVdev, group: &Group) -> bool {
    let allocator = layers.context.io.allocator();
    let class_of = |top: &TopVdev| allocator.group(top.id() as u32).map(|group| group.config().class);
    let is_other = |other: &Arc<TopVdev>| other.id() != top.id() && other.state().is_readable() && other.config().number(key::NON_ALLOCATING) == 0;
    let tops = layers.vdevs.data_tops();
    let mut others = tops.iter().filter(|other| is_other(other) && class_of(other).is_ok_and(|class| class == ClassKind::Normal));
    group.config().class == ClassKind::Normal && others.next().is_none()
}

/// Waits until no block that is not on disk yet is on a vdev where nothing is allocated any more, and every log goes on elsewhere.
fn empty_of_logs(writer: &GroupWriter) -> Result<()> {
    writer.sync_all()?;
    let _logs = begin_logs_anew(&writer.layers().dsl)?;
    (0..GROUPS_UNDER_WAY).try_for_each(|_| writer.sync_all())
}

/// In the sync thread. The inner error is a refusal.
#[doc(alias = "vdev_remove_initiate_sync")]
fn begin_sync(writer: &GroupWriter, top: &Arc<TopVdev>, tx: &SyncTx<'_>) -> Result<Result<()>> {
    let layers = writer.layers();
    let Some(maps) = &layers.space_maps else { bail!(ReadOnly, "the space maps are not open") };
    let removal = stored(layers.mos())?;
    if removal.state == REMOVAL_ACTIVE || top.is_removing() {
        return Ok(Err(error!(Busy, "Pool busy; removal may already be in progress")));
    }
    if let Err(refused) = checkpoint::refuse_change(layers) {
        return Ok(Err(refused));
    }
    // Nothing may be allocated in front of the end of the map.
    if layers.context.io.allocator().group(top.id() as u32)?.is_usable() {
        return Ok(Err(error!(Busy, "vdev {}: blocks may be allocated on it again", top.id())));
    }
    let (meta, mos) = (layers.meta(), layers.mos());
    meta.features.increment(mos, Feature::DeviceRemoval, tx)?;
    if meta.features.is_enabled(Feature::ObsoleteCounts) {
        meta.features.increment(mos, Feature::ObsoleteCounts, tx)?;
        mos.zap_set_u64(top.zap(), COUNTS_ARE_PRECISE, 1, tx)?;
    }
    let map = mapping::create(meta, tx)?;
    let births = mapping::create_births(mos, tx)?;
    top.update_config(|config| {
        config.set(MAPPING_OBJECT, map);
        config.set(BIRTHS_OBJECT, births);
        config.set(key::NON_ALLOCATING, 1);
        config.set(key::REMOVING, 1);
    });
    top.set_map(Some(IndirectMap::default()));
    let removal = RemovalPhys {
        state: REMOVAL_ACTIVE,
        vdev: top.id(),
        start_time: layers.context.host.wall_clock().0,
        end_time: 0,
        to_copy: maps.allocated(top.id() as u32)?,
        copied: 0,
        ..removal
    };
    store(mos, &removal, tx)?;
    write_again(mos, meta_key::DIRECTORY, tx)?;
    writer.configuration().set_dirty();
    {
        let mut state = writer.removals().state.lock();
        (state.top, state.begun, state.is_stuck, state.has_failed) = (Some(top.clone()), tx.txg(), false, false);
    }
    for (event, details) in writer.works().cancel_on(top.id(), removal.start_time) {
        layers.dsl.record_event(event, &details, tx)?;
    }
    let (name, path) = (writer.configuration().name(), top.config().string(key::PATH));
    layers.dsl.record_event("vdev remove started", &format!("{name} vdev {} {}", top.id(), path.as_deref().unwrap_or("-")), tx)?;
    Ok(Ok(()))
}

/// All of an object gets new places (invariant 1 of the module): that is where nothing is on the vdev that goes.
fn write_again(mos: &Mos, object: u64, tx: &SyncTx<'_>) -> Result<()> {
    let info = mos.info(object)?;
    let mut at = 0;
    while at < info.length {
        let bytes = mos.read(object, at, info.block_bytes as usize)?;
        mos.write(object, at, &bytes, tx)?;
        at += info.block_bytes;
    }
    Ok(())
}

/// All is copied: the vdev becomes indirect, in the sync thread.
#[doc(alias = "vdev_remove_complete_sync")]
pub(super) fn end(writer: &GroupWriter, top: &Arc<TopVdev>, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    let Some(maps) = &layers.space_maps else { bail!(ReadOnly, "the space maps are not open") };
    let mos = layers.mos();
    let mut removal = stored(mos)?;
    let before = top.config();
    maps.remove_vdev(tx, top.id() as u32)?;
    maps.forget_flushes(top.zap(), tx)?;
    for leaf in before.leaves() {
        if leaf.number(key::DTL) != 0 {
            maps.free_ranges(tx, leaf.number(key::DTL))?;
        }
        vdev_zaps::free_of_leaf(mos, leaf, tx)?;
    }
    let indirect = Arc::new(TopVdev::of_removed(described(&before, layers.context.host.random(), removal.previous)));
    indirect.set_bias(top.bias());
    indirect.set_map(top.map().map(|map| (*map).clone()));
    top.take_obsolete().into_iter().for_each(|(offset, length)| indirect.note_obsolete(offset, length));
    layers.vdevs.replace_top(&indirect);
    writer.works().forget(top.id());
    removal.copied = removal.copied.saturating_add(top.take_uncopied());
    (removal.state, removal.previous, removal.end_time) = (REMOVAL_FINISHED, top.id(), layers.context.host.wall_clock().0);
    store(mos, &removal, tx)?;
    {
        let mut state = writer.removals().state.lock();
        state.top = None;
        state.events.push("vdev_remove_dev");
    }
    for leaf in top.leaves() {
        layers.vdevs.departures().note(Departing { leaf, ashift: top.ashift(), label: None, top: Some(Arc::downgrade(top)) });
    }
    writer.configuration().write_labels();
    writer.configuration().set_dirty();
    layers.dsl.record_event("vdev remove completed", &format!("{} vdev {}", writer.configuration().name(), top.id()), tx).within(|| "the end of a removal")
}

/// The description of a vdev when it has become indirect.
fn described(before: &VdevConfig, guid: u64, previous: u64) -> VdevConfig {
    let mut config = VdevConfig::new(VdevKind::Indirect, before.id, guid);
    // It says so of a vdev without devices, too.
    for (name, value) in [(key::WHOLE_DISK, 0), (key::METASLAB_ARRAY, 0), (key::NON_ALLOCATING, 1)] {
        config.set(name, value);
    }
    for name in [key::METASLAB_SHIFT, key::ASHIFT, key::ASIZE, key::MIN_ALLOC, key::IS_LOG, MAPPING_OBJECT, BIRTHS_OBJECT, key::CREATE_TXG, key::TOP_ZAP] {
        if let Some(value) = before.get(name) {
            config.set(name, value);
        }
    }
    if previous != NO_VDEV {
        config.set(PREVIOUS_VDEV, previous);
    }
    config
}
