//! Locks that note who takes them.
//!
//! With `TARN_PAUSES=n` in the environment, or while a test asks for it ([`pause`]), one of n acquisitions pauses first, for up to 0.2 ms: so threads meet in orders that
//! are rare by themselves, and tests of threads find in a minute what else took thousands of runs.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// One acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Where in the source.
    pub place: &'static Location<'static>,
    /// The address of the lock, which tells one from the other.
    pub lock: usize,
}

thread_local! {
    static TAKEN: RefCell<Option<Vec<Taken>>> = const { RefCell::new(None) };
}

/// Room for the acquisitions of one recording: so that noting them allocates nothing.
const RECORDED_MAX: usize = 1 << 16;

/// What this thread takes while `body` runs.
pub fn record(body: impl FnOnce()) -> Vec<Taken> {
    TAKEN.set(Some(Vec::with_capacity(RECORDED_MAX)));
    body();
    TAKEN.take().unwrap_or_default()
}

/// One of so many acquisitions pauses, as the environment says and as tests ask; 0: none.
static PAUSES: OnceLock<u64> = OnceLock::new();
static PAUSES_ASKED: AtomicU64 = AtomicU64::new(0);
/// The longest pause.
const PAUSE_MAX_NS: u64 = 200_000;

thread_local! {
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// Pauses now and then, if that is asked for.
fn pause_maybe() {
    let always = *PAUSES.get_or_init(|| std::env::var("TARN_PAUSES").ok().and_then(|text| text.parse().ok()).unwrap_or(0));
    let pauses = if always > 0 { always } else { PAUSES_ASKED.load(Ordering::Relaxed) };
    if pauses > 0 {
        pause_one_of(pauses);
    }
}

/// Acquisitions pause as long as this is not dropped.
pub struct Pauses(());

/// One of so many acquisitions of all threads pauses.
pub fn pause(one_of: u64) -> Pauses {
    PAUSES_ASKED.store(one_of, Ordering::Relaxed);
    Pauses(())
}

impl Drop for Pauses {
    fn drop(&mut self) {
        PAUSES_ASKED.store(0, Ordering::Relaxed);
    }
}

#[cold]
#[allow(clippy::disallowed_methods)] // real threads are to meet in other orders
fn pause_one_of(pauses: u64) {
    let mut random = RANDOM.get();
    if random == 0 {
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        random = BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64 ^ (&raw const random).addr() as u64 | 1;
    }
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    RANDOM.set(random);
    if random.is_multiple_of(pauses) {
        std::thread::sleep(Duration::from_nanos((random >> 32) % PAUSE_MAX_NS));
    }
}

fn note<T: ?Sized>(place: &'static Location<'static>, lock: &T) {
    pause_maybe();
    TAKEN.with_borrow_mut(|taken| {
        if let Some(taken) = taken.as_mut().filter(|taken| taken.len() < RECORDED_MAX) {
            taken.push(Taken { place, lock: std::ptr::from_ref(lock).cast::<()>().addr() });
        }
    });
}

/// A mutex that notes who takes it.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// An open one.
    pub const fn new(value: T) -> Self {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// What it guards.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Mutex::new(value)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes it.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        note(Location::caller(), &self.0);
        self.0.lock()
    }

    /// Takes it, if nobody has it.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        note(Location::caller(), &self.0);
        self.0.try_lock()
    }
}

impl<T: ?Sized> Deref for Mutex<T> {
    type Target = parking_lot::Mutex<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for Mutex<T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// A read-write lock that notes who takes it.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    /// An open one.
    pub const fn new(value: T) -> Self {
        RwLock(parking_lot::RwLock::new(value))
    }

    /// What it guards.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        RwLock::new(value)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes it with others.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        note(Location::caller(), &self.0);
        self.0.read()
    }

    /// Takes it with others, even if somebody waits to have it alone.
    #[track_caller]
    pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
        note(Location::caller(), &self.0);
        self.0.read_recursive()
    }

    /// Takes it with others, if nobody has it alone.
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        note(Location::caller(), &self.0);
        self.0.try_read()
    }

    /// Takes it alone.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        note(Location::caller(), &self.0);
        self.0.write()
    }
}

impl<T: ?Sized> Deref for RwLock<T> {
    type Target = parking_lot::RwLock<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for RwLock<T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_acquisition_of_the_thread_is_noted_and_of_no_other() {
        let (mutex, lock) = (Mutex::new(1), RwLock::new(2));
        let taken = record(|| {
            assert_eq!(*mutex.lock() + *lock.read(), 3);
            *lock.write() = 4;
            std::thread::scope(|scope| drop(scope.spawn(|| drop(mutex.lock()))));
        });
        assert_eq!(taken.len(), 3);
        assert!(taken[0].lock != taken[1].lock && taken[1].lock == taken[2].lock && taken[1].place != taken[2].place);
        drop(mutex.lock());
        assert_eq!(record(|| ()), []);
    }
}
