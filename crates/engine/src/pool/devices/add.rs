//! Adding top-level vdevs to a pool that is in use.
//!
//! # Theory
//! Devices get labels without a txg first: a crash before the rest leaves devices that belong to no pool. Then one group changes
//! the tree, the configuration in the MOS, the space maps and the labels together, so that a crash leaves the old pool or the new
//! one. Only when that group is on disk is anything allocated on the new vdevs: a log block is written and pointed to at once, and a
//! pool whose configuration does not have its vdev could not follow the pointer.

use std::sync::Arc;

use ondisk::feature::Feature;

use super::{draid, vdev_zaps};
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::SpaceCheck;
use crate::error::{Result, Within};
use crate::pool::config::configuration::Configuration;
use crate::pool::layers::Layers;
use crate::pool::open::open::vdev_space;
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::label::init_labels;
use crate::vdev::{Bias, NewTop, TopVdev, VdevConfig, VdevKind, VdevTree, key};

/// Pool version that has devices for the log alone.
const VERSION_LOGS: u64 = 7;
/// Blocks of the MOS that a new vdev changes, about.
const BLOCKS_PER_VDEV: u64 = 8;

/// Adds top-level vdevs (`zpool add`), and returns when they are in use. One call at a time. `any_ashift`: although their sectors are of another size
/// than those of the pool's other vdevs, which makes it impossible to remove one of these later.
///
/// # Errors
/// A device cannot be used, or the pool cannot have such a vdev; the pool is what it was.
#[doc(alias = "spa_vdev_add")]
pub(in crate::pool) fn add_vdevs(writer: &Arc<GroupWriter>, new: Vec<NewTop>, any_ashift: bool) -> Result<()> {
    let name = writer.configuration().name();
    add_prepared(writer, new, any_ashift).within(|| format!("pool {name}"))
}

fn add_prepared(writer: &Arc<GroupWriter>, new: Vec<NewTop>, any_ashift: bool) -> Result<()> {
    let (layers, configuration) = (writer.layers(), writer.configuration());
    check_addable(layers, configuration, &new)?;
    let (next, txg) = (layers.vdevs.tops().len() as u64, layers.context.groups.open_txg());
    let host = layers.context.host.clone();
    let prepare = |(id, top)| layers.vdevs.prepare_top(&*host, top, id, txg);
    let tops = (next..).zip(new).map(prepare).collect::<Result<Vec<_>>>()?;
    check_beside_removal(&layers.vdevs, &tops)?;
    if !any_ashift {
        check_sectors(&layers.vdevs, &tops)?;
    }
    let config = configuration.get();
    for top in &tops {
        for leaf in &top.leaves() {
            if let Some(disk) = leaf.disk() {
                init_labels(&*disk, &config.first_label(&layers.vdevs, top, leaf, txg))?;
            }
        }
    }
    let adding = writer.clone();
    let blocks = BLOCKS_PER_VDEV * tops.len() as u64;
    layers.dsl.run_task(blocks, SpaceCheck::Reserved, |_| Ok(()), move |_, tx| attach_vdevs(&adding, &tops, tx))
}

fn check_addable(layers: &Layers, configuration: &Configuration, new: &[NewTop]) -> Result<()> {
    let config = configuration.get();
    if layers.is_read_only() || layers.space_maps.is_none() {
        bail!(ReadOnly, "it is read-only");
    }
    if new.iter().any(|top| top.bias == Bias::Log) && config.version < VERSION_LOGS {
        bail!(Unsupported, "pools of version {} have no log devices", config.version);
    }
    if new.iter().any(|top| top.bias.is_class()) && !layers.meta().features.is_enabled(Feature::AllocationClasses) {
        bail!(Unsupported, "the pool must be upgraded to have special and dedup vdevs: the feature allocation_classes is not enabled");
    }
    if new.iter().any(|top| top.draid.is_some()) && !layers.meta().features.is_enabled(Feature::Draid) {
        bail!(Unsupported, "the pool must be upgraded to have dRAID vdevs: the feature draid is not enabled");
    }
    let has_removed = layers.vdevs.config().children.iter().any(|top| top.kind == VdevKind::Indirect || top.number(key::REMOVING) != 0);
    if has_removed && new.iter().any(|top| top.parity != 0) {
        bail!(Invalid, "invalid config; a pool with removing/removed vdevs does not support adding raidz or dRAID vdevs");
    }
    // What a vdev is for is in its ZAP.
    if !config.has_vdev_zaps && (layers.meta().features.is_enabled(Feature::LogSpacemap) || new.iter().any(|top| top.bias.is_class())) {
        bail!(Unsupported, "its vdevs have no ZAPs: let OpenZFS import it once");
    }
    Ok(())
}

/// Refuses sectors of another size than those of a vdev that is being removed: what is copied from there has to fit. The devices may have decided on them.
fn check_beside_removal(vdevs: &VdevTree, tops: &[Arc<TopVdev>]) -> Result<()> {
    if let Some(going) = vdevs.data_tops().iter().find(|top| top.is_removing())
        && tops.iter().any(|top| top.ashift() != going.ashift())
    {
        bail!(Invalid, "invalid config; while a vdev is being removed all must have the same sector size");
    }
    Ok(())
}

/// Refuses sectors of another size, if those of the pool are of one size.
fn check_sectors(vdevs: &VdevTree, tops: &[Arc<TopVdev>]) -> Result<()> {
    let (least, most) = vdevs.allocation_units();
    match tops.iter().map(|top| 1u64 << top.ashift()).find(|unit| least == most && *unit != most) {
        Some(unit) => bail!(Invalid, "the new vdev has sectors of {unit} bytes, the others of {most}"),
        None => Ok(()),
    }
}

/// Makes new vdevs part of the pool, in the sync thread.
fn attach_vdevs(writer: &GroupWriter, tops: &[Arc<TopVdev>], tx: &SyncTx<'_>) -> Result<()> {
    let (layers, configuration) = (writer.layers(), writer.configuration());
    let Some(maps) = &layers.space_maps else { bail!(ReadOnly, "the space maps are not open") };
    let mos = layers.mos();
    for top in tops {
        top.update_config(|config| set_create_txg(config, tx.txg()));
        if configuration.get().has_vdev_zaps {
            vdev_zaps::create(layers.meta(), top, tx)?;
        }
        layers.vdevs.attach(top);
        maps.add_vdev(vdev_space(top, mos)?)?;
        writer.open_when_written(top);
    }
    draid::begin_to_use(layers.meta(), tops, tx)?;
    maps.make_arrays(tx)?;
    configuration.note_metaslab_arrays(maps);
    configuration.set_dirty();
    Ok(())
}

fn set_create_txg(config: &mut VdevConfig, txg: u64) {
    config.set(key::CREATE_TXG, txg);
    config.children.iter_mut().for_each(|child| set_create_txg(child, txg));
}
