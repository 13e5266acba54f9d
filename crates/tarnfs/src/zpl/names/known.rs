//! Names that lead to files which a kernel knows.
//!
//! # Theory
//! A kernel may remember for long which file a name leads to. When other contents of the dataset (rollback, receive) have another file under that name, it has to be
//! told. It knows a file by a name only if it knows the directory as well, and so on up to the root: a walk down from there, through directories that it knows, comes to
//! all of these names.

use std::collections::HashSet;

use engine::error::Result;
use engine::zap::Cursor;
use ondisk::znode;

use crate::zpl::file_system::FileSystem;
use crate::zpl::{FileKind, InodeNumber};

/// A name, and what it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownName {
    /// The directory that has it.
    pub directory: InodeNumber,
    /// The name.
    pub name: Vec<u8>,
    /// The file.
    pub inode: InodeNumber,
}

impl KnownName {
    /// The names of files that somebody refers to; of a directory that cannot be read those before the damage. This is no access to the directories.
    #[must_use]
    pub fn all_in(files: &FileSystem) -> Vec<KnownName> {
        let known: HashSet<InodeNumber> = files.known_inodes().into_iter().collect();
        let mut seen = HashSet::from([files.root()]);
        let mut ahead = vec![files.root()];
        let mut names = Vec::new();
        while let Some(directory) = ahead.pop() {
            let listed = each_stored(files, directory, |name, inode, kind| {
                if !known.contains(&inode) {
                    return;
                }
                // Old file systems do not say what a name leads to.
                if matches!(kind, FileKind::Directory | FileKind::Unknown) && seen.insert(inode) {
                    ahead.push(inode);
                }
                names.push(KnownName { directory, name, inode });
            });
            if let Err(error) = listed {
                tracing::debug!("{}: not all names in inode {directory} are known: {error}", files.objset().name());
            }
        }
        names
    }

    /// Whether it leads to another file in these contents, or to none; or that cannot be found out.
    #[must_use]
    pub fn leads_elsewhere(&self, files: &FileSystem) -> bool {
        !self.leads_there(files).unwrap_or(false)
    }

    fn leads_there(&self, files: &FileSystem) -> Result<bool> {
        let directory = files.inode(self.directory)?;
        let found = files.entries().find_entry(&directory, &self.name)?;
        Ok(found.is_some_and(|(inode, _)| inode == self.inode))
    }
}

fn each_stored(files: &FileSystem, directory: InodeNumber, mut each: impl FnMut(Vec<u8>, InodeNumber, FileKind)) -> Result<()> {
    let directory = files.inode(directory)?;
    let zap = directory.directory_zap()?;
    let mut cursor = Cursor::start();
    while let Some(entry) = zap.next(&mut cursor)? {
        let value = entry.value.first();
        each(entry.name, znode::entry_object(value), FileKind::of_directory_type(znode::entry_type(value)));
    }
    Ok(())
}
