//! Contents: reading, writing, changing the size, holes.
//!
//! # Theory
//! How an object's contents are locked, read, written, freed and logged is said in [`engine::logged`]. Here is what makes them those of a file: marks, quotas,
//! the size and the times among the attributes, set-id bits, which a change of contents ends.

use std::ops::Range;
use std::sync::atomic::Ordering;

use engine::dmu::{OpenTx, Tx};
use engine::error::Result;
use engine::bail;
use engine::logged::METADATA_BYTES;
use ondisk::sa::Attribute;
use ondisk::znode;

use crate::zpl::attributes::stat::Time;
use crate::zpl::attributes::values::Attributes;
use crate::zpl::file_system::{AccessTime, Credentials, FileSystem};
use crate::zpl::inodes::inode::{Editor, Inode};
use crate::zpl::log::records::{ChangedAttributes, Done};
use crate::zpl::{FileKind, InodeNumber};

/// Largest size of a file.
const SIZE_MAX: u64 = i64::MAX as u64;
/// So much must be available for 100 bytes to be allocated: metadata comes on top.
const ALLOCATE_PERCENT: u64 = 110;
/// How long an access time stays good enough, in seconds (as Linux's `relatime`).
const ACCESS_TIME_GOOD: i64 = 24 * 60 * 60;

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// To this offset.
    At(u64),
    /// To the end.
    Append,
    /// To this offset, some time after a program wrote it: a kernel collected it. It keeps the file's times itself and tells them
    /// ([`FileSystem::setattr`]), and what it was allowed to take must not be refused for what was changed since.
    Collected(u64),
    /// To this offset, some time after a program wrote it into memory that is mapped: as [`WriteMode::At`], but it is not refused for what was
    /// changed since: nobody would be told, and the page would be lost.
    Mapped(u64),
}

/// What to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Contents.
    Data,
    /// A hole; the end of the file is one.
    Hole,
}

/// The share of a part of the written data in the growth of the file.
fn growth_of(growth: u64, range: &Range<u64>, data: &[u8]) -> u64 {
    let share = u128::from(growth) * u128::from(range.end - range.start) / (data.len().max(1) as u128);
    share as u64
}

/// What of a file may be written, however its mode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteMarks {
    /// Nothing.
    pub immutable: bool,
    /// Only behind its end.
    pub append_only: bool,
}

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
        let inode = self.inode(inode)?;
        let (count, is_noticed) = self.read_contents(&inode, offset, buffer)?;
        if is_noticed {
            self.accessed(&inode)?;
        }
        Ok(count)
    }

    /// As [`FileSystem::read_into`], but the access time stays (`O_NOATIME`).
    ///
    /// # Errors
    /// A block cannot be read; the file has no contents.
    pub fn read_unnoticed(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.read_contents(&*self.inode(inode)?, offset, buffer)?.0)
    }

    /// Fills a buffer, and does not say when; `true`: that is to be said ([`FileSystem::accessed`]).
    fn read_contents(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<(usize, bool)> {
        inode.check_regular()?;
        let mut is_noticed = false;
        let count = inode.contents.read(offset, buffer, || {
            let mut look = inode.look();
            is_noticed = self.notices_access(inode, look.attributes()).is_some();
            look.word(Attribute::Size)
        })?;
        Ok((count, is_noticed))
    }

    /// The new access time after a read, if mount options want one.
    fn notices_access(&self, inode: &Inode, attributes: &Attributes) -> Option<Time> {
        let (policy, of_directories) = {
            let options = self.mount_options();
            (options.access_time, options.directory_access_time)
        };
        let is_passed_over = inode.kind == FileKind::Directory && !of_directories;
        if policy == AccessTime::Off || is_passed_over || self.is_read_only() {
            return None;
        }
        let now = self.now();
        let time = |attribute| attributes.two_words(attribute).map_or(Time::default(), Time::from_words);
        let access = time(Attribute::AccessTime);
        let newest_change = time(Attribute::ModificationTime).max(time(Attribute::ChangeTime));
        let is_good = policy == AccessTime::Relative && access > newest_change && now.seconds - access.seconds < ACCESS_TIME_GOOD;
        (!is_good).then_some(now)
    }

    /// Changes the access time after a read, if the mount options say so.
    pub(in crate::zpl) fn accessed(&self, inode: &Inode) -> Result<()> {
        let Some(now) = self.notices_access(inode, &inode.attributes.read()) else { return Ok(()) };
        // A full pool must not make files unreadable.
        let Ok(tx) = OpenTx::assign(&self.membership, 0) else {
            return Ok(());
        };
        inode.edit_quietly(&tx).set(&[(Attribute::AccessTime, &now.to_bytes())])
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
        self.check_writable()?;
        self.check_quota_to_write(&*self.inode(inode)?)?;
        OpenTx::assign(&self.membership, self.objset.settings().record_bytes + METADATA_BYTES).map(|_| ())
    }

    /// Writes; returns where the data went.
    ///
    /// # Errors
    /// `NoSpace`; `TooBig`; `Denied` for files that are marked.
    pub fn write(&self, inode: InodeNumber, mode: WriteMode, data: &[u8], credentials: &Credentials) -> Result<u64> {
        self.write_contents(&*self.inode(inode)?, mode, data, credentials)
    }

    /// As [`FileSystem::write`] and [`FileSystem::fsync`]: returns when what was written is safe.
    ///
    /// # Errors
    /// Those of both.
    pub fn write_durably(&self, inode: InodeNumber, mode: WriteMode, data: &[u8], credentials: &Credentials) -> Result<u64> {
        let inode = self.inode(inode)?;
        let offset = self.write_contents(&inode, mode, data, credentials)?;
        self.commit_file(&inode)?;
        Ok(offset)
    }

    fn write_contents(&self, inode: &Inode, mode: WriteMode, data: &[u8], credentials: &Credentials) -> Result<u64> {
        inode.check_regular()?;
        let collected = matches!(mode, WriteMode::Collected(_));
        let is_late = collected || matches!(mode, WriteMode::Mapped(_));
        if collected {
            inode.times_owed.store(true, Ordering::Relaxed);
        }
        if is_late {
            self.check_not_frozen()?;
        } else {
            self.check_writable()?;
        }
        let guess = match mode {
            WriteMode::At(offset) | WriteMode::Collected(offset) | WriteMode::Mapped(offset) => offset,
            WriteMode::Append => 0,
        };
        if data.is_empty() {
            return Ok(guess);
        }
        let contents = &inode.contents;
        let lock = match mode {
            WriteMode::Append => contents.lock_whole(),
            _ => contents.lock_to_write(&self.objset, guess..guess.saturating_add(data.len() as u64)),
        };
        let (size, flags) = {
            let mut look = inode.look();
            (look.word(Attribute::Size)?, look.word(Attribute::Flags)?)
        };
        let offset = if mode == WriteMode::Append { size } else { guess };
        let end = offset.saturating_add(data.len() as u64);
        if end > SIZE_MAX {
            bail!(TooBig, "a file of {end} bytes is larger than {SIZE_MAX}");
        }
        if !is_late && (flags & znode::FLAG_IMMUTABLE != 0 || flags & znode::FLAG_APPEND_ONLY != 0 && offset < size) {
            bail!(Denied, "inode {} is marked not to be written there", inode.object);
        }
        self.check_quota_to_write(inode)?;
        let growth = self.quotas.growth(inode, offset..end);
        contents.write(&lock, &self.membership, size, offset, data, |tx, range| {
            self.quotas.note_growth(inode, tx.txg(), growth_of(growth, &range, data))?;
            let mut edit = inode.edit(tx);
            let size = edit.word(Attribute::Size)?.max(range.end);
            let changed = if collected {
                let flags = self.touched_flags(edit.word(Attribute::Flags)?, true);
                edit.set(&[(Attribute::Size, &size.to_le_bytes()), (Attribute::Flags, &flags.to_le_bytes())])?;
                ChangedAttributes::default()
            } else {
                self.contents_changed(&mut edit, size, credentials)?
            };
            let facts = edit.facts()?;
            drop(edit);
            self.log_written(tx, inode, &facts, changed, range)
        })?;
        Ok(offset)
    }

    /// Worst case of what [`FileSystem::replace_contents`] writes.
    pub(in crate::zpl) fn room_to_replace(data: &[u8]) -> u64 {
        data.len() as u64 + METADATA_BYTES
    }

    /// Gives a file these contents in place of its own: they are few. The whole file is locked, or nobody knows it yet. To the log it is nothing
    /// that can be done again: in several records, it could be there by halves.
    pub(in crate::zpl) fn replace_contents(&self, inode: &Inode, tx: &OpenTx<'_>, data: &[u8]) -> Result<()> {
        let length = data.len() as u64;
        inode.contents.dnode.free_range(tx, 0, u64::MAX)?;
        inode.contents.grow_block(&self.objset, tx, 0, length)?;
        inode.contents.dnode.write(tx, 0, data)?;
        self.contents_changed(&mut inode.edit(tx), length, &Credentials::root())?;
        self.log(tx, Done::Other)
    }

    /// Size, times and flags after somebody changed the contents, and the mode without the set-id bits that this ended. Returns the mode if there
    /// were any: for the log, which replays what was written as the superuser.
    pub(in crate::zpl) fn contents_changed(&self, edit: &mut Editor<'_>, size: u64, whose: &Credentials) -> Result<ChangedAttributes> {
        let now = self.now().to_bytes();
        let flags = self.touched_flags(edit.word(Attribute::Flags)?, true);
        let mode = edit.word(Attribute::Mode)? as u32;
        let ended = whose.set_ids_ended_by_write(mode, edit.word(Attribute::Gid)? as u32);
        let changed = self.end_set_ids(edit, ended)?;
        edit.set(&[
            (Attribute::ModificationTime, &now),
            (Attribute::ChangeTime, &now),
            (Attribute::Size, &size.to_le_bytes()),
            (Attribute::Flags, &flags.to_le_bytes()),
        ])?;
        Ok(changed)
    }

    /// Takes bits from a mode; says so to the log if there are any.
    fn end_set_ids(&self, edit: &mut Editor<'_>, ended: u32) -> Result<ChangedAttributes> {
        if ended == 0 {
            return Ok(ChangedAttributes::default());
        }
        let mode = edit.word(Attribute::Mode)? & !u64::from(ended);
        edit.set(&[(Attribute::Mode, &mode.to_le_bytes())])?;
        Ok(ChangedAttributes { mode: Some(mode as u32), ..ChangedAttributes::default() })
    }

    /// Changes the size of a file.
    ///
    /// # Errors
    /// `NoSpace`; `TooBig`; `Denied` for files that are marked.
    pub fn truncate(&self, inode: InodeNumber, size: u64, credentials: &Credentials) -> Result<()> {
        let inode = self.inode(inode)?;
        self.set_size(&inode, size, credentials)
    }

    fn set_size(&self, inode: &Inode, size: u64, credentials: &Credentials) -> Result<()> {
        self.change_size(inode, size, false, true, credentials)
    }

    /// `only_grow`: a file that is longer stays as it is. `is_all`: nothing else follows that belongs to the same record of a log.
    pub(in crate::zpl) fn change_size(&self, inode: &Inode, size: u64, only_grow: bool, is_all: bool, credentials: &Credentials) -> Result<()> {
        inode.check_regular()?;
        self.check_writable()?;
        if size > SIZE_MAX {
            bail!(TooBig, "a file of {size} bytes is larger than {SIZE_MAX}");
        }
        // What may only grow may be made longer, unless the size is what is asked for.
        let forbids = znode::FLAG_IMMUTABLE | if only_grow { 0 } else { znode::FLAG_APPEND_ONLY };
        if inode.word(Attribute::Flags)? & forbids != 0 {
            bail!(Denied, "inode {} is marked not to be written", inode.object);
        }
        let whole = inode.contents.lock_whole();
        let old = inode.word(Attribute::Size)?;
        if only_grow && size <= old {
            return Ok(());
        }
        let stepped = |tx: &OpenTx<'_>, end: u64| {
            let mut edit = inode.edit(tx);
            let left = edit.word(Attribute::Size)?.min(end);
            edit.set(&[(Attribute::Size, &left.to_le_bytes())])
        };
        inode.contents.set_size(&whole, &self.membership, old, size, stepped, |tx| {
            let changed = self.contents_changed(&mut inode.edit(tx), size, credentials)?;
            // A record that is noted is not done again: a crash now must not leave the rest of it undone.
            if !is_all && self.is_replaying() {
                return Ok(());
            }
            self.log_contents_changed(tx, inode, changed, Done::Freed { inode, offset: size, length: 0 })
        })
    }

    /// Logs a change of contents, and what it took of the mode.
    pub(super) fn log_contents_changed(&self, tx: &Tx, inode: &Inode, changed: ChangedAttributes, done: Done<'_>) -> Result<()> {
        if changed.mode.is_some() {
            self.log(tx, Done::Set { inode, changed })?;
        }
        self.log(tx, done)
    }

    /// Makes `length` bytes at `offset` a hole; the size stays.
    ///
    /// # Errors
    /// See [`FileSystem::truncate`].
    pub fn punch_hole(&self, inode: InodeNumber, offset: u64, length: u64, credentials: &Credentials) -> Result<()> {
        let inode = self.inode(inode)?;
        inode.check_regular()?;
        self.check_writable()?;
        self.check_not_sealed(&inode)?;
        let end = offset.saturating_add(length);
        let lock = inode.contents.lock_range(offset..end.max(offset.saturating_add(1)));
        let size = inode.word(Attribute::Size)?;
        inode.contents.punch(&lock, &self.membership, offset..end, size, |tx, freed| {
            let mut edit = inode.edit(tx);
            // Somebody may have written behind the range, and made the file longer.
            let size_now = edit.word(Attribute::Size)?;
            let changed = self.contents_changed(&mut edit, size_now, credentials)?;
            drop(edit);
            match freed.end - freed.start {
                // To the log, a hole of no bytes would be one to the end.
                0 if changed.mode.is_some() => self.log(tx, Done::Set { inode: &inode, changed }),
                0 => Ok(()),
                length => self.log_contents_changed(tx, &inode, changed, Done::Freed { inode: &inode, offset, length }),
            }
        })
    }

    /// The next offset at or after `offset` where there is data or a hole; `None` behind the last.
    ///
    /// # Errors
    /// Indirect blocks cannot be read.
    pub fn seek(&self, inode: InodeNumber, offset: u64, wanted: Seek) -> Result<Option<u64>> {
        let inode = self.inode(inode)?;
        inode.check_regular()?;
        let _guard = inode.contents.lock_to_read(0..u64::MAX);
        let size = inode.word(Attribute::Size)?;
        if offset >= size {
            return Ok(None);
        }
        let block = inode.contents.dnode.block_bytes();
        // A single block of an odd size counts as data, whatever is in it.
        if !block.is_power_of_two() {
            return Ok(match wanted {
                Seek::Data => Some(offset).filter(|&offset| offset < block),
                Seek::Hole => Some(block.min(size).max(offset)),
            });
        }
        // What is not on disk yet is looked at as it will be there.
        let (dnode, first, to_be) = (&inode.contents.dnode, offset / block, self.objset.makes_holes(&inode.contents.dnode));
        let found = match wanted {
            Seek::Data => match if to_be { dnode.next_data_block_to_be(first)? } else { dnode.next_data_block(first)? } {
                Some(data) => data.saturating_mul(block).max(offset),
                None => return Ok(None),
            },
            Seek::Hole => {
                let hole = if to_be { dnode.next_hole_block_to_be(first)? } else { dnode.next_hole_block(first)? };
                hole.saturating_mul(block).max(offset).min(size)
            }
        };
        Ok(Some(found).filter(|&found| found < size || wanted == Seek::Hole))
    }

    /// Reserves nothing (space cannot be promised by a file system that never overwrites) but refuses what there is no room for
    /// now, and makes the file as long as asked, unless its size is to stay.
    ///
    /// # Errors
    /// `NoSpace`; see [`FileSystem::truncate`].
    pub fn allocate(&self, number: InodeNumber, offset: u64, length: u64, keep_size: bool, credentials: &Credentials) -> Result<()> {
        let end = offset.saturating_add(length);
        let inode = self.inode(number)?;
        inode.check_regular()?;
        self.check_writable()?;
        let available = self.space().available;
        if length > available / ALLOCATE_PERCENT * 100 {
            bail!(NoSpace, "{}: {length} bytes for inode {} are more than fit into the {available} that are available", self.objset.name(), inode.object);
        }
        if inode.word(Attribute::Flags)? & znode::FLAG_IMMUTABLE != 0 {
            bail!(Denied, "inode {} is marked not to be changed", inode.object);
        }
        let (mode, gid) = self.mode_and_group(&inode)?;
        self.drop_set_ids(&inode, credentials.set_ids_ended_by_write(mode, gid))?;
        if keep_size {
            return Ok(());
        }
        drop(inode);
        self.extend(number, end, credentials)
    }

    /// Takes the set-id bits away that a change of the owner takes, where there is none (`chown(-1, -1)`).
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn clear_set_id(&self, inode: InodeNumber, whose: &Credentials) -> Result<()> {
        let inode = self.inode(inode)?;
        if inode.kind == FileKind::Directory {
            return Ok(());
        }
        let (mode, gid) = self.mode_and_group(&inode)?;
        self.drop_set_ids(&inode, whose.set_ids_ended_by_chown(mode, gid))
    }

    fn mode_and_group(&self, inode: &Inode) -> Result<(u32, u32)> {
        Ok((inode.word(Attribute::Mode)? as u32, inode.word(Attribute::Gid)? as u32))
    }

    fn drop_set_ids(&self, inode: &Inode, ended: u32) -> Result<()> {
        if ended == 0 {
            return Ok(());
        }
        self.check_writable()?;
        let tx = OpenTx::assign(&self.membership, METADATA_BYTES)?;
        let mut edit = inode.edit(&tx);
        let changed = self.end_set_ids(&mut edit, ended)?;
        edit.set(&[(Attribute::ChangeTime, &self.now().to_bytes())])?;
        drop(edit);
        self.log(&tx, Done::Set { inode, changed })
    }

    /// Makes a file at least `size` bytes long.
    ///
    /// # Errors
    /// See [`FileSystem::truncate`].
    pub fn extend(&self, inode: InodeNumber, size: u64, credentials: &Credentials) -> Result<()> {
        self.change_size(&*self.inode(inode)?, size, true, true, credentials)
    }
}
