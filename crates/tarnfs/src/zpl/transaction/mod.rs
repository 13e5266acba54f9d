//! Transactions of programs: several changes to one dataset, all or none of them, across any crash.
//!
//! # Theory
//! A [`Transaction`] is a private view of a file system. What is changed in it is kept beside the file system ([`node`]): patches of
//! contents, names that came and went, in their order; what was not changed is read through. Nobody else sees any of it.
//! [`Transaction::commit`] closes the file system's gate, so that nobody is in the middle of anything; finds out whether
//! what the transaction has seen is still so; and then does the changes with the ordinary operations, all of them in one transaction group
//! ([`engine::dmu::Membership`]). A group reaches the disk whole or not at all, so that is what becomes of the transaction.
//!
//! *Conflicts* are found by what was seen: a name that was looked up must still name the same file, or nothing; a file that was
//! read or changed must not have changed since it was first looked at, nor a directory that was listed or removed. The transaction that comes second
//! gets [`engine::error::ErrorKind::Conflict`], and begins anew. Reading finds conflicts too, so that nothing impossible is seen: what is looked at
//! for the first time and was changed since all the rest was seen is a reason to find out whether that rest is still so.
//!
//! What can go wrong is found before the first change: room, limits, names, marks. Should one of the changes fail all the same
//! (a block of a directory cannot be read), the group is given up, and with it the pool is suspended: the disk has the state before.
//!
//! # Invariants
//! 1. Nothing of a transaction is in the file system before its commit, and the commit waits for nothing while the gate is closed.
//! 2. What a transaction holds in memory is bounded (`transaction_bytes_max`, `transaction_names_max`, and so many times the
//!    latter of files and names that it has merely seen); beyond it is `TooBig`.
//!
//! # Path
//! `FileSystem::transaction`, or a mounted view of the daemon's (`tarn transaction`) → [`Transaction`] → `commit.rs` → the operations of `zpl`.

mod change;
mod changed;
mod commit;
mod contents;
mod names_fit;
mod node;
mod view;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use engine::bail;
use engine::error::Result;

use super::file_system::AloneFileSystem;
use super::inodes::users::TransactionUse;
use super::{FileSystem, InodeNumber};
use change::NameChange;
use node::Node;

pub use changed::Changed;
pub use view::Listed;

/// A file in a transaction: its inode number, or a number of the transaction's own for what it has made.
pub type NodeId = u64;

/// For each name that may change, so many files and names may have been seen.
const SEEN_PER_NAME: usize = 8;
/// Numbers from here on are the transaction's own.
const OWN: NodeId = 1 << 47;

/// When a commit returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When everybody sees the changes. They reach the disk within seconds.
    Soon,
    /// When the changes are on disk.
    Now,
}

/// A private view of a file system. Dropping it forgets all changes.
pub struct Transaction {
    fs: Arc<FileSystem>,
    /// It gives its references back by itself.
    _use: TransactionUse,
    nodes: HashMap<NodeId, Node>,
    /// Changes of names, in their order.
    names: Vec<NameChange>,
    /// What the file system was seen to have under a name.
    seen: BTreeMap<(InodeNumber, Vec<u8>), Option<InodeNumber>>,
    next: NodeId,
    /// All that was seen was so at this time, by the clock of the inode table.
    seen_at: u64,
    /// What the patches take.
    bytes: u64,
    bytes_max: u64,
    names_max: usize,
    /// This change of names shall fail.
    #[cfg(test)]
    fail_at: Option<usize>,
}

impl Transaction {
    /// See [`FileSystem::begin`].
    pub(super) fn begin(fs: &Arc<FileSystem>) -> Result<Transaction> {
        fs.check_writable()?;
        if !fs.names_are_exact() {
            bail!(NotSupported, "{}: no transactions where different spellings are one name (properties casesensitivity, normalization)", fs.objset.name());
        }
        let tunables = &fs.objset.context().tunables;
        Ok(Transaction {
            fs: fs.clone(),
            _use: TransactionUse::begin(fs),
            nodes: HashMap::new(),
            names: Vec::new(),
            seen: BTreeMap::new(),
            next: OWN,
            seen_at: 0,
            bytes: 0,
            bytes_max: tunables.transaction_bytes_max.min(tunables.dirty_bytes_max / 4),
            names_max: tunables.transaction_names_max,
            #[cfg(test)]
            fail_at: None,
        })
    }

    /// The root directory.
    pub fn root(&self) -> NodeId {
        self.fs.root()
    }

    /// The file system.
    pub fn file_system(&self) -> &Arc<FileSystem> {
        &self.fs
    }

    /// Nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.nodes.values().all(|node| !node.is_changed())
    }

    fn check_size(&self, more: u64) -> Result<()> {
        if self.bytes.saturating_add(more) > self.bytes_max {
            bail!(TooBig, "a transaction in {} holds at most {} bytes (tunable transaction_bytes_max)", self.fs.objset.name(), self.bytes_max);
        }
        Ok(())
    }

    /// Is there room to remember one more thing that was seen?
    fn check_seen(&self) -> Result<()> {
        let max = self.seen_max();
        if self.nodes.len() + self.seen.len() >= max {
            bail!(TooBig, "a transaction in {} sees at most {max} files and names ({SEEN_PER_NAME} times the tunable transaction_names_max)", self.fs.objset.name());
        }
        Ok(())
    }

    fn seen_max(&self) -> usize {
        self.names_max.saturating_mul(SEEN_PER_NAME)
    }

    /// The number of something new.
    fn new_number(&mut self) -> NodeId {
        self.next += 1;
        self.next - 1
    }

    /// Loads a file of the file system, if it is not there yet.
    fn load(&mut self, id: NodeId) -> Result<&mut Node> {
        if !self.nodes.contains_key(&id) {
            if id >= OWN {
                bail!(Stale, "there is no file {id} in this transaction");
            }
            self.check_seen()?;
            let mut node = Node::of(&self.fs, id)?;
            let mut looked = Ok(());
            if node.changed_at() > self.seen_at {
                // Somebody may be in the middle of changing it: it is looked at while nobody is.
                let fs = self.fs.clone();
                let alone = fs.alone();
                looked = node.read_again(&alone, id).and_then(|()| self.look_again(&alone));
            }
            self.nodes.insert(id, node);
            looked?;
        }
        Ok(self.nodes.get_mut(&id).expect("it was put there"))
    }

    /// Something was seen that had been changed: what was seen before must still be so, or never was there together with it.
    fn look_again(&mut self, fs: &AloneFileSystem<'_>) -> Result<()> {
        self.check_seen_unchanged(fs)?;
        self.seen_at = self.fs.files.last_change();
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        for (id, node) in self.nodes.drain() {
            if node.base.is_some() {
                self.fs.forget(id, 1);
            }
        }
    }
}
