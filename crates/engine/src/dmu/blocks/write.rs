//! Changing an object's data, in open context.

use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ondisk::dnode as disk;

use crate::dmu::blocks::dirty_block::{Contents, DirtyBlock};
use crate::dmu::blocks::patch::{PATCHED_BLOCK_MIN, Patch};
use crate::dmu::objects::dnode::{Header, bit_of};
use crate::dmu::objects::tree::fanout_shift;
use crate::dmu::{Dnode, Tx};
use crate::bail;
use crate::error::Result;
use crate::zio::PackedBlock;

impl Dnode {
    /// Writes `data` at `offset`. Blocks that are covered whole are not read.
    ///
    /// # Errors
    /// A block that is covered in part cannot be read.
    pub fn write(self: &Arc<Self>, tx: &Tx, offset: u64, data: &[u8]) -> Result<()> {
        let size = self.block_bytes();
        if offset.checked_add(data.len() as u64).is_none() {
            bail!(TooBig, "object {}: write beyond the largest offset", self.object());
        }
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (block, within) = (at / size, (at % size) as usize);
            let count = rest.len().min(size as usize - within);
            let (part, tail) = rest.split_at(count);
            if count == size as usize {
                self.write_block(tx, block, part.to_vec())?;
            } else {
                self.write_part(tx, block, within, part)?;
            }
            rest = tail;
            at += count as u64;
        }
        Ok(())
    }

    /// Replaces a whole block.
    ///
    /// # Errors
    /// The object was freed, or an indirect block above the block cannot be read.
    ///
    /// # Panics
    /// If `contents` is not one block long.
    pub fn write_block(self: &Arc<Self>, tx: &Tx, block: u64, contents: Vec<u8>) -> Result<()> {
        assert_eq!(contents.len() as u64, self.block_bytes(), "object {}: not a whole block", self.object);
        self.put_version(tx, block, Contents::Data(Arc::new(contents)))
    }

    /// The same, with contents that somebody else has compressed: on disk they are what `packed` says.
    ///
    /// # Errors
    /// Those of [`Self::write_block`].
    ///
    /// # Panics
    /// If `contents` is not one block long.
    pub fn write_packed(self: &Arc<Self>, tx: &Tx, block: u64, contents: Vec<u8>, packed: PackedBlock) -> Result<()> {
        assert_eq!(contents.len() as u64, self.block_bytes(), "object {}: not a whole block", self.object);
        let contents = Arc::new(contents);
        self.put_version(tx, block, Contents::Data(contents.clone()))?;
        if let Some(dirty) = self.blocks.read().get(&block) {
            dirty.set_packed(contents, packed);
        }
        Ok(())
    }

    /// Refuses contents that would have to be encrypted: no key is there, and the group that has them could not be written. Blocks of dnodes have what
    /// protects them from a sender, and are made in the sync thread.
    fn check_unlocked(&self, tx: &Tx) -> Result<()> {
        if self.object != 0 && !tx.is_syncing() && self.objset.settings.load().is_encrypted {
            bail!(KeyNotLoaded, "object {}: what is written to it is to be encrypted, and its key is not loaded", self.object);
        }
        Ok(())
    }

    /// Makes `contents` the newest version of a block.
    pub(in crate::dmu) fn put_version(self: &Arc<Self>, tx: &Tx, block: u64, contents: Contents) -> Result<()> {
        if !matches!(contents, Contents::Raw(_)) {
            self.check_unlocked(tx)?;
        }
        if !self.has_version(block) {
            self.check_reachable(tx, block)?;
        }
        let (dirty, _) = self.dirty_block(block);
        let mut versions = dirty.versions.lock();
        let fresh = versions.last().is_none_or(|(txg, _)| *txg != tx.txg());
        if fresh {
            versions.push((tx.txg(), contents));
        } else if let Some(last) = versions.last_mut() {
            last.1 = contents;
        }
        drop(versions);
        self.note_dirty(tx, block, fresh, if fresh { self.block_bytes() } else { 0 })
    }

    /// Writes a part of a block, of which no more is copied than is needed.
    fn write_part(self: &Arc<Self>, tx: &Tx, block: u64, within: usize, part: &[u8]) -> Result<()> {
        if self.block_bytes() < PATCHED_BLOCK_MIN {
            return self.modify_block(tx, block, |contents| contents[within..within + part.len()].copy_from_slice(part));
        }
        let mut write = |contents: &mut Contents| match contents {
            Contents::Data(data) => match Arc::get_mut(data) {
                Some(data) => data[within..within + part.len()].copy_from_slice(part),
                None => {
                    let mut patch = Patch::over(data.clone());
                    patch.write(within, part);
                    *contents = Contents::Patch(patch);
                }
            },
            Contents::Patch(patch) => {
                patch.write(within, part);
                if let Some(whole) = patch.take_finished() {
                    *contents = Contents::Data(Arc::new(whole));
                }
            }
            Contents::Freed | Contents::Cloned(_) | Contents::Raw(_) | Contents::Placed(_) => unreachable!("there are contents"),
        };
        if !self.may_be_unsynced(block)
            && let Some(own_bytes) = self.first_version(tx, block, &mut write)?
        {
            return self.note_dirty(tx, block, true, own_bytes);
        }
        self.change_block(tx, block, write)
    }

    /// Makes the first unsynced version of a block out of what is on disk, and says how many bytes are its own. `None`: there was one. `write` takes
    /// no locks.
    fn first_version(&self, tx: &Tx, block: u64, write: &mut dyn FnMut(&mut Contents)) -> Result<Option<u64>> {
        self.check_unlocked(tx)?;
        let mut contents = Contents::Data(self.unversioned(block)?);
        let mut blocks = self.blocks.write();
        let Entry::Vacant(entry) = blocks.entry(block) else { return Ok(None) };
        write(&mut contents);
        let own_bytes = contents.own_bytes();
        entry.insert(Arc::new(DirtyBlock::new(tx.txg(), contents)));
        self.blocks.published().fetch_or(bit_of(block), Ordering::Release);
        Ok(Some(own_bytes))
    }

    /// Changes a block in place.
    ///
    /// # Errors
    /// The block cannot be read.
    pub fn modify_block<R>(self: &Arc<Self>, tx: &Tx, block: u64, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.change_block(tx, block, |contents| {
            if let Contents::Patch(patch) = contents {
                *contents = Contents::Data(Arc::new(patch.whole()));
            }
            match contents {
                Contents::Data(data) => change(Arc::make_mut(data).as_mut_slice()),
                Contents::Patch(_) | Contents::Freed | Contents::Cloned(_) | Contents::Raw(_) | Contents::Placed(_) => unreachable!("made whole above"),
            }
        })
    }

    /// Changes the group's version of a block. If there is none it is made: it begins as the contents before it, shared with
    /// the readers that have them. `change` meets [`Contents::Data`] or [`Contents::Patch`].
    fn change_block<R>(self: &Arc<Self>, tx: &Tx, block: u64, change: impl FnOnce(&mut Contents) -> R) -> Result<R> {
        self.check_unlocked(tx)?;
        let (dirty, is_new) = self.dirty_block(block);
        let changed = self.change_entry(tx, block, &dirty, is_new, change);
        if changed.is_err() {
            self.drop_unused(block, dirty);
        }
        changed
    }

    /// The same, of a block whose entry in the table is `dirty`, made for this or not.
    fn change_entry<R>(self: &Arc<Self>, tx: &Tx, block: u64, dirty: &DirtyBlock, is_new: bool, change: impl FnOnce(&mut Contents) -> R) -> Result<R> {
        // Read without the lock: the block's readers and writers are kept apart above (invariant 4), and the sync thread does not read here.
        let mut read = if is_new { Some(self.unversioned(block)?) } else { None };
        loop {
            let mut versions = dirty.versions.lock();
            let fresh = versions.last().is_none_or(|(txg, _)| *txg != tx.txg());
            let start = match versions.last() {
                Some((_, Contents::Freed)) => Some(self.zeros()),
                Some((_, Contents::Raw(_))) => bail!(KeyNotLoaded, "block {} is encrypted", self.bookmark(0, block)),
                Some((_, Contents::Data(_) | Contents::Patch(_))) if !fresh => None,
                Some((_, older @ (Contents::Data(_) | Contents::Patch(_)))) => older.whole().map(|older| self.fit(older)),
                last @ (Some((_, Contents::Cloned(_) | Contents::Placed(_))) | None) => match read.take() {
                    Some(contents) => Some(contents),
                    None => {
                        let is_on_disk = last.is_some();
                        drop(versions);
                        read = Some(if is_on_disk { self.block(block)? } else { self.unversioned(block)? });
                        continue;
                    }
                },
            };
            if let Some(start) = start {
                if !fresh {
                    versions.pop();
                }
                versions.push((tx.txg(), Contents::Data(start)));
            }
            let Some((_, contents)) = versions.last_mut() else { unreachable!("pushed above") };
            let before = if fresh { 0 } else { contents.own_bytes() };
            let result = change(contents);
            let grown = contents.own_bytes().saturating_sub(before);
            drop(versions);
            self.note_dirty(tx, block, fresh, grown)?;
            return Ok(result);
        }
    }

    /// How many of these blocks the open group has not changed yet: only they take more space. A guess, as the group may close.
    pub fn blocks_not_dirty(&self, blocks: Range<u64>) -> u64 {
        let all = blocks.end.saturating_sub(blocks.start);
        if all < u64::from(u64::BITS) && !blocks.clone().any(|block| self.may_be_unsynced(block)) {
            return all;
        }
        let state = self.state.read();
        let dirty = state.dirty[crate::txg::slot(self.objset.context.groups.open_txg())].as_ref();
        all.saturating_sub(dirty.map_or(0, |dirty| dirty.blocks.range(blocks).count() as u64))
    }

    /// The entry of `block` in the table of dirty blocks, and whether it was made for this.
    fn dirty_block(&self, block: u64) -> (Arc<DirtyBlock>, bool) {
        if let Some(dirty) = self.unsynced(block) {
            return (dirty, false);
        }
        let mut blocks = self.blocks.write();
        let found = match blocks.entry(block) {
            Entry::Occupied(entry) => (entry.get().clone(), false),
            Entry::Vacant(entry) => (entry.insert(Arc::default()).clone(), true),
        };
        self.blocks.published().fetch_or(bit_of(block), Ordering::Release);
        found
    }

    /// Takes an entry that has got no version out of the table again. Where another thread holds it, that one is about to add a version, or to do the same.
    fn drop_unused(&self, block: u64, dirty: Arc<DirtyBlock>) {
        let mut blocks = self.blocks.write();
        drop(dirty);
        if blocks.get(&block).is_some_and(|entry| Arc::strong_count(entry) == 1 && entry.has_data().is_none()) {
            blocks.remove(&block);
        }
    }

    /// Remembers that `block` has a version of the transaction's group, which has `grown` by so many bytes of its own.
    fn note_dirty(self: &Arc<Self>, tx: &Tx, block: u64, fresh: bool, grown: u64) -> Result<()> {
        if grown > 0 && !tx.is_syncing() {
            self.objset.context.dirty.ripen(tx.txg(), grown);
        }
        if !fresh && self.max_block() >= block {
            let state = self.state.read();
            if state.dirty[crate::txg::slot(tx.txg())].as_ref().is_some_and(|dirty| dirty.blocks.contains(&block)) {
                return Ok(());
            }
        }
        self.check_alive()?;
        let mut state = self.state.write();
        state.header.max_block = state.header.max_block.max(block);
        let size = state.header.block_bytes;
        let indirect = 1 << state.header.indirect_shift;
        let siblings = sibling_range(&state.header, block);
        let blocks = &mut self.dirty(&mut state, tx).blocks;
        // The indirect block above it is written anew too, once.
        let above = siblings.is_some_and(|siblings| blocks.range(siblings).next().is_none());
        let first = blocks.insert(block);
        drop(state);
        if first && !tx.is_syncing() {
            let context = &self.objset.context;
            // Where the old indirect block is changed it is in memory, uncompressed, until the new one is written.
            context.note_dirty(tx.txg(), size + if above { indirect } else { 0 });
            tx.note_dirtied(self.objset.worst_case(size, size));
            if above {
                tx.note_dirtied(self.objset.worst_case(2 * indirect, indirect));
            }
        }
        Ok(())
    }
}

/// The blocks that share an indirect block with `block`, where there are any.
fn sibling_range(header: &Header, block: u64) -> Option<Range<u64>> {
    if header.max_block < disk::BLOCK_POINTERS_MAX as u64 {
        return None;
    }
    let first = block >> fanout_shift(header.indirect_shift) << fanout_shift(header.indirect_shift);
    Some(first..first + (1 << fanout_shift(header.indirect_shift)))
}
