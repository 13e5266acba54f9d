//! Freeing contents, and saying so to the log.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use ondisk::zil::{RecordHeader, RecordType, TruncateRecord};
use zerocopy::{FromZeros, IntoBytes};

use super::{LoggedObject, METADATA_BYTES, WriteLock};
use crate::dmu::{Membership, ObjectId, OpenTx, Tx};
use crate::error::{Error, Result};
use crate::zil::Zil;

/// Blocks freed in one transaction: as many as a few indirect blocks name.
const FREE_STEP_BLOCKS: u64 = 16 << 10;

impl LoggedObject {
    /// Changes the length of the contents from `old` to `size`; `done` is called in the last transaction. What is freed is freed in several, and
    /// after each of them but the last `stepped` is told how long the contents are: a crash or an error must not leave an object that is as long as it was,
    /// with a hole where its data were.
    ///
    /// # Errors
    /// `NoSpace`, `Quota`, `ReadOnly`; those of `done` and `stepped`; a block cannot be read.
    pub fn set_size(
        &self,
        _whole: &WriteLock<'_>,
        membership: &Membership,
        old: u64,
        size: u64,
        mut stepped: impl FnMut(&OpenTx<'_>, u64) -> Result<()>,
        done: impl FnOnce(&OpenTx<'_>) -> Result<()>,
    ) -> Result<()> {
        if size < old {
            self.free_in_steps(membership, size, Some(&mut stepped), &AtomicBool::new(false))?;
        }
        let tx = if size <= old { OpenTx::assign_freeing(membership)? } else { OpenTx::assign(membership, METADATA_BYTES)? };
        if size < old {
            self.dnode.free_range(&tx, size, u64::MAX)?;
        } else if self.block_would_grow(membership.objset(), size) {
            self.grow_block(membership.objset(), &tx, old, size)?;
        }
        done(&tx)
    }

    /// Makes a hole of a range; `size` is the end of the contents. `done` is told what was freed.
    ///
    /// # Errors
    /// `NoSpace`, `Quota`, `ReadOnly`; those of `done`; a block cannot be read.
    pub fn punch(&self, _lock: &WriteLock<'_>, membership: &Membership, range: Range<u64>, size: u64, done: impl FnOnce(&OpenTx<'_>, Range<u64>) -> Result<()>) -> Result<()> {
        let block = self.dnode.block_bytes();
        let end = range.end.min(size);
        let frees_blocks = range.start.checked_next_multiple_of(block).is_some_and(|first| end >= first.saturating_add(block));
        let tx = if frees_blocks { OpenTx::assign_freeing(membership)? } else { OpenTx::assign(membership, METADATA_BYTES + 2 * block)? };
        if range.start < size {
            self.dnode.free_range(&tx, range.start, end - range.start)?;
        }
        done(&tx, range.start..end.max(range.start))
    }

    /// Frees the contents of an object that nobody will read any more, but for the first step, in transactions of bounded size. Between them `stop`
    /// may be set: then it is false that all is done.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn free_most(&self, membership: &Membership, stop: &AtomicBool) -> Result<bool> {
        self.free_in_steps(membership, 0, None, stop)
    }

    fn free_in_steps(
        &self,
        membership: &Membership,
        size: u64,
        mut stepped: Option<&mut dyn FnMut(&OpenTx<'_>, u64) -> Result<()>>,
        stop: &AtomicBool,
    ) -> Result<bool> {
        let step = self.dnode.block_bytes().saturating_mul(FREE_STEP_BLOCKS);
        // What nobody will read is freed at once if that cannot be done in steps: what cannot be found of it is leaked.
        let is_kept = stepped.is_some();
        let is_lost = |error: &Error| !is_kept && error.is_loss();
        loop {
            let end = (self.dnode.max_block() + 1).saturating_mul(self.dnode.block_bytes());
            let span = match self.span_to_free(size, end, step) {
                Err(error) if is_lost(&error) => return Ok(true),
                span => span?,
            };
            let start = end.saturating_sub(span).next_multiple_of(self.dnode.block_bytes());
            if start <= size || end <= step {
                return Ok(true);
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let tx = OpenTx::assign_freeing(membership)?;
            match self.dnode.free_range(&tx, start, u64::MAX) {
                Err(error) if is_lost(&error) => return Ok(true),
                freed => freed?,
            }
            if let Some(stepped) = &mut stepped {
                stepped(&tx, start)?;
            }
        }
    }

    /// How much of the end to free in one transaction: `step` bytes, or more as long as there is nothing in it. (An object may
    /// end at 2^63 and have nothing but holes: step by step nobody would live to see its end.)
    fn span_to_free(&self, size: u64, end: u64, step: u64) -> Result<u64> {
        let has_data = |from: u64| Ok::<bool, Error>(self.dnode.next_data_block(from.div_ceil(self.dnode.block_bytes()))?.is_some());
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

    /// Logs that contents were freed; to the end if `length` is 0. `list`: see [`Zil::log`].
    pub fn log_freed(&self, zil: &Zil, tx: &Tx, list: Option<ObjectId>, offset: u64, length: u64) {
        let record = TruncateRecord { header: RecordHeader::new_zeroed(), object: self.dnode.object().into(), offset: offset.into(), length: length.into() };
        zil.log(tx, RecordType::Truncate as u64, list, record.as_bytes().to_vec());
    }
}
