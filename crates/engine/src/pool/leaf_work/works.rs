//! All work on the devices of a pool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::autotrim;
use super::record::{Record, WorkState};
use super::work::{Step, Work, WorkKind, WorkProgress};
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::{Leaf, TopVdev, key};

/// A device by its vdev and its number there, which it keeps while the pool is open, and what is done.
type Place = (u64, u32, WorkKind);

/// See the module.
#[derive(Default)]
pub(in crate::pool) struct Works {
    works: Mutex<BTreeMap<Place, Arc<Work>>>,
    /// The pool is being closed.
    pub(super) ending: AtomicBool,
    /// Whether what comes free is trimmed by itself; a thread is at it.
    pub(super) autotrim: AtomicBool,
    pub(super) autotrim_runs: AtomicBool,
}

impl Works {
    pub(super) fn all(&self) -> Vec<Arc<Work>> {
        self.works.lock().values().cloned().collect()
    }

    /// That of a device, made when it is first asked for.
    pub(super) fn of(&self, top: &Arc<TopVdev>, leaf: &Arc<Leaf>, kind: WorkKind) -> Arc<Work> {
        let place = (top.id(), leaf.number(), kind);
        let mut works = self.works.lock();
        let made = || Arc::new(Work::new(kind, top.clone(), leaf.clone(), Record::default()));
        works.entry(place).or_insert_with(made).clone()
    }

    /// Reads what the devices' ZAPs say.
    fn load(&self, layers: &Layers) -> Result<()> {
        for top in layers.vdevs.data_tops() {
            let config = top.config();
            for leaf in top.leaves() {
                let Some(zap) = config.find(leaf.guid()).and_then(|leaf| leaf.get(key::LEAF_ZAP)).filter(|zap| *zap != 0) else { continue };
                for kind in [WorkKind::Initialize, WorkKind::Trim] {
                    let record = Record::load(layers.mos(), zap, kind)?;
                    if record.state != WorkState::None {
                        self.works.lock().insert((top.id(), leaf.number(), kind), Arc::new(Work::new(kind, top.clone(), leaf.clone(), record)));
                    }
                }
            }
        }
        Ok(())
    }

    /// How far each is.
    pub(in crate::pool) fn progress(&self, layers: &Layers) -> Vec<WorkProgress> {
        let allocator = layers.context.io.allocator();
        self.all().iter().filter(|work| work.top.members().leaf(work.leaf.number()).is_some()).map(|work| work.progress(allocator)).collect()
    }

    /// Something is not on disk as it is, or is under way: then each group is written, so that what comes free is out of reach of the last uberblocks.
    pub(in crate::pool) fn needs_groups(&self) -> bool {
        let needs = |work: &Arc<Work>| {
            let state = work.state.lock();
            state.unsaved || state.record.state == WorkState::Active && !state.stop && work.is_possible()
        };
        self.all().iter().any(needs)
    }

    /// Writes what has changed, in the sync thread. What was done so far is durable when the group is: its flush comes later.
    pub(in crate::pool) fn sync(&self, layers: &Layers, tx: &SyncTx<'_>) -> Result<()> {
        for work in self.all() {
            let record = {
                let mut state = work.state.lock();
                if !std::mem::take(&mut state.unsaved) {
                    continue;
                }
                state.record
            };
            let described = work.top.config();
            // It may have left the pool.
            if let Some(zap) = described.find(work.leaf.guid()).and_then(|leaf| leaf.get(key::LEAF_ZAP)).filter(|zap| *zap != 0) {
                record.store(layers.mos(), zap, work.kind, tx)?;
            }
        }
        Ok(())
    }

    /// A step of each, where nothing has threads.
    pub(in crate::pool) fn step_all(&self, writer: &GroupWriter) {
        for work in self.all() {
            if work.step(writer) == Step::Done {
                work.cancel_if_faulted();
            }
        }
    }

    /// What is under way on the devices of a vdev, or stands still, is given up; returns the words for the history.
    pub(in crate::pool) fn cancel_on(&self, vdev: u64, now: u64) -> Vec<(&'static str, String)> {
        let works = self.all();
        let given_up = works.iter().filter(|work| work.top.id() == vdev && work.cancel(now));
        given_up.map(|work| (work.kind.event(), format!("vdev={} canceled", work.leaf.name()))).collect()
    }

    /// The devices of a vdev are nobody's any more.
    pub(in crate::pool) fn forget(&self, vdev: u64) {
        self.works.lock().retain(|(of, ..), _| *of != vdev);
    }

    /// Nothing more is done; what is under way ends soon, and goes on when the pool is opened again.
    pub(in crate::pool) fn end_all(&self) {
        self.ending.store(true, Ordering::Release);
        for work in self.all() {
            work.state.lock().stop = true;
        }
    }

    /// The pool goes on after all.
    pub(in crate::pool) fn go_on(&self) {
        self.ending.store(false, Ordering::Release);
    }

    /// Some thread is still at it.
    pub(in crate::pool) fn is_any_running(&self) -> bool {
        self.autotrim_runs.load(Ordering::Acquire) || self.all().iter().any(|work| work.state.lock().running)
    }
}

/// Reads what is on disk, and goes on with what was under way.
///
/// # Errors
/// A ZAP cannot be read.
pub(in crate::pool) fn open(writer: &Arc<GroupWriter>) -> Result<()> {
    writer.works().load(writer.layers())
}

/// Begins what is to be under way and is not: when the pool is opened, and when a device is back.
pub(in crate::pool) fn resume(writer: &Arc<GroupWriter>) {
    for work in writer.works().all() {
        begin(writer, &work);
    }
}

/// Until what is under way has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// Changes where free space lies on devices, while nobody works on it; then what was under way goes on.
///
/// # Errors
/// Those of the change.
pub(in crate::pool) fn while_at_rest<T>(writer: &Arc<GroupWriter>, change: impl FnOnce() -> Result<T>) -> Result<T> {
    let works = writer.works();
    works.end_all();
    while works.is_any_running() {
        writer.layers().context.host.sleep(PAUSE);
    }
    let changed = change();
    works.go_on();
    resume(writer);
    // The caller undoes what it prepared if the change was not made: it must hear of nothing else.
    if let Err(error) = autotrim::obey(writer) {
        tracing::warn!("what comes free is not trimmed: {error}");
    }
    changed
}

/// Begins one.
pub(super) fn begin(writer: &Arc<GroupWriter>, work: &Arc<Work>) {
    {
        let mut state = work.state.lock();
        if state.running || state.record.state != WorkState::Active || writer.works().ending.load(Ordering::Acquire) || !work.is_possible() {
            return;
        }
        (state.running, state.stop) = (true, false);
    }
    let (at, of) = (work.clone(), writer.clone());
    let name = if work.kind == WorkKind::Trim { "vdev_trim" } else { "vdev_initialize" };
    let has_threads = writer.start_thread(name, move || {
        loop {
            match at.step(&of) {
                Step::More => {}
                Step::Pause(pause) => of.layers().context.host.sleep(pause),
                Step::Done => break,
            }
        }
        at.cancel_if_faulted();
        at.state.lock().running = false;
        of.hasten();
    });
    if !has_threads {
        work.state.lock().running = false;
    }
}
