//! One piece of work on one device.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::record::{Record, WorkState};
use crate::alloc::{Allocator, Metaslab};
use crate::error::{ErrorKind, Result};
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::{Parameter, Tunables};
use crate::txg::Txg;
use crate::vdev::{Class, Leaf, TopVdev, VdevState};

/// What is done with free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkKind {
    /// It is written.
    Initialize,
    /// The device is told that it is not needed.
    Trim,
}

impl WorkKind {
    /// Its word in the history.
    pub(super) fn event(self) -> &'static str {
        match self {
            WorkKind::Initialize => "initialize",
            WorkKind::Trim => "trim",
        }
    }
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkProgress {
    /// The guid of the device.
    pub leaf: u64,
    /// What is done.
    pub kind: WorkKind,
    /// How it is.
    pub state: WorkState,
    /// When it got so, or began; in seconds since 1970.
    pub time: u64,
    /// Bytes of the device that are done.
    pub done: u64,
    /// All that are to be done.
    pub total: u64,
    /// What failed.
    pub errors: u64,
}

/// Free space that nobody may allocate while it is written, by address of the device.
const INITIALIZE_WINDOW: u64 = 16 << 20;
/// No more than this part of a metaslab.
const WINDOW_PARTS_MIN: u64 = 4;
/// How long until it looks again whether a group was written.
const UNTIL_SETTLED: Duration = Duration::from_millis(10);
/// The longest pause after a window of a trim with a rate, so that it ends soon when it is to.
const PAUSE_MAX: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) record: Record,
    /// The record is not as it is on disk.
    pub(super) unsaved: bool,
    /// A thread is at it.
    pub(super) running: bool,
    /// The thread shall end.
    pub(super) stop: bool,
    /// With a rate: until when nothing more is done, by the host's clock.
    pause_until: u64,
    /// The group that must be on disk before it begins: what was freed before it was asked for is free then.
    pub(super) begins_after: Txg,
}

/// See the module.
pub(in crate::pool) struct Work {
    pub(super) kind: WorkKind,
    pub(super) top: Arc<TopVdev>,
    pub(super) leaf: Arc<Leaf>,
    pub(super) state: Mutex<State>,
    pub(super) errors: AtomicU64,
}

/// What a step has come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more to do.
    More,
    /// It waits for a while.
    Pause(Duration),
    /// The end.
    Done,
}

impl Work {
    pub(super) fn new(kind: WorkKind, top: Arc<TopVdev>, leaf: Arc<Leaf>, record: Record) -> Work {
        Work { kind, top, leaf, state: Mutex::new(State { record, ..State::default() }), errors: AtomicU64::new(0) }
    }

    /// The device is there, and still in the vdev.
    pub(super) fn is_possible(&self) -> bool {
        self.leaf.is_open() && !self.top.is_removing() && self.top.members().leaf(self.leaf.number()).is_some()
    }

    /// Whether somebody wants it to go on.
    fn is_wanted(&self) -> bool {
        let state = self.state.lock();
        !state.stop && state.record.state == WorkState::Active
    }

    /// Does the next window.
    pub(super) fn step(&self, writer: &GroupWriter) -> Step {
        let layers = writer.layers();
        if !self.is_wanted() || !self.is_possible() {
            return Step::Done;
        }
        if !self.top.layout().has_ranges() {
            return Step::Pause(UNTIL_SETTLED);
        }
        if writer.uberblock().txg < self.state.lock().begins_after {
            // No trim waits for groups that others may leave open for long.
            writer.hasten();
            return Step::Pause(UNTIL_SETTLED);
        }
        let now = layers.context.host.now_ns();
        let pause = self.state.lock().pause_until.saturating_sub(now);
        if pause > 0 {
            return Step::Pause(Duration::from_nanos(pause).min(PAUSE_MAX));
        }
        let allocator = layers.context.io.allocator();
        let Some((metaslab, window, on_leaf)) = self.next_window(allocator, &layers.context.tunables) else {
            self.complete(layers);
            return Step::Done;
        };
        let bytes = match self.do_window(writer, &metaslab, window) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Step::Pause(UNTIL_SETTLED),
            // It was told to end, or the device is gone: the window is not done.
            Err(error) if error.kind() == ErrorKind::NoDevice || error.kind() == ErrorKind::Conflict => return Step::Done,
            Err(error) => {
                tracing::warn!("{}: {error}", self.leaf.name());
                self.errors.fetch_add(1, Ordering::Relaxed);
                0
            }
        };
        let mut state = self.state.lock();
        state.record.done = state.record.done.max(on_leaf.end);
        state.unsaved = true;
        if state.record.rate > 0 {
            let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(state.record.rate);
            state.pause_until = now.saturating_add(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        }
        Step::More
    }

    /// The first window that is not done, and what of it is on the device.
    fn next_window(&self, allocator: &Arc<Allocator>, tunables: &Tunables) -> Option<(Arc<Metaslab>, Range<u64>, Range<u64>)> {
        let record = self.state.lock().record;
        let layout = self.top.layout();
        for metaslab in allocator.group(self.top.id() as u32).ok()?.metaslabs() {
            if record.partial && metaslab.allocated() == 0 {
                continue;
            }
            let end = metaslab.start + metaslab.size;
            let of_metaslab = layout.on_leaf(self.leaf.number(), metaslab.start..end);
            if of_metaslab.is_none_or(|range| range.end <= record.done) {
                continue;
            }
            let length = self.window_bytes(tunables).min((metaslab.size / WINDOW_PARTS_MIN).next_power_of_two()).max(1 << metaslab.shift);
            // Nothing is left that could not be allocated.
            let length = length.next_multiple_of(layout.allocation_bytes());
            let mut start = metaslab.start;
            while start < end {
                let window = start..(start + length).min(end).min(layout.range_end(start));
                start = window.end;
                if let Some(range) = layout.on_leaf(self.leaf.number(), window.clone()).filter(|range| range.end > record.done) {
                    return Some((metaslab, window, range));
                }
            }
        }
        None
    }

    fn window_bytes(&self, tunables: &Tunables) -> u64 {
        match self.kind {
            WorkKind::Initialize => INITIALIZE_WINDOW,
            WorkKind::Trim => tunables.now(Parameter::TrimExtentBytesMax),
        }
    }

    /// Does what is free in a window; returns how many bytes of the device that was. `None`: not now, as one of the last uberblocks may lead there.
    fn do_window(&self, writer: &GroupWriter, metaslab: &Metaslab, window: Range<u64>) -> Result<Option<u64>> {
        let (allocator, tunables) = (writer.layers().context.io.allocator(), &writer.layers().context.tunables);
        let held = allocator.withhold(metaslab.vdev, window)?;
        // Not before: what is held is what was free at that moment.
        if !writer.is_settled() {
            return Ok(None);
        }
        let mut bytes = 0;
        for (offset, size) in held.ranges().segments() {
            let Some(mut range) = self.top.layout().on_leaf(self.leaf.number(), offset..offset + size) else { continue };
            // What is done already of it.
            range.start = range.start.max(self.state.lock().record.done.min(range.end));
            bytes += match self.kind {
                WorkKind::Initialize => self.write(tunables, range)?,
                WorkKind::Trim => trim(&self.leaf, tunables, range, &|| self.is_wanted(), &self.errors)?,
            };
        }
        Ok(Some(bytes))
    }

    fn write(&self, tunables: &Tunables, range: Range<u64>) -> Result<u64> {
        let chunk = tunables.now(Parameter::InitializeChunkSize).next_multiple_of(1 << self.top.ashift());
        // In the order of the machine, as OpenZFS has it.
        #[allow(clippy::host_endian_bytes)]
        let pattern = tunables.now(Parameter::InitializeValue).to_ne_bytes();
        let buffer: Vec<u8> = pattern.iter().copied().cycle().take(chunk.min(range.end - range.start) as usize).collect();
        let mut at = range.start;
        while at < range.end {
            if !self.is_wanted() {
                crate::bail!(Conflict, "it is to end");
            }
            let length = (range.end - at).min(chunk);
            match self.leaf.write(Class::Initialize, at, &[&buffer[..length as usize]]) {
                Err(error) if error.kind() == ErrorKind::NoDevice => return Err(error),
                Err(_) => drop(self.errors.fetch_add(1, Ordering::Relaxed)),
                Ok(()) => {}
            }
            at += length;
        }
        Ok(range.end - range.start)
    }

    fn complete(&self, layers: &Layers) {
        let mut state = self.state.lock();
        if state.record.state == WorkState::Active && !state.stop {
            state.record.state = WorkState::Complete;
            state.record.time = layers.context.host.wall_clock().0;
            state.unsaved = true;
        }
    }

    /// A device that counts as broken is not worked on any more.
    pub(super) fn cancel_if_faulted(&self) {
        let mut state = self.state.lock();
        if self.leaf.state() == VdevState::Faulted && state.record.state == WorkState::Active {
            state.record.state = WorkState::Canceled;
            state.unsaved = true;
        }
    }

    /// Gives it up, if it is under way or stands still.
    pub(super) fn cancel(&self, now: u64) -> bool {
        let mut state = self.state.lock();
        let is_there = matches!(state.record.state, WorkState::Active | WorkState::Suspended);
        if is_there {
            state.record = Record { state: WorkState::Canceled, time: now, ..state.record };
            state.unsaved = true;
        }
        is_there
    }

    /// How far it is.
    pub(super) fn progress(&self, allocator: &Allocator) -> WorkProgress {
        let record = self.state.lock().record;
        let (mut done, mut total) = (0, 0);
        let layout = self.top.layout();
        for metaslab in allocator.group(self.top.id() as u32).map(|group| group.metaslabs()).unwrap_or_default() {
            let Some(range) = layout.on_leaf(self.leaf.number(), metaslab.start..metaslab.start + metaslab.size) else { continue };
            let length = range.end - range.start;
            let free = u128::from(length) * u128::from(metaslab.size.saturating_sub(metaslab.allocated())) / u128::from(metaslab.size.max(1));
            let passed = record.done.clamp(range.start, range.end) - range.start;
            total += free as u64;
            done += (free * u128::from(passed) / u128::from(length.max(1))) as u64;
        }
        if record.state == WorkState::Complete {
            done = total;
        }
        let errors = self.errors.load(Ordering::Relaxed);
        WorkProgress { leaf: self.leaf.guid(), kind: self.kind, state: record.state, time: record.time, done, total, errors }
    }
}

/// Tells a device that it need not keep a range, in pieces; none that are too small to be worth it. Returns how many bytes that was.
pub(super) fn trim(leaf: &Leaf, tunables: &Tunables, range: Range<u64>, is_wanted: &dyn Fn() -> bool, errors: &AtomicU64) -> Result<u64> {
    if range.end - range.start < tunables.now(Parameter::TrimExtentBytesMin) {
        return Ok(0);
    }
    let most = tunables.now(Parameter::TrimExtentBytesMax);
    let mut at = range.start;
    while at < range.end {
        if !is_wanted() {
            crate::bail!(Conflict, "it is to end");
        }
        let length = (range.end - at).min(most);
        match leaf.trim(at, length) {
            Err(error) if error.kind() == ErrorKind::NoDevice => return Err(error),
            Err(_) => drop(errors.fetch_add(1, Ordering::Relaxed)),
            Ok(()) => {}
        }
        at += length;
    }
    Ok(range.end - range.start)
}
