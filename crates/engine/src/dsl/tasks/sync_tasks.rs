//! Administrative changes: checked, queued for a txg, and done in the sync thread.
//!
//! # Theory
//! What changes the tree of datasets is not done by the thread that wants it, but by the sync thread, in one txg, as one piece:
//! after a crash all of it is there, or nothing. The caller's check runs twice: at once, so that mistakes are reported
//! without waiting, and again just before the change, when nothing else can come between.
//!
//! ```text
//!   Dsl::run_task -> check, queue -> wait until the txg is on disk -> result
//!                                      the sync thread: SyncTasks::run -> check again, change
//! ```
//!
//! A change that fails after its second check has failed half-way: that stops the pool.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::bail;
use crate::dmu::{DmuContext, SyncTx};
use crate::error::{Error, ErrorKind, Result};
use crate::txg::{TXG_SIZE, Txg, slot};

/// A change of `T`.
pub(in crate::dsl) type Work<T> = Box<dyn FnOnce(&T, &SyncTx<'_>) -> Result<()> + Send>;

/// Changes of `T`, queued for each txg.
pub(in crate::dsl) struct SyncTasks<T> {
    queues: [Mutex<Vec<Work<T>>>; TXG_SIZE],
    /// The last txg that one was queued for.
    newest: AtomicU64,
    /// A change is being made: set while `config` is held for writing.
    running: AtomicBool,
}

impl<T> Default for SyncTasks<T> {
    fn default() -> Self {
        SyncTasks { queues: Default::default(), newest: AtomicU64::new(0), running: AtomicBool::new(false) }
    }
}

impl<T> SyncTasks<T> {
    /// Queues a change; returns the txg that will have it.
    pub(in crate::dsl) fn queue(&self, context: &DmuContext, work: Work<T>) -> Result<Txg> {
        if context.read_only {
            bail!(ReadOnly, "the pool is read-only");
        }
        if let Some(failure) = context.groups.failure() {
            return Err(failure);
        }
        // A group that is being closed may wait for a device, and the change may be what clears that, or records it.
        let hold = context.groups.hold_unless(&|| context.io.devices().suspension())?;
        self.queues[slot(hold.txg())].lock().push(work);
        self.newest.fetch_max(hold.txg(), Ordering::AcqRel);
        Ok(hold.txg())
    }

    /// As `queue`, for a group that the caller is a member of.
    pub(in crate::dsl) fn queue_in(&self, txg: Txg, work: Work<T>) {
        self.queues[slot(txg)].lock().push(work);
        self.newest.fetch_max(txg, Ordering::AcqRel);
    }

    /// Waits until what has been queued is done and on disk.
    ///
    /// # Errors
    /// What stopped the pool, or what it waits for.
    pub(in crate::dsl) fn wait(&self, context: &DmuContext) -> Result<()> {
        match self.newest.load(Ordering::Acquire) {
            newest if newest > context.groups.synced_txg() => context.groups.wait_synced_unless(newest, &|| context.io.devices().suspension()),
            _ => Ok(()),
        }
    }

    /// Whether `txg` has changes queued.
    pub(in crate::dsl) fn has_any(&self, txg: Txg) -> bool {
        !self.queues[slot(txg)].lock().is_empty()
    }

    /// Does the changes queued for the txg, each under the lock that `exclude` takes. Called in pass 1, after the MOS has been written;
    /// what the changes dirty is written in the next pass.
    ///
    /// # Errors
    /// A change failed half-way: the txg must not be committed.
    pub(in crate::dsl) fn run<G>(&self, target: &T, exclude: impl Fn() -> G, tx: &SyncTx<'_>) -> Result<()> {
        let queued = std::mem::take(&mut *self.queues[slot(tx.txg())].lock());
        for work in queued {
            let _excluded = exclude();
            self.running.store(true, Ordering::Relaxed);
            let result = work(target, tx);
            self.running.store(false, Ordering::Relaxed);
            result?;
        }
        Ok(())
    }

    /// Whether a check is the second one, in the sync thread.
    pub(in crate::dsl) fn is_making_changes(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }
}

/// Names the dataset in an error of a change.
pub(in crate::dsl) fn cannot(verb: &str, name: &str, why: &str, kind: ErrorKind) -> Error {
    Error::new(kind, format!("cannot {verb} '{name}': {why}"))
}
