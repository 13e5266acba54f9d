//! What records of contents say, and how it is done again.

use std::borrow::Cow;

use ondisk::blkptr::BlkPtr;
use ondisk::corruption::Corruption;
use ondisk::zil::{CloneRangeRecord, WriteRecord};

use super::{LoggedObject, METADATA_BYTES, WriteLock};
use crate::dmu::{Dnode, Membership, ObjectId, Objset, OpenTx, Tx};
use crate::error::{Error, Result};
use crate::zio::Bookmark;

use std::sync::Arc;

/// Bytes of a block that no record can have.
const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Zeros that a record of a write without a block can stand for.
const ZEROS_MAX: u64 = 1 << 30;

fn short(what: &'static str, found: usize) -> Error {
    Corruption::new("log record", what, found as u64).into()
}

/// The data of a record of a write, and where they belong: a whole block if they are in a block of their own.
#[derive(Debug)]
pub struct Written<'a> {
    /// Where.
    pub offset: u64,
    /// What.
    pub data: Cow<'a, [u8]>,
    /// Where the contents end that the record is about; what follows in the block is older.
    pub end: u64,
}

impl<'a> Written<'a> {
    /// What a record says. `block`: the block that it leads to.
    ///
    /// # Errors
    /// It says more than it has.
    pub fn of(record: &WriteRecord, rest: &'a [u8], block: Option<&'a [u8]>) -> Result<Self> {
        let (offset, length) = (record.offset.get(), record.length.get());
        let end = offset.checked_add(length).ok_or_else(|| short("length", 0))?;
        let count = usize::try_from(length).map_err(|_| short("length", 0))?;
        let Some(block) = block else {
            let data = rest.get(..count).ok_or_else(|| short("data", rest.len()))?;
            return Ok(Written { offset, data: data.into(), end });
        };
        let size = block.len() as u64;
        if size == 0 {
            if length > ZEROS_MAX {
                return Err(short("length", count));
            }
            return Ok(Written { offset, data: vec![0; count].into(), end });
        }
        let offset = if length < size { offset - offset % size } else { offset };
        Ok(Written { offset, data: block.into(), end })
    }
}

impl LoggedObject {
    /// Writes again what a record says, in one transaction, in which `done` is called; `size` bytes were there.
    ///
    /// # Errors
    /// `NoSpace`; those of `done`; a block cannot be read.
    pub fn replay_write(&self, _whole: &WriteLock<'_>, membership: &Membership, size: u64, written: &Written<'_>, done: impl FnOnce(&OpenTx<'_>) -> Result<()>) -> Result<()> {
        let tx = OpenTx::assign(membership, written.data.len() as u64 + METADATA_BYTES)?;
        let end = written.offset.saturating_add(written.data.len() as u64);
        self.grow_block(membership.objset(), &tx, size, end.max(size))?;
        self.dnode.write(&tx, written.offset, &written.data)?;
        done(&tx)
    }
}

/// What a record of a clone says.
#[derive(Debug)]
pub struct Cloned<'a> {
    /// Where.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// Where they end.
    pub end: u64,
    /// Bytes of a block.
    pub block: u64,
    /// The blocks.
    pub pointers: &'a [BlkPtr],
}

impl<'a> Cloned<'a> {
    /// What a record says.
    ///
    /// # Errors
    /// It says more than it has.
    pub fn of(record: &CloneRangeRecord, rest: &'a [u8]) -> Result<Self> {
        let (offset, length, block) = (record.offset.get(), record.length.get(), record.block_size.get());
        let count = usize::try_from(record.count.get()).unwrap_or(usize::MAX);
        if block == 0 || block > BLOCK_BYTES_MAX {
            return Err(short("block size", block as usize));
        }
        let end = offset.checked_add(length).ok_or_else(|| short("offset", 0))?;
        let pointers = rest.get(..count.saturating_mul(size_of::<BlkPtr>())).ok_or_else(|| short("block pointers", count))?;
        Ok(Cloned { offset, length, end, block, pointers: BlkPtr::slice_of(pointers) })
    }

    /// It is made of whole blocks that an object can share.
    pub fn is_whole(&self) -> bool {
        let fits = |pointer: &BlkPtr| pointer.is_hole() || pointer.logical_size() == self.block;
        self.offset.is_multiple_of(self.block) && self.length.div_ceil(self.block) == self.pointers.len() as u64 && self.pointers.iter().all(fits)
    }

    /// What is in one of its blocks, and where that goes.
    ///
    /// # Errors
    /// The block cannot be read.
    pub fn read(&self, objset: &Objset, object: ObjectId, index: usize) -> Result<(u64, Vec<u8>)> {
        let (pointer, start) = (&self.pointers[index], (index as u64).saturating_mul(self.block));
        let at = Bookmark { objset: objset.dataset(), object, level: 0, block: self.offset / self.block };
        let mut data = if pointer.is_hole() { Vec::new() } else { objset.context().io.read(pointer, &at)?.to_vec() };
        data.resize(self.length.saturating_sub(start).min(self.block) as usize, 0);
        Ok((self.offset.saturating_add(start), data))
    }
}

/// Puts `pointers` in place of the blocks from the one at `offset` on.
///
/// # Errors
/// An indirect block cannot be read.
pub fn clone_blocks(dnode: &Arc<Dnode>, tx: &Tx, offset: u64, pointers: &[BlkPtr]) -> Result<()> {
    let block = dnode.block_bytes();
    for (index, pointer) in (offset / block..).zip(pointers) {
        if pointer.is_hole() {
            dnode.free_range(tx, index * block, block)?;
        } else {
            dnode.clone_block(tx, index, pointer)?;
        }
    }
    Ok(())
}
