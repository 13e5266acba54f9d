//! Files in memory, and the operations at work with them.

pub(super) mod file_set;
pub(super) mod commit_gate;
pub(super) mod inode;
pub(super) mod inode_table;
pub(super) mod users;

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;

use super::InodeNumber;
use file_set::FileSet;
use inode::Inode;
use commit_gate::{Alone, Entered, CommitGate};
use inode_table::InodeTable;
use users::Users;

/// The files of a mounted file system that somebody refers to.
pub(super) struct Inodes {
    table: InodeTable,
    gate: CommitGate,
    /// guards: how many users count references to inodes
    users: Mutex<Users>,
}

impl Inodes {
    pub(super) fn new(files: Arc<FileSet>) -> Self {
        Inodes { table: InodeTable::new(files), gate: CommitGate::default(), users: Mutex::default() }
    }

    /// For an operation: passes the gate.
    pub(super) fn enter(&self) -> Entered<'_> {
        self.gate.enter()
    }

    /// For the commit of a transaction: closes the gate when nobody is inside.
    pub(super) fn close(&self) -> Alone<'_> {
        self.gate.close()
    }

    /// Does somebody refer to the file?
    pub(super) fn contains(&self, object: InodeNumber) -> bool {
        self.table.contains(object)
    }

    /// One more mount counts references.
    fn use_mounted(&self) {
        let mut users = self.users.lock();
        users.mounts += 1;
        users.due = false;
    }

    /// One more transaction does.
    fn use_in_transaction(&self) {
        self.users.lock().transactions += 1;
    }

    /// Is it time to let go of all inodes, as the last mount has ended?
    fn mount_ended(&self) -> bool {
        let mut users = self.users.lock();
        users.mounts -= 1;
        users.due = users.mounts == 0;
        users.are_gone()
    }

    /// As [`Inodes::mount_ended`], of a transaction after it.
    fn transaction_ended(&self) -> bool {
        let mut users = self.users.lock();
        users.transactions -= 1;
        users.due && users.are_gone()
    }

    /// Takes all references of one inode away, unless somebody uses the file system again. The inode, if these were the last.
    fn release_unless_used(&self, object: InodeNumber) -> ControlFlow<(), Option<Arc<Inode>>> {
        let users = self.users.lock();
        if users.are_gone() { ControlFlow::Continue(self.table.release(object, u64::MAX)) } else { ControlFlow::Break(()) }
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &InodeTable {
        &self.table
    }
}
