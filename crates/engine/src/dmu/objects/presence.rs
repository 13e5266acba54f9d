//! Whether an object set is there.
//!
//! # Theory
//! What is read ahead holds an object, or a pointer, and not the object set: so it is in nobody's way. But a job that has waited long for its turn finds
//! the set closed, perhaps destroyed, and another's block where its pointer leads: nothing of that may be counted as damage, or written over. A set is
//! destroyed only when nobody has it open: so it is enough to know whether anybody has.
//!
//! # Locks
//! Held for reading across the I/O of what must not be freed meanwhile; before `Dnode::disk`. The last owner of the set waits for that.

use parking_lot::RwLock;

/// See the module.
#[derive(Debug, Default)]
pub struct Presence {
    /// guards: whether the set is gone
    is_gone: RwLock<bool>,
}

impl Presence {
    /// Calls `act`, during which the set stays; not if it is gone.
    pub fn while_there(&self, act: &mut dyn FnMut()) {
        // Beside the last owner who waits, too: one of two jobs may have what the other waits for.
        let is_gone = self.is_gone.read_recursive();
        if !*is_gone {
            act();
        }
    }

    /// Nobody has the set any more.
    pub(super) fn end(&self) {
        *self.is_gone.write() = true;
    }
}
