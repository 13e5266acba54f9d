//! Devices that have everything again.
//!
//! # Theory
//! A resilver brings a device what it missed, and shortens its dirty time log. When the log is empty, the device is no worse than the others;
//! one that replaces another has its place then. A spare goes back when what it stood in for was replaced, or has come back to stay (`unspare`); and of several spares
//! for one device the last one is enough.

use super::beside::detach::take_out;
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::pool::config::configuration::Configuration;
use crate::pool::layers::Layers;
use crate::vdev::{Members, Reason, TopVdev, VdevConfig, VdevKind, VdevState, key};

/// A resilver has ended well, and dirty time logs are shorter, in the sync thread: devices that miss nothing are not behind any more, and replacements of
/// which the new side misses nothing are ended, as is what spares did.
///
/// # Errors
/// The MOS cannot be changed.
#[doc(alias = "spa_vdev_resilver_done")]
pub(in crate::pool) fn caught_up(layers: &Layers, configuration: &Configuration, tx: &SyncTx<'_>) -> Result<()> {
    for top in layers.vdevs.data_tops() {
        if forget_filling(&top) {
            configuration.set_dirty();
        }
        while let Some(found) = superfluous(&top.config(), &top.members(), None) {
            let taken = take_out(layers, configuration, &top, found.device, tx)?;
            let taken = match (taken, found.spare) {
                (Ok(()), Some(spare)) => take_out(layers, configuration, &top, spare, tx)?,
                (taken, _) => taken,
            };
            if let Err(refused) = taken {
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
        if !leaf.is_open() || !leaf.forget_behind() {
            continue;
        }
        if leaf.state() == VdevState::Degraded && leaf.reason() == Reason::Behind {
            leaf.set_state(VdevState::Online, Reason::None);
        }
        let is_filling = |config: &VdevConfig| config.get(key::RESILVER_TXG).or(config.get(key::REBUILD_TXG)).or(config.get(key::REMOVED)).is_some();
        if top.config().find(leaf.guid()).is_some_and(is_filling) {
            top.update_config(|config| {
                if let Some(config) = config.find_mut(leaf.guid()) {
                    config.remove(key::RESILVER_TXG);
                    config.remove(key::REBUILD_TXG);
                    config.remove(key::RESILVER_DEFER);
                    config.remove(key::REMOVED);
                }
            });
            changed = true;
        }
    }
    changed
}

/// A device that is not needed any more.
struct Superfluous {
    device: u64,
    /// The spare that stood in for it.
    spare: Option<u64>,
}

/// The first device that is not needed any more. `spare`: what stands in for all that `config` describes.
#[doc(alias = "spa_vdev_resilver_done_hunt")]
fn superfluous(config: &VdevConfig, members: &Members, spare: Option<u64>) -> Option<Superfluous> {
    for (at, child) in config.children.iter().enumerate() {
        let is_spared = config.kind == VdevKind::Spare && at == 0 && config.children.len() == 2;
        if let Some(found) = superfluous(child, members, is_spared.then(|| config.children[1].guid)) {
            return Some(found);
        }
    }
    let (first, last) = (config.children.first()?, config.children.last()?);
    let leaf = |config: &VdevConfig| members.leaf_of_guid(config.guid);
    let has_everything = |new: &VdevConfig| match new.kind {
        VdevKind::DraidSpare => !new.is_filling(),
        _ => leaf(new).is_some_and(|new| new.is_open() && !new.is_behind()),
    };
    let is_needed = |old: &VdevConfig| match old.kind {
        VdevKind::DraidSpare => false,
        _ => leaf(old).is_none_or(|old| members.needs(old.number())),
    };
    let can_go = |old: &VdevConfig, new: &VdevConfig| has_everything(new) && !is_needed(old);
    let found = match config.kind {
        VdevKind::Replacing => Some((first, last, spare)),
        VdevKind::Spare if last.flag(key::UNSPARE) => Some((first, last, None)),
        VdevKind::Spare if first.flag(key::UNSPARE) => Some((last, first, None)),
        VdevKind::Spare if config.children.len() > 2 => Some((&config.children[1], last, None)).filter(|(old, new, _)| old.flag(key::IS_SPARE) && new.flag(key::IS_SPARE)),
        _ => None,
    };
    let (old, _, spare) = found.filter(|(old, new, _)| can_go(old, new))?;
    Some(Superfluous { device: old.guid, spare })
}

/// May a spare go back, because of a device that has come back?
pub(in crate::pool) fn has_unspared(config: &VdevConfig) -> bool {
    config.flag(key::UNSPARE) || config.children.iter().any(has_unspared)
}
