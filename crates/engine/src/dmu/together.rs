//! Several operations in one group: all of them reach the disk, or none.
//!
//! # Theory
//! A group reaches the disk as a whole or not at all. So operations are atomic together if none of them joins a later group than the
//! first. While a [`Together`] lives, everything that its thread begins in its object set ([`super::OpenTx`]) joins *its* group, takes
//! from the room that *it* was promised, and waits for nothing. The operations themselves know nothing of it.
//!
//! A group that somebody holds cannot be closed, and whoever joins the next one waits for that. So who begins this must hold
//! nothing that others hold while they wait for a group; and it does not wait itself: [`Together::try_begin`] says "not now", and
//! [`Together::wait`] is called with no lock held.
//!
//! # Path
//! `tarnfs::zpl::transaction` → here → `OpenTx::assign`.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::tx::{OpenTx, UNCOUNTED_BYTES};
use super::{Objset, Refusal, SpaceOwner};
use crate::error::{Error, Result};
use crate::txg::{Txg, TxgHold};

/// What operations of one thread share.
pub(super) struct Shared {
    hold: TxgHold,
    /// What those that are over were the first to change.
    dirtied: AtomicU64,
}

impl Shared {
    pub(super) fn txg(&self) -> Txg {
        self.hold.txg()
    }

    pub(super) fn note_dirtied(&self, bytes: u64) {
        self.dirtied.fetch_add(bytes, Ordering::Relaxed);
    }
}

thread_local! {
    /// The object set (its address) for which this thread works, and what the operations share.
    static CURRENT: RefCell<Option<(usize, Arc<Shared>)>> = const { RefCell::new(None) };
}

fn address(objset: &Objset) -> usize {
    std::ptr::from_ref(objset).addr()
}

/// What this thread's operations in `objset` are to share, if anything.
pub(super) fn current(objset: &Objset) -> Option<Arc<Shared>> {
    CURRENT.with_borrow(|current| current.as_ref().filter(|(of, _)| *of == address(objset)).map(|(_, shared)| shared.clone()))
}

/// While it lives, all operations of this thread in one object set belong to one group.
pub struct Together {
    shared: Arc<Shared>,
    owner: Arc<dyn SpaceOwner>,
    promised: u64,
    /// It belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl Together {
    /// Joins the open group with all operations to come, which write at most `bytes` of new data and metadata; 0: they free more than they
    /// take. `None`: that would mean to wait.
    ///
    /// # Errors
    /// Those of [`OpenTx::assign`].
    ///
    /// # Panics
    /// The thread is in another one.
    pub fn try_begin(objset: &Objset, bytes: u64) -> Result<Option<Together>> {
        assert!(CURRENT.with_borrow(Option::is_none), "a thread is in two transactions");
        let Some(hold) = OpenTx::try_join(objset)? else { return Ok(None) };
        let promised = if bytes == 0 { 0 } else { objset.worst_case(bytes, objset.settings().record_bytes) };
        let reserved = if bytes == 0 { objset.owner().reserve_to_free(hold.txg()) } else { objset.owner().reserve(hold.txg(), promised) };
        match reserved {
            Ok(()) => {}
            Err(Refusal::ForNow(_)) => return Ok(None),
            Err(Refusal::Final(error)) => return Err(error),
        }
        let shared = Arc::new(Shared { hold, dirtied: AtomicU64::new(0) });
        CURRENT.set(Some((address(objset), shared.clone())));
        Ok(Some(Together { shared, owner: objset.owner().clone(), promised, not_send: PhantomData }))
    }

    /// Waits for what [`Together::try_begin`] would not wait for.
    ///
    /// # Errors
    /// Those of [`OpenTx::assign`].
    pub fn wait(objset: &Objset, bytes: u64) -> Result<()> {
        if bytes == 0 { OpenTx::assign_freeing(objset).map(drop) } else { OpenTx::assign(objset, bytes).map(drop) }
    }

    /// The group.
    pub fn txg(&self) -> Txg {
        self.shared.txg()
    }

    /// An operation failed in the middle: the group must never reach the disk, and the pool stops.
    pub fn give_up(&self, objset: &Objset, error: Error) {
        objset.context().groups.fail(error);
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        CURRENT.set(None);
        let needed = self.shared.dirtied.load(Ordering::Relaxed) + UNCOUNTED_BYTES;
        self.owner.settle(self.txg(), self.promised, needed);
    }
}
