//! What devices have missed, and have caught up with when a scan is at its end.

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::feature::Feature;
use ondisk::scan::{ScanFunction, ScanRecord};

use super::scans::{Coverage, Scans};
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::pool::devices::caught_up::caught_up;
use crate::pool::devices::distributed;
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::{Leaf, LeafId, TopVdev, VdevConfig};
use crate::zio::NotRight;

/// The devices that have missed something and can be written, each with what it is part of.
#[doc(alias = "vdev_resilver_needed")]
pub(super) fn needing(layers: &Layers) -> Vec<(Arc<TopVdev>, Arc<Leaf>)> {
    let of_top = |top: Arc<TopVdev>| {
        let leaves: Vec<Arc<Leaf>> = top.leaves().iter().filter(|leaf| leaf.is_open() && !leaf.missing_txgs().is_empty()).cloned().collect();
        leaves.into_iter().map(move |leaf| (top.clone(), leaf))
    };
    layers.vdevs.data_tops().into_iter().flat_map(of_top).collect()
}

/// Is there such a device, or a distributed spare that has not everything?
pub(super) fn is_any_needing(layers: &Layers) -> bool {
    !needing(layers).is_empty() || !missed_by_spares(layers).is_empty()
}

/// The groups that distributed spares have missed.
pub(super) fn missed_by_spares(layers: &Layers) -> Vec<(u64, u64)> {
    let tops = layers.vdevs.data_tops();
    tops.iter().flat_map(|top| distributed::filling(layers, top)).flat_map(|spare| spare.missed).collect()
}

/// Notes which devices are not there while a piece of a scan is done: they miss what it writes.
pub(super) fn note_away(layers: &Layers, scans: &Scans) {
    let away: Vec<u64> = layers.vdevs.leaves().iter().filter(|leaf| !leaf.is_open()).map(|leaf| leaf.guid()).collect();
    scans.coverage(|coverage| coverage.away.extend(away));
}

/// Has a device everything that the scan was to write there?
#[doc(alias = "vdev_dtl_should_excise")]
fn has_caught_up(leaf: &Leaf, record: &ScanRecord, coverage: &Coverage) -> bool {
    // What a flush lost before the scan began is in the log of the groups that it covers.
    let has_lost = coverage.devices.get(&leaf.guid()).map_or_else(|| leaf.has_lost_writes(), |before| leaf.failed_flushes() != *before);
    if !leaf.is_open() || has_lost || coverage.too_many_wrong || coverage.away.contains(&leaf.guid()) {
        return false;
    }
    if coverage.begun_here {
        return coverage.devices.contains_key(&leaf.guid());
    }
    // Devices that were not there when it began have missed something since; what could not be repaired is not known.
    record.errors == 0 && leaf.missing_txgs().last().is_none_or(|(_, end)| *end <= record.max_txg)
}

/// Is it noted that the resilver of a device waits for the one that is under way?
pub(super) fn is_deferred(top: &TopVdev, leaf: &Leaf) -> bool {
    top.config().find(leaf.guid()).is_some_and(VdevConfig::is_deferred)
}

/// The resilver that is under way goes on, without some of the devices that need one: that is noted on disk, for the end of it.
#[doc(alias = "vdev_defer_resilver")]
pub(super) fn defer(writer: &GroupWriter, running: &ScanRecord, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    let is_covered = |leaf: &Leaf| writer.scans().coverage(|coverage| match coverage.begun_here {
        true => coverage.devices.contains_key(&leaf.guid()),
        false => leaf.missing_txgs().last().is_none_or(|(_, end)| *end <= running.max_txg),
    });
    let left: Vec<_> = needing(layers).into_iter().filter(|(top, leaf)| !is_covered(leaf) && !is_deferred(top, leaf)).collect();
    if left.is_empty() {
        return Ok(());
    }
    for (top, leaf) in left {
        top.update_config(|config| config.find_mut(leaf.guid()).into_iter().for_each(|config| config.set_deferred(true)));
    }
    if !layers.meta().features.is_active(Feature::ResilverDefer) {
        layers.meta().features.increment(layers.mos(), Feature::ResilverDefer, tx)?;
    }
    writer.configuration().set_dirty();
    writer.configuration().sync(layers.meta(), tx)
}

/// No resilver waits any more.
#[doc(alias = "vdev_clear_resilver_deferred")]
pub(super) fn clear_deferred(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    let mut changed = false;
    for top in layers.vdevs.data_tops() {
        for leaf in top.leaves().iter().filter(|leaf| is_deferred(&top, leaf)) {
            top.update_config(|config| config.find_mut(leaf.guid()).into_iter().for_each(|config| config.set_deferred(false)));
            changed = true;
        }
    }
    if layers.meta().features.is_active(Feature::ResilverDefer) {
        layers.meta().features.decrement(layers.mos(), Feature::ResilverDefer, tx)?;
        changed = true;
    }
    if changed {
        writer.configuration().set_dirty();
        writer.configuration().sync(layers.meta(), tx)?;
    }
    Ok(())
}

/// The groups of blocks that a device refused.
fn refused_by<'a>(top: &TopVdev, leaf: &Leaf, wrong: &'a NotRight) -> impl Iterator<Item = u64> + use<'a> {
    wrong.refused_by(LeafId { vdev: top.id() as u32, leaf: leaf.number() })
}

/// The groups of which a device has not everything: what nobody has, and what it refused. What another device refused is no matter of this one's.
fn wrong_of(top: &TopVdev, leaf: &Leaf, wrong: &NotRight) -> BTreeSet<u64> {
    wrong.lost.iter().copied().chain(refused_by(top, leaf, wrong)).collect()
}

/// Does a device get everything from the scan that is under way? One that was away, or did not answer for a while, does not.
pub(super) fn is_served(top: &TopVdev, leaf: &Leaf, coverage: &Coverage) -> bool {
    let has_lost = coverage.devices.get(&leaf.guid()).is_none_or(|before| leaf.failed_flushes() != *before);
    !has_lost && !coverage.away.contains(&leaf.guid()) && refused_by(top, leaf, &coverage.wrong).next().is_none()
}

/// Devices that may not have all of what the scan wrote there: they were away, or lost something, whatever groups that is of.
fn lacking(layers: &Layers, coverage: &Coverage) -> BTreeSet<u64> {
    let has_lost = |leaf: &Leaf| coverage.begun_here && coverage.flushes.get(&leaf.guid()).is_none_or(|before| leaf.failed_flushes() != *before);
    let lacks = |leaf: &Arc<Leaf>| !leaf.is_open() || coverage.away.contains(&leaf.guid()) || has_lost(leaf);
    layers.vdevs.leaves().iter().filter(|leaf| lacks(leaf)).map(|leaf| leaf.guid()).collect()
}

/// A scan has come to its end: takes what it has covered out of the dirty time logs. Whether a device needs another resilver.
#[doc(alias = "vdev_dtl_reassess")]
pub(super) fn settle(writer: &GroupWriter, record: &ScanRecord, tx: &SyncTx<'_>) -> Result<bool> {
    let layers = writer.layers();
    let needing = needing(layers);
    // Invariant 3.
    layers.context.io.flush()?;
    let coverage = writer.scans().coverage(|coverage| coverage.clone());
    let (mut again, mut changed) = (false, false);
    for (top, leaf) in needing {
        let wrong = wrong_of(&top, &leaf, &coverage.wrong);
        if is_deferred(&top, &leaf) || !has_caught_up(&leaf, record, &coverage) {
            again |= leaf.is_open() && wrong.is_empty();
            continue;
        }
        changed = true;
        leaf.caught_up(record.max_txg, &wrong);
        again |= leaf.missing_txgs().last().is_some_and(|(_, end)| *end > record.max_txg) && wrong.is_empty();
    }
    if changed {
        writer.configuration().set_dirty();
    }
    // What a spare lacks lies on any device of its vdev.
    let is_whole = coverage.wrong.lost.is_empty() && !coverage.too_many_wrong && record.errors == 0;
    if is_whole && record.function == ScanFunction::Resilver {
        let lacking = lacking(layers, &coverage);
        distributed::resilvered(layers, writer.configuration(), record.max_txg, (&lacking, &coverage.wrong), tx)?;
        again |= missed_by_spares(layers).iter().any(|(_, end)| *end > record.max_txg);
    }
    caught_up(layers, writer.configuration(), tx)?;
    writer.configuration().sync(layers.meta(), tx)?;
    Ok(again)
}
