//! Everybody's operations on one side, the commit of a program's transaction on the other.
//!
//! # Theory
//! A commit does several operations, and nobody may see some of them done and others not. So every operation passes this gate
//! for as long as it has an inode in hand, and a commit has the file system to itself. It never waits for a group while it has: who is
//! inside may be waiting for one.
//!
//! # Locks
//! First of all: who enters holds no group. Who waits to commit is not passed by those who come later; but who is inside
//! may enter again, and the thread of a commit always may.

use std::cell::Cell;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

thread_local! {
    /// The gate (its address) that this thread has closed behind itself.
    static ALONE_IN: Cell<usize> = const { Cell::new(0) };
    /// How often this thread is inside of gates.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gate(RwLock<()>);

/// An operation is inside.
pub(super) struct Entered<'a> {
    _inside: Option<RwLockReadGuard<'a, ()>>,
}

/// A commit is alone inside.
pub(super) struct Alone<'a> {
    _inside: RwLockWriteGuard<'a, ()>,
}

impl Gate {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// This thread commits.
    pub(super) fn is_alone(&self) -> bool {
        ALONE_IN.get() == self.address()
    }

    /// For an operation.
    pub(super) fn enter(&self) -> Entered<'_> {
        let depth = DEPTH.get();
        let inside = match (self.is_alone(), depth) {
            (true, _) => None,
            (false, 0) => Some(self.0.read()),
            (false, _) => Some(self.0.read_recursive()),
        };
        DEPTH.set(depth + 1);
        Entered { _inside: inside }
    }

    /// For a commit; waits until nobody is inside.
    pub(super) fn close(&self) -> Alone<'_> {
        let inside = self.0.write();
        ALONE_IN.set(self.address());
        Alone { _inside: inside }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        ALONE_IN.set(0);
    }
}
