//! Devices that have everything again.
//!
//! # Theory
//! A resilver brings a device what it missed, and shortens its dirty time log. When the log is empty, the device is no worse than the others;
//! one that replaces another has its place then.

use super::beside::detach::take_out;
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::pool::config::configuration::Configuration;
use crate::pool::layers::Layers;
use crate::vdev::{Members, Reason, TopVdev, VdevConfig, VdevKind, VdevState, key};

/// A resilver has ended well, and dirty time logs are shorter, in the sync thread: devices that miss nothing are not behind any more, and replacements of
/// which the new side misses nothing are ended.
///
/// # Errors
/// The MOS cannot be changed.
#[doc(alias = "spa_vdev_resilver_done")]
pub(in crate::pool) fn caught_up(layers: &Layers, configuration: &Configuration, tx: &SyncTx<'_>) -> Result<()> {
    for top in layers.vdevs.data_tops() {
        if forget_filling(&top) {
            configuration.set_dirty();
        }
        while let Some(old) = replaced(&top.config(), &top.members()) {
            if let Err(refused) = take_out(layers, configuration, &top, old, tx)? {
                tracing::info!("a replacement does not end yet: {refused}");
                break;
            }
        }
    }
    Ok(())
}

/// Devices that miss nothing are as good as the others; whether that changed anything.
fn forget_filling(top: &TopVdev) -> bool {
    let mut changed = false;
    for leaf in &top.leaves() {
        if !leaf.is_open() || !leaf.missing_txgs().is_empty() {
            continue;
        }
        if leaf.is_behind() {
            leaf.set_behind(false);
        }
        if leaf.state() == VdevState::Degraded && leaf.reason() == Reason::Behind {
            leaf.set_state(VdevState::Online, Reason::None);
        }
        let is_filling = |config: &VdevConfig| config.get(key::RESILVER_TXG).or(config.get(key::REBUILD_TXG)).is_some();
        if top.config().find(leaf.guid()).is_some_and(is_filling) {
            top.update_config(|config| {
                if let Some(config) = config.find_mut(leaf.guid()) {
                    config.remove(key::RESILVER_TXG);
                    config.remove(key::REBUILD_TXG);
                    config.remove(key::RESILVER_DEFER);
                }
            });
            changed = true;
        }
    }
    changed
}

/// The first device that is replaced by one that misses nothing, and is not needed any more.
fn replaced(config: &VdevConfig, members: &Members) -> Option<u64> {
    if let Some(found) = config.children.iter().find_map(|child| replaced(child, members)) {
        return Some(found);
    }
    if config.kind != VdevKind::Replacing {
        return None;
    }
    let leaf = |config: &VdevConfig| members.leaf_of_guid(config.guid);
    let (old, new) = (leaf(config.children.first()?)?, leaf(config.children.last()?)?);
    let has_everything = new.is_open() && !new.is_behind();
    (has_everything && !members.needs(old.number())).then(|| old.guid())
}
