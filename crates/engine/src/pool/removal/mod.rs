//! Removal of a top-level vdev that holds data: what it has is copied to the others (evacuation).
//!
//! # Theory
//! Block pointers name vdevs by number, and cannot be changed: snapshots have them. So what a vdev has is copied as it is, from its first byte to its last, by the ranges that
//! its space maps call allocated, and a *map* says where each range went ([`crate::vdev::IndirectMap`]). When all is copied, the vdev becomes *indirect*: it has no devices any
//! more, and its addresses lead to others, as long as there is a pointer that has them.
//!
//! Nothing is allocated on the vdev from the beginning on, its intent logs have begun anew elsewhere, and several groups have passed since: so what is there stays as it is, but for
//! what is freed. The copying is done in the sync thread, a piece in each group, where all freeing is done, too. So there are two kinds of bytes only when something is freed: those behind the
//! end of the map are not copied, and will not be, as they are not allocated any more; those in front of it come free in both places, and the map has a part that nothing needs
//! ([`VdevTree::resolve_to_free`](crate::vdev::VdevTree::resolve_to_free)). The map gets the runs that were copied in the same group in which their new places are allocated: after a
//! crash all of a group has happened, or nothing.
//!
//! Users read and free what is on the vdev as ever, until the group is on disk in which it becomes indirect. Only then its devices lose their labels, and they are let go when no read
//! that began before is under way.
//!
//! Ranges that lie close together are copied as one, with what is between: that is given back at once, and counted as a part of the run that nothing needs. It makes the map shorter.
//!
//! What cannot be read or written ends the removal: the vdev goes on as if it had never been asked to leave, and what was copied is freed. So it is when it is given up. Blocks go there
//! again when the group is on disk that says so: before, a crash would find them in front of the end of the map.
//!
//! Of the map of a removed vdev less and less is needed. When a quarter is not, it is *condensed*: copied without the runs that nothing needs, again a piece in each group ([`condense_sync`]).
//!
//! Pointers keep the addresses that they have. OpenZFS gives blocks the new ones when it writes what leads to them, so that maps become shorter sooner; of those that a snapshot knows by the old
//! address it has a list beside each deadlist (`remap_deadlist`), which is heeded here when snapshots come and go.
//!
//! # On disk
//! [`ondisk::indirect`]. The description of the vdev says `removing` meanwhile.
//!
//! # Invariants
//! 1. Whatever is needed to read the newest map lies on vdevs that are there: it was written, in the group in which the removal began or later, to others than the one that goes.
//! 2. What the space maps of the vdev call allocated in front of the end of the map, and nothing else, is allocated where the map says.
//! 3. Each byte of the map that nothing needs is counted once: in the counts of the map, or in the space map of what is obsolete.

use std::sync::Arc;

use ondisk::indirect::{BIRTHS_OBJECT, MAPPING_OBJECT, MappingPhys, NO_VDEV, REMOVAL_ACTIVE, REMOVAL_NONE, REMOVING, RemovalPhys};
use parking_lot::Mutex;

use super::layers::Layers;
use super::sync::writer::GroupWriter;
use crate::bail;
use crate::dmu::{ObjectId, SyncTx};
use crate::dsl::Mos;
use crate::dsl::meta::key;
use crate::error::Result;
use crate::txg::Txg;
use crate::tunables::Parameter;
use crate::vdev::{TopVdev, VdevKind};

pub(in crate::pool) mod begin_end_sync;
pub(in crate::pool) mod cancel_sync;
pub(in crate::pool) mod check;
pub(in crate::pool) mod condense_sync;
pub(in crate::pool) mod mapping;
mod piece_sync;

#[cfg(test)]
mod tests;

pub(in crate::pool) use condense_sync::Condensing;
pub(in crate::pool) use piece_sync::sync;

/// What is in memory of a removal.
#[derive(Default)]
pub(in crate::pool) struct Removals {
    /// guarded by: itself
    state: Mutex<State>,
    /// The map that is being made shorter.
    pub(in crate::pool) condensing: Condensing,
}

#[derive(Default, Clone)]
struct State {
    /// The vdev that is being removed.
    top: Option<Arc<TopVdev>>,
    /// The group in which it began, or after which it goes on since an import: the copying begins in the next one.
    begun: Txg,
    /// The last group could copy nothing.
    is_stuck: bool,
    /// What was to be copied cannot be: the removal ends.
    has_failed: bool,
    /// The pool is being closed.
    is_ending: bool,
    /// What happened since this was last asked, in the words of events.
    events: Vec<&'static str>,
}

impl Removals {
    fn running(&self) -> Option<Arc<TopVdev>> {
        self.state.lock().top.clone()
    }

    /// Is a vdev being removed?
    pub(in crate::pool) fn is_active(&self) -> bool {
        self.state.lock().top.is_some()
    }

    /// Is there something to do in the next group?
    pub(in crate::pool) fn has_work(&self, layers: &Layers) -> bool {
        let state = self.state.lock();
        let goes_on = !state.is_ending && layers.context.tunables.now(Parameter::RemovalSuspendProgress) == 0;
        state.top.is_some() && goes_on
    }

    /// Was something freed that need not be copied, and does not count yet?
    pub(in crate::pool) fn has_uncopied(&self) -> bool {
        self.state.lock().top.as_ref().is_some_and(|top| top.has_uncopied())
    }

    /// The pool is being closed: nothing more is copied. Or it goes on after all.
    pub(in crate::pool) fn set_ending(&self, is_ending: bool) {
        self.state.lock().is_ending = is_ending;
        self.condensing.set_ending(is_ending);
    }

    /// What happened to removals since this was last asked.
    pub(in crate::pool) fn take_events(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state.lock().events)
    }
}

/// What the MOS says of the last removal; before the first, that there was none.
///
/// # Errors
/// The MOS cannot be read.
pub(in crate::pool) fn stored(mos: &Mos) -> Result<RemovalPhys> {
    let none = RemovalPhys { state: REMOVAL_NONE, vdev: NO_VDEV, previous: NO_VDEV, start_time: 0, end_time: 0, to_copy: 0, copied: 0 };
    match mos.zap_get(key::DIRECTORY, REMOVING)? {
        Some(value) => Ok(RemovalPhys::from_words(&value.to_u64s())?),
        None => Ok(none),
    }
}

/// Was something copied from a vdev that was or is being removed in a later group than this?
///
/// # Errors
/// The MOS cannot be read.
pub(in crate::pool) fn was_copied_after(layers: &Layers, txg: Txg) -> Result<bool> {
    for top in layers.vdevs.tops().iter().filter(|top| top.map().is_some()) {
        let births = top.config().number(BIRTHS_OBJECT);
        if births != 0 && mapping::last_birth(layers.mos(), births)? > txg {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Bytes that the map of a vdev would take, about, if it were removed: there is a run for each long piece of free space, and for so many bytes in use.
pub(in crate::pool) fn estimated_map_bytes(layers: &Layers, vdev: u64) -> Option<u64> {
    let tunables = &layers.context.tunables;
    let (gap, longest) = (tunables.now(Parameter::RemovalMaxSpan), tunables.now(Parameter::RemoveMaxSegment));
    let (pieces, between) = layers.space_maps.as_ref()?.free_pieces(vdev as u32, gap).ok()?;
    let used = layers.context.io.allocator().group(vdev as u32).ok()?.space_use().allocated;
    Some((pieces + (used + between) / longest.max(1)) * size_of::<MappingPhys>() as u64)
}

#[doc(alias = "spa_sync_removing_state")]
fn store(mos: &Mos, removal: &RemovalPhys, tx: &SyncTx<'_>) -> Result<()> {
    mos.zap_set_numbers(key::DIRECTORY, REMOVING, &removal.to_words(), tx)
}

/// The objects that a removal has: the map, and when what was copied.
fn objects(top: &TopVdev) -> Result<(ObjectId, ObjectId)> {
    let config = top.config();
    match (config.number(MAPPING_OBJECT), config.number(BIRTHS_OBJECT)) {
        (0, _) | (_, 0) => bail!(Corrupt, "vdev {} is being removed, and has no map", top.id()),
        found => Ok(found),
    }
}

/// Goes on with what was under way when the pool was closed.
///
/// # Errors
/// The MOS cannot be read, or makes no sense.
pub(in crate::pool) fn open(writer: &Arc<GroupWriter>) -> Result<()> {
    let layers = writer.layers();
    let removal = stored(layers.mos())?;
    if removal.state == REMOVAL_ACTIVE {
        let top = layers.vdevs.top(removal.vdev).filter(|top| top.kind() != VdevKind::Indirect && top.map().is_some());
        let Some(top) = top else { bail!(Corrupt, "vdev {} is said to be removed, and is not", removal.vdev) };
        objects(&top)?;
        let newest = writer.uberblock().txg;
        let mut state = writer.removals().state.lock();
        (state.top, state.begun) = (Some(top), newest);
    }
    condense_sync::open(writer)?;
    let removals = writer.removals();
    if removals.has_work(layers) || removals.condensing.has_work(layers) {
        writer.hasten();
    }
    Ok(())
}

/// The group is on disk.
pub(in crate::pool) fn group_done(writer: &GroupWriter) {
    let removals = writer.removals();
    let goes_on = removals.has_work(writer.layers()) && !removals.state.lock().is_stuck;
    if goes_on || removals.condensing.has_work(writer.layers()) {
        writer.hasten();
    }
}

/// What was freed and need not be copied counts as copied, in each pass.
#[doc(alias = "svr_sync")]
pub(in crate::pool) fn sync_progress(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    let Some(top) = writer.removals().running().filter(|top| top.has_uncopied()) else { return Ok(()) };
    let mos = writer.layers().mos();
    let mut removal = stored(mos)?;
    removal.copied = removal.copied.saturating_add(top.take_uncopied());
    store(mos, &removal, tx)
}
