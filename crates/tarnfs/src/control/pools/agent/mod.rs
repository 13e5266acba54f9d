//! The agent: does what an administrator would do about devices that fail, go away and come back, as OpenZFS's daemon does.
//!
//! # Theory
//! Every second it looks at the devices of each pool, without asking them anything, and without a turn: a request that hangs does not keep it from work. It looks, and does
//! what it finds to do, in a thread for each pool: that waits for groups, and a path for its server. A pool that hangs does not keep it from the others.
//!
//! - A device with too many errors is not used any more, or is suspect ([`diagnosis`]).
//! - A device that was lost, or is suspect, gets a hot spare.
//! - A block device whose path is gone, and which does not answer, was pulled out.
//! - A device that is back where it was, with its own label, is used again, and a spare goes back when it has everything.
//! - With `autoreplace`, a blank disk in the place of one that was lost takes its part. With `autoexpand`, what devices grew by is used.
//!
//! # Invariants
//! 1. Nothing is done twice about one thing: a spare is sought when a device becomes worse, and not again while it stays so; a device that was found not to be
//!    the right one is looked at again when another is in its place.
//! 2. What the administrator took out of use is left alone.
//!
//! # Path
//! `daemon` → [`Beside::look_after`] → `engine`

mod act;
mod decide;
mod diagnosis;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use disk::DiskRef;
use engine::pool::{Pool, Stopped};
use engine::vdev::{Leaf, VdevConfig, VdevKind, VdevState, key};
use parking_lot::Mutex;

use self::decide::{Condition, condition, is_covered};
use self::diagnosis::{Errors, Limits, Trouble};
use self::places::{Found, Identity};
use super::Imported;
use super::beside::Beside;

/// Sizes are looked at every so many times.
const SIZES_EVERY: u64 = 5;
/// How a verb waits for the agent: so often, so long.
const WAITS_MAX: u32 = 500;
const WAIT: Duration = Duration::from_millis(10);

/// What is to be done about a device.
pub(super) enum Action {
    /// It has too many errors.
    Stop(u64, Stopped),
    /// Its path is gone.
    Removed(u64),
    /// It is lost, and these spares are there, in the order in which they are to be tried. Distributed spares have no device.
    Spare(u64, Vec<(u64, Option<DiskRef>)>),
    /// Something is at its path.
    Back(u64, String),
    /// The devices of some vdev are larger than what is used of them.
    Expand,
}

/// What the agent knows of one pool.
#[derive(Default)]
pub(crate) struct Agent {
    /// guarded by: itself
    devices: Mutex<BTreeMap<u64, Known>>,
    /// A thread looks at it, or does something about it.
    is_looked_at: AtomicBool,
    /// A thread does something about it.
    is_busy: AtomicBool,
    /// What was done, as events: the class and the device. guarded by: itself
    done: Mutex<Vec<(&'static str, u64)>>,
    /// Times that it was looked at.
    looks: Mutex<u64>,
    /// The sizes to which its vdevs were to grow when that was tried last. guarded by: itself
    sizes: Mutex<Vec<u64>>,
}

/// What it knows of one device.
#[derive(Default)]
struct Known {
    /// Requests and checksums that failed, and requests that were slow, as of the last time.
    errors: [u64; 3],
    trouble: Trouble,
    /// How it was when a spare was sought for it last.
    spared: Option<VdevState>,
    /// What is in its place, and is not it.
    refused: Option<Identity>,
    /// Its path is gone, but it answers.
    is_nameless: bool,
}

impl Agent {
    /// The agent of a pool that is imported now. What was faulty or suspect before is no news.
    pub(super) fn of(engine: &Pool) -> Agent {
        let known = |leaf: &Arc<Leaf>| {
            let spared = Some(leaf.state()).filter(|state| matches!(state, VdevState::Faulted | VdevState::Degraded));
            (leaf.guid(), Known { spared, ..Known::default() })
        };
        Agent { devices: Mutex::new(engine.vdevs.leaves().iter().map(known).collect()), ..Agent::default() }
    }

    /// What was done since this was last asked.
    pub(super) fn take_done(&self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.done.lock())
    }

    /// Waits a while for what it is doing, for a verb on the same devices.
    pub(super) fn wait(&self) {
        for _ in 0..WAITS_MAX {
            if !self.is_busy.load(Ordering::Acquire) {
                return;
            }
            std::thread::sleep(WAIT);
        }
    }

    /// A spare could not come in now: it is sought again.
    fn seek_again(&self, device: u64) {
        if let Some(known) = self.devices.lock().get_mut(&device) {
            known.spared = None;
        }
    }

    fn note(&self, event: &'static str, device: u64) {
        self.done.lock().push((event, device));
    }
}

impl Beside {
    /// Looks at all pools, and has done what is to be done about their devices. To be called every second or so.
    pub fn look_after(&self) {
        for imported in self.table().values() {
            let engine = imported.pool.engine();
            let is_stopped = engine.vdevs.gate().failure().is_some() || engine.context.groups.failure().is_some();
            if engine.is_read_only() || is_stopped || imported.agent.is_looked_at.swap(true, Ordering::AcqRel) {
                continue;
            }
            let (beside, own) = (self.clone(), imported.clone());
            let work = move || {
                let _looked_at = LookedAt(&own.agent);
                let reserved = Reserved { all: beside.reserved(), own: Mutex::default() };
                let actions = find(&beside, &own, &reserved);
                own.agent.is_busy.store(!actions.is_empty(), Ordering::Release);
                actions.into_iter().for_each(|action| act::act(&own, action));
            };
            if !engine.context.host.spawn("agent", Box::new(work)) {
                drop(LookedAt(&imported.agent));
            }
        }
    }
}

/// While this is there a pool is not looked at once more.
struct LookedAt<'a>(&'a Agent);

impl Drop for LookedAt<'_> {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Release);
        self.0.is_looked_at.store(false, Ordering::Release);
    }
}

/// Spares that are on their way in: for any pool, and for this one, which gives them up in the end.
struct Reserved<'a> {
    all: &'a Mutex<BTreeSet<u64>>,
    own: Mutex<BTreeSet<u64>>,
}

impl Reserved<'_> {
    /// Is it on its way in for another pool?
    fn is_elsewhere(&self, all: &BTreeSet<u64>, spare: u64) -> bool {
        all.contains(&spare) && !self.own.lock().contains(&spare)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let own = self.own.get_mut();
        self.all.lock().retain(|spare| !own.contains(spare));
    }
}

/// What is to be done in one pool.
fn find(beside: &Beside, imported: &Imported, reserved: &Reserved<'_>) -> Vec<Action> {
    let engine = imported.pool.engine();
    let (agent, now_ns) = (&imported.agent, engine.context.host.now_ns());
    let (tree, leaves) = (engine.vdevs.config(), engine.vdevs.leaves());
    let is_open = |guid: u64| leaves.iter().any(|leaf| leaf.guid() == guid && leaf.is_open());
    // What may hang comes before a spare is reserved.
    let found: Vec<Option<Found>> = leaves.iter().map(|leaf| Found::at(tree.find(leaf.guid())?)).collect();
    let has_grown = {
        let mut looks = agent.looks.lock();
        *looks += 1;
        looks.is_multiple_of(SIZES_EVERY) && places::have_grown(engine, &mut agent.sizes.lock())
    };
    let mut devices = agent.devices.lock();
    devices.retain(|guid, _| leaves.iter().any(|leaf| leaf.guid() == *guid));
    let mut actions = Vec::new();
    for (leaf, found) in leaves.iter().zip(found) {
        let Some(described) = tree.find(leaf.guid()) else { continue };
        let known = devices.entry(leaf.guid()).or_default();
        if let Some(how) = known.note_errors(leaf, now_ns, || limits_of(engine, &tree, leaf.guid())) {
            actions.push(Action::Stop(leaf.guid(), how));
        }
        match condition(leaf.state(), described) {
            Condition::Well => known.spared = None,
            Condition::Resting => (known.spared, known.refused) = (None, None),
            Condition::Bad if known.spared == Some(leaf.state()) => {}
            Condition::Bad if is_covered(&tree, leaf.guid(), &is_open) => known.spared = Some(leaf.state()),
            Condition::Bad => match spares(beside, imported, reserved, leaf.guid()) {
                // One may be left in a moment.
                None => {}
                Some(spares) => {
                    known.spared = Some(leaf.state());
                    actions.extend((!spares.is_empty()).then_some(Action::Spare(leaf.guid(), spares)));
                }
            },
        }
        actions.extend(found.and_then(|found| places::look(leaf, found, known)));
    }
    actions.extend(has_grown.then_some(Action::Expand));
    actions
}

impl Known {
    fn note_errors(&mut self, leaf: &Leaf, now_ns: u64, limits: impl FnOnce() -> Limits) -> Option<Stopped> {
        let stats = &leaf.stats;
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let now = [count(&stats.read_errors) + count(&stats.write_errors), count(&stats.checksum_errors), leaf.traffic.slow()];
        // Cleared: what was before does not count.
        if now.iter().zip(self.errors).any(|(now, before)| *now < before) {
            self.trouble = Trouble::default();
        }
        let [requests, checksums, slow] = [0, 1, 2].map(|index| now[index].saturating_sub(self.errors[index]));
        self.errors = now;
        // Time alone makes nothing too much.
        if requests + checksums + slow == 0 {
            return None;
        }
        // What is not used makes no more errors that matter.
        self.trouble.note(now_ns, Errors { requests, checksums, slow }, &limits()).filter(|_| leaf.is_open())
    }
}

/// What is too much for a device: its own properties say so, or those of the nearest vdev above it.
fn limits_of(engine: &Pool, tree: &VdevConfig, guid: u64) -> Limits {
    let stored = engine.stored_vdev_properties().unwrap_or_default();
    let mut path = vec![guid];
    while let Some(above) = path.last().and_then(|guid| tree.parent_of(*guid)) {
        path.push(above.guid);
    }
    let of = |vdev: &u64, name: &str| {
        let (_, set) = stored.iter().find(|(other, _)| other == vdev)?;
        set.iter().find(|(known, _)| known == name).map(|(_, value)| value.number())
    };
    Limits::new(|name| path.iter().find_map(|vdev| of(vdev, name)))
}

/// The spares that could come in for a device, smallest first; `None`: one of them is on its way in elsewhere, and may not stay there. Before all others come the distributed
/// spares of its own vdev: all devices take part when these are filled. They are reserved from now on.
fn spares(beside: &Beside, imported: &Imported, reserved: &Reserved<'_>, device: u64) -> Option<Vec<(u64, Option<DiskRef>)>> {
    let engine = imported.pool.engine();
    let table = beside.table();
    let is_used = |guid: u64| table.values().any(|other| other.pool.engine().vdevs.find_leaf(guid).is_some());
    let listed = engine.auxiliary().map(|listed| listed.spares).unwrap_or_default();
    let mut found: Vec<(u64, DiskRef)> = imported.auxiliary.lock().spares().collect();
    let mut all = reserved.all.lock();
    // One that was on its way in may be in by now.
    found.retain(|(guid, _)| !is_used(*guid));
    if found.iter().any(|(guid, _)| reserved.is_elsewhere(&all, *guid)) {
        return None;
    }
    found.sort_by_key(|(_, disk)| disk.size_bytes());
    let top = engine.vdevs.find_leaf(device).map_or(0, |(top, _)| top.guid());
    let is_own = |spare: &VdevConfig| spare.kind == VdevKind::DraidSpare && spare.number(key::SPARE_TOP) == top;
    let is_free = |spare: &VdevConfig| engine.vdevs.find_described(spare.guid).is_none() && !reserved.is_elsewhere(&all, spare.guid);
    let distributed = listed.into_iter().filter(|spare| is_own(spare) && is_free(spare)).map(|spare| (spare.guid, None));
    let chosen: Vec<(u64, Option<DiskRef>)> = distributed.chain(found.into_iter().map(|(guid, disk)| (guid, Some(disk)))).collect();
    all.extend(chosen.iter().map(|(guid, _)| *guid));
    reserved.own.lock().extend(chosen.iter().map(|(guid, _)| *guid));
    Some(chosen)
}

/// The path at which a device should be.
fn path_of(described: &VdevConfig) -> Option<String> {
    described.string(engine::vdev::key::PATH)
}
