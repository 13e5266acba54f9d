//! Contents: reading, writing, changing the size, holes.
//!
//! # Theory
//! A file that fits one block has a block of its own size, in sectors; when it outgrows that, the block grows with it up to
//! the property `recordsize`, and from the second block on the block size is fixed. A write that would make the block grow
//! locks the whole file, any other only its range, so that each write is atomic for readers.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::dmu::{OpenTx, Tx};
use engine::error::{Error, ErrorKind, Result};
use engine::bail;
use engine::sync::RangeGuard;
use ondisk::sa::Attribute;
use ondisk::znode;

use super::file_system::{AccessTime, Credentials, FileSystem};
use super::inode::{Editor, Inode, ReadAhead};
use super::log::{ChangedAttributes, Done};
use super::stat::Time;
use super::{FileKind, InodeNumber};

/// Largest size of a file.
const SIZE_MAX: u64 = i64::MAX as u64;
/// Bytes freed in one transaction: as many as a few indirect blocks name.
const FREE_STEP_BLOCKS: u64 = 16 << 10;
/// Worst case of the metadata that a change of contents writes.
const METADATA: u64 = 128 << 10;
/// Larger writes are several transactions: one is let in if there is any room at all, whatever its own size.
const PIECE_BYTES: usize = 1 << 20;
/// Reads this near to where the last one ended are sequential.
const READ_AHEAD_SLACK: u64 = 2 << 20;
const READ_AHEAD_MIN: u64 = 256 << 10;
const READ_AHEAD_MAX: u64 = 8 << 20;
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

/// How much of the end of a file to free in one transaction: `step` bytes, or more as long as there is nothing in it. (A file may
/// end at 2^63 and have nothing but holes: step by step nobody would live to see its end.)
fn span_to_free(inode: &Inode, size: u64, end: u64, step: u64) -> Result<u64> {
    let has_data = |from: u64| Ok::<bool, Error>(inode.dnode.next_data_block(from.div_ceil(inode.dnode.block_bytes()))?.is_some());
    let (mut data, mut holes) = (size, end.saturating_sub(step));
    if holes <= size || has_data(holes.saturating_sub(step))? {
        return Ok(step);
    }
    if !has_data(data)? {
        return Ok(end - size);
    }
    // There are data behind `data`, and none behind `holes`.
    while holes - data > step {
        let middle = data + (holes - data) / 2;
        if has_data(middle)? {
            data = middle;
        } else {
            holes = middle;
        }
    }
    Ok(end - holes)
}

/// What of a file may be written, however its mode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteMarks {
    /// Nothing.
    pub immutable: bool,
    /// Only behind its end.
    pub append_only: bool,
}

/// Starts reading what comes next, if the reads of the file follow each other. The kernel asks in several pieces at
/// once, so "follow" is taken loosely.
fn read_ahead(inode: &Inode, offset: u64, end: u64, size: u64) {
    let mut state = inode.read_ahead.lock();
    if offset.abs_diff(state.next) > READ_AHEAD_SLACK {
        *state = ReadAhead { next: end, window: 0, requested: end };
        return;
    }
    state.next = state.next.max(end);
    state.window = (state.window * 2).clamp(READ_AHEAD_MIN, READ_AHEAD_MAX);
    let (from, to) = (state.requested.max(end), (end + state.window).min(size));
    // Not for less than half a window, so that there is one request for many reads.
    if to > from && (to - from >= state.window / 2 || to == size) {
        state.requested = to;
        drop(state);
        inode.dnode.prefetch(from, to - from);
    }
}

impl FileSystem {
    /// Reads at most `length` bytes at `offset`; fewer at the end of the file.
    ///
    /// # Errors
    /// A block cannot be read; the file has no contents.
    pub fn read(&self, inode: InodeNumber, offset: u64, length: usize) -> Result<Vec<u8>> {
        let left = self.inode(inode)?.word(&self.tables, Attribute::Size)?.saturating_sub(offset);
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
        let count = self.read_contents(&inode, offset, buffer)?;
        self.accessed(&inode)?;
        Ok(count)
    }

    /// As [`FileSystem::read_into`], but the access time stays (`O_NOATIME`).
    ///
    /// # Errors
    /// A block cannot be read; the file has no contents.
    pub fn read_unnoticed(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_contents(&*self.inode(inode)?, offset, buffer)
    }

    /// Fills a buffer, and does not say when.
    fn read_contents(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        inode.check_regular()?;
        let end = offset.saturating_add(buffer.len() as u64);
        let guard = inode.ranges.read(offset..end.max(offset.saturating_add(1)));
        let size = inode.word(&self.tables, Attribute::Size)?;
        let count = usize::try_from(size.min(end).saturating_sub(offset)).unwrap_or(0);
        read_ahead(inode, offset, offset + count as u64, size);
        inode.dnode.read(offset, &mut buffer[..count])?;
        drop(guard);
        Ok(count)
    }

    /// Changes the access time after a read, if the mount options say so.
    pub(super) fn accessed(&self, inode: &Inode) -> Result<()> {
        let options = self.options();
        let policy = options.access_time;
        let passed_over = inode.kind == FileKind::Directory && !options.directory_access_time;
        if policy == AccessTime::Off || passed_over || self.is_read_only() {
            return Ok(());
        }
        let now = self.now();
        {
            let attributes = inode.attributes.read();
            let time = |attribute| attributes.two_words(&self.tables, attribute).map_or(Time::default(), Time::from_words);
            let access = time(Attribute::AccessTime);
            let newest_change = time(Attribute::ModificationTime).max(time(Attribute::ChangeTime));
            if policy == AccessTime::Relative && access > newest_change && now.seconds - access.seconds < ACCESS_TIME_GOOD {
                return Ok(());
            }
        }
        // A full pool must not make files unreadable.
        let Ok(tx) = OpenTx::assign(&self.objset, 0) else {
            return Ok(());
        };
        inode.edit_quietly(self, &tx).set(&[(Attribute::AccessTime, &now.to_bytes())])
    }

    /// How a file is marked.
    ///
    /// # Errors
    /// There is no such file.
    pub fn write_marks(&self, inode: InodeNumber) -> Result<WriteMarks> {
        let flags = self.inode(inode)?.word(&self.tables, Attribute::Flags)?;
        Ok(WriteMarks { immutable: flags & znode::FLAG_IMMUTABLE != 0, append_only: flags & znode::FLAG_APPEND_ONLY != 0 })
    }

    /// Whether a small write would be let in now.
    ///
    /// # Errors
    /// `NoSpace`; `Quota`; `ReadOnly`.
    pub fn check_room_to_write(&self, inode: InodeNumber) -> Result<()> {
        self.check_writable()?;
        self.check_quota_to_write(&*self.inode(inode)?)?;
        OpenTx::assign(&self.objset, self.objset.settings().record_bytes + METADATA).map(|_| ())
    }

    /// Writes; returns where the data went.
    ///
    /// # Errors
    /// `NoSpace`; `TooBig`; `Denied` for files that are marked.
    pub fn write(&self, inode: InodeNumber, mode: WriteMode, data: &[u8], credentials: &Credentials) -> Result<u64> {
        let inode = self.inode(inode)?;
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
        let (whole, _guard) = self.lock_to_write(&inode, mode == WriteMode::Append, guess..guess.saturating_add(data.len() as u64));
        let size = inode.word(&self.tables, Attribute::Size)?;
        let offset = if mode == WriteMode::Append { size } else { guess };
        let end = offset.saturating_add(data.len() as u64);
        if end > SIZE_MAX {
            bail!(TooBig, "a file of {end} bytes is larger than {SIZE_MAX}");
        }
        let flags = inode.word(&self.tables, Attribute::Flags)?;
        if !is_late && (flags & znode::FLAG_IMMUTABLE != 0 || flags & znode::FLAG_APPEND_ONLY != 0 && offset < size) {
            bail!(Denied, "inode {} is marked not to be written there", inode.object);
        }
        self.check_quota_to_write(&inode)?;
        for (number, piece) in data.chunks(PIECE_BYTES).enumerate() {
            let at = offset + (number * PIECE_BYTES) as u64;
            // A block that is written in part is written anew as a whole.
            let block = if whole { self.grown_block(&inode, size, end.max(size)) } else { inode.dnode.block_bytes() };
            let blocks = at / block..(at + piece.len() as u64).div_ceil(block);
            let more = inode.dnode.blocks_not_dirty(blocks.clone()).saturating_mul(block);
            let growth = if more == 0 { 0 } else { self.growth(&inode, blocks, block) };
            let tx = OpenTx::assign(&self.objset, more.saturating_add(METADATA))?;
            self.note_growth(&inode, tx.txg(), growth)?;
            if whole && number == 0 {
                self.grow_block(&inode, &tx, size, end.max(size))?;
            }
            inode.dnode.write(&tx, at, piece)?;
            let mut edit = inode.edit(self, &tx);
            let size = edit.word(Attribute::Size)?.max(at + piece.len() as u64);
            let changed = if collected {
                let flags = self.touched_flags(edit.word(Attribute::Flags)?, true);
                edit.set(&[(Attribute::Size, &size.to_le_bytes()), (Attribute::Flags, &flags.to_le_bytes())])?;
                ChangedAttributes::default()
            } else {
                self.contents_changed(&mut edit, size, credentials)?
            };
            drop(edit);
            self.log_contents_changed(&tx, &inode, changed, Done::Wrote { inode: &inode, offset: at, length: piece.len() as u64 })?;
        }
        Ok(offset)
    }

    /// Worst case of what [`FileSystem::replace_contents`] writes.
    pub(super) fn room_to_replace(data: &[u8]) -> u64 {
        data.len() as u64 + METADATA
    }

    /// Gives a file these contents in place of its own: they are few. The whole file is locked, or nobody knows it yet. To the log it is nothing
    /// that can be done again: in several records, it could be there by halves.
    pub(super) fn replace_contents(&self, inode: &Inode, tx: &OpenTx, data: &[u8]) -> Result<()> {
        let length = data.len() as u64;
        inode.dnode.free_range(tx, 0, u64::MAX)?;
        self.grow_block(inode, tx, 0, length)?;
        inode.dnode.write(tx, 0, data)?;
        self.contents_changed(&mut inode.edit(self, tx), length, &Credentials::root())?;
        self.log(tx, Done::Other)
    }

    /// Locks a range to be written, or the whole file (`true`) if its block may have to grow, or if somebody wants to know its end.
    fn lock_to_write<'a>(&self, inode: &'a Inode, append: bool, range: Range<u64>) -> (bool, RangeGuard<'a>) {
        if !append && !self.block_would_grow(inode, range.end) {
            let guard = inode.ranges.write(range.clone());
            // Who had it before may have made one small block of the file.
            if !self.block_would_grow(inode, range.end) {
                return (false, guard);
            }
        }
        (true, inode.ranges.write_all())
    }

    /// Whether contents up to `end` may need a larger block.
    fn block_would_grow(&self, inode: &Inode, end: u64) -> bool {
        let block = inode.dnode.block_bytes();
        end > block && inode.dnode.max_block() == 0 && (!block.is_power_of_two() || block < self.objset.settings().record_bytes)
    }

    /// The block that contents up to `end` deserve.
    fn grown_block(&self, inode: &Inode, size: u64, end: u64) -> u64 {
        let (block, record) = (inode.dnode.block_bytes(), self.objset.settings().record_bytes);
        if size > block {
            return block;
        }
        // A block that is larger than `recordsize` (which was lowered) may still become a power of two.
        let limit = if block > record && !block.is_power_of_two() { block.next_power_of_two() } else { record };
        limit.min(end.next_multiple_of(512)).max(block)
    }

    /// Gives a file of one block the block that contents up to `end` deserve. The whole file is locked.
    pub(super) fn grow_block(&self, inode: &Inode, tx: &OpenTx, size: u64, end: u64) -> Result<()> {
        let wanted = self.grown_block(inode, size, end);
        if wanted == inode.dnode.block_bytes() {
            return Ok(());
        }
        match inode.dnode.set_block_bytes(tx, wanted, None) {
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(()),
            other => other,
        }
    }

    /// Size, times and flags after somebody changed the contents, and the mode without the set-id bits that this ended. Returns the mode if there
    /// were any: for the log, which replays what was written as the superuser.
    pub(super) fn contents_changed(&self, edit: &mut Editor<'_>, size: u64, whose: &Credentials) -> Result<ChangedAttributes> {
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
    pub(super) fn change_size(&self, inode: &Inode, size: u64, only_grow: bool, is_all: bool, credentials: &Credentials) -> Result<()> {
        inode.check_regular()?;
        self.check_writable()?;
        if size > SIZE_MAX {
            bail!(TooBig, "a file of {size} bytes is larger than {SIZE_MAX}");
        }
        // What may only grow may be made longer, unless the size is what is asked for.
        let forbids = znode::FLAG_IMMUTABLE | if only_grow { 0 } else { znode::FLAG_APPEND_ONLY };
        if inode.word(&self.tables, Attribute::Flags)? & forbids != 0 {
            bail!(Denied, "inode {} is marked not to be written", inode.object);
        }
        let _guard = inode.ranges.write_all();
        let old = inode.word(&self.tables, Attribute::Size)?;
        if only_grow && size <= old {
            return Ok(());
        }
        if size < old {
            self.free_in_steps_until(inode, size, true, &AtomicBool::new(false))?;
        }
        let tx = if size <= old { OpenTx::assign_freeing(&self.objset)? } else { OpenTx::assign(&self.objset, METADATA)? };
        if size < old {
            inode.dnode.free_range(&tx, size, u64::MAX)?;
        } else if self.block_would_grow(inode, size) {
            self.grow_block(inode, &tx, old, size)?;
        }
        let changed = self.contents_changed(&mut inode.edit(self, &tx), size, credentials)?;
        // A record that is noted is not done again: a crash now must not leave the rest of it undone.
        if !is_all && self.is_replaying() {
            return Ok(());
        }
        self.log_contents_changed(&tx, inode, changed, Done::Freed { inode, offset: size, length: 0 })
    }

    /// Logs a change of contents, and what it took of the mode.
    pub(super) fn log_contents_changed(&self, tx: &Tx, inode: &Inode, changed: ChangedAttributes, done: Done<'_>) -> Result<()> {
        if changed.mode.is_some() {
            self.log(tx, Done::Set { inode, changed })?;
        }
        self.log(tx, done)
    }

    /// Frees the contents of a file without a name, but for the first step, in transactions of bounded size. Between them `stop` may be set:
    /// then it is false that all is done.
    pub(super) fn free_contents(&self, inode: &Inode, stop: &AtomicBool) -> Result<bool> {
        self.free_in_steps_until(inode, 0, false, stop)
    }

    /// Frees the contents behind `size`. With `shortens` the file is as long after each step as it has contents: a crash between two steps, or an
    /// error, must not leave a file that is as long as it was, with a hole where its data were.
    fn free_in_steps_until(&self, inode: &Inode, size: u64, shortens: bool, stop: &AtomicBool) -> Result<bool> {
        let step = inode.dnode.block_bytes().saturating_mul(FREE_STEP_BLOCKS);
        // A file without a name is freed at once if that cannot be done in steps: what cannot be found of it is leaked.
        let is_lost = |error: &Error| !shortens && error.is_loss();
        loop {
            let end = (inode.dnode.max_block() + 1).saturating_mul(inode.dnode.block_bytes());
            let span = match span_to_free(inode, size, end, step) {
                Err(error) if is_lost(&error) => return Ok(true),
                span => span?,
            };
            let start = end.saturating_sub(span).next_multiple_of(inode.dnode.block_bytes());
            if start <= size || end <= step {
                return Ok(true);
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let tx = OpenTx::assign_freeing(&self.objset)?;
            match inode.dnode.free_range(&tx, start, u64::MAX) {
                Err(error) if is_lost(&error) => return Ok(true),
                freed => freed?,
            }
            if shortens {
                let mut edit = inode.edit(self, &tx);
                let left = edit.word(Attribute::Size)?.min(start);
                edit.set(&[(Attribute::Size, &left.to_le_bytes())])?;
            }
        }
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
        let _guard = inode.ranges.write(offset..end.max(offset.saturating_add(1)));
        let size = inode.word(&self.tables, Attribute::Size)?;
        let block = inode.dnode.block_bytes();
        let frees_blocks = offset.checked_next_multiple_of(block).is_some_and(|first| end.min(size) >= first.saturating_add(block));
        let tx = if frees_blocks { OpenTx::assign_freeing(&self.objset)? } else { OpenTx::assign(&self.objset, METADATA + 2 * block)? };
        if offset < size {
            inode.dnode.free_range(&tx, offset, end.min(size) - offset)?;
        }
        let mut edit = inode.edit(self, &tx);
        // Somebody may have written behind the range, and made the file longer.
        let size_now = edit.word(Attribute::Size)?;
        let changed = self.contents_changed(&mut edit, size_now, credentials)?;
        drop(edit);
        match end.min(size).saturating_sub(offset) {
            // To the log, a hole of no bytes would be one to the end.
            0 if changed.mode.is_some() => self.log(&tx, Done::Set { inode: &inode, changed }),
            0 => Ok(()),
            length => self.log_contents_changed(&tx, &inode, changed, Done::Freed { inode: &inode, offset, length }),
        }
    }

    /// The next offset at or after `offset` where there is data or a hole; `None` behind the last.
    ///
    /// # Errors
    /// Indirect blocks cannot be read.
    pub fn seek(&self, inode: InodeNumber, offset: u64, wanted: Seek) -> Result<Option<u64>> {
        let inode = self.inode(inode)?;
        inode.check_regular()?;
        let _guard = inode.ranges.read(0..u64::MAX);
        let size = inode.word(&self.tables, Attribute::Size)?;
        if offset >= size {
            return Ok(None);
        }
        let block = inode.dnode.block_bytes();
        // A single block of an odd size counts as data, whatever is in it.
        if !block.is_power_of_two() {
            return Ok(match wanted {
                Seek::Data => Some(offset).filter(|&offset| offset < block),
                Seek::Hole => Some(block.min(size).max(offset)),
            });
        }
        // What is not on disk yet is looked at as it will be there.
        let (dnode, first, to_be) = (&inode.dnode, offset / block, self.objset.makes_holes(&inode.dnode));
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
        if inode.word(&self.tables, Attribute::Flags)? & znode::FLAG_IMMUTABLE != 0 {
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
        Ok((inode.word(&self.tables, Attribute::Mode)? as u32, inode.word(&self.tables, Attribute::Gid)? as u32))
    }

    fn drop_set_ids(&self, inode: &Inode, ended: u32) -> Result<()> {
        if ended == 0 {
            return Ok(());
        }
        self.check_writable()?;
        let tx = OpenTx::assign(&self.objset, METADATA)?;
        let mut edit = inode.edit(self, &tx);
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
