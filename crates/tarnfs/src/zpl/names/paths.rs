//! From an object back to a path.
//!
//! # Theory
//! A file knows the directory in which it was made or last moved to, and that one its own; the name has to be searched for in the
//! directory. A file with several names is found by any one of those in that directory; when that one was removed, by none. As OpenZFS
//! has it, what is in a hidden directory of extended attributes lies below `<xattrdir>`.
//!
//! A search reads a directory from its beginning. So many objects are looked for at a time ([`Paths::prepare`]): each of their directories
//! is read once, whatever its size, and names are kept for what is wanted alone.

use std::collections::{HashMap, HashSet};

use engine::error::Result;
use engine::{bail, error};
use ondisk::znode;

use crate::zpl::file_system::FileSystem;
use crate::zpl::{FileKind, InodeNumber, Stat};

/// Directories nested deeper are taken for a circle.
const DEPTH_MAX: usize = 4096;
/// Directories whose paths are kept.
const KEPT_MAX: usize = 1 << 16;
const XATTR_DIRECTORY: &[u8] = b"<xattrdir>";

/// Where a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// From the root, with a slash in front.
    Path(Vec<u8>),
    /// It has no name any more, and waits to be freed.
    Unlinked,
}

/// Finds paths in a file system that does not change meanwhile.
pub struct Paths<'a> {
    fs: &'a FileSystem,
    /// Names of what is looked for, by directory and object.
    names: HashMap<(InodeNumber, InodeNumber), Vec<u8>>,
    directories: HashMap<InodeNumber, Vec<u8>>,
}

impl<'a> Paths<'a> {
    /// Of this file system.
    pub fn new(fs: &'a FileSystem) -> Self {
        Paths { fs, names: HashMap::new(), directories: HashMap::new() }
    }

    /// Searches for the names of these files, and forgets those of the last ones.
    pub fn prepare(&mut self, files: &[Stat]) {
        self.names.clear();
        let mut wanted: HashMap<InodeNumber, HashSet<InodeNumber>> = HashMap::new();
        for file in files.iter().filter(|file| !is_xattr_directory(file)) {
            wanted.entry(file.parent).or_default().insert(file.inode);
        }
        for (directory, mut objects) in wanted {
            let names = &mut self.names;
            // What cannot be found here is missed when its path is asked for.
            let _ = self.fs.read_directory(directory, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." && objects.remove(&entry.inode) {
                    names.insert((directory, entry.inode), entry.name);
                }
                !objects.is_empty()
            });
        }
    }

    fn name(&self, directory: InodeNumber, object: InodeNumber) -> Result<Vec<u8>> {
        if let Some(name) = self.names.get(&(directory, object)) {
            return Ok(name.clone());
        }
        let mut found = None;
        self.fs.read_directory(directory, 0, &mut |entry| {
            if entry.inode == object && entry.name != b"." && entry.name != b".." {
                found = Some(entry.name);
            }
            found.is_none()
        })?;
        found.ok_or_else(|| error!(NotFound, "directory {directory} has no name for object {object}"))
    }

    /// The path of a file.
    ///
    /// # Errors
    /// `NotFound`: the directory that it knows has no name for it. Something cannot be read.
    pub fn path(&mut self, file: &Stat) -> Result<Place> {
        if self.fs.names.unlinked().contains(file.inode)? {
            return Ok(Place::Unlinked);
        }
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = file.clone();
        let mut above = Vec::new();
        let mut passed = Vec::new();
        while at.parent != at.inode {
            if names.len() > DEPTH_MAX {
                bail!(Corrupt, "object {}: its directories are in one another", file.inode);
            }
            let parent = self.fs.stat_of_object(at.parent)?.ok_or_else(|| error!(NotFound, "object {} is in {}, which is gone", at.inode, at.parent))?;
            let is_hidden = is_xattr_directory(&at);
            if !is_hidden && parent.kind() != FileKind::Directory {
                bail!(Invalid, "object {} is in {}, which is no directory", at.inode, at.parent);
            }
            names.push(if is_hidden { XATTR_DIRECTORY.to_vec() } else { self.name(parent.inode, at.inode)? });
            at = parent;
            if let Some(path) = self.directories.get(&at.inode) {
                above.clone_from(path);
                break;
            }
            passed.push((at.inode, names.len()));
        }
        let mut path = above;
        let steps = names.len();
        for (step, name) in names.into_iter().enumerate().rev() {
            // What was passed at this step is the directory of this name.
            if let Some((directory, _)) = passed.iter().find(|(_, below)| *below == step + 1)
                && steps > 0
            {
                if self.directories.len() >= KEPT_MAX {
                    self.directories.clear();
                }
                self.directories.insert(*directory, path.clone());
            }
            path.push(b'/');
            path.extend_from_slice(&name);
        }
        Ok(Place::Path(if path.is_empty() { b"/".to_vec() } else { path }))
    }
}

fn is_xattr_directory(file: &Stat) -> bool {
    file.flags & znode::FLAG_XATTR != 0 && file.kind() == FileKind::Directory
}
