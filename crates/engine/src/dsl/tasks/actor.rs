//! The user on whose behalf a change is made.
//!
//! # Theory
//! A change is asked for by a thread that serves one caller, and made by the sync thread. The history names the user, what a directory grants
//! to creators is granted to that user, and whether limits on file systems and snapshots count depends on what the user may do. So the thread
//! says for whom it works ([`act_as`]), a task remembers it, and the sync thread works for the same user while it makes the change. A thread
//! that says nothing works for the superuser, as user 0.

use std::cell::RefCell;
use std::sync::Arc;

use crate::dsl::props::delegation::Identity;

/// The user that asks for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The user and its groups.
    pub identity: Identity,
    /// Everything is allowed, and no limit on file systems and snapshots counts.
    pub is_superuser: bool,
}

impl Default for Actor {
    fn default() -> Actor {
        Actor { identity: Identity::default(), is_superuser: true }
    }
}

thread_local! {
    static ACTOR: RefCell<Arc<Actor>> = RefCell::default();
}

/// While this lives, the thread works for a user.
#[derive(Debug)]
pub struct Acting {
    before: Arc<Actor>,
}

/// The calling thread works for `actor` from now on, until what is returned is dropped.
#[must_use]
pub fn act_as(actor: Arc<Actor>) -> Acting {
    Acting { before: ACTOR.replace(actor) }
}

/// The user for whom the calling thread works.
pub fn actor() -> Arc<Actor> {
    ACTOR.with_borrow(Arc::clone)
}

impl Drop for Acting {
    fn drop(&mut self) {
        ACTOR.replace(std::mem::take(&mut self.before));
    }
}
