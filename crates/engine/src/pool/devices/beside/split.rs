//! One side of each mirror becomes a pool of its own: `zpool split`.
//!
//! # Theory
//! One group takes the sides out. When it is on disk they hold the pool as it was in the group before, with labels that the pool does not know any more; they are
//! opened as another pool, with a guid of its own, and the first group of that writes their labels. A crash between the two leaves the old pool without
//! these sides, and no new pool.
//!
//! Devices of the log stay with the old pool. Nothing is on them when the group is written; the new pool removes them as if they were missing.

use std::sync::Arc;

use parking_lot::Mutex;

use super::detach;
use crate::error::{Result, Within};
use crate::pool::devices::{in_one_group, remove_log};
use crate::pool::open::import::discover;
use crate::pool::open::open::open_split;
use crate::pool::sync::writer::GroupWriter;
use crate::pool::{OpenOptions, Pool, checkpoint};
use crate::vdev::{Leaf, TopVdev, VdevKind, VdevState};
use crate::{bail, error};

/// Makes a pool of the devices with these guids, one of each mirror, and leaves it open. One call at a time.
///
/// # Errors
/// `Invalid`: a top-level vdev is no mirror, or none of its sides is among them. `Busy`: the others have not all that they have.
#[doc(alias = "spa_vdev_split_mirror")]
pub(in crate::pool) fn split(writer: &Arc<GroupWriter>, chosen: &[u64], options: OpenOptions) -> Result<Arc<Pool>> {
    let name = writer.configuration().name();
    split_off(writer, chosen, options).within(|| format!("pool {name}"))
}

fn split_off(writer: &Arc<GroupWriter>, chosen: &[u64], options: OpenOptions) -> Result<Arc<Pool>> {
    let layers = writer.layers();
    if layers.is_read_only() || layers.space_maps.is_none() {
        bail!(ReadOnly, "it is read-only");
    }
    checkpoint::refuse_change(layers)?;
    if writer.removals().is_active() {
        bail!(Busy, "device removal in progress");
    }
    let (logs, tops): (Vec<_>, Vec<_>) = layers.vdevs.data_tops().into_iter().partition(|top| top.is_log());
    let sides = tops.into_iter().map(|top| choose(top, chosen)).collect::<Result<Vec<_>>>()?;
    let paused = logs.iter().map(|top| remove_log::pause_log(writer, top)).collect::<Result<Vec<_>>>();
    let taken = paused.as_ref().map_err(Clone::clone).and_then(|_| take_sides(writer, sides));
    for top in &logs {
        layers.context.io.allocator().group(top.id() as u32)?.set_usable(top.state().is_readable());
    }
    layers.context.io.try_log_devices_again();
    let taken = taken?;
    let guid = layers.context.host.random();
    let take_disk = |leaf: &Arc<Leaf>| {
        let disk = leaf.disk();
        leaf.close();
        disk
    };
    let candidates = discover(taken.iter().filter_map(take_disk).collect());
    let Some(candidate) = candidates.first() else { bail!(NoDevice, "what was taken out cannot be read") };
    let half = open_split(candidate, options, guid)?;
    logs.iter().try_for_each(|top| half.remove_log(top.guid()))?;
    Ok(half)
}

/// Takes these sides out in one group.
fn take_sides(writer: &Arc<GroupWriter>, sides: Vec<(Arc<TopVdev>, Arc<Leaf>)>) -> Result<Vec<Arc<Leaf>>> {
    writer.sync_all()?;
    let taken: Arc<Mutex<Taken>> = Arc::default();
    let taking = taken.clone();
    let done = in_one_group(writer, move |writer, tx| {
        // Before any is taken: seconds may have passed since they were chosen.
        for (top, side) in &sides {
            if side.is_behind() || !side.is_open() {
                return Ok(Err(error!(Busy, "{}: it has not everything", side.name())));
            }
            if top.members().needs(side.number()) {
                return Ok(Err(error!(Busy, "{}: not every side has everything", side.name())));
            }
        }
        for (top, side) in &sides {
            match detach::take(writer.layers(), writer.configuration(), top, side.guid(), tx)? {
                Ok(leaf) => taking.lock().sides.push((top.clone(), leaf)),
                Err(refused) => {
                    // What was taken out before is no pool.
                    taking.lock().let_go(writer);
                    return Ok(Err(refused));
                }
            }
        }
        let mut taking = taking.lock();
        if taking.is_given_up {
            taking.let_go(writer);
        }
        Ok(Ok(()))
    });
    let mut taken = taken.lock();
    if let Err(error) = done {
        // They are taken out when the pool goes on, and there is nobody to make a pool of them.
        taken.is_given_up = true;
        taken.let_go(writer);
        return Err(error);
    }
    Ok(std::mem::take(&mut taken.sides).into_iter().map(|(_, leaf)| leaf).collect())
}

/// What was taken out, and for whom.
#[derive(Default)]
struct Taken {
    sides: Vec<(Arc<TopVdev>, Arc<Leaf>)>,
    /// Nobody waits for it any more.
    is_given_up: bool,
}

impl Taken {
    /// They belong to nobody, as if each was detached.
    fn let_go(&mut self, writer: &GroupWriter) {
        let departures = writer.layers().vdevs.departures();
        for (top, leaf) in self.sides.drain(..) {
            departures.note(detach::departing(writer.configuration(), &top, None, leaf));
        }
    }
}

/// The side of a mirror that goes.
fn choose(top: Arc<TopVdev>, chosen: &[u64]) -> Result<(Arc<TopVdev>, Arc<Leaf>)> {
    if top.kind() != VdevKind::Mirror {
        bail!(Invalid, "vdev {} is no mirror that holds data", top.id());
    }
    let members = top.members();
    let mut found = members.leaves.iter().filter(|leaf| chosen.contains(&leaf.guid()));
    let (Some(leaf), None) = (found.next(), found.next()) else { bail!(Invalid, "vdev {}: it takes one side of each mirror", top.id()) };
    if leaf.state() != VdevState::Online {
        bail!(Invalid, "{}: {}", leaf.name(), leaf.state());
    }
    if leaf.is_behind() || members.needs(leaf.number()) {
        bail!(Busy, "{}: not every side has everything", leaf.name());
    }
    let leaf = leaf.clone();
    Ok((top, leaf))
}
