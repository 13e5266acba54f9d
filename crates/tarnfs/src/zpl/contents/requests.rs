//! What can be asked of contents, by inode number.

use std::sync::Arc;

use engine::bail;
use engine::dmu::Direct;
use engine::error::Result;
use ondisk::sa::Attribute;
use ondisk::znode;

use super::clone::CloneRange;
use super::direct::{ReadManner, WriteManner};
use super::file::{Seek, WriteMarks, WriteMode};
use crate::zpl::InodeNumber;
use crate::zpl::file_system::FileSystem;
use crate::zpl::options::Credentials;

impl FileSystem {
    /// Reads at most `length` bytes at `offset`; fewer at the end of the file.
    ///
    /// # Errors
    /// A block cannot be read; the file has no contents.
    pub fn read(&self, inode: InodeNumber, offset: u64, length: usize) -> Result<Vec<u8>> {
        let left = self.inode(inode)?.word(Attribute::Size)?.saturating_sub(offset);
        let mut bytes = vec![0; length.min(usize::try_from(left).unwrap_or(usize::MAX))];
        let count = self.read_into(inode, offset, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Fills `buffer` from `offset`; returns how many bytes there were, fewer at the end of the file.
    ///
    /// # Errors
    /// A block cannot be read; the file has no contents.
    pub fn read_into(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_as(inode, offset, buffer, ReadManner::default())
    }

    /// As [`FileSystem::read_into`], in another manner.
    ///
    /// # Errors
    /// A block cannot be read; the file has no contents; `Invalid` for what may not be read in this manner.
    pub fn read_as(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8], manner: ReadManner) -> Result<usize> {
        let (inode, contents) = (self.inode(inode)?, self.contents());
        let (count, is_noticed) = contents.read(&inode, offset, buffer, manner.direct)?;
        if is_noticed && !manner.unnoticed {
            contents.accessed(&inode)?;
        }
        Ok(count)
    }

    /// Which requests go around the cache: the property `direct`, as long as `zfs_dio_enabled` does not say otherwise.
    pub fn direct(&self) -> Direct {
        self.files.direct()
    }

    /// How a file is marked.
    ///
    /// # Errors
    /// There is no such file.
    pub fn write_marks(&self, inode: InodeNumber) -> Result<WriteMarks> {
        let flags = self.inode(inode)?.word(Attribute::Flags)?;
        Ok(WriteMarks { immutable: flags & znode::FLAG_IMMUTABLE != 0, append_only: flags & znode::FLAG_APPEND_ONLY != 0 })
    }

    /// Whether a small write would be let in now.
    ///
    /// # Errors
    /// `NoSpace`; `Quota`; `ReadOnly`.
    pub fn check_room_to_write(&self, inode: InodeNumber) -> Result<()> {
        self.contents().check_room(&*self.inode(inode)?)
    }

    /// Writes; returns where the data went.
    ///
    /// # Errors
    /// `NoSpace`; `TooBig`; `Denied` for files that are marked.
    pub fn write(&self, inode: InodeNumber, mode: WriteMode, data: &[u8], credentials: &Credentials) -> Result<u64> {
        self.write_as(inode, mode, data, WriteManner::default(), credentials)
    }

    /// As [`FileSystem::write`] and [`FileSystem::fsync`]: returns when what was written is safe.
    ///
    /// # Errors
    /// Those of both.
    pub fn write_durably(&self, inode: InodeNumber, mode: WriteMode, data: &[u8], credentials: &Credentials) -> Result<u64> {
        self.write_as(inode, mode, data, WriteManner { durable: true, ..WriteManner::default() }, credentials)
    }

    /// As [`FileSystem::write`], in another manner.
    ///
    /// # Errors
    /// Those of [`FileSystem::write`] and [`FileSystem::fsync`]; `Invalid` for what may not be written in this manner.
    pub fn write_as(&self, inode: InodeNumber, mode: WriteMode, data: &[u8], manner: WriteManner, credentials: &Credentials) -> Result<u64> {
        let inode = self.inode(inode)?;
        let offset = self.contents().write(&inode, mode, data, manner.direct, credentials)?;
        if manner.durable {
            self.commit_file(&inode)?;
        }
        Ok(offset)
    }

    /// Changes the size of a file.
    ///
    /// # Errors
    /// `NoSpace`; `TooBig`; `Denied` for files that are marked.
    pub fn truncate(&self, inode: InodeNumber, size: u64, credentials: &Credentials) -> Result<()> {
        self.contents().change_size(&*self.inode(inode)?, size, false, true, credentials)
    }

    /// Makes `length` bytes at `offset` a hole; the size stays.
    ///
    /// # Errors
    /// See [`FileSystem::truncate`].
    pub fn punch_hole(&self, inode: InodeNumber, offset: u64, length: u64, credentials: &Credentials) -> Result<()> {
        self.contents().punch_hole(&*self.inode(inode)?, offset, length, credentials)
    }

    /// The next offset at or after `offset` where there is data or a hole; `None` behind the last.
    ///
    /// # Errors
    /// Indirect blocks cannot be read.
    pub fn seek(&self, inode: InodeNumber, offset: u64, wanted: Seek) -> Result<Option<u64>> {
        self.contents().seek(&*self.inode(inode)?, offset, wanted)
    }

    /// Reserves nothing (space cannot be promised by a file system that never overwrites) but refuses what there is no room for
    /// now, and makes the file as long as asked, unless its size is to stay.
    ///
    /// # Errors
    /// `NoSpace`; see [`FileSystem::truncate`].
    pub fn allocate(&self, inode: InodeNumber, offset: u64, length: u64, keep_size: bool, credentials: &Credentials) -> Result<()> {
        let available = self.space().available;
        self.contents().allocate(&*self.inode(inode)?, offset.saturating_add(length), length, available, keep_size, credentials)
    }

    /// Takes the set-id bits away that a change of the owner takes, where there is none (`chown(-1, -1)`).
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn clear_set_id(&self, inode: InodeNumber, whose: &Credentials) -> Result<()> {
        self.contents().clear_set_id(&*self.inode(inode)?, whose)
    }

    /// Makes a file at least `size` bytes long.
    ///
    /// # Errors
    /// See [`FileSystem::truncate`].
    pub fn extend(&self, inode: InodeNumber, size: u64, credentials: &Credentials) -> Result<()> {
        self.contents().change_size(&*self.inode(inode)?, size, true, true, credentials)
    }

    /// Lets a range of a file of this file system share the blocks of a range of a file of `other`, which may be this one.
    /// Returns how many bytes are shared, from the start: fewer than asked for at the end of the source, or when the rest
    /// cannot be shared or fails; 0 if nothing can.
    ///
    /// # Errors
    /// Nothing is shared. `CrossDevice`: `other` is of another pool; else those of [`FileSystem::write`].
    pub fn clone_range(&self, other: &FileSystem, range: &CloneRange, credentials: &Credentials) -> Result<u64> {
        if !Arc::ptr_eq(self.objset.context(), other.objset.context()) {
            bail!(CrossDevice, "blocks cannot be shared between pools");
        }
        let (source, target) = (other.inode(range.source)?, self.inode(range.target)?);
        self.contents().clone_range(&other.files, &source, &target, range, credentials)
    }
}
