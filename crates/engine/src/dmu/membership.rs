//! Which group an operation joins: one of its own, or that of several operations that belong together.
//!
//! # Theory
//! A group reaches the disk as a whole or not at all. So operations are atomic together if none of them joins a later group than the
//! first. A [`Membership`] is what every operation begins with ([`super::OpenTx::assign`]). With a *single* one each joins the open group for itself. With a
//! *whole* all join one group, take from the room that it was promised, and wait for nothing. The operations themselves need not know which it is.
//!
//! A group that somebody holds cannot be closed, and operations that join the next one wait for that. So an operation that begins a whole must hold
//! nothing that others hold while they wait for a group; and it does not wait itself: [`Membership::try_whole`] says "not now", and
//! [`Membership::wait`] is called with no lock held.
//!
//! # Path
//! `tarnfs::zpl`, of a transaction's commit `zpl::transaction` → here → `OpenTx::assign`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::tx::{OpenTx, needed};
use super::{Objset, Refusal};
use crate::error::{Error, Result};
use crate::txg::{Txg, TxgHold};

/// What an operation begins with.
pub struct Membership {
    objset: Arc<Objset>,
    whole: Option<Whole>,
}

/// What operations share that belong together.
pub(super) struct Whole {
    hold: TxgHold,
    promised: u64,
    /// What those that are over were the first to change.
    dirtied: AtomicU64,
}

impl Whole {
    pub(super) fn txg(&self) -> Txg {
        self.hold.txg()
    }

    pub(super) fn note_dirtied(&self, bytes: u64) {
        self.dirtied.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Membership {
    /// Each operation is for itself.
    pub fn single(objset: Arc<Objset>) -> Self {
        Membership { objset, whole: None }
    }

    /// Joins the open group with all operations to come, which write at most `bytes` of new data and metadata; 0: they free more than they
    /// take. `None`: that would mean to wait.
    ///
    /// # Errors
    /// Those of [`OpenTx::assign`].
    pub fn try_whole(objset: &Arc<Objset>, bytes: u64) -> Result<Option<Self>> {
        let Some(hold) = OpenTx::try_join(objset)? else { return Ok(None) };
        let promised = if bytes == 0 { 0 } else { objset.worst_case(bytes, objset.settings().record_bytes) };
        let reserved = if bytes == 0 { objset.owner().reserve_to_free(hold.txg()) } else { objset.owner().reserve(hold.txg(), promised) };
        match reserved {
            Ok(()) => {}
            Err(Refusal::ForNow(_)) => return Ok(None),
            Err(Refusal::Final(error)) => return Err(error),
        }
        let whole = Whole { hold, promised, dirtied: AtomicU64::new(0) };
        Ok(Some(Membership { objset: objset.clone(), whole: Some(whole) }))
    }

    /// Waits for what [`Membership::try_whole`] would not wait for.
    ///
    /// # Errors
    /// Those of [`OpenTx::assign`].
    pub fn wait(objset: &Arc<Objset>, bytes: u64) -> Result<()> {
        let single = Membership::single(objset.clone());
        if bytes == 0 { OpenTx::assign_freeing(&single).map(drop) } else { OpenTx::assign(&single, bytes).map(drop) }
    }

    /// The object set.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    pub(super) fn whole(&self) -> Option<&Whole> {
        self.whole.as_ref()
    }

    /// The group of a whole.
    pub fn txg(&self) -> Option<Txg> {
        self.whole.as_ref().map(Whole::txg)
    }

    /// An operation of a whole failed in the middle: the group must never reach the disk, and the pool stops.
    pub fn give_up(&self, error: Error) {
        self.objset.context().groups.fail(error);
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(whole) = &self.whole {
            let needed = needed(whole.dirtied.load(Ordering::Relaxed));
            self.objset.owner().settle(whole.txg(), whole.promised, needed);
        }
    }
}
