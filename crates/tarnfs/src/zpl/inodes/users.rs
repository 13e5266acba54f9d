//! The users that count references to inodes: mounts, and transactions of programs.
//!
//! # Theory
//! A kernel does not forget its inodes one by one when a mount ends, so all references are dropped then. But there may be another mount of the
//! same [`FileSystem`] by that time: one that was taken out of sight lives on until its last user has left it, which may be long after
//! somebody has mounted the dataset again. And a transaction gives its own references back by itself. So they are dropped when the last
//! mount has ended and no transaction is left.
//!
//! # Locks
//! That of the counts is held for moments, with that of a shard of the table of inodes inside.

use std::sync::Arc;

use crate::zpl::file_system::FileSystem;

/// How many there are.
#[derive(Debug, Default)]
pub(in crate::zpl) struct Users {
    pub(super) mounts: usize,
    pub(super) transactions: usize,
    /// The last mount has ended, and its references are there still.
    pub(super) due: bool,
}

impl Users {
    /// Nobody has references that count.
    pub(super) fn are_gone(&self) -> bool {
        self.mounts == 0 && self.transactions == 0
    }
}

/// A mount, as long as it lives. With the last one all inodes go that kernels were told of.
pub struct MountUse {
    fs: Arc<FileSystem>,
    /// Another use goes on with the files.
    leaves: bool,
}

/// A transaction of a program.
pub(in crate::zpl) struct TransactionUse(Arc<FileSystem>);

impl std::fmt::Debug for MountUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a mount of {:?}", self.fs)
    }
}

impl MountUse {
    /// A kernel is about to be told of inodes.
    pub(in crate::zpl) fn begin(fs: &Arc<FileSystem>) -> Self {
        fs.inodes.use_mounted();
        MountUse { fs: fs.clone(), leaves: false }
    }

    /// Ends it, and frees no file that was removed while open: another use goes on with them ([`FileSystem::take_over`]), or they stay in the delete queue.
    pub fn leave(mut self) {
        self.leaves = true;
    }
}

impl TransactionUse {
    pub(in crate::zpl) fn begin(fs: &Arc<FileSystem>) -> Self {
        fs.inodes.use_in_transaction();
        TransactionUse(fs.clone())
    }
}

impl Drop for MountUse {
    fn drop(&mut self) {
        if self.fs.inodes.mount_ended() {
            if self.leaves { self.fs.leave_all() } else { self.fs.release_all() }
        }
    }
}

impl Drop for TransactionUse {
    fn drop(&mut self) {
        if self.0.inodes.transaction_ended() {
            self.0.release_all();
        }
    }
}
