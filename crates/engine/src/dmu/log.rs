//! The log of what is not on disk yet, as an object set sees it.
//!
//! # Theory
//! The intent log ([`crate::zil`]) is above this layer, but it must be written with the object set: its header stands in the set's own
//! block. So the set carries it as a trait object, asks it whether it has something to write, and lets it write.

use std::any::Any;
use std::sync::Arc;

use super::{Objset, SyncTx};
use crate::error::Result;
use crate::txg::Txg;

/// What an object set carries for the layer of the log (upward call: implemented by `zil`).
pub trait ObjsetLog: Any + Send + Sync {
    /// Whether the header has to be written with `txg`.
    fn is_dirty(&self, txg: Txg) -> bool;
    /// Brings the header up to date and frees blocks that the group makes superfluous. In the first pass.
    ///
    /// # Errors
    /// A block cannot be freed: the pool cannot go on.
    fn sync(&self, objset: &Objset, tx: &SyncTx<'_>) -> Result<()>;
    /// The group is on disk: what the log remembers of it can go.
    fn synced(&self, txg: Txg);
    /// Somebody is to replay it, for whom the object set stays open.
    fn waits_for_replay(&self) -> bool;
    /// A record of it is being done again: what a transaction writes was let in before a crash.
    fn is_being_replayed(&self) -> bool;
    /// The object set is being destroyed: all blocks of the log are freed.
    ///
    /// # Errors
    /// A block cannot be freed: the pool cannot go on.
    fn destroy(&self, objset: &Objset, tx: &SyncTx<'_>) -> Result<()>;
}

impl Objset {
    /// The log, made on first use.
    ///
    /// # Panics
    /// If two layers attach different types.
    pub fn log_or<T: ObjsetLog>(&self, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let log = self.log.get_or_init(|| make()).clone();
        let any: Arc<dyn Any + Send + Sync> = log;
        any.downcast::<T>().unwrap_or_else(|_| panic!("{}: two kinds of log", self.name()))
    }

    /// The log, if anybody asked for it.
    pub fn log(&self) -> Option<&Arc<dyn ObjsetLog>> {
        self.log.get()
    }

    /// Lets the log write what belongs into `tx`'s group.
    ///
    /// # Errors
    /// See [`ObjsetLog::sync`].
    pub fn sync_log(&self, tx: &SyncTx<'_>) -> Result<()> {
        match self.log() {
            Some(log) if tx.pass == 1 && log.is_dirty(tx.txg()) => log.sync(self, tx),
            _ => Ok(()),
        }
    }

    /// The object set is being destroyed: its log goes too. One that nobody asked for has nothing but the block for the next commit.
    ///
    /// # Errors
    /// See [`ObjsetLog::destroy`].
    pub fn destroy_log(&self, tx: &SyncTx<'_>) -> Result<()> {
        if let Some(log) = self.log() {
            return log.destroy(self, tx);
        }
        if let Some(block) = ondisk::zil::header_first_block(&self.zil_header()) {
            tx.free(&block);
        }
        Ok(())
    }
}
