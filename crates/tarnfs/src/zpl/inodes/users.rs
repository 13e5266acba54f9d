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
    mounts: usize,
    transactions: usize,
    /// The last mount has ended, and its references are there still.
    due: bool,
}

impl Users {
    /// Nobody has references that count.
    fn are_gone(&self) -> bool {
        self.mounts == 0 && self.transactions == 0
    }
}

/// A mount, as long as it lives. With the last one all inodes go that kernels were told of.
pub struct MountUse(Arc<FileSystem>);

/// A transaction of a program.
pub(in crate::zpl) struct TransactionUse(Arc<FileSystem>);

impl std::fmt::Debug for MountUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a mount of {:?}", self.0)
    }
}

impl FileSystem {
    /// Somebody is about to tell a kernel of inodes.
    pub fn use_mounted(self: &Arc<Self>) -> MountUse {
        let mut users = self.inodes.users.lock();
        users.mounts += 1;
        users.due = false;
        MountUse(self.clone())
    }

    pub(in crate::zpl) fn use_in_transaction(self: &Arc<Self>) -> TransactionUse {
        self.inodes.users.lock().transactions += 1;
        TransactionUse(self.clone())
    }

    /// Lets go of all inodes, as at an unmount: files that were removed while open are freed. Stops when a new user comes.
    pub fn release_all(&self) {
        for object in self.inodes.table.all() {
            let _entered = self.enter();
            let released = {
                let users = self.inodes.users.lock();
                if !users.are_gone() {
                    return;
                }
                self.inodes.table.release(object, u64::MAX)
            };
            if let Some(inode) = released {
                self.released(&inode);
            }
        }
    }
}

impl Drop for MountUse {
    fn drop(&mut self) {
        let last = {
            let mut users = self.0.inodes.users.lock();
            users.mounts -= 1;
            users.due = users.mounts == 0;
            users.are_gone()
        };
        if last {
            self.0.release_all();
        }
    }
}

impl Drop for TransactionUse {
    fn drop(&mut self) {
        let last = {
            let mut users = self.0.inodes.users.lock();
            users.transactions -= 1;
            users.due && users.are_gone()
        };
        if last {
            self.0.release_all();
        }
    }
}
