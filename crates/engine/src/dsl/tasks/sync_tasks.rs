//! Administrative changes: checked, queued for a txg, and done in the sync thread.
//!
//! # Theory
//! What changes the tree of datasets is not done by the thread that wants it, but by the sync thread, in one txg, as one piece:
//! after a crash all of it is there, or nothing. The caller's check runs twice: at once, so that mistakes are reported
//! without waiting, and again just before the change, when nothing else can come between.
//!
//! ```text
//!   Dsl::run_task -> check, queue -> wait until the txg is on disk -> result
//!                                      the sync thread: Dsl::run_tasks -> check again, change
//! ```
//!
//! A change that fails after its second check has failed half-way: that stops the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::dsl::space::room::SpaceCheck;
use crate::dsl::tree::tree::Dsl;
use crate::dmu::{Refusal, SyncTx, ask_for_room};
use crate::error::{Error, ErrorKind, Result};
use crate::txg::{TXG_SIZE, Txg, slot};
use crate::{bail, error};

type Work = Box<dyn FnOnce(&Arc<Dsl>, &SyncTx<'_>) -> Result<()> + Send>;

/// Changes queued for each txg.
#[derive(Default)]
pub(in crate::dsl) struct SyncTasks {
    queues: [Mutex<Vec<Work>>; TXG_SIZE],
    /// The last txg that one was queued for.
    newest: AtomicU64,
    /// A change is being made: set while `config` is held for writing.
    running: AtomicBool,
}

/// Space that a change may need, for each block that it modifies: three copies of a block and of its parents.
const BYTES_PER_BLOCK: u64 = (128 << 10) * 3 * 2;

impl Dsl {
    /// Does an administrative change, and waits until it is on disk. `check` runs in open context and again in the sync
    /// thread, where `change` follows it. `blocks` is how many blocks it modifies, about.
    ///
    /// # Errors
    /// Those of `check`; that of `change`, which also stops the pool; `NoSpace`; `ReadOnly`.
    pub fn run_task<T, C, S>(self: &Arc<Self>, blocks: u64, space: SpaceCheck, check: C, change: S) -> Result<T>
    where
        T: Send + 'static,
        C: Fn(&Arc<Dsl>) -> Result<()> + Send + 'static,
        S: FnOnce(&Arc<Dsl>, &SyncTx<'_>) -> Result<T> + Send + 'static,
    {
        let context = &self.meta.context;
        if context.read_only {
            bail!(ReadOnly, "the pool is read-only");
        }
        ask_for_room(&context.groups, || {
            let _names = self.lock_names();
            check(self)?;
            self.check_space(blocks, space)
        })?;
        let answer: Arc<Mutex<Option<Result<T>>>> = Arc::default();
        let put = answer.clone();
        let work: Work = Box::new(move |dsl, tx| {
            let result = check(dsl).map(|()| change(dsl, tx));
            let (result, fatal) = match result {
                Err(refused) => (Err(refused), None),
                Ok(Err(failed)) => (Err(failed.clone()), Some(failed)),
                Ok(done) => (done, None),
            };
            *put.lock() = Some(result);
            fatal.map_or(Ok(()), Err)
        });
        let txg = self.queue(work)?;
        context.groups.wait_synced_unless(txg, &|| context.io.devices().suspension())?;
        let taken = answer.lock().take();
        taken.unwrap_or_else(|| Err(error!(Suspended, "the pool stopped before the change was made")))
    }

    /// Queues a change that cannot be refused, and does not wait for it.
    pub fn queue_task<S>(self: &Arc<Self>, change: S) -> Result<Txg>
    where
        S: FnOnce(&Arc<Dsl>, &SyncTx<'_>) -> Result<()> + Send + 'static,
    {
        if self.meta.context.read_only {
            bail!(ReadOnly, "the pool is read-only");
        }
        self.queue(Box::new(change))
    }

    fn queue(&self, work: Work) -> Result<Txg> {
        let context = &self.meta.context;
        if let Some(failure) = context.groups.failure() {
            return Err(failure);
        }
        // A group that is being closed may have a holder who waits for a device, and this may be what clears that, or records it.
        let hold = context.groups.hold_unless(&|| context.io.devices().suspension())?;
        self.tasks.queues[slot(hold.txg())].lock().push(work);
        self.tasks.newest.fetch_max(hold.txg(), Ordering::AcqRel);
        Ok(hold.txg())
    }

    /// Waits until what has been queued is done and on disk.
    ///
    /// # Errors
    /// What stopped the pool, or what it waits for.
    pub fn wait_for_tasks(&self) -> Result<()> {
        let context = &self.meta.context;
        match self.tasks.newest.load(Ordering::Acquire) {
            newest if newest > context.groups.synced_txg() => context.groups.wait_synced_unless(newest, &|| context.io.devices().suspension()),
            _ => Ok(()),
        }
    }

    fn check_space(&self, blocks: u64, check: SpaceCheck) -> Result<(), Refusal> {
        if check == SpaceCheck::None {
            return Ok(());
        }
        let root = self.root_dir()?;
        let wanted = root.phys().used_bytes.get().saturating_add(blocks.saturating_mul(BYTES_PER_BLOCK));
        let limit = self.usable_space(check);
        if wanted <= limit {
            return Ok(());
        }
        let refused = error!(NoSpace, "out of space");
        // Who administers a pool that waits for them does not wait for its groups.
        let comes_free = wanted - limit <= self.being_freed(&root) && self.meta.context.io.devices().suspension().is_none();
        Err(if comes_free { Refusal::ForNow(refused) } else { refused.into() })
    }

    /// Whether `txg` has changes queued.
    pub fn has_tasks(&self, txg: Txg) -> bool {
        !self.tasks.queues[slot(txg)].lock().is_empty()
    }

    /// Does the changes queued for the txg. Called in pass 1, after the MOS has been written; what the changes dirty is
    /// written in the next pass.
    ///
    /// # Errors
    /// A change failed half-way: the txg must not be committed.
    pub fn run_tasks(self: &Arc<Self>, tx: &SyncTx<'_>) -> Result<()> {
        let queued = std::mem::take(&mut *self.tasks.queues[slot(tx.txg())].lock());
        for work in queued {
            let _config = self.lock_config();
            self.tasks.running.store(true, Ordering::Relaxed);
            let result = work(self, tx);
            self.tasks.running.store(false, Ordering::Relaxed);
            result?;
        }
        Ok(())
    }

    /// Whether a check is the second one, in the sync thread.
    pub(in crate::dsl) fn is_making_changes(&self) -> bool {
        self.tasks.running.load(Ordering::Relaxed)
    }

    /// The pool stops: those who wait for changes are told.
    pub fn drop_tasks(&self) {
        for queue in &self.tasks.queues {
            drop(std::mem::take(&mut *queue.lock()));
        }
    }
}

/// Names the dataset in an error of a change.
pub(in crate::dsl) fn cannot(verb: &str, name: &str, why: &str, kind: ErrorKind) -> Error {
    Error::new(kind, format!("cannot {verb} '{name}': {why}"))
}
