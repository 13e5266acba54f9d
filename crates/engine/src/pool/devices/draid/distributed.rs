//! Distributed spares of dRAID, while they stand in for a device.
//!
//! # Theory
//! Such a spare has no device of its own: what is written there lies on other children of its vdev ([`crate::vdev::map::draid`]). So it is no leaf. It is part of the description, and the
//! layout knows it from there, with whether it has everything. What it has missed are the groups before it came in, all or none of them: what one of the devices misses on which it lies,
//! that device has missed.
//!
//! It goes when the device for which it stands in was replaced, and has everything; then its room is free for another. It may be replaced itself, or stay for good.
//!
//! # On disk
//! In the description a leaf of type `dspare`; its dirty time log is there as long as it has not everything.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::pool::devices::auxiliary::{self, Auxiliary};
use crate::pool::devices::beside::attach::{self, Beside, Fill};
use crate::pool::devices::{in_one_group, vdev_zaps};
use crate::dmu::SyncTx;
use crate::error::{Result, Within};
use crate::pool::checkpoint;
use crate::pool::config::configuration::Configuration;
use crate::pool::layers::Layers;
use crate::pool::space_maps::read_ranges;
use crate::pool::sync::writer::GroupWriter;
use crate::pool::rebuild;
use crate::txg::TXG_INITIAL;
use crate::vdev::{Leaf, LeafId, TopVdev, VdevConfig, VdevKind, key};
use crate::zio::NotRight;
use crate::{bail, error};

/// A spare that has not everything.
pub(in crate::pool) struct Filling {
    /// Its guid.
    pub(in crate::pool) guid: u64,
    /// The groups that it has missed: half-open and ascending.
    pub(in crate::pool) missed: Vec<(u64, u64)>,
    /// The devices for which it stands in: none of it lies on these.
    stands_in: Vec<u64>,
}

/// The spares of a vdev that have not everything.
pub(in crate::pool) fn filling(layers: &Layers, top: &TopVdev) -> Vec<Filling> {
    if top.kind() != VdevKind::Draid {
        return Vec::new();
    }
    let (config, mut found) = (top.config(), Vec::new());
    gather(&config, &mut found);
    let filling = |spare: VdevConfig| {
        let group = config.parent_of(spare.guid).filter(|group| group.kind.is_replicated());
        let stands_in = group.map(|group| group.leaves().iter().map(|leaf| leaf.guid).collect()).unwrap_or_default();
        Filling { guid: spare.guid, missed: missed(layers, &spare), stands_in }
    };
    found.into_iter().map(filling).collect()
}

fn gather(config: &VdevConfig, found: &mut Vec<VdevConfig>) {
    if config.kind == VdevKind::DraidSpare && config.is_filling() {
        found.push(config.clone());
    }
    config.children.iter().for_each(|child| gather(child, found));
}

fn missed(layers: &Layers, spare: &VdevConfig) -> Vec<(u64, u64)> {
    let began = spare.get(key::REBUILD_TXG).or(spare.get(key::RESILVER_TXG));
    let all = || began.map(|txg| (TXG_INITIAL, txg + attach::GROUPS_UNDER_WAY)).into_iter().collect();
    match spare.number(key::DTL) {
        0 => all(),
        log => read_ranges(&layers.mos().0, log).ok().filter(|ranges| !ranges.is_empty()).unwrap_or_else(all),
    }
}

/// A spare has everything, in the sync thread: it is as good as a device.
///
/// # Errors
/// The MOS cannot be changed.
pub(in crate::pool) fn has_everything(layers: &Layers, configuration: &Configuration, top: &TopVdev, guid: u64, tx: &SyncTx<'_>) -> Result<()> {
    let log = top.config().find(guid).map_or(0, |spare| spare.number(key::DTL));
    if let (Some(maps), 1..) = (&layers.space_maps, log) {
        maps.free_ranges(tx, log)?;
    }
    top.exchange(&[], |_, config| {
        let mut config = config.clone();
        if let Some(spare) = config.find_mut(guid) {
            [key::DTL, key::RESILVER_TXG, key::REBUILD_TXG, key::RESILVER_DEFER].into_iter().for_each(|name| spare.remove(name));
        }
        Ok(config)
    })?;
    configuration.set_dirty();
    Ok(())
}

/// A resilver has covered all groups before `max_txg`, in the sync thread, without the devices `away`, and without what devices refused: spares that have missed no others, and have
/// nothing on these, have everything. What is to lie on a device beside which another or a spare has everything, lies there.
///
/// # Errors
/// The MOS cannot be changed.
pub(in crate::pool) fn resilvered(layers: &Layers, configuration: &Configuration, max_txg: u64, (away, wrong): (&BTreeSet<u64>, &NotRight), tx: &SyncTx<'_>) -> Result<()> {
    for top in layers.vdevs.data_tops() {
        let has_refused = |leaf: &Leaf| wrong.refused_by(LeafId { vdev: top.id() as u32, leaf: leaf.number() }).next().is_some();
        let lacks = |leaf: &Arc<Leaf>| away.contains(&leaf.guid()) || has_refused(leaf);
        let (config, leaves, found) = (top.config(), top.leaves(), filling(layers, &top));
        let is_whole = |guid: u64| leaves.iter().any(|leaf| leaf.guid() == guid && leaf.is_open() && leaf.missing_txgs().is_empty() && !lacks(leaf));
        let mut full: Vec<&Filling> = found.iter().filter(|spare| spare.missed.last().is_none_or(|(_, end)| *end <= max_txg)).collect();
        // Spares may lie on one another: one that has not everything takes others with it.
        loop {
            let short: BTreeSet<u64> = found.iter().map(|spare| spare.guid).filter(|guid| !full.iter().any(|spare| spare.guid == *guid)).collect();
            let before = full.len();
            let is_without = |spare: &Filling, leaf: &Arc<Leaf>| lacks(leaf) && !spare.stands_in.contains(&leaf.guid()) && !is_covered(&config, leaf.guid(), &short, &is_whole);
            full.retain(|spare| !leaves.iter().any(|leaf| is_without(spare, leaf)));
            if full.len() == before {
                break;
            }
        }
        for spare in full {
            has_everything(layers, configuration, &top, spare.guid, tx)?;
        }
    }
    Ok(())
}

/// Is there, beside a device, another that has everything, or a distributed spare that is none of the `short` ones?
fn is_covered(config: &VdevConfig, guid: u64, short: &BTreeSet<u64>, is_whole: &dyn Fn(u64) -> bool) -> bool {
    let Some(group) = config.parent_of(guid).filter(|group| group.kind.is_replicated()) else { return false };
    group.children.iter().filter(|beside| beside.guid != guid).any(|beside| match &beside.kind {
        VdevKind::DraidSpare => !short.contains(&beside.guid),
        kind => kind.is_leaf() && is_whole(beside.guid),
    })
}

/// OpenZFS leaves an empty log where a spare has everything: it goes with the first group.
///
/// # Errors
/// The pool has stopped.
pub(in crate::pool) fn open(writer: &Arc<GroupWriter>) -> Result<()> {
    for top in writer.layers().vdevs.data_tops() {
        for spare in filling(writer.layers(), &top).into_iter().filter(|spare| spare.missed.is_empty()) {
            let (own, top) = (writer.clone(), top.clone());
            writer.layers().dsl.queue_task(move |_, tx| has_everything(own.layers(), own.configuration(), &top, spare.guid, tx))?;
        }
    }
    Ok(())
}

/// Lets the distributed spare of this guid stand in for the device of guid `old`, and returns when it is written to. One call at a time.
///
/// # Errors
/// `Unsupported`: it cannot stand in there. `Busy`: it stands in for another device.
pub(in crate::pool) fn attach(writer: &Arc<GroupWriter>, old: u64, spare: u64, fill: Fill) -> Result<()> {
    let name = writer.configuration().name();
    let attached = attach_checked(writer, old, spare, fill).within(|| format!("pool {name}"));
    attach::begin_to_fill(writer, attached, fill)
}

fn attach_checked(writer: &Arc<GroupWriter>, old: u64, spare: u64, fill: Fill) -> Result<()> {
    let layers = writer.layers();
    if layers.is_read_only() || layers.space_maps.is_none() {
        bail!(ReadOnly, "it is read-only");
    }
    checkpoint::refuse_change(layers)?;
    let Some((top, _)) = layers.vdevs.find_described(old) else { bail!(NotFound, "no device has guid {old}") };
    let listed = Auxiliary::read(layers.mos())?.spares.into_iter().find(|listed| listed.guid == spare);
    let Some(listed) = listed.filter(|listed| listed.kind == VdevKind::DraidSpare) else { bail!(NotFound, "no distributed spare has guid {spare}") };
    attach::check_fill(writer, &top, fill, true)?;
    if listed.number(key::SPARE_TOP) != top.guid() {
        bail!(Unsupported, "dRAID spares can only replace child devices in their parent's dRAID vdev");
    }
    if layers.vdevs.find_described(spare).is_some() {
        bail!(Busy, "{} is busy", listed.display_name());
    }
    attach::check_place(&top.config(), old, Beside::Spare(spare), writer.configuration().get().version)?;
    let group = layers.context.host.random();
    in_one_group(writer, move |writer, tx| join(writer, &top, (listed, group), old, fill, tx))
}

/// Makes it part of its vdev, in the sync thread.
fn join(writer: &GroupWriter, top: &Arc<TopVdev>, (mut spare, group): (VdevConfig, u64), old: u64, fill: Fill, tx: &SyncTx<'_>) -> Result<Result<()>> {
    let (layers, configuration) = (writer.layers(), writer.configuration());
    let Some(maps) = &layers.space_maps else { return Ok(Err(error!(ReadOnly, "the space maps are not open"))) };
    let Some(replaced) = top.config().find(old).map(VdevConfig::display_name) else { return Ok(Err(error!(NotFound, "no device has guid {old}"))) };
    let (guid, shown) = (spare.guid, spare.display_name());
    [key::ASHIFT, key::IS_LOG].into_iter().for_each(|name| spare.remove(name));
    spare.set(fill.key(), tx.txg());
    if let Err(refused) = top.exchange(&[], |_, config| config.with_beside(old, spare, VdevKind::Spare, group)) {
        return Ok(Err(refused));
    }
    let log = maps.write_ranges(tx, 0, &[(TXG_INITIAL, tx.txg() + attach::GROUPS_UNDER_WAY)])?;
    top.update_config(|config| {
        if let Some(spare) = config.find_mut(guid) {
            spare.set(key::DTL, log);
        }
    });
    if configuration.get().has_vdev_zaps {
        vdev_zaps::create_of_leaf(layers.mos(), top, guid, tx)?;
    }
    configuration.set_dirty();
    if fill == Fill::Sequential {
        rebuild::begin(writer, top, tx)?;
    }
    layers.dsl.record_event("vdev attach", &format!("spare in vdev={shown} for vdev={replaced}"), tx)?;
    Ok(Ok(()))
}

/// Takes a spare out of its vdev, in the sync thread. The inner error is a refusal: nothing has changed.
///
/// # Errors
/// The MOS cannot be changed.
pub(in crate::pool) fn take_out(layers: &Layers, configuration: &Configuration, top: &TopVdev, gone: &VdevConfig, tx: &SyncTx<'_>) -> Result<Result<()>> {
    let Some(maps) = &layers.space_maps else { bail!(ReadOnly, "the space maps are not open") };
    let for_good = top.config().spare_for_good(gone.guid);
    if let Err(refused) = top.detach_distributed(gone.guid) {
        return Ok(Err(refused));
    }
    if let Some(spare) = for_good {
        auxiliary::strike_spare_sync(layers.mos(), spare, tx)?;
    }
    if gone.number(key::DTL) != 0 {
        maps.free_ranges(tx, gone.number(key::DTL))?;
    }
    vdev_zaps::free_of_leaf(layers.mos(), gone, tx)?;
    configuration.set_dirty();
    layers.dsl.record_event("detach", &format!("vdev={}", gone.display_name()), tx)?;
    Ok(Ok(()))
}
