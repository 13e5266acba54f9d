//! Reading and writing around the cache.
//!
//! # Theory
//! A program that keeps its own cache (`O_DIRECT`), or reads what nobody will read again, does others no good if its blocks push theirs out of memory. So
//! what it reads is not kept, and what it writes is not held until its group is synced.
//!
//! *Reads.* What memory has is the truth, or as good: versions that are not on disk, and cached blocks. All other blocks of a request are
//! read at the same time, as few I/Os as their places allow, since nobody reads ahead for such a reader. Whatever goes wrong with one is left to the usual
//! way of reading, which knows what to do.
//!
//! *Writes.* Blocks that are covered whole are written at once, where they will stay ([`super::early`]), in the transaction that
//! writes them: so they are on disk before their group is, which alone makes them true. A part of a block is written as any other.
//!
//! # Path
//! Called by `logged`, with the range locked.

use std::sync::Arc;

use ondisk::blkptr::BlkPtr;

use crate::bail;
use crate::dmu::Dnode;
use crate::dmu::Objset;
use crate::dmu::blocks::dirty_block::Contents;
use crate::dmu::tx::Tx;
use crate::error::Result;
use crate::zio::Run;

/// Bytes that are read at a time: they are in memory twice.
const STEP_BYTES: u64 = 4 << 20;

/// A block that is to be read from a device, and where its bytes go: the offset in it, and in the step.
struct Wanted {
    block: u64,
    pointer: BlkPtr,
    within: usize,
    to: std::ops::Range<usize>,
}

impl Dnode {
    /// As [`Dnode::read`], and what is read from a device is not kept.
    ///
    /// # Errors
    /// A block cannot be read, or the object was freed.
    pub fn read_past(self: &Arc<Self>, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset.checked_add(buf.len() as u64).is_none() {
            bail!(Invalid, "object {}: read beyond the largest offset", self.object());
        }
        let size = self.block_bytes();
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let step = (STEP_BYTES / size).max(1) * size;
            let (part, tail) = rest.split_at_mut(rest.len().min((step - at % size) as usize));
            self.read_step_past(at, part)?;
            at += part.len() as u64;
            rest = tail;
        }
        Ok(())
    }

    fn read_step_past(self: &Arc<Self>, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = self.block_bytes();
        let mut wanted = Vec::new();
        let mut done = 0;
        while done < buf.len() {
            let (block, within) = ((offset + done as u64) / size, ((offset + done as u64) % size) as usize);
            let to = done..buf.len().min(done + size as usize - within);
            match self.place_now(block)? {
                Some(pointer) => wanted.push(Wanted { block, pointer, within, to: to.clone() }),
                None => self.read_within(block, within, &mut buf[to.clone()])?,
            }
            done = to.end;
        }
        let dnode = Arc::clone(self);
        let read = move |(places, run): (Vec<(u64, BlkPtr)>, Run)| {
            let while_there = |index: usize, see_to_it: &mut dyn FnMut()| dnode.while_there(places[index].0, &places[index].1, see_to_it);
            dnode.objset.context.cache.read_past(&run, &while_there)
        };
        let results = self.objset.context.io.readers().map(self.runs(&wanted), read);
        for (Wanted { block, pointer, within, to }, data) in wanted.into_iter().zip(results.into_iter().flatten()) {
            let part = &mut buf[to];
            match data {
                // As in `Dnode::synced_contents`.
                Ok(data) if pointer.has_checksum() || self.place_now(block)? == Some(pointer) => fill(part, data.get(within..).unwrap_or_default()),
                Ok(_) | Err(_) => self.read_within(block, within, part)?,
            }
        }
        Ok(())
    }

    /// Where a block is, if its newest contents are on a device.
    fn place_now(&self, block: u64) -> Result<Option<BlkPtr>> {
        let pointer = match self.unsynced(block).and_then(|dirty| dirty.newest()) {
            Some(Contents::Placed(pointer)) => *pointer,
            Some(_) => return Ok(None),
            None if self.is_pending_free(block) => return Ok(None),
            None => self.synced_pointer(0, block)?,
        };
        Ok((!pointer.is_hole()).then_some(pointer))
    }

    /// The blocks, together where they can be read as one.
    fn runs(&self, wanted: &[Wanted]) -> Vec<(Vec<(u64, BlkPtr)>, Run)> {
        let mut runs: Vec<(Vec<(u64, BlkPtr)>, Run)> = Vec::new();
        for Wanted { block, pointer, .. } in wanted {
            let at = self.bookmark(0, *block);
            if let Some((places, run)) = runs.last_mut()
                && run.add(pointer, &at)
            {
                places.push((*block, *pointer));
                continue;
            }
            let mut run = Run::default();
            run.add(pointer, &at);
            runs.push((vec![(*block, *pointer)], run));
        }
        runs
    }
}

impl Objset {
    /// The blocks that lie whole in `length` bytes at `offset`, which `tx` has written, go to where they will stay, and memory forgets them. Those that cannot are
    /// written with the group, as all others.
    pub fn write_through(&self, dnode: &Arc<Dnode>, tx: &Tx, offset: u64, length: u64) {
        let size = dnode.block_bytes();
        let blocks = offset.div_ceil(size)..offset.saturating_add(length) / size;
        if !blocks.is_empty() {
            self.write_past(dnode, blocks, tx.txg());
        }
    }
}

/// A block that was written before the block size grew is shorter than one is now.
fn fill(part: &mut [u8], data: &[u8]) {
    let known = data.len().min(part.len());
    part[..known].copy_from_slice(&data[..known]);
    part[known..].fill(0);
}
