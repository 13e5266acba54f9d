//! Dirty time logs: which writes each device missed, on disk.
//!
//! # Theory
//! The next import of the pool has to know that one side of a mirror is not what the other is: a side that comes back after it was away
//! looks whole, and where blocks have no checksums nothing else would tell. So each device has a log of the transaction groups
//! whose writes it missed (*dirty time log*, DTL), a space map of txgs in the MOS, and its description names it. Such a
//! device is resilvered when the pool is imported, and the log made shorter then (`pool/scan`); until it is, it is read only when nothing else is left.
//!
//! A device that came back without anybody having written that down is found by its uberblocks: where the other side has at least
//! two that it has not, it was away. (One less is what a crash between two writes leaves.)
//!
//! # On disk
//! `DTL` in the description of a device: a space map from 0 to the largest number, in units of 1, whose allocations are txgs.

pub(in crate::pool) mod moved;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::dmu::SyncTx;
use crate::dsl::Mos;
use crate::error::{Result, Within};
use crate::pool::config::configuration::Configuration;
use crate::pool::layers::Layers;
use crate::pool::open::import::Candidate;
use crate::pool::space_maps::read_ranges;
use crate::vdev::{Leaf, TopVdev, VdevTree, key};

/// Uberblocks that a device may lack because of a crash.
const UBERBLOCKS_LACKED_MAX: usize = 1;

/// The object with the log of a device; 0: none.
fn log_of(top: &TopVdev, leaf: &Leaf) -> u64 {
    top.config().find(leaf.guid()).map_or(0, |config| config.number(key::DTL))
}

/// Reads what every device missed.
///
/// # Errors
/// A log cannot be read.
pub(in crate::pool) fn load(mos: &Mos, vdevs: &Arc<VdevTree>, candidate: &Candidate) -> Result<()> {
    for top in vdevs.data_tops() {
        for leaf in &top.leaves() {
            let log = log_of(&top, leaf);
            if log != 0 {
                let ranges = read_ranges(&mos.0, log).within(|| format!("what {} missed", leaf.name()))?;
                leaf.set_missed(ranges, is_filling(&top, leaf));
            }
        }
        note_absences(&top, candidate);
    }
    Ok(())
}

/// It is being filled by a resilver, whatever its log says.
fn is_filling(top: &TopVdev, leaf: &Leaf) -> bool {
    let config = top.config();
    let found = config.find(leaf.guid());
    found.is_some_and(|config| config.get(key::RESILVER_TXG).or(config.get(key::REBUILD_TXG)).is_some())
}

/// Finds the sides that were away.
fn note_absences(top: &TopVdev, candidate: &Candidate) {
    let rings: Vec<(Arc<Leaf>, &[u64])> = top
        .leaves()
        .into_iter()
        .filter_map(|leaf| candidate.devices.iter().find(|device| device.guid == leaf.guid()).map(|device| (leaf.clone(), device.uberblock_txgs.as_slice())))
        .collect();
    let all: BTreeSet<u64> = rings.iter().flat_map(|(_, txgs)| txgs.iter().copied()).collect();
    let Some(newest) = all.last() else { return };
    for (leaf, txgs) in rings {
        let own = txgs.iter().max().copied().unwrap_or(0);
        if all.range(own + 1..).count() > UBERBLOCKS_LACKED_MAX {
            leaf.note_missed(own + 1, newest + 1);
        }
    }
}

/// Whether a device missed something that is not written down.
pub(in crate::pool) fn has_unsaved(vdevs: &VdevTree) -> bool {
    vdevs.leaves().iter().any(|leaf| leaf.has_unsaved_missed())
}

/// Writes down what each device missed, this group included, which a device that is not there misses.
pub(in crate::pool) fn sync(layers: &Layers, configuration: &Configuration, tx: &SyncTx<'_>) -> Result<()> {
    let Some(maps) = &layers.space_maps else { return Ok(()) };
    for top in layers.vdevs.data_tops() {
        for leaf in &top.leaves() {
            if tx.pass == 1 && !leaf.is_open() {
                leaf.note_missed(tx.txg(), tx.txg() + 1);
            }
            let Some(ranges) = leaf.take_unsaved_missed() else { continue };
            let old = log_of(&top, leaf);
            let log = maps.write_ranges(tx, old, &ranges).within(|| format!("what {} missed", leaf.name()))?;
            if log != old {
                top.update_config(|config| {
                    if let Some(config) = config.find_mut(leaf.guid()) {
                        config.set(key::DTL, log);
                    }
                });
                configuration.set_dirty();
                if tx.pass > 1 {
                    configuration.sync(layers.meta(), tx)?;
                }
            }
        }
    }
    Ok(())
}
