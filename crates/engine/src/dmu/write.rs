//! Changing an object's data, in open context.

use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::dirty_block::{Contents, DirtyBlock};
use super::{Dnode, Tx};
use crate::bail;
use crate::error::Result;

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
                self.modify_block(tx, block, |contents| contents[within..within + count].copy_from_slice(part))?;
            }
            rest = tail;
            at += count as u64;
        }
        Ok(())
    }

    /// Replaces a whole block.
    ///
    /// # Errors
    /// The object was freed.
    ///
    /// # Panics
    /// If `contents` is not one block long.
    pub fn write_block(self: &Arc<Self>, tx: &Tx, block: u64, contents: Vec<u8>) -> Result<()> {
        assert_eq!(contents.len() as u64, self.block_bytes(), "object {}: not a whole block", self.object);
        self.put_version(tx, block, Contents::Data(Arc::new(contents)))
    }

    /// Makes `contents` the newest version of a block.
    pub(super) fn put_version(self: &Arc<Self>, tx: &Tx, block: u64, contents: Contents) -> Result<()> {
        let dirty = self.dirty_block(block);
        let mut versions = dirty.versions.lock();
        let fresh = versions.last().is_none_or(|(txg, _)| *txg != tx.txg());
        if fresh {
            versions.push((tx.txg(), contents));
        } else if let Some(last) = versions.last_mut() {
            last.1 = contents;
        }
        drop(versions);
        self.note_dirty(tx, block, fresh)
    }

    /// Changes a block in place.
    ///
    /// # Errors
    /// The block cannot be read.
    pub fn modify_block<R>(self: &Arc<Self>, tx: &Tx, block: u64, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let dirty = self.dirty_block(block);
        loop {
            let mut versions = dirty.versions.lock();
            match versions.last_mut() {
                Some((txg, Contents::Data(data))) if *txg == tx.txg() => {
                    let result = change(Arc::make_mut(data).as_mut_slice());
                    drop(versions);
                    self.note_dirty(tx, block, false)?;
                    return Ok(result);
                }
                Some((_, contents @ (Contents::Data(_) | Contents::Freed))) => {
                    let mut copy = match contents {
                        Contents::Data(data) => data.to_vec(),
                        Contents::Freed | Contents::Cloned(_) => Vec::new(),
                    };
                    copy.resize(self.block_bytes() as usize, 0);
                    let result = change(&mut copy);
                    let fresh = versions.last().is_none_or(|(txg, _)| *txg != tx.txg());
                    if !fresh {
                        versions.pop();
                    }
                    versions.push((tx.txg(), Contents::Data(Arc::new(copy))));
                    drop(versions);
                    self.note_dirty(tx, block, fresh)?;
                    return Ok(result);
                }
                Some((_, Contents::Cloned(_))) | None => {}
            }
            drop(versions);
            // Read without the lock: the block's readers and writers are kept apart above (invariant 4), and the sync
            // thread does not read here.
            let base = self.block(block)?;
            let mut versions = dirty.versions.lock();
            if matches!(versions.last(), None | Some((_, Contents::Cloned(_)))) {
                let mut copy = base.to_vec();
                let result = change(&mut copy);
                let fresh = versions.last().is_none_or(|(txg, _)| *txg != tx.txg());
                if !fresh {
                    versions.pop();
                }
                versions.push((tx.txg(), Contents::Data(Arc::new(copy))));
                drop(versions);
                self.note_dirty(tx, block, fresh)?;
                return Ok(result);
            }
        }
    }

    /// The entry of `block` in the table of dirty blocks, made if need be.
    fn dirty_block(&self, block: u64) -> Arc<DirtyBlock> {
        if let Some(dirty) = self.blocks.read().get(&block) {
            return dirty.clone();
        }
        match self.blocks.write().entry(block) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => entry.insert(Arc::default()).clone(),
        }
    }

    /// Remembers that `block` has a version of the transaction's group.
    fn note_dirty(self: &Arc<Self>, tx: &Tx, block: u64, fresh: bool) -> Result<()> {
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
        let first = self.dirty(&mut state, tx).blocks.insert(block);
        drop(state);
        if first && !tx.is_syncing() {
            self.objset.context.dirty.add(tx.txg(), size);
            tx.note_dirtied(self.objset.worst_case(size, size));
        }
        Ok(())
    }
}
