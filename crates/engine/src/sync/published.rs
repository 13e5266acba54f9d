//! Values under a lock of which a part can be read without it.
//!
//! # Theory
//! Some numbers are read by every operation and changed seldom, or by the sync thread alone. They stay where they are, under their lock; the thread that gives the
//! lock back after a change publishes them, as atomics ([`Publish`]), before the lock is open. A reader of the atomics sees each number as it was or as it is,
//! not all of them as of one moment: what must be seen together is read under the lock.

use std::fmt;
use std::ops::{Deref, DerefMut};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A value that publishes a part of itself.
pub trait Publish {
    /// The atomics.
    type Published: Default;
    /// Stores the part that can be read without the lock.
    fn publish(&self, published: &Self::Published);
}

/// A read-write lock whose contents are published after each change.
#[derive(Default)]
pub struct Published<T: Publish> {
    value: RwLock<T>,
    published: T::Published,
}

/// The right to change the value; what it publishes is published when this is dropped.
pub struct PublishedGuard<'a, T: Publish> {
    value: RwLockWriteGuard<'a, T>,
    published: &'a T::Published,
    is_changed: bool,
}

impl<T: Publish> Published<T> {
    /// An unlocked value.
    pub fn new(value: T) -> Self {
        let published = T::Published::default();
        value.publish(&published);
        Published { value: RwLock::new(value), published }
    }

    /// The part that can be read without the lock.
    pub fn published(&self) -> &T::Published {
        &self.published
    }

    /// Locks it for reading.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.value.read()
    }

    /// Locks it for a change.
    #[track_caller]
    pub fn write(&self) -> PublishedGuard<'_, T> {
        PublishedGuard { value: self.value.write(), published: &self.published, is_changed: false }
    }

    /// As [`Published::write`], by the name that a mutex has.
    #[track_caller]
    pub fn lock(&self) -> PublishedGuard<'_, T> {
        self.write()
    }
}

impl<T: Publish> Deref for PublishedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Publish> DerefMut for PublishedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.is_changed = true;
        &mut self.value
    }
}

impl<T: Publish> Drop for PublishedGuard<'_, T> {
    fn drop(&mut self) {
        if self.is_changed {
            self.value.publish(self.published);
        }
    }
}

impl<T: Publish + fmt::Debug> fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    impl Publish for u64 {
        type Published = AtomicU64;

        fn publish(&self, published: &AtomicU64) {
            published.store(*self, Ordering::Release);
        }
    }

    #[test]
    fn what_changed_is_published_when_the_lock_is_given_back() {
        let value = Published::new(3);
        let seen = || value.published().load(Ordering::Acquire);
        assert_eq!(seen(), 3);
        let mut guard = value.write();
        *guard += 1;
        assert_eq!(seen(), 3);
        drop(guard);
        assert_eq!((seen(), *value.read()), (4, 4));
    }
}
