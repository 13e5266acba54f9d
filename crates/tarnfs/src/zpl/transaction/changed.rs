//! What a commit changes, for those who keep copies: a kernel's caches.

use super::change::NameChange;
use super::{OWN, Transaction};
use crate::zpl::InodeNumber;

/// What others know and must not believe any more after the commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// Names that come, go, or name something else: directory and name.
    pub names: Vec<(InodeNumber, Vec<u8>)>,
    /// Files and directories with other contents, entries or attributes.
    pub inodes: Vec<InodeNumber>,
}

impl Transaction {
    /// What the commit would change of what others can know: nothing below directories that the transaction itself has made.
    pub fn changed(&self) -> Changed {
        let mut names = Vec::new();
        for change in &self.names {
            match change {
                NameChange::Make { entry, .. } | NameChange::Link { entry, .. } | NameChange::Remove { entry, .. } => names.push(entry),
                NameChange::Rename { from, to, .. } => names.extend([from, to]),
            }
        }
        let mut names: Vec<_> = names.into_iter().filter(|entry| entry.directory < OWN).map(|entry| (entry.directory, entry.name.clone())).collect();
        names.sort();
        names.dedup();
        let mut inodes: Vec<_> = self.nodes.iter().filter(|(id, node)| **id < OWN && node.is_touched()).map(|(id, _)| *id).collect();
        inodes.sort_unstable();
        Changed { names, inodes }
    }
}
