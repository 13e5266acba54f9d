//! Locks that note who takes them.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

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

fn note<T: ?Sized>(place: &'static Location<'static>, lock: &T) {
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
