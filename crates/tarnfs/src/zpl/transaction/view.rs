//! Reading in a transaction.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use engine::error::{ErrorKind, Result};
use engine::{bail, error};

use super::node::PIECE;
use super::{NodeId, OWN, Transaction};
use crate::zpl::{FileKind, Stat};

/// An entry of a directory in a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: Vec<u8>,
    /// What it names.
    pub node: NodeId,
    /// What that is.
    pub kind: FileKind,
}

impl Transaction {
    /// What `name` names; `None`: nothing.
    pub(super) fn find(&mut self, directory: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        let node = self.load(directory)?;
        node.check_directory()?;
        if let Some(changed) = node.entries.get(name) {
            return Ok(*changed);
        }
        if directory >= OWN {
            return Ok(None);
        }
        let found = match self.fs.lookup(directory, name) {
            Ok(stat) => {
                self.fs.forget(stat.inode, 1);
                Some(stat.inode)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if !self.seen.contains_key(&(directory, name.to_vec())) {
            self.check_seen()?;
        }
        let before = self.seen.entry((directory, name.to_vec())).or_insert(found);
        if *before != found {
            bail!(Conflict, "{}: {:?} was changed by somebody else", self.fs.objset().name(), String::from_utf8_lossy(name));
        }
        let changed_at = self.fs.inode(directory)?.changed_at.load(Ordering::Acquire);
        if changed_at > self.seen_at {
            let fs = self.fs.clone();
            self.look_again(&fs.alone())?;
        }
        Ok(found)
    }

    /// Looks a name up.
    ///
    /// # Errors
    /// `NotFound`; `NotDirectory`; `Conflict`.
    pub fn lookup(&mut self, directory: NodeId, name: &[u8]) -> Result<Stat> {
        let id = match name {
            b"." => directory,
            b".." => self.load(directory)?.stat.parent,
            _ => self.find(directory, name)?.ok_or_else(|| error!(NotFound, "{:?} is not in directory {directory}", String::from_utf8_lossy(name)))?,
        };
        self.getattr(id)
    }

    /// The file at a path of names between slashes, from the root; symbolic links are not followed.
    ///
    /// # Errors
    /// Those of [`Transaction::lookup`].
    pub fn resolve(&mut self, path: &str) -> Result<NodeId> {
        let mut at = self.root();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = self.lookup(at, name.as_bytes())?.inode;
        }
        Ok(at)
    }

    /// What is known of a file.
    ///
    /// # Errors
    /// There is none; `Conflict`.
    pub fn getattr(&mut self, id: NodeId) -> Result<Stat> {
        self.load(id)?;
        self.depend(id)?;
        Ok(self.nodes[&id].stat.clone())
    }

    /// From now on a file that is no directory must stay as it is, and must have been so. Of directories only the names that were looked at matter.
    pub(super) fn depend(&mut self, id: NodeId) -> Result<()> {
        let node = self.nodes.get_mut(&id).expect("it was loaded");
        if node.kind() != FileKind::Directory {
            node.depends = true;
        }
        match node.base {
            Some(base) if node.depends => base.check_unchanged(&self.fs, id),
            _ => Ok(()),
        }
    }

    /// Reads; less than asked for at the end.
    ///
    /// # Errors
    /// The file cannot be read; `Conflict`.
    pub fn read(&mut self, id: NodeId, offset: u64, length: usize) -> Result<Vec<u8>> {
        let node = self.load(id)?;
        node.check_regular()?;
        let length = usize::try_from(node.stat.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(length);
        let mut out = vec![0; length];
        let mut at = offset;
        for piece in cut(&mut out, offset) {
            self.read_piece(id, at, piece)?;
            at += piece.len() as u64;
        }
        self.depend(id)?;
        Ok(out)
    }

    /// `out`, which is zero, is inside of one piece.
    fn read_piece(&self, id: NodeId, at: u64, out: &mut [u8]) -> Result<()> {
        let node = &self.nodes[&id];
        if let Some(piece) = node.patch.pieces.get(&(at / PIECE as u64)) {
            let within = (at % PIECE as u64) as usize;
            out.copy_from_slice(&piece[within..within + out.len()]);
            return Ok(());
        }
        let kept = usize::try_from(node.patch.kept.saturating_sub(at)).unwrap_or(usize::MAX).min(out.len());
        if node.base.is_some() && kept > 0 {
            self.fs.read_into(id, at, &mut out[..kept])?;
        }
        Ok(())
    }

    /// The piece of this number, as it is.
    pub(super) fn whole_piece(&self, id: NodeId, number: u64) -> Result<Box<[u8; PIECE]>> {
        let mut piece = Box::new([0; PIECE]);
        self.read_piece(id, number * PIECE as u64, &mut piece[..])?;
        Ok(piece)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` if it is none.
    pub fn readlink(&mut self, id: NodeId) -> Result<Vec<u8>> {
        let node = self.load(id)?;
        match (&node.target, node.base) {
            (Some(target), _) => Ok(target.clone()),
            (None, Some(_)) => self.fs.readlink(id),
            (None, None) => bail!(Invalid, "inode {id} is no symbolic link"),
        }
    }

    /// All entries of a directory, in the order of their names; without itself and its parent.
    ///
    /// # Errors
    /// `NotDirectory`; it cannot be read; `Conflict`.
    pub fn list(&mut self, directory: NodeId) -> Result<Vec<Listed>> {
        let node = self.load(directory)?;
        node.check_directory()?;
        node.depends |= node.base.is_some();
        let mut listed = Vec::new();
        if directory < OWN {
            let max = self.seen_max();
            self.fs.read_directory(directory, 2, &mut |entry| {
                listed.push(Listed { name: entry.name, node: entry.inode, kind: entry.kind });
                listed.len() <= max
            })?;
            if listed.len() > max {
                bail!(TooBig, "directory {directory} has more than the {max} entries that a transaction in {} may list", self.fs.objset().name());
            }
        }
        self.depend(directory)?;
        let changed = &self.nodes[&directory].entries;
        listed.retain(|entry| !changed.contains_key(&entry.name));
        for (name, node) in changed {
            if let Some(node) = node {
                listed.push(Listed { name: name.clone(), node: *node, kind: self.nodes[node].kind() });
            }
        }
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`; `Conflict`.
    pub fn getxattr(&mut self, id: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        let node = self.load(id)?;
        let value = match (node.xattrs.get(name), node.base) {
            (Some(Some(value)), _) => Ok(value.clone()),
            (None, Some(_)) => self.fs.getxattr(id, name),
            _ => bail!(NoAttribute, "inode {id} has no extended attribute {:?}", String::from_utf8_lossy(name)),
        };
        self.depend(id)?;
        value
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// They cannot be read; `Conflict`.
    pub fn listxattr(&mut self, id: NodeId) -> Result<Vec<Vec<u8>>> {
        self.load(id)?;
        let base = if id < OWN { self.fs.listxattr(id)? } else { Vec::new() };
        self.depend(id)?;
        let mut names: BTreeSet<Vec<u8>> = base.into_iter().collect();
        for (name, value) in &self.nodes[&id].xattrs {
            if value.is_some() { names.insert(name.clone()) } else { names.remove(name) };
        }
        Ok(names.into_iter().collect())
    }
}

/// Cuts a buffer for the bytes from `offset` on at the borders of pieces.
fn cut(mut buffer: &mut [u8], offset: u64) -> Vec<&mut [u8]> {
    let mut parts = Vec::new();
    let mut within = (offset % PIECE as u64) as usize;
    while !buffer.is_empty() {
        let (part, rest) = buffer.split_at_mut((PIECE - within).min(buffer.len()));
        parts.push(part);
        (buffer, within) = (rest, 0);
    }
    parts
}
