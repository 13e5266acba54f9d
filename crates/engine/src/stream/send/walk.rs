//! Visits what has changed in an object set since a txg.
//!
//! # Theory
//! As [`Traversal`](crate::dsl) does, but holes count, too: one that was born after the txg was something before. A hole of birth 0 may
//! have been one always, or since before pools knew the births of holes, or the object has its number from one that was freed: it
//! is always visited. A block of dnodes that has changed has all its objects visited, free ones too, since nothing says when an object was freed.

use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::dnode::{DNODE_SLOT_BYTES, DNODES_PER_BLOCK, Dnode};
use ondisk::object_type::ObjectType;
use ondisk::objset::Objset as DiskObjset;

use super::item::{Blocks, DataBlock, Item, SPILL, Take};
use crate::bail;
use crate::dmu::{DmuContext, Presence};
use crate::error::{Result, Within};
use crate::zio::Bookmark;

/// log2 of the bytes of a block pointer.
const POINTER_SHIFT: u32 = 7;
/// How many blocks of metadata are read ahead.
#[doc(alias = "zfs_traverse_indirect_prefetch_limit")]
const METADATA_AHEAD: usize = 32;

/// See the module.
pub(in crate::stream) struct Walk<'a> {
    pub(in crate::stream) context: &'a DmuContext,
    pub(in crate::stream) presence: &'a Arc<Presence>,
    pub(in crate::stream) objset: u64,
    pub(in crate::stream) after_txg: u64,
    /// Object and block to begin at.
    pub(in crate::stream) resume: Option<(u64, u64)>,
    /// Blocks of dnodes are taken as they are on disk: there is no key.
    pub(in crate::stream) raw: bool,
    /// Asked before each block of dnodes.
    pub(in crate::stream) is_over: &'a (dyn Fn() -> bool + 'a),
}

impl Walk<'_> {
    /// Visits all below the object set's own block.
    pub(in crate::stream) fn run(&self, root: &BlkPtr, take: &mut Take<'_>) -> Result<()> {
        if root.is_hole() || root.logical_birth() <= self.after_txg {
            return Ok(());
        }
        let at = self.bookmark(0, -1, 0);
        let data = self.context.cache.read(root, &at).within(|| at)?;
        let phys = DiskObjset::decode(&data).within(|| at)?;
        self.tree(0, &phys.meta, take)
    }

    fn bookmark(&self, object: u64, level: i8, block: u64) -> Bookmark {
        Bookmark { objset: self.objset, object, level, block }
    }

    fn tree(&self, object: u64, dnode: &Dnode, take: &mut Take<'_>) -> Result<()> {
        let top = dnode.levels as i8 - 1;
        for (index, pointer) in dnode.pointers.iter().enumerate() {
            self.block(dnode, pointer, self.bookmark(object, top, index as u64), take)?;
        }
        match &dnode.spill {
            Some(spill) => self.block(dnode, spill, self.bookmark(object, 0, SPILL), take),
            None => Ok(()),
        }
    }

    fn is_old(&self, pointer: &BlkPtr) -> bool {
        match pointer.logical_birth() {
            0 => false,
            birth => birth <= self.after_txg,
        }
    }

    /// Whether all of a block and below it was sent before the stream broke off.
    fn is_done(&self, dnode: &Dnode, at: &Bookmark) -> bool {
        let Some((object, block)) = self.resume else { return false };
        let end = at.block.wrapping_add(1).saturating_mul(span(dnode, at.level));
        match at.object {
            0 => end.saturating_mul(DNODES_PER_BLOCK) <= object,
            this => this < object || (this == object && end <= block),
        }
    }

    fn block(&self, dnode: &Dnode, pointer: &BlkPtr, at: Bookmark, take: &mut Take<'_>) -> Result<()> {
        if self.is_old(pointer) || self.is_done(dnode, &at) {
            return Ok(());
        }
        if pointer.is_hole() || pointer.is_redacted() {
            return self.report(dnode, pointer, &at, take);
        }
        match (at.level, at.object) {
            (1.., _) => self.pointers(dnode, pointer, &at, take),
            (_, 0) => {
                take(Item::ObjectRange(at.block, *pointer))?;
                self.dnodes(pointer, &at, take)
            }
            _ => self.report(dnode, pointer, &at, take),
        }
    }

    /// A hole of any level, or a block of contents.
    fn report(&self, dnode: &Dnode, pointer: &BlkPtr, at: &Bookmark, take: &mut Take<'_>) -> Result<()> {
        let span = span(dnode, at.level);
        let Some(first) = span.checked_mul(at.block) else { return Ok(()) };
        if at.block != SPILL && !dnode.object_type.is_metadata() && first > dnode.max_block {
            return Ok(());
        }
        let bytes = if at.block == SPILL { pointer.logical_size() } else { dnode.block_bytes };
        // Zero is all that 64 bits cannot say.
        let blocks = Blocks { object: at.object, first, end: first.checked_add(span).unwrap_or(0), bytes };
        if pointer.is_hole() {
            take(Item::Hole(blocks))
        } else if pointer.is_redacted() {
            take(Item::Redacted(blocks))
        } else if pointer.logical_size() != bytes {
            bail!(Corrupt, "{at}: a block of {} bytes in an object of blocks of {bytes}", pointer.logical_size())
        } else {
            take(Item::Data(DataBlock { object: at.object, block: at.block, bytes, object_type: dnode.object_type, pointer: *pointer }))
        }
    }

    /// Has metadata read in the background.
    fn prefetch(&self, pointer: &BlkPtr, at: &Bookmark) {
        let is_readable = !(pointer.is_hole() || pointer.is_redacted() || self.raw && at.level == 0);
        if is_readable && !self.is_old(pointer) {
            let presence = Arc::clone(self.presence);
            self.context.cache.prefetch(pointer, at, move |see_to_it: &mut dyn FnMut()| presence.while_there(see_to_it));
        }
    }

    fn pointers(&self, dnode: &Dnode, pointer: &BlkPtr, at: &Bookmark, take: &mut Take<'_>) -> Result<()> {
        if pointer.level() != at.level as u8 {
            bail!(Corrupt, "{at}: the pointer says level {}", pointer.level());
        }
        let children = self.context.cache.read_pointers(pointer, at).within(|| at)?;
        let level = at.level - 1;
        let first = at.block.saturating_mul(children.count() as u64);
        let child_at = |index: usize| self.bookmark(at.object, level, first.saturating_add(index as u64));
        let mut ahead = 1;
        for index in 0..children.count() {
            if level > 0 || at.object == 0 {
                let until = (index + METADATA_AHEAD).min(children.kept().len());
                (ahead..until).for_each(|next| self.prefetch(&children.kept()[next], &child_at(next)));
                ahead = ahead.max(until);
            }
            let child = children.get(index).unwrap_or(BlkPtr::ZERO);
            let at = child_at(index);
            let is_beyond = at.block.saturating_mul(span(dnode, level)) > dnode.max_block;
            if index >= children.kept().len() && is_beyond && (at.object == 0 || !dnode.object_type.is_metadata()) {
                break;
            }
            self.block(dnode, &child, at, take)?;
        }
        Ok(())
    }

    fn dnodes(&self, pointer: &BlkPtr, at: &Bookmark, take: &mut Take<'_>) -> Result<()> {
        if (self.is_over)() {
            bail!(Io, "the stream was ended");
        }
        let cache = &self.context.cache;
        let data = if self.raw { cache.physical(pointer, at) } else { cache.read(pointer, at) }.within(|| at)?;
        let mut found = Vec::new();
        let mut slot = 0;
        while let Some(bytes) = data.get(slot * DNODE_SLOT_BYTES..).filter(|bytes| bytes.len() >= DNODE_SLOT_BYTES) {
            let object = at.block.saturating_mul(DNODES_PER_BLOCK).saturating_add(slot as u64);
            let slots = Dnode::peek_slots(bytes);
            found.push((object, Dnode::decode(bytes).within(|| at)?, bytes.get(..slots * DNODE_SLOT_BYTES).unwrap_or(bytes)));
            slot += slots;
        }
        for (object, dnode, _) in found.iter().filter(|(_, dnode, _)| dnode.levels > 1) {
            for (index, pointer) in dnode.pointers.iter().enumerate() {
                self.prefetch(pointer, &self.bookmark(*object, dnode.levels as i8 - 1, index as u64));
            }
        }
        for (object, dnode, bytes) in found {
            // The first slot of all is no object's.
            if object == 0 || self.resume.is_some_and(|(first, _)| object < first) {
                continue;
            }
            let spill = dnode.spill.filter(|spill| spill.logical_birth() <= self.after_txg && !spill.is_hole());
            let spill = spill.map(|pointer| DataBlock { object, block: SPILL, bytes: pointer.logical_size(), object_type: dnode.object_type, pointer });
            take(Item::Object { object, dnode: Arc::from(bytes), within: *pointer, spill })?;
            if dnode.object_type != ObjectType::NONE {
                self.tree(object, &dnode, take)?;
            }
        }
        Ok(())
    }
}

/// How many blocks of contents are below a block of this level.
fn span(dnode: &Dnode, level: i8) -> u64 {
    let shift = u32::from(level.max(0).unsigned_abs()) * u32::from(dnode.indirect_shift).saturating_sub(POINTER_SHIFT);
    1u64.checked_shl(shift).unwrap_or(u64::MAX)
}
