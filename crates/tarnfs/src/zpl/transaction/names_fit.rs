//! Whether all names of a transaction find room in their directories: a directory can refuse a name of which many others have the hash.
//!
//! # Theory
//! Such names can be made on purpose, so this must be found before the first change. The hash of a directory depends on its salt; that of
//! one that the transaction makes is chosen here, so that what is found here is true when the names come. A few names always fit.
//!
//! # Path
//! `commit` → here → [`engine::zap::Zap::check_room`].

use std::collections::HashMap;

use engine::error::{Error, ErrorKind, Result};
use engine::zap::{Normalization, Zap};

use super::change::NameChange;
use super::node::Node;
use crate::zpl::file_system::AloneFileSystem;
use super::{NodeId, OWN, Transaction};

/// So many names of whatever hash always find room in a new directory.
const ALWAYS_FIT: usize = 40;
/// So many salts are tried for a new directory.
const SALTS_MAX: usize = 8;

/// The salts of directories that will be made.
#[derive(Debug, Default)]
pub(super) struct Salts {
    pub(super) of_directories: HashMap<NodeId, u64>,
    /// Hidden directories of extended attributes, by their file.
    pub(super) of_xattrs: HashMap<NodeId, u64>,
}

impl Transaction {
    /// Fails unless every name that is to be added will find room.
    pub(super) fn check_names_fit(&self, fs: &AloneFileSystem<'_>) -> Result<Salts> {
        let mut added: HashMap<NodeId, Vec<&[u8]>> = HashMap::new();
        for change in &self.names {
            // A name that is exchanged is there already.
            if let NameChange::Make { entry, .. } | NameChange::Link { entry, .. } | NameChange::Rename { to: entry, .. } = change {
                added.entry(entry.directory).or_default().push(&entry.name);
            }
        }
        let mut salts = Salts::default();
        for (directory, names) in added {
            let checked = if directory < OWN {
                fs.inode(directory).and_then(|inode| inode.directory_zap()?.check_room(&names))
            } else {
                self.salt_for(&names).map(|salt| salts.of_directories.extend(salt.map(|salt| (directory, salt))))
            };
            checked.map_err(|error| self.refused(error, &format!("directory {directory}")))?;
        }
        for (id, node) in &self.nodes {
            let checked = self.xattr_names_fit(fs, *id, node).map(|salt| salts.of_xattrs.extend(salt.map(|salt| (*id, salt))));
            checked.map_err(|error| self.refused(error, &format!("the extended attributes of inode {id}")))?;
        }
        Ok(salts)
    }

    /// Of the attributes that may come to the hidden directory; the salt with which that is to be made, if it matters.
    fn xattr_names_fit(&self, fs: &AloneFileSystem<'_>, id: NodeId, node: &Node) -> Result<Option<u64>> {
        let names: Vec<&[u8]> = node.xattrs.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name.as_slice()).collect();
        if names.is_empty() || node.stat.links == 0 {
            return Ok(None);
        }
        let base = if id < OWN { Some(fs.inode(id)?) } else { None };
        if fs.would_list(base.as_deref(), node.xattrs.iter().filter_map(|(name, value)| Some((name.len(), value.as_ref()?.len()))))? {
            return Ok(None);
        }
        if let Some(inode) = &base
            && let Some(directory) = fs.xattr_directory(inode)?
        {
            return directory.directory_zap()?.check_room(&names).map(|()| None);
        }
        self.salt_for(&names)
    }

    /// A salt with which all these names find room in a new directory; `None`: with any.
    fn salt_for(&self, names: &[&[u8]]) -> Result<Option<u64>> {
        if names.len() <= ALWAYS_FIT {
            return Ok(None);
        }
        let mut refused = Ok(None);
        for _ in 0..SALTS_MAX {
            let salt = Zap::new_salt(&self.fs.objset);
            match Zap::check_room_in_new(names, salt, Normalization::NONE) {
                Ok(()) => return Ok(Some(salt)),
                Err(error) => refused = Err(error),
            }
        }
        refused
    }

    fn refused(&self, error: Error, of: &str) -> Error {
        match error.kind() {
            ErrorKind::NoSpace => Error::new(ErrorKind::NoSpace, format!("{}: {of}: {error}; use other names", self.fs.objset.name())),
            _ => error,
        }
    }
}
