//! Entries of directories: finding, adding and removing them, and the links that they are.

use engine::dmu::Tx;
use engine::error::{Error, ErrorKind, Result};
use engine::zap::Integers;
use engine::{bail, error};
use ondisk::dnode::DNODE_SLOT_BYTES;
use ondisk::feature::Feature;
use ondisk::sa::Attribute;
use ondisk::znode;

use super::rules::{NAME_MAX, Rules};
use super::unlinked_set::UnlinkedSet;
use crate::zpl::inodes::file_set::FileSet;
use crate::zpl::inodes::inode::Inode;
use crate::zpl::log::records::LogFacts;
use crate::zpl::{FileKind, InodeNumber};

/// Whether an entry more or less is also a subdirectory more or less.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Removed,
}

/// What operations on entries need, and no more of the file system.
#[derive(Clone, Copy)]
pub(in crate::zpl) struct Entries<'a> {
    pub(super) files: &'a FileSet,
    pub(super) rules: &'a Rules,
    pub(super) unlinked: &'a UnlinkedSet,
}

/// What is prepared and fails all the same must not reach the disk by halves: the pool stops, and on disk is what was there before.
pub(in crate::zpl) fn whole<T>(files: &FileSet, done: Result<T>) -> Result<T> {
    done.map_err(|error| {
        let name = files.objset().name();
        let error = Error::new(ErrorKind::Suspended, format!("{name}: an operation could not be done to its end, and is undone by stopping the pool: {error}"));
        files.objset().context().groups.fail(error.clone());
        error
    })
}

pub(super) fn is_not_there(directory: &Inode, name: &[u8]) -> Error {
    error!(NotFound, "{:?} is not in directory {}", String::from_utf8_lossy(name), directory.object)
}

impl Entries<'_> {
    /// What `name` names, and the name as it is stored.
    pub(in crate::zpl) fn find_entry(&self, directory: &Inode, name: &[u8]) -> Result<Option<(InodeNumber, Vec<u8>)>> {
        let zap = directory.directory_zap()?;
        let found = zap.lookup_matching(name, self.rules.matching())?;
        Ok(found.map(|(value, stored)| (znode::entry_object(value.first()), stored)))
    }

    /// The number of what has the name, if there is something.
    pub(super) fn find_number(&self, directory: &Inode, name: &[u8]) -> Result<Option<InodeNumber>> {
        let found = self.find_entry(directory, name)?;
        // Long names that are there can be found, whatever the property says today.
        if found.is_none() && name.len() > self.rules.name_max() {
            bail!(NameTooLong, "a name of {} bytes is longer than {}", name.len(), self.rules.name_max());
        }
        Ok(found.map(|(object, _)| object))
    }

    /// The number of what has the name, which is there.
    pub(in crate::zpl) fn number(&self, directory: &Inode, name: &[u8]) -> Result<InodeNumber> {
        self.find_number(directory, name)?.ok_or_else(|| is_not_there(directory, name))
    }

    /// The value of a directory entry.
    pub(in crate::zpl) fn entry_value(&self, object: InodeNumber, mode: u64) -> u64 {
        if self.files.version() >= znode::VERSION_DIRENT { znode::directory_entry(object, mode) } else { object }
    }

    /// Brings a directory's size, link count and times up to date after an entry came or went.
    pub(super) fn entry_changed(&self, tx: &Tx, directory: &Inode, kind: FileKind, change: Change) -> Result<()> {
        let mut edit = directory.edit(tx);
        let (size, links, flags) = (edit.word(Attribute::Size)?, edit.word(Attribute::Links)?, edit.word(Attribute::Flags)?);
        let subdirectory = u64::from(kind == FileKind::Directory);
        let (size, links) = match change {
            Change::Added => (size.saturating_add(1), links.saturating_add(subdirectory)),
            Change::Removed => (size.saturating_sub(1), links.saturating_sub(subdirectory)),
        };
        let now = self.files.now().to_bytes();
        let flags = self.files.touched_flags(flags, true);
        edit.set(&[
            (Attribute::Size, &size.to_le_bytes()),
            (Attribute::Links, &links.to_le_bytes()),
            (Attribute::ModificationTime, &now),
            (Attribute::ChangeTime, &now),
            (Attribute::Flags, &flags.to_le_bytes()),
        ])
    }

    /// Reads all that it takes to add the entry `name` to a directory, or to remove it: afterwards neither fails. To be called before the
    /// first change, since what is half done is neither what was nor what was wanted.
    pub(super) fn prepare_entry(&self, tx: &Tx, directory: &Inode, name: &[u8], change: Change) -> Result<()> {
        directory.look().check_all()?;
        let zap = directory.directory_zap()?;
        match change {
            Change::Added => zap.prepare_to_add(tx, name),
            Change::Removed => zap.prepare_to_remove(tx, name),
        }
    }

    /// Adds the entry `name` for `inode`, whose link count already counts it.
    pub(in crate::zpl) fn add_entry(&self, tx: &Tx, directory: &Inode, name: &[u8], inode: &Inode) -> Result<()> {
        let mode = inode.word(Attribute::Mode)?;
        let value = self.entry_value(inode.object, mode);
        directory.directory_zap()?.add(tx, name, Integers::U64(&[value]))?;
        if name.len() > NAME_MAX {
            self.files.objset().owner().uses(Feature::Longname);
        }
        whole(self.files, self.entry_changed(tx, directory, inode.kind, Change::Added))
    }

    /// Removes the entry `name`, which names a file of `kind`.
    pub(super) fn remove_entry(&self, tx: &Tx, directory: &Inode, name: &[u8], kind: FileKind) -> Result<()> {
        directory.directory_zap()?.remove_matching(tx, name, self.rules.matching())?;
        whole(self.files, self.entry_changed(tx, directory, kind, Change::Removed))
    }

    /// Takes one link from `inode`; without any it goes to the delete queue, which is the answer. It fails before anything has changed, or not at all.
    pub(super) fn drop_link(&self, tx: &Tx, inode: &Inode) -> Result<bool> {
        let mut edit = inode.edit(tx);
        let links = edit.word(Attribute::Links)?;
        let left = if inode.kind == FileKind::Directory { 0 } else { links.saturating_sub(1) };
        let now = self.files.now().to_bytes();
        let flags = self.files.touched_flags(edit.word(Attribute::Flags)?, false);
        if left == 0 {
            // Freed when nobody has it open any more, which may be in a group after this one.
            tx.note_freeing(inode.contents.dnode.used_bytes().max(DNODE_SLOT_BYTES as u64));
            self.unlinked.add(tx, inode.object)?;
        }
        whole(self.files, edit.set(&[(Attribute::Links, &left.to_le_bytes()), (Attribute::ChangeTime, &now), (Attribute::Flags, &flags.to_le_bytes())]))?;
        Ok(left == 0)
    }

    /// Checks that `directory` may get the entry `name`, which it does not have.
    pub(in crate::zpl) fn check_new_entry(&self, directory: &Inode, name: &[u8]) -> Result<()> {
        // Extended attributes may be called what files may not: `user.a/b`.
        let LogFacts { links, flags, .. } = directory.look().facts()?;
        match flags & znode::FLAG_XATTR {
            0 => self.rules.check_name(name)?,
            _ => self.rules.check_new_text(name)?,
        }
        directory.check_entries_may_come_by(flags)?;
        if links == 0 {
            bail!(NotFound, "directory {} was removed", directory.object);
        }
        if self.find_entry(directory, name)?.is_some() {
            bail!(Exists, "{:?} exists in directory {}", String::from_utf8_lossy(name), directory.object);
        }
        Ok(())
    }

    /// Removes the entry `name`, and the link of `inode` that it is; was it the last?
    pub(in crate::zpl) fn remove_name(&self, tx: &Tx, directory: &Inode, name: &[u8], inode: &Inode) -> Result<bool> {
        self.prepare_entry(tx, directory, name, Change::Removed)?;
        inode.look().check_all()?;
        let gone = self.drop_link(tx, inode)?;
        whole(self.files, self.remove_entry(tx, directory, name, inode.kind))?;
        Ok(gone)
    }
}
