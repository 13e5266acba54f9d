//! Reading and writing.
//!
//! # Theory
//! An object that fits one block has a block of its own size, in sectors; when it outgrows that, the block grows with it up to
//! the property `recordsize`, and from the second block on the block size is fixed. A write that would make the block grow
//! locks the whole object, any other only its range, so that each write is atomic for readers.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::METADATA_BYTES;
use super::foresight::{Extent, Foresight};
use crate::dmu::{Caching, Dnode, Membership, Objset, OpenTx, Tx};
use crate::error::{ErrorKind, Result};
use crate::sync::{RangeGuard, RangeLock};

/// Larger writes are several transactions: one is let in if there is any room at all, whatever its own size.
const PIECE_BYTES: usize = 1 << 20;

/// An object whose changes are logged.
#[derive(Debug)]
pub struct LoggedObject {
    /// The object.
    pub dnode: Arc<Dnode>,
    /// guards: the contents and the block size
    pub(super) ranges: RangeLock,
    /// guards: what reads of it were like; none was yet, or it has one block
    foresight: Mutex<Option<Box<Foresight>>>,
}

/// The lock of what is to be written.
#[derive(Debug)]
pub struct WriteLock<'a> {
    /// The block size may be changed.
    is_whole: bool,
    _range: RangeGuard<'a>,
}

/// What is to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewBytes<'a> {
    /// Where.
    pub offset: u64,
    /// What.
    pub data: &'a [u8],
    /// Whether it stays in memory.
    pub caching: Caching,
}

impl LoggedObject {
    /// One that nobody reads or writes.
    pub fn new(dnode: Arc<Dnode>) -> Self {
        LoggedObject { dnode, ranges: RangeLock::new(), foresight: Mutex::default() }
    }

    /// Locks a range against writers.
    pub fn lock_to_read(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.ranges.read(range)
    }

    /// Locks everything.
    pub fn lock_whole(&self) -> WriteLock<'_> {
        WriteLock { is_whole: true, _range: self.ranges.write_all() }
    }

    /// Locks a range; the block stays as large as it is.
    pub fn lock_range(&self, range: Range<u64>) -> WriteLock<'_> {
        WriteLock { is_whole: false, _range: self.ranges.write(range) }
    }

    /// Locks a range to be written, or everything if the block may have to grow.
    pub fn lock_to_write(&self, objset: &Objset, range: Range<u64>) -> WriteLock<'_> {
        if !self.block_would_grow(objset, range.end) {
            let end = range.end;
            let lock = self.lock_range(range);
            // A writer that had it before may have made one small block of all.
            if !self.block_would_grow(objset, end) {
                return lock;
            }
        }
        self.lock_whole()
    }

    /// Fills `buffer` from `offset`, and returns how many bytes there were. `size` is asked under the lock.
    ///
    /// # Errors
    /// Those of `size`; a block cannot be read.
    pub fn read(&self, offset: u64, buffer: &mut [u8], caching: Caching, size: impl FnOnce() -> Result<u64>) -> Result<usize> {
        let end = offset.saturating_add(buffer.len() as u64);
        let _guard = self.ranges.read(offset..end.max(offset.saturating_add(1)));
        let size = size()?;
        let count = usize::try_from(size.min(end).saturating_sub(offset)).unwrap_or(0);
        match caching {
            Caching::Usual => {
                self.foresee(offset..offset + count as u64, size);
                self.dnode.read(offset, &mut buffer[..count])?;
            }
            Caching::Around => self.dnode.read_past(offset, &mut buffer[..count])?,
        }
        Ok(count)
    }

    /// Starts reading what is expected to be read next. An object of one block has nothing to expect.
    fn foresee(&self, range: Range<u64>, size: u64) {
        let block = self.dnode.block_bytes();
        if size <= block || range.is_empty() {
            return;
        }
        let extent = Extent { size, block, window_max: self.dnode.prefetch_window() };
        let (what, asks) = self.foresight.lock().get_or_insert_default().read(range, extent);
        self.dnode.note_read(what);
        asks.into_iter().for_each(|ask| self.dnode.prefetch(ask.start, ask.end - ask.start));
    }

    /// Writes, in transactions of bounded size; `size` bytes were there before. `done` is called in each, with its range.
    ///
    /// # Errors
    /// `NoSpace`, `Quota`, `ReadOnly`; those of `done`; an indirect block cannot be read.
    pub fn write(
        &self,
        lock: &WriteLock<'_>,
        membership: &Membership,
        size: u64,
        new: NewBytes<'_>,
        mut done: impl FnMut(&OpenTx<'_>, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let NewBytes { offset, data, caching } = new;
        let whole_end = offset.saturating_add(data.len() as u64).max(size);
        for (number, piece) in data.chunks(PIECE_BYTES).enumerate() {
            let at = offset + (number * PIECE_BYTES) as u64;
            let range = at..at + piece.len() as u64;
            // A block that is written in part is written anew as a whole.
            let block = if lock.is_whole { self.grown_block(membership.objset(), size, whole_end) } else { self.dnode.block_bytes() };
            let blocks = range.start / block..range.end.div_ceil(block);
            let more = self.dnode.blocks_not_dirty(blocks).saturating_mul(block);
            let tx = OpenTx::assign(membership, more.saturating_add(METADATA_BYTES))?;
            if lock.is_whole && number == 0 {
                self.grow_block(membership.objset(), &tx, size, whole_end)?;
            }
            self.dnode.write(&tx, at, piece)?;
            done(&tx, range)?;
            // A block that will grow is written again soon.
            if caching == Caching::Around && !self.block_would_grow(membership.objset(), u64::MAX) {
                membership.objset().write_through(&self.dnode, &tx, at, piece.len() as u64);
            }
        }
        Ok(())
    }

    /// Whether contents up to `end` may need a larger block.
    pub fn block_would_grow(&self, objset: &Objset, end: u64) -> bool {
        let block = self.dnode.block_bytes();
        end > block && self.dnode.max_block() == 0 && (!block.is_power_of_two() || block < objset.settings().record_bytes)
    }

    /// The block that contents up to `end` deserve.
    fn grown_block(&self, objset: &Objset, size: u64, end: u64) -> u64 {
        let (block, record) = (self.dnode.block_bytes(), objset.settings().record_bytes);
        if size > block {
            return block;
        }
        // A block that is larger than `recordsize` (which was lowered) may still become a power of two.
        let limit = if block > record && !block.is_power_of_two() { block.next_power_of_two() } else { record };
        limit.min(end.next_multiple_of(512)).max(block)
    }

    /// Gives an object of one block the block that contents up to `end` deserve. Everything is locked.
    ///
    /// # Errors
    /// The block cannot be read.
    pub fn grow_block(&self, objset: &Objset, tx: &Tx, size: u64, end: u64) -> Result<()> {
        let wanted = self.grown_block(objset, size, end);
        if wanted == self.dnode.block_bytes() {
            return Ok(());
        }
        match self.dnode.set_block_bytes(tx, wanted, None) {
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(()),
            other => other,
        }
    }
}
