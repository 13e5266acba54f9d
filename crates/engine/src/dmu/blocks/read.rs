//! Reading an object.

use std::sync::Arc;

use ondisk::blkptr::BlkPtr;

use crate::dmu::Dnode;
use crate::dmu::blocks::dirty_block::Contents;
use crate::arc::Foreseen;
use crate::bail;
use crate::error::Result;
use crate::tunables::Parameter;

/// Blocks that are looked at for one read-ahead: more than can wait to be read. A damaged pool can say that an object has 2^40.
const PREFETCH_BLOCKS_MAX: u64 = 1 << 12;

impl Dnode {
    /// The newest contents of a block: as many bytes as [`Dnode::block_bytes`]. Shared with the cache; not copied.
    ///
    /// # Errors
    /// The block cannot be read, or the object was freed.
    pub fn block(&self, block: u64) -> Result<Arc<Vec<u8>>> {
        let dirty = self.unsynced(block);
        match dirty.and_then(|dirty| dirty.newest()) {
            Some(Contents::Data(data)) => return Ok(data),
            Some(Contents::Patch(patch)) => return Ok(Arc::new(patch.whole())),
            Some(Contents::Freed) => return Ok(self.zeros()),
            Some(Contents::Cloned(pointer) | Contents::Placed(pointer)) => {
                // Another's block, perhaps freed by now: a reader of the other heals it. One of this object is healed when it is in the tree.
                let read = self.objset.context.cache.read_while(&pointer, &self.bookmark(0, block), &|_| ());
                let is_there = |now: Contents| matches!(now, Contents::Cloned(now) | Contents::Placed(now) if now == pointer);
                // A slow reader finds that the block has newer contents, and another's in the place of these.
                if (read.is_err() || !pointer.has_checksum()) && !self.unsynced(block).and_then(|dirty| dirty.newest()).is_some_and(is_there) {
                    return self.block(block);
                }
                return read.map(|data| self.fit(data));
            }
            Some(Contents::Raw(_)) => bail!(KeyNotLoaded, "block {} is encrypted", self.bookmark(0, block)),
            None => {}
        }
        self.unversioned(block)
    }

    /// The contents of a block that has no unsynced version.
    pub(in crate::dmu) fn unversioned(&self, block: u64) -> Result<Arc<Vec<u8>>> {
        if self.is_pending_free(block) {
            return Ok(self.zeros());
        }
        Ok(self.synced_contents(block)?.map_or_else(|| self.zeros(), |data| self.fit(data)))
    }

    /// The contents of a block as they are on disk; `None`: a hole. A block that was written before the block size grew is
    /// shorter than a block is now.
    fn synced_contents(&self, block: u64) -> Result<Option<Arc<Vec<u8>>>> {
        let mut pointer = self.synced_pointer(0, block)?;
        loop {
            if pointer.is_hole() {
                return Ok(None);
            }
            let read = self.read_synced(block, &pointer);
            if read.is_ok() && pointer.has_checksum() {
                return read.map(Some);
            }
            // The tree may have moved on under a slow reader, of metadata or of a part of a block: then the new place counts. Without a checksum it cannot be told
            // whose bytes were read.
            let again = self.synced_pointer(0, block)?;
            if again == pointer {
                return read.map(Some);
            }
            pointer = again;
        }
    }

    /// Reads what `pointer` leads to, which was that of a block a moment ago. A slow reader finds that the tree has moved on, and another's block in the
    /// place: it must not be healed. While the tree is locked what it leads to is not freed.
    pub(in crate::dmu) fn read_synced(&self, block: u64, pointer: &BlkPtr) -> Result<Arc<Vec<u8>>> {
        self.objset.context.cache.read_while(pointer, &self.bookmark(0, block), &|see_to_it| self.while_there(block, pointer, see_to_it))
    }

    pub(super) fn while_there(&self, block: u64, pointer: &BlkPtr, see_to_it: &mut dyn FnMut()) {
        self.objset.presence.while_there(&mut || {
            let tree = self.disk.read();
            if self.walk(&tree, 0, block).is_ok_and(|now| now == *pointer) {
                see_to_it();
            }
        });
    }

    /// A block written before the block size grew is shorter than a block now.
    pub(in crate::dmu) fn fit(&self, data: Arc<Vec<u8>>) -> Arc<Vec<u8>> {
        let length = self.block_bytes() as usize;
        if data.len() == length {
            return data;
        }
        let mut resized = data.to_vec();
        resized.resize(length, 0);
        Arc::new(resized)
    }

    pub(in crate::dmu) fn zeros(&self) -> Arc<Vec<u8>> {
        Arc::new(vec![0; self.block_bytes() as usize])
    }

    /// Reads `buf.len()` bytes at `offset`; what was never written reads as zeros.
    ///
    /// # Errors
    /// A block cannot be read, or the object was freed.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = self.block_bytes();
        if offset.checked_add(buf.len() as u64).is_none() {
            bail!(Invalid, "object {}: read beyond the largest offset", self.object());
        }
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (block, within) = (at / size, (at % size) as usize);
            let count = rest.len().min(size as usize - within);
            let (part, tail) = rest.split_at_mut(count);
            self.read_within(block, within, part)?;
            rest = tail;
            at += count as u64;
        }
        Ok(())
    }

    pub(super) fn read_within(&self, block: u64, within: usize, part: &mut [u8]) -> Result<()> {
        let dirty = self.unsynced(block);
        if let Some(dirty) = dirty {
            let mut is_on_disk = false;
            // Copied under the lock: a reference to the version would make the next writer copy the whole block.
            match dirty.versions.lock().last() {
                Some((_, Contents::Data(data))) => {
                    let data = data.get(within..within + part.len()).unwrap_or_default();
                    part[..data.len()].copy_from_slice(data);
                    part[data.len()..].fill(0);
                    return Ok(());
                }
                Some((_, Contents::Patch(patch))) => {
                    patch.read(within, part);
                    return Ok(());
                }
                Some((_, Contents::Freed)) => {
                    part.fill(0);
                    return Ok(());
                }
                Some((_, Contents::Cloned(_) | Contents::Placed(_))) => is_on_disk = true,
                Some((_, Contents::Raw(_))) => bail!(KeyNotLoaded, "block {} is encrypted", self.bookmark(0, block)),
                None => {}
            }
            if is_on_disk {
                part.copy_from_slice(&self.block(block)?[within..within + part.len()]);
                return Ok(());
            }
        }
        if self.is_pending_free(block) {
            part.fill(0);
            return Ok(());
        }
        match self.synced_contents(block)? {
            // As `fit` would have it, without a copy of the block.
            Some(data) => {
                let data = data.get(within..data.len().min(within + part.len())).unwrap_or_default();
                part[..data.len()].copy_from_slice(data);
                part[data.len()..].fill(0);
            }
            None => part.fill(0),
        }
        Ok(())
    }

    /// Starts reading what lies in `length` bytes from `offset`, without waiting; of much only the beginning.
    pub fn prefetch(self: &Arc<Self>, offset: u64, length: u64) {
        let size = self.block_bytes();
        let first = offset / size;
        let last = (offset.saturating_add(length.saturating_sub(1)) / size).min(self.max_block());
        let end = (last + 1).min(first.saturating_add(PREFETCH_BLOCKS_MAX));
        if self.objset.context.tunables.now(Parameter::PrefetchDisable) != 0 {
            return;
        }
        for block in first..end {
            let Some(pointer) = self.known_pointer(block) else {
                // An indirect block is not here, and a reader ahead is to wait for it, not this thread.
                let dnode = Arc::clone(self);
                self.objset.context.io.readers().submit(move || dnode.prefetch_below(block, end));
                return;
            };
            self.prefetch_block(block, &pointer);
        }
    }

    /// In a thread that may wait: reads the indirect blocks above these blocks, and has the blocks read.
    fn prefetch_below(self: &Arc<Self>, first: u64, end: u64) {
        for block in first..end {
            let mut pointer = None;
            self.objset.presence.while_there(&mut || {
                pointer = self.synced_pointer(0, block).ok();
            });
            let Some(pointer) = pointer else { return };
            if !self.prefetch_block(block, &pointer) {
                return;
            }
        }
    }

    /// `false`: blocks of this object are not kept.
    fn prefetch_block(self: &Arc<Self>, block: u64, pointer: &BlkPtr) -> bool {
        if pointer.is_hole() {
            return true;
        }
        let (dnode, expected) = (Arc::clone(self), *pointer);
        let while_there = move |see_to_it: &mut dyn FnMut()| dnode.while_there(block, &expected, see_to_it);
        self.objset.context.cache.prefetch(pointer, &self.bookmark(0, block), while_there)
    }

    /// The largest window of reads that are foreseen; 0: nothing is to be read ahead.
    pub fn prefetch_window(&self) -> u64 {
        let context = &self.objset.context;
        if context.tunables.now(Parameter::PrefetchDisable) != 0 {
            return 0;
        }
        context.cache.ahead_window().min(context.tunables.now(Parameter::PrefetchMaxDistance))
    }

    /// Counts what a read was to those that foresee.
    pub fn note_read(&self, what: Foreseen) {
        self.objset.context.cache.note_read(what);
    }
}
