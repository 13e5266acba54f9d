//! Contents: reading, writing, changing the size, holes.
//!
//! # Theory
//! How an object's contents are locked, read, written, freed and logged is said in [`engine::logged`]. Here is what makes them those of a file: marks, quotas,
//! the size and the times among the attributes, set-id bits, which a change of contents ends.

use std::ops::Range;
use std::sync::atomic::Ordering;

use engine::dmu::{Caching, OpenTx, Tx};
use engine::error::Result;
use engine::bail;
use engine::logged::{METADATA_BYTES, NewBytes};
use ondisk::sa::Attribute;
use ondisk::znode;

use crate::zpl::attributes::stat::Time;
use crate::zpl::attributes::values::Attributes;
use super::Contents;
use crate::zpl::options::{AccessTime, Credentials};
use crate::zpl::inodes::inode::{Editor, Inode};
use crate::zpl::log::records::{ChangedAttributes, Done};
use crate::zpl::FileKind;

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
    /// ([`FileSystem::setattr`](crate::FileSystem::setattr)), and what it was allowed to take must not be refused for what was changed since.
    Collected(u64),
    /// To this offset, some time after a program wrote it into memory that is mapped: as [`WriteMode::At`], but it is not refused for what was
    /// changed since: nobody would be told, and the page would be lost. It makes no file longer: memory behind the end cannot be written, so bytes that would be
    /// there were cut off meanwhile.
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

impl Contents<'_> {
    /// Fills a buffer, and does not say when; `true`: that is to be said ([`Contents::accessed`]).
    pub(super) fn read(&self, inode: &Inode, offset: u64, buffer: &mut [u8], direct: bool) -> Result<(usize, bool)> {
        inode.check_regular()?;
        let mut is_noticed = false;
        let caching = self.files.caching(direct, offset, buffer.len())?;
        let count = inode.contents.read(offset, buffer, caching, || {
            let mut look = inode.look();
            is_noticed = self.notices_access(inode, look.attributes()).is_some();
            look.word(Attribute::Size)
        })?;
        Ok((count, is_noticed))
    }

    /// The new access time after a read, if mount options want one.
    fn notices_access(&self, inode: &Inode, attributes: &Attributes) -> Option<Time> {
        let (policy, of_directories) = {
            let options = self.files.options();
            (options.access_time, options.directory_access_time)
        };
        let is_passed_over = inode.kind == FileKind::Directory && !of_directories;
        if policy == AccessTime::Off || is_passed_over || self.files.is_read_only() {
            return None;
        }
        let now = self.files.now();
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
        let Ok(tx) = OpenTx::assign(self.membership, 0) else {
            return Ok(());
        };
        inode.edit_quietly(&tx).set(&[(Attribute::AccessTime, &now.to_bytes())])
    }

    /// Writes; returns where the data went.
    pub(super) fn write(&self, inode: &Inode, mode: WriteMode, data: &[u8], direct: bool, credentials: &Credentials) -> Result<u64> {
        inode.check_regular()?;
        let collected = matches!(mode, WriteMode::Collected(_));
        let is_late = collected || matches!(mode, WriteMode::Mapped(_));
        if collected {
            inode.times_owed.store(true, Ordering::Relaxed);
        }
        if is_late {
            self.files.check_not_frozen()?;
        } else {
            self.files.check_writable()?;
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
            _ => contents.lock_to_write(self.files.objset(), guess..guess.saturating_add(data.len() as u64)),
        };
        let (size, flags) = {
            let mut look = inode.look();
            (look.word(Attribute::Size)?, look.word(Attribute::Flags)?)
        };
        let offset = if mode == WriteMode::Append { size } else { guess };
        let data = match mode {
            WriteMode::Mapped(_) => &data[..data.len().min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX))],
            WriteMode::At(_) | WriteMode::Append | WriteMode::Collected(_) => data,
        };
        if data.is_empty() {
            return Ok(offset);
        }
        let end = offset.saturating_add(data.len() as u64);
        if end > SIZE_MAX {
            bail!(TooBig, "a file of {end} bytes is larger than {SIZE_MAX}");
        }
        if !is_late && (flags & znode::FLAG_IMMUTABLE != 0 || flags & znode::FLAG_APPEND_ONLY != 0 && offset < size) {
            bail!(Denied, "inode {} is marked not to be written there", inode.object);
        }
        self.quotas.ask_to_write(inode, self.is_alone)?;
        let growth = self.quotas.growth(inode, offset..end);
        let caching = if is_late { Caching::Usual } else { self.files.caching(direct, offset, data.len())? };
        contents.write(&lock, self.membership, size, NewBytes { offset, data, caching }, |tx, range| {
            self.quotas.note_growth(inode, tx.txg(), growth_of(growth, &range, data))?;
            let mut edit = inode.edit(tx);
            let size = edit.word(Attribute::Size)?.max(range.end);
            let changed = if collected {
                let flags = self.files.touched_flags(edit.word(Attribute::Flags)?, true);
                edit.set(&[(Attribute::Size, &size.to_le_bytes()), (Attribute::Flags, &flags.to_le_bytes())])?;
                ChangedAttributes::default()
            } else {
                self.changed(&mut edit, size, credentials)?
            };
            let facts = edit.facts()?;
            drop(edit);
            self.log.note_write(tx, self.is_alone, inode, &facts, changed, range)
        })?;
        Ok(offset)
    }

    /// Worst case of what [`Contents::replace`] writes.
    pub(in crate::zpl) fn room_to_replace(data: &[u8]) -> u64 {
        data.len() as u64 + METADATA_BYTES
    }

    /// Gives a file these contents in place of its own: they are few. The whole file is locked, or nobody knows it yet. To the log it is nothing
    /// that can be done again: in several records, it could be there by halves.
    pub(in crate::zpl) fn replace(&self, inode: &Inode, tx: &OpenTx<'_>, data: &[u8]) -> Result<()> {
        let length = data.len() as u64;
        inode.contents.dnode.free_range(tx, 0, u64::MAX)?;
        inode.contents.grow_block(self.files.objset(), tx, 0, length)?;
        inode.contents.dnode.write(tx, 0, data)?;
        self.changed(&mut inode.edit(tx), length, &Credentials::root())?;
        self.note(tx, Done::Other)
    }

    /// Size, times and flags after somebody changed the contents, and the mode without the set-id bits that this ended. Returns the mode if there
    /// were any: for the log, which replays what was written as the superuser.
    pub(in crate::zpl) fn changed(&self, edit: &mut Editor<'_>, size: u64, whose: &Credentials) -> Result<ChangedAttributes> {
        let now = self.files.now().to_bytes();
        let flags = self.files.touched_flags(edit.word(Attribute::Flags)?, true);
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
        // With an owner: nobody changed the mode itself, and the list with it.
        let gid = u32::try_from(edit.word(Attribute::Gid)?).ok();
        Ok(ChangedAttributes { mode: Some(mode as u32), gid, ..ChangedAttributes::default() })
    }

    /// `only_grow`: a file that is longer stays as it is. `is_all`: nothing else follows that belongs to the same record of a log.
    pub(in crate::zpl) fn change_size(&self, inode: &Inode, size: u64, only_grow: bool, is_all: bool, credentials: &Credentials) -> Result<()> {
        inode.check_regular()?;
        self.files.check_writable()?;
        if size > SIZE_MAX {
            bail!(TooBig, "a file of {size} bytes is larger than {SIZE_MAX}");
        }
        // What may only grow may be made longer, unless the size is what is asked for.
        let forbids = znode::FLAG_IMMUTABLE | if only_grow { 0 } else { znode::FLAG_APPEND_ONLY };
        // A record does not say what for.
        if !self.log.is_replaying() && inode.word(Attribute::Flags)? & forbids != 0 {
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
        inode.contents.set_size(&whole, self.membership, old, size, stepped, |tx| {
            let changed = self.changed(&mut inode.edit(tx), size, credentials)?;
            // A record that is noted is not done again: a crash now must not leave the rest of it undone.
            if !is_all && self.log.is_replaying() {
                return Ok(());
            }
            self.log_changed(tx, inode, changed, Done::Freed { inode, offset: size, length: 0 })
        })
    }

    /// Logs a change of contents, and what it took of the mode.
    pub(super) fn log_changed(&self, tx: &Tx, inode: &Inode, changed: ChangedAttributes, done: Done<'_>) -> Result<()> {
        if changed.mode.is_some() {
            self.note(tx, Done::Set { inode, changed })?;
        }
        self.note(tx, done)
    }

    /// Makes `length` bytes at `offset` a hole; the size stays.
    pub(super) fn punch_hole(&self, inode: &Inode, offset: u64, length: u64, credentials: &Credentials) -> Result<()> {
        inode.check_regular()?;
        self.files.check_writable()?;
        inode.check_not_sealed()?;
        let end = offset.saturating_add(length);
        let lock = inode.contents.lock_range(offset..end.max(offset.saturating_add(1)));
        let size = inode.word(Attribute::Size)?;
        inode.contents.punch(&lock, self.membership, offset..end, size, |tx, freed| {
            let mut edit = inode.edit(tx);
            // Somebody may have written behind the range, and made the file longer.
            let size_now = edit.word(Attribute::Size)?;
            let changed = self.changed(&mut edit, size_now, credentials)?;
            drop(edit);
            match freed.end - freed.start {
                // To the log, a hole of no bytes would be one to the end.
                0 if changed.mode.is_some() => self.note(tx, Done::Set { inode, changed }),
                0 => Ok(()),
                length => self.log_changed(tx, inode, changed, Done::Freed { inode, offset, length }),
            }
        })
    }

    /// The next offset at or after `offset` where there is data or a hole; `None` behind the last.
    pub(super) fn seek(&self, inode: &Inode, offset: u64, wanted: Seek) -> Result<Option<u64>> {
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
        let (dnode, first, to_be) = (&inode.contents.dnode, offset / block, self.files.objset().makes_holes(&inode.contents.dnode));
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

    /// `available`: bytes that may still be written.
    pub(super) fn allocate(&self, inode: &Inode, end: u64, length: u64, available: u64, keep_size: bool, credentials: &Credentials) -> Result<()> {
        inode.check_regular()?;
        self.files.check_writable()?;
        if length > available / ALLOCATE_PERCENT * 100 {
            bail!(NoSpace, "{}: {length} bytes for inode {} are more than fit into the {available} that are available", self.files.objset().name(), inode.object);
        }
        if inode.word(Attribute::Flags)? & znode::FLAG_IMMUTABLE != 0 {
            bail!(Denied, "inode {} is marked not to be changed", inode.object);
        }
        let (mode, gid) = self.mode_and_group(inode)?;
        self.drop_set_ids(inode, credentials.set_ids_ended_by_write(mode, gid))?;
        if keep_size {
            return Ok(());
        }
        self.change_size(inode, end, true, true, credentials)
    }

    /// Takes the set-id bits away that a change of the owner takes.
    pub(super) fn clear_set_id(&self, inode: &Inode, whose: &Credentials) -> Result<()> {
        if inode.kind == FileKind::Directory {
            return Ok(());
        }
        let (mode, gid) = self.mode_and_group(inode)?;
        self.drop_set_ids(inode, whose.set_ids_ended_by_chown(mode, gid))
    }

    fn mode_and_group(&self, inode: &Inode) -> Result<(u32, u32)> {
        Ok((inode.word(Attribute::Mode)? as u32, inode.word(Attribute::Gid)? as u32))
    }

    fn drop_set_ids(&self, inode: &Inode, ended: u32) -> Result<()> {
        if ended == 0 {
            return Ok(());
        }
        self.files.check_writable()?;
        let tx = OpenTx::assign(self.membership, METADATA_BYTES)?;
        let mut edit = inode.edit(&tx);
        let changed = self.end_set_ids(&mut edit, ended)?;
        edit.set(&[(Attribute::ChangeTime, &self.files.now().to_bytes())])?;
        drop(edit);
        self.note(&tx, Done::Set { inode, changed })
    }

    /// Whether a small write would be let in now.
    pub(super) fn check_room(&self, inode: &Inode) -> Result<()> {
        self.files.check_writable()?;
        self.quotas.ask_to_write(inode, self.is_alone)?;
        OpenTx::assign(self.membership, self.files.objset().settings().record_bytes + METADATA_BYTES).map(|_| ())
    }
}
