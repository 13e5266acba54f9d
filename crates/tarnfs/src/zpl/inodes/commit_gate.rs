//! Everybody's operations on one side, the commit of a program's transaction on the other.
//!
//! # Theory
//! A commit does several operations, and nobody may see some of them done and others not. So every operation passes this gate
//! for as long as it has an inode in hand, and a commit has the file system to itself. It never waits for a group while it has: an
//! operation inside may be waiting for one.
//!
//! # Locks
//! First of all: a thread that enters holds no group. A commit that waits is not passed by operations that come later; but a thread that is inside
//! may enter again. A commit does not enter: see `AloneFileSystem`.

use std::cell::Cell;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

thread_local! {
    /// How often this thread is inside of gates.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::zpl) struct CommitGate(RwLock<()>);

/// An operation is inside.
pub(in crate::zpl) struct Entered<'a> {
    /// Nothing for an operation of the commit.
    inside: Option<RwLockReadGuard<'a, ()>>,
}

/// A commit is alone inside.
pub(in crate::zpl) struct Alone<'a> {
    _inside: RwLockWriteGuard<'a, ()>,
}

impl Entered<'_> {
    /// For an operation of the commit, which closed the gate.
    pub(in crate::zpl) fn alone() -> Self {
        Entered { inside: None }
    }
}

impl CommitGate {
    /// For an operation.
    pub(in crate::zpl) fn enter(&self) -> Entered<'_> {
        let depth = DEPTH.get();
        let inside = if depth == 0 { self.0.read() } else { self.0.read_recursive() };
        DEPTH.set(depth + 1);
        Entered { inside: Some(inside) }
    }

    /// For a commit; waits until nobody is inside.
    pub(in crate::zpl) fn close(&self) -> Alone<'_> {
        Alone { _inside: self.0.write() }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.inside.is_some() {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
}
