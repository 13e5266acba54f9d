//! Files in memory, and the operations at work with them.

pub(super) mod file_set;
pub(super) mod commit_gate;
pub(super) mod inode;
pub(super) mod inode_table;
pub(super) mod users;

use std::sync::Arc;

use parking_lot::Mutex;

use super::InodeNumber;
use file_set::FileSet;
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

    #[cfg(test)]
    pub(super) fn table(&self) -> &InodeTable {
        &self.table
    }
}
