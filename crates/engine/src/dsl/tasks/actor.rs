//! The user on whose behalf a change is made.
//!
//! # Theory
//! A change is asked for by a thread that serves one caller, and made by the sync thread. The history names the user, and what a directory
//! grants to creators is granted to that user. So the thread says for whom it works ([`act_as`]), a task remembers it, and the sync thread works
//! for the same user while it makes the change. A thread that says nothing works for user 0.

use std::cell::Cell;

thread_local! {
    static ACTOR: Cell<u64> = const { Cell::new(0) };
}

/// While this lives, the thread works for a user.
#[derive(Debug)]
pub struct Acting {
    before: u64,
}

/// The calling thread works for `user` from now on, until what is returned is dropped.
#[must_use]
pub fn act_as(user: u64) -> Acting {
    Acting { before: ACTOR.replace(user) }
}

/// The user for whom the calling thread works.
pub(in crate::dsl) fn actor() -> u64 {
    ACTOR.get()
}

impl Drop for Acting {
    fn drop(&mut self) {
        ACTOR.set(self.before);
    }
}
