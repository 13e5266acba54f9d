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

impl FileSystem {
    /// The names of files that somebody refers to; of a directory that cannot be read those before the damage. This is no access to the directories.
    pub fn known_names(&self) -> Vec<KnownName> {
        let known: HashSet<InodeNumber> = self.known_inodes().into_iter().collect();
        let mut seen = HashSet::from([self.root()]);
        let mut ahead = vec![self.root()];
        let mut names = Vec::new();
        while let Some(directory) = ahead.pop() {
            let listed = self.each_stored(directory, |name, inode, kind| {
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
                tracing::debug!("{}: not all names in inode {directory} are known: {error}", self.objset.name());
            }
        }
        names
    }

    fn each_stored(&self, directory: InodeNumber, mut each: impl FnMut(Vec<u8>, InodeNumber, FileKind)) -> Result<()> {
        let directory = self.inode(directory)?;
        let zap = directory.directory_zap()?;
        let mut cursor = Cursor::start();
        while let Some(entry) = zap.next(&mut cursor)? {
            let value = entry.value.first();
            each(entry.name, znode::entry_object(value), FileKind::of_directory_type(znode::entry_type(value)));
        }
        Ok(())
    }

    /// Those of the names that lead to another file in these contents, or to none; and those of which that cannot be found out.
    #[must_use]
    pub fn leading_elsewhere(&self, names: Vec<KnownName>) -> Vec<KnownName> {
        names.into_iter().filter(|known| !self.leads_there(known).unwrap_or(false)).collect()
    }

    fn leads_there(&self, known: &KnownName) -> Result<bool> {
        let directory = self.inode(known.directory)?;
        let found = self.entries().find_entry(&directory, &known.name)?;
        Ok(found.is_some_and(|(inode, _)| inode == known.inode))
    }
}
