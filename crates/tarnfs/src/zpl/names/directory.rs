//! Names: looking them up and listing them.

use engine::error::{ErrorKind, Result};
use engine::zap::{Cursor, Zap};
use engine::bail;
use ondisk::object_type::ObjectType;
use ondisk::sa::Attribute;
use ondisk::znode;

use super::entries::is_not_there;
use super::rules::is_a_name;
use crate::zpl::file_system::FileSystem;
use crate::zpl::inodes::inode::{Inode, InodeRef};
use crate::zpl::{FileKind, InodeNumber, Stat};

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it names.
    pub inode: InodeNumber,
    /// What that is; [`FileKind::Unknown`] in old file systems.
    pub kind: FileKind,
    /// Where to go on after this entry.
    pub next: u64,
}

/// Positions of the two entries that are not stored; below all positions of a ZAP but the start.
const AT_SELF: u64 = 0;
const AT_PARENT: u64 = 1;
const AT_FIRST: u64 = 2;
/// Entries that are looked at together.
const ENTRIES_AHEAD: usize = 32;

/// The next entry of a directory.
fn next_entry(directory: &Inode, zap: &Zap, cursor: &mut Cursor) -> Result<Option<DirectoryEntry>> {
    let Some(entry) = zap.next(cursor)? else { return Ok(None) };
    // A program that takes such a name for a part of a path would be led out of the directory.
    if !is_a_name(&entry.name) {
        bail!(Corrupt, "directory {}: an entry is called {:?}", directory.object, String::from_utf8_lossy(&entry.name));
    }
    let value = entry.value.first();
    let (inode, kind) = (znode::entry_object(value), FileKind::of_directory_type(znode::entry_type(value)));
    Ok(Some(DirectoryEntry { name: entry.name, inode, kind, next: entry.next_position }))
}

impl FileSystem {
    /// The file named `name`, for the time of a call. The caller holds the lock of the names.
    pub(in crate::zpl) fn entry(&self, directory: &Inode, name: &[u8]) -> Result<InodeRef<'_>> {
        self.inode(self.entries().number(directory, name)?)
    }

    /// Looks up a name. The inode is counted as known to the kernel: see [`FileSystem::forget`].
    ///
    /// # Errors
    /// `NotFound`; `NotDirectory`; `NameTooLong`; `NotText`.
    pub fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Stat> {
        let directory = self.inode(directory)?;
        self.look_up(&directory, name)?.ok_or_else(|| is_not_there(&directory, name))
    }

    /// As [`FileSystem::lookup`], where that nothing has the name is an answer as good as any: a kernel asks before it makes a file.
    ///
    /// # Errors
    /// `NotDirectory`; `NameTooLong`; `NotText`; `NotFound`: the directory was removed.
    pub fn lookup_if_any(&self, directory: InodeNumber, name: &[u8]) -> Result<Option<Stat>> {
        let directory = self.inode(directory)?;
        self.look_up(&directory, name)
    }

    fn look_up(&self, directory: &Inode, name: &[u8]) -> Result<Option<Stat>> {
        directory.check_directory()?;
        self.names.rules().check_encoding(name)?;
        let _names = directory.names.read();
        let object = match name {
            b"." => Some(directory.object),
            b".." => Some(directory.word(Attribute::Parent)?),
            _ => self.entries().find_number(directory, name)?,
        };
        let Some(object) = object else { return Ok(None) };
        let inode = self.inode(object)?;
        let stat = inode.stat()?;
        inode.give_to_kernel();
        Ok(Some(stat))
    }

    /// Counts an inode that was found by [`FileSystem::read_directory`] as known to the kernel.
    ///
    /// # Errors
    /// It was removed.
    pub fn lookup_inode(&self, inode: InodeNumber) -> Result<Stat> {
        let inode = self.inode(inode)?;
        let stat = inode.stat()?;
        inode.give_to_kernel();
        Ok(stat)
    }

    /// Calls `emit` with the entries from position `from` (0: the start), until it returns false.
    ///
    /// # Errors
    /// `NotDirectory`; the directory cannot be read.
    pub fn read_directory(&self, directory: InodeNumber, from: u64, emit: &mut dyn FnMut(DirectoryEntry) -> bool) -> Result<()> {
        let directory = self.inode(directory)?;
        let zap = directory.directory_zap()?;
        if directory.word(Attribute::Links)? == 0 {
            return Ok(());
        }
        let special = |name: &[u8], inode, next| DirectoryEntry { name: name.to_vec(), inode, kind: FileKind::Directory, next };
        if from == AT_SELF && !emit(special(b".", directory.object, AT_PARENT)) {
            return Ok(());
        }
        if from <= AT_PARENT {
            let parent = directory.word(Attribute::Parent)?;
            if !emit(special(b"..", parent, AT_FIRST)) {
                return Ok(());
            }
        }
        let mut cursor = if from <= AT_FIRST { Cursor::start() } else { zap.cursor_at(from)? };
        loop {
            let entries = self.some_entries(&directory, &zap, &mut cursor)?;
            if entries.is_empty() || !entries.into_iter().all(&mut *emit) {
                break;
            }
        }
        self.contents().accessed(&directory)
    }

    /// The next entries of a directory. A program that lists one asks for what it names in that order: that is read ahead.
    fn some_entries(&self, directory: &Inode, zap: &Zap, cursor: &mut Cursor) -> Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::with_capacity(ENTRIES_AHEAD);
        while entries.len() < ENTRIES_AHEAD {
            let before = *cursor;
            match next_entry(directory, zap, cursor) {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => break,
                Err(error) if entries.is_empty() => return Err(error),
                // What is before it can be read. The next call begins here, and meets the error.
                Err(_) => {
                    *cursor = before;
                    break;
                }
            }
        }
        self.objset.prefetch_objects(entries.iter().map(|entry| entry.inode));
        Ok(entries)
    }

    /// What is known of an object, if it is a file. `None`: there is none of that number, or it is no file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn stat_of_object(&self, object: InodeNumber) -> Result<Option<Stat>> {
        let found = self.objset.hold(object).and_then(|dnode| {
            let is_file = matches!(dnode.bonus_type(), ObjectType::SA | ObjectType::ZNODE);
            if is_file { self.inode_even_unlinked(object)?.stat().map(Some) } else { Ok(None) }
        });
        match found {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => found,
        }
    }

    /// The directory of the shares of SMB, which is no file of anybody's.
    ///
    /// # Errors
    /// The master node cannot be read.
    pub fn shares_object(&self) -> Result<Option<InodeNumber>> {
        Zap::open(&self.objset, znode::MASTER_NODE)?.lookup_u64(znode::SHARES_NAME)
    }

    /// Whether a directory has no entries.
    pub(in crate::zpl) fn is_empty(&self, directory: &Inode) -> Result<bool> {
        directory.directory_zap()?.is_empty()
    }
}
