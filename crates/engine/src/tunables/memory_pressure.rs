//! How much of their memory the caches of a process may have at present.
//!
//! # Theory
//! Each cache has a limit that it was given. Of that it has a part, the same for all: what was set since (`most`, which may be more than all), less what other memory of the
//! process and the machine need (`parts`), but never less than `least`. Caches are told when it becomes less, and obey before the teller goes on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// A cache that has to do with less.
pub trait Shrink: Send + Sync {
    /// Gives up what is more than it may have.
    fn shrink(&self);
}

/// The part of the memory of all caches that they may have, as the watcher of the process says. Clones share one value.
#[derive(Clone, Default)]
pub struct MemoryPressure(Arc<Shared>);

struct Shared {
    /// What others need, in parts of [`PRESSURE_PARTS`].
    parts: AtomicU64,
    /// What was set, in parts of [`SCALE`] of what each cache was given.
    most: AtomicU64,
    /// The same; [`UNSET`]: a quarter of `most`.
    least: AtomicU64,
    /// The limit of this process for all caches, in bytes.
    cap: AtomicU64,
    /// guarded by its lock
    caches: Mutex<Vec<Weak<dyn Shrink>>>,
}

const PRESSURE_PARTS: u64 = 1 << 10;
/// The step by which the pressure falls when there is no reason for it.
const PRESSURE_STEP: u64 = PRESSURE_PARTS / 256;
const SCALE: u64 = 1 << 24;
const UNSET: u64 = u64::MAX;
/// What is left to the caches in any case, unless something else was set.
const LEAST_PART: u64 = 4;
/// No cache has less.
const ROOM_MIN: u64 = 1 << 20;

impl Default for Shared {
    fn default() -> Self {
        Shared { parts: AtomicU64::new(0), most: AtomicU64::new(SCALE), least: AtomicU64::new(UNSET), cap: AtomicU64::new(u64::MAX), caches: Mutex::default() }
    }
}

impl std::fmt::Debug for MemoryPressure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryPressure({} of {PRESSURE_PARTS})", self.0.parts.load(Relaxed))
    }
}

fn part(bytes: u64, parts: u64, of: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(parts) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

impl MemoryPressure {
    /// Adds pressure: other memory takes `bytes` more of the `limit` of all caches.
    pub fn add_bytes(&self, bytes: u64, limit: u64) {
        let more = part(PRESSURE_PARTS, bytes, limit).min(PRESSURE_PARTS);
        let parts = self.0.parts.load(Relaxed).saturating_add(more);
        // More than it takes for the least would only take longer to go.
        let (most, least) = (self.most_of(SCALE), self.least_of(SCALE));
        self.0.parts.store(parts.min(PRESSURE_PARTS - part(PRESSURE_PARTS, least, most)), Relaxed);
        self.shrink();
    }

    /// Lowers the pressure by one step.
    pub fn relax(&self) {
        let parts = self.0.parts.load(Relaxed);
        self.0.parts.store(parts.saturating_sub(PRESSURE_STEP), Relaxed);
    }

    /// All caches together may have no more than this, whatever is set.
    pub fn set_cap(&self, bytes: u64) {
        self.0.cap.store(bytes, Relaxed);
    }

    /// The limit of this process for all caches.
    pub fn cap(&self) -> u64 {
        self.0.cap.load(Relaxed)
    }

    /// Caches that were given `given` bytes together have `most` at most and `least` at least from now on.
    pub fn set_bounds(&self, most: u64, least: Option<u64>, given: u64) {
        let scaled = |bytes| part(SCALE, bytes, given);
        let most = scaled(most).max(1);
        let least = least.map_or(UNSET, |bytes| scaled(bytes).min(most));
        let is_less = self.0.most.swap(most, Relaxed) > most;
        self.0.least.store(least, Relaxed);
        if is_less {
            self.shrink();
        }
    }

    /// From now on `cache` is told when it has to do with less.
    pub fn tell(&self, cache: Weak<dyn Shrink>) {
        let mut caches = self.0.caches.lock();
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(cache);
    }

    fn shrink(&self) {
        let caches: Vec<Arc<dyn Shrink>> = self.0.caches.lock().iter().filter_map(Weak::upgrade).collect();
        caches.iter().for_each(|cache| cache.shrink());
    }

    /// The bytes that a cache of this limit may have if nothing else needs memory.
    pub fn most_of(&self, limit: u64) -> u64 {
        part(limit, self.0.most.load(Relaxed), SCALE).max(ROOM_MIN)
    }

    /// The bytes that it may have whatever else needs memory.
    pub fn least_of(&self, limit: u64) -> u64 {
        let most = self.most_of(limit);
        match self.0.least.load(Relaxed) {
            UNSET => most / LEAST_PART,
            least => part(limit, least, SCALE).min(most),
        }
    }

    /// The bytes that it may have at present.
    pub fn room_of(&self, limit: u64) -> u64 {
        let most = self.most_of(limit);
        let others = part(most, self.0.parts.load(Relaxed), PRESSURE_PARTS);
        (most - others).max(self.least_of(limit)).max(ROOM_MIN.min(most))
    }
}
