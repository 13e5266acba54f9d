//! The beginning and the end of an expansion.

use std::sync::Arc;

use ondisk::feature::Feature;
use ondisk::label;
use ondisk::uberblock::RaidzReflow;

use super::{ExpansionProgress, FINISHED, SCANNING, key, scratch};
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::pool::checkpoint;
use crate::pool::devices::{in_one_group, states, vdev_zaps};
use crate::pool::leaf_work::while_at_rest;
use crate::pool::scan;
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::Parameter;
use crate::vdev::label::init_labels;
use crate::vdev::map::Reflow;
use crate::vdev::{Moves, NewLeaf, TopVdev, VdevKind, key as vdev_key};
use crate::{bail, error};

/// Groups that are under way at the same time: they go on with the old width.
const GROUPS_UNDER_WAY: u64 = 3;

/// A device comes to the RAID-Z vdev of this guid, and the expansion begins. One call at a time.
///
/// # Errors
/// `Unsupported`, `Busy`: it cannot have one now. `Invalid`: the device is too small, or its sectors are too large. The pool is what it was.
#[doc(alias = "vdev_raidz_attach_sync")]
pub(in crate::pool) fn begin(writer: &Arc<GroupWriter>, guid: u64, new: NewLeaf, ashift: Option<u32>) -> Result<()> {
    let (layers, configuration) = (writer.layers(), writer.configuration());
    if layers.is_read_only() || layers.space_maps.is_none() {
        bail!(ReadOnly, "it is read-only");
    }
    if checkpoint::checkpoint(layers)?.is_some() {
        bail!(Exists, "it has a checkpoint");
    }
    let Some(top) = layers.vdevs.data_tops().into_iter().find(|top| top.guid() == guid) else { bail!(NotFound, "no vdev has guid {guid}") };
    check(writer, &top, &new, ashift)?;
    let host = &layers.context.host;
    let shown = new.path.clone();
    let disk = new.disk.clone();
    let (leaf, mut described) = layers.vdevs.prepare_leaf(&top, host.random(), new);
    let txg = layers.context.groups.open_txg();
    init_labels(&*disk, &configuration.get().first_label(&layers.vdevs, &top, &leaf, txg))?;
    let join = move |writer: &GroupWriter, tx: &SyncTx<'_>| {
        let (layers, configuration, expansion) = (writer.layers(), writer.configuration(), writer.expansion());
        if checkpoint::checkpoint(layers)?.is_some() {
            return Ok(Err(error!(Exists, "it has a checkpoint")));
        }
        let Some(moves) = top.moves() else { return Ok(Err(error!(Unsupported, "it is no raidz"))) };
        let Some(moving) = moves.begin(0..u64::MAX) else { return Ok(Err(error!(Busy, "it is in use all the time"))) };
        let joined = top.exchange(std::slice::from_ref(&leaf), |_, config| {
            let mut config = config.clone();
            described.id = config.children.len() as u64;
            described.set(vdev_key::CREATE_TXG, config.number(vdev_key::CREATE_TXG));
            config.children.push(described);
            config.set_expanding(None);
            config.check_supported()?;
            Ok(config)
        });
        if let Err(refused) = joined {
            return Ok(Err(refused));
        }
        moving.set(Some(Reflow { synced: 0, moved: 0, in_scratch: false }));
        drop(moving);
        let now = layers.context.host.wall_clock().0;
        {
            let mut state = expansion.state.lock();
            state.top = Some(top.clone());
            state.reflow = RaidzReflow(0);
            state.begun = tx.txg();
            state.progress = Some(ExpansionProgress { vdev: top.id(), start_time: now, ..ExpansionProgress::default() });
        }
        let mos = layers.mos();
        if configuration.get().has_vdev_zaps {
            vdev_zaps::create_of_leaf(mos, &top, leaf.guid(), tx)?;
        }
        layers.meta().features.increment(mos, Feature::RaidzExpansion, tx)?;
        mos.zap_set_u64(top.zap(), key::STATE, SCANNING, tx)?;
        mos.zap_set_u64(top.zap(), key::START_TIME, now, tx)?;
        for old in [key::END_TIME, key::BYTES_COPIED] {
            mos.zap_remove(top.zap(), old, tx)?;
        }
        configuration.set_dirty();
        let (vdev, width) = (top.id(), top.leaves().len());
        layers.dsl.record_event("raidz vdev expansion started", &format!("{} vdev {vdev} new width {width}", configuration.name()), tx)?;
        layers.dsl.record_event("vdev attach", &format!("attach vdev={shown} to vdev={}", top.config().group_name()), tx)?;
        Ok(Ok(()))
    };
    // What is free lies elsewhere on the devices from then on.
    while_at_rest(writer, || in_one_group(writer, join))?;
    writer.hasten();
    Ok(())
}

/// Refuses what cannot be expanded, and devices that do not fit.
fn check(writer: &GroupWriter, top: &TopVdev, new: &NewLeaf, ashift: Option<u32>) -> Result<()> {
    let config = top.config();
    if top.kind() != VdevKind::Raidz {
        bail!(Unsupported, "can only attach to mirrors and top-level disks");
    }
    if !writer.layers().meta().features.is_enabled(Feature::RaidzExpansion) {
        bail!(Unsupported, "raidz_expansion feature must be enabled in order to attach a device to raidz");
    }
    if writer.expansion().is_active() {
        bail!(Busy, "raidz expansion is in progress");
    }
    if label::data_bytes(new.disk.size_bytes()).is_none_or(|room| room < config.leaf_bytes()) {
        bail!(Invalid, "device is too small");
    }
    if new.measure(ashift)?.0 > top.ashift() {
        bail!(Invalid, "The new device cannot have a higher alignment requirement than the top-level vdev.");
    }
    if !scratch::is_enough_for(config.children.len() as u64 + 1, top.ashift()) || top.zap() == 0 {
        bail!(Unsupported, "can only attach to mirrors and top-level disks");
    }
    if config.children.iter().any(|child| !child.kind.is_leaf()) || top.leaves().iter().any(|leaf| !leaf.is_open()) {
        bail!(NoDevice, "raidz vdev has devices that are are offline or being replaced");
    }
    Ok(())
}

/// All sectors are moved, and an uberblock on disk says so: blocks become wider, in the sync thread. `false`: not now.
#[doc(alias = "raidz_reflow_complete_sync")]
pub(super) fn end(writer: &GroupWriter, top: &Arc<TopVdev>, moves: &Moves, end: u64, tx: &SyncTx<'_>) -> Result<bool> {
    let (layers, expansion) = (writer.layers(), writer.expansion());
    let row = (top.leaves().len() as u64) << top.ashift();
    // Rows that end behind the last metaslab are read where they were until now.
    let Some(moving) = moves.begin(end.saturating_sub(row)..u64::MAX) else { return Ok(false) };
    top.exchange(&[], |_, config| {
        let mut config = config.clone();
        config.set_expanding(Some(tx.txg() + GROUPS_UNDER_WAY));
        Ok(config)
    })?;
    moving.set(None);
    drop(moving);
    moves.rest();
    let now = layers.context.host.wall_clock().0;
    {
        let mut state = expansion.state.lock();
        state.top = None;
        state.reflow = RaidzReflow(0);
        if let Some(progress) = &mut state.progress {
            progress.is_done = true;
            progress.end_time = now;
        }
    }
    let mos = layers.mos();
    mos.zap_set_u64(top.zap(), key::STATE, FINISHED, tx)?;
    mos.zap_set_u64(top.zap(), key::END_TIME, now, tx)?;
    writer.configuration().set_dirty();
    let (vdev, width) = (top.id(), top.leaves().len());
    layers.dsl.record_event("raidz vdev expansion completed", &format!("{} vdev {vdev} new width {width}", writer.configuration().name()), tx)?;
    states::grow_later(writer, top)?;
    if layers.context.tunables.now(Parameter::ScrubAfterExpand) != 0 {
        scan::begin_scrub_if_idle(writer, tx)?;
    }
    Ok(true)
}
