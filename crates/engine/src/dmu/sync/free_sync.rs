//! Freeing what one group freed of one object.
//!
//! # Theory
//! An indirect block that goes leads to what goes with it. If it cannot be read, and is a user's, the pool does not stop for that: it is freed itself, and what
//! is below it is *leaked*: allocated, and in nobody's reach. How much that is follows from what the object uses, and what is left of it.

use std::ops::RangeInclusive;

use ondisk::blkptr::BlkPtr;
use ondisk::dnode as disk;
use ondisk::object_type::ObjectType;

use crate::dmu::LostTree;
use crate::dmu::sync::dnode_sync::{DnodeSync, Indirect};
use crate::dmu::sync::objset_sync::SyncContext;
use crate::dmu::objects::tree::{entry, fanout_shift, span_shift};
use crate::arc::Pointers;
use crate::error::Result;

/// So many indirect blocks are read to find out how much is left of a damaged object.
const LEFT_BLOCKS_MAX: u64 = 1 << 16;

impl DnodeSync {
    pub(in crate::dmu) fn free_blocks(&mut self, context: &SyncContext<'_>, start: u64, end: u64) -> Result<()> {
        let top = self.tree.levels - 1;
        let span = if top == 0 { 0 } else { span_shift(self.tree.indirect_shift, top) };
        for root in 0..self.tree.pointers.len() as u64 {
            let first = root << span;
            if first < end && first + (1u64 << span.min(62)) > start {
                self.free_in(context, top, root, start, end)?;
            }
        }
        Ok(())
    }

    /// Frees what of `start..end` lies below block `block` of `level`.
    fn free_in(&mut self, context: &SyncContext<'_>, level: u8, block: u64, start: u64, end: u64) -> Result<()> {
        let pointer = self.pointer(context, level, block)?;
        if pointer.is_hole() && !self.indirect.contains_key(&(level, block)) {
            return Ok(());
        }
        let span = if level == 0 { 0 } else { span_shift(self.tree.indirect_shift, level) };
        let first = block << span;
        let last = first.saturating_add(1u64 << span.min(62));
        let whole = start <= first && last <= end;
        let mut gone = None;
        if level > 0 {
            let below = span - fanout_shift(self.tree.indirect_shift);
            let from = start.max(first) >> below;
            let to = (end.min(last) - 1) >> below;
            let Some(present) = self.present(context, level, block, from..=to)? else {
                let covered = start <= first && last.min(self.tree.max_block.saturating_add(1)) <= end;
                return if covered { self.free_lost(context, level, block, &pointer) } else { Ok(()) };
            };
            for child in present {
                self.free_in(context, level - 1, child, start, end)?;
            }
            let empty = BlkPtr::slice_of(&self.load(context, level, block)?.data).iter().all(BlkPtr::is_hole);
            if !whole && !empty {
                return Ok(());
            }
            gone = self.indirect.remove(&(level, block));
        }
        if !pointer.is_hole() {
            self.kill(context, &pointer)?;
        }
        let hole = self.hole_after(context, level);
        self.set_pointer(context, level, block, &hole)?;
        // Made anew of the hole, all below it would be holes of this group; what never had data has none to lose.
        if let Some(Indirect { data, .. }) = gone
            && self.dirty.blocks.range(first..last).next().is_some()
        {
            self.indirect.insert((level, block), Indirect { data, changed: false });
        }
        Ok(())
    }

    /// Which of the blocks `wanted` below an indirect block are there: a whole hole costs nothing. `None`: it is lost, and so is the way to them.
    fn present(&mut self, context: &SyncContext<'_>, level: u8, block: u64, wanted: RangeInclusive<u64>) -> Result<Option<Vec<u64>>> {
        let mask = (1 << fanout_shift(self.tree.indirect_shift)) - 1;
        let is_users = self.is_users();
        match self.load(context, level, block) {
            Ok(Indirect { data, .. }) => {
                Ok(Some(wanted.filter(|child| entry(data, (child & mask) as usize).is_some_and(|bp| !bp.is_hole())).collect()))
            }
            Err(error) if is_users && context.tx.context.io.is_lost(&error) => {
                tracing::error!("what is below a lost block cannot be freed: {error}");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Is the object a user's, so that nothing that cannot be read in it may stop the pool?
    pub(in crate::dmu) fn is_users(&self) -> bool {
        self.dnode.dataset() != 0
    }

    /// An indirect block goes that cannot be read. What is below it stays allocated.
    fn free_lost(&mut self, context: &SyncContext<'_>, level: u8, block: u64, pointer: &BlkPtr) -> Result<()> {
        self.lost.push(pointer.birth());
        // What says that it is another's is not freed in its name.
        if pointer.level() == level {
            self.kill(context, pointer)?;
        }
        let span = span_shift(self.tree.indirect_shift, level);
        let blocks = block << span..(block + 1).checked_shl(span).unwrap_or(u64::MAX);
        for known in context.owner.known_below(&LostTree { object: self.dnode.object, level, blocks }) {
            self.kill(context, &known)?;
        }
        let hole = self.hole_after(context, level);
        self.set_pointer(context, level, block, &hole)
    }

    /// Says how much was below lost blocks that were freed: all that the object uses, but for what is left in it. If other parts of it cannot be read
    /// either, nobody knows; the object goes on using it, until all of it is freed.
    pub(in crate::dmu) fn note_leaks(&mut self, context: &SyncContext<'_>) {
        let Some(birth) = self.lost.iter().copied().max() else { return };
        let mut steps = LEFT_BLOCKS_MAX;
        let Some(left) = self.space_left(context, &mut steps) else { return };
        let leaked = self.tree.used.saturating_sub(left);
        self.tree.used -= leaked;
        context.owner.leaked(leaked, birth);
    }

    /// The space of all blocks that the object has; `None`: not all can be found, or there are too many to look.
    fn space_left(&self, context: &SyncContext<'_>, steps: &mut u64) -> Option<u64> {
        let io = &context.tx.context.io;
        let mut sum = self.tree.spill.as_ref().map_or(0, |spill| io.deflated_size(spill));
        let top = self.tree.levels - 1;
        let mut waiting: Vec<(u8, u64, BlkPtr)> = self.tree.pointers.iter().enumerate().map(|(block, pointer)| (top, block as u64, *pointer)).collect();
        while let Some((level, block, pointer)) = waiting.pop() {
            let changed = self.indirect.get(&(level, block));
            if !pointer.is_hole() {
                sum += io.deflated_size(&pointer);
            }
            if level == 0 || pointer.is_hole() && changed.is_none() {
                continue;
            }
            *steps = steps.checked_sub(1)?;
            let read = || self.dnode.read_indirect(&self.tree, &pointer, level, block).ok();
            let children = changed.map_or_else(read, |indirect| Some(Pointers::from(BlkPtr::slice_of(&indirect.data))))?;
            let first = block * children.count() as u64;
            let below = |(index, child): (usize, &BlkPtr)| (level - 1, first + index as u64, *child);
            waiting.extend(children.kept().iter().enumerate().filter(|(_, child)| !child.is_hole()).map(below));
        }
        Some(sum)
    }

    pub(in crate::dmu) fn free_everything(&mut self, context: &SyncContext<'_>) -> Result<()> {
        if self.tree.object_type != ObjectType::NONE {
            self.free_blocks(context, 0, u64::MAX >> 1)?;
            if let Some(spill) = self.tree.spill.take() {
                self.kill(context, &spill)?;
            }
            if let Some(birth) = self.lost.iter().copied().max() {
                context.owner.leaked(self.tree.used, birth);
            }
        }
        self.dirty.blocks.clear();
        self.indirect.clear();
        let slots = self.tree.slots;
        self.tree = disk::Dnode { slots, ..disk::Dnode::free() };
        Ok(())
    }
}
