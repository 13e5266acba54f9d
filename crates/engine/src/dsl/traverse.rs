//! Visiting all blocks of an object set.
//!
//! # Theory
//! The blocks of an object set form a tree: its own block, the levels of the meta-dnode, blocks of dnodes, the levels of each
//! object. A traversal visits them in a fixed order, so that it can stop at any block and go on there later: an object
//! after all with lower numbers, a block after all before it in the object. Subtrees that are older than a given txg are
//! left out without being read, since a block is never older than what it points to.
//!
//! Blocks are visited before or after what is below them. To free them, after: a block that was freed is not needed to find
//! those below it any more.
//!
//! ```text
//!   objset block -> meta-dnode's tree -> each dnode's tree, its spill block;  then the three accounting objects
//! ```

use std::ops::ControlFlow;

use ondisk::blkptr::BlkPtr;
use ondisk::bpobj::{BlockBookmarkPhys, DESTROYED_OBJSET};
use ondisk::dnode::{DNODE_SLOT_BYTES, DNODES_PER_BLOCK, Dnode};
use ondisk::object_type::ObjectType;
use ondisk::objset::Objset as DiskObjset;

use crate::dmu::{DmuContext, USED_BY_GROUP, USED_BY_PROJECT, USED_BY_USER};
use crate::error::{Result, Within};
use crate::zio::Bookmark;

/// The number under which the spill block of an object is visited.
pub const SPILL_BLOCK: u64 = u64::MAX;
/// log2 of the bytes of a block pointer.
const POINTER_SHIFT: u32 = 7;

/// A block that is visited.
#[derive(Debug)]
pub struct Visited<'a> {
    /// The pointer to it; never a hole.
    pub pointer: &'a BlkPtr,
    /// Which block it is.
    pub at: Bookmark,
    /// The object it belongs to; none for the object set's own block.
    pub dnode: Option<&'a Dnode>,
}

/// What is called for each block. `Break` stops the traversal before the block is done.
pub type Visit<'v> = dyn FnMut(&Visited<'_>) -> Result<ControlFlow<()>> + 'v;

/// A traversal of one object set.
pub struct Traversal<'a> {
    context: &'a DmuContext,
    objset: u64,
    after_txg: u64,
    children_first: bool,
    resume: Option<Position>,
}

/// A level-0 block of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    object: u64,
    block: u64,
}

type Flow = ControlFlow<Option<Position>>;

impl<'a> Traversal<'a> {
    /// All blocks born after `after_txg`, each before what is below it.
    pub fn new(context: &'a DmuContext, objset: u64, after_txg: u64) -> Self {
        Traversal { context, objset, after_txg, children_first: false, resume: None }
    }

    /// Each block after what is below it.
    #[must_use]
    pub fn children_first(mut self) -> Self {
        self.children_first = true;
        self
    }

    /// Goes on where an earlier traversal stopped.
    #[must_use]
    pub fn resume(mut self, at: &BlockBookmarkPhys) -> Self {
        let position = Position { object: at.object.get(), block: at.block.get() };
        self.resume = Some(position).filter(|position| *position != Position { object: 0, block: 0 });
        self
    }

    /// Visits the blocks. If the visitor stopped it: where to resume.
    ///
    /// # Errors
    /// A block cannot be read, or the visitor's error.
    pub fn run(&self, root: &BlkPtr, visit: &mut Visit<'_>) -> Result<Option<BlockBookmarkPhys>> {
        let at = self.bookmark(0, -1, 0);
        if root.is_hole() || root.birth() <= self.after_txg {
            return Ok(None);
        }
        let root = Visited { pointer: root, at, dnode: None };
        let flow = self.visit_around(&root, visit, |visit| {
            let data = self.context.cache.read(root.pointer, &at).within(|| at)?;
            let phys = DiskObjset::decode(&data).within(|| at)?;
            let parts = [
                (0, &phys.meta),
                (USED_BY_PROJECT, &phys.project_used),
                (USED_BY_GROUP, &phys.group_used),
                (USED_BY_USER, &phys.user_used),
            ];
            for (object, dnode) in parts {
                if let stop @ ControlFlow::Break(_) = self.visit_object(object, dnode, visit)? {
                    return Ok(stop);
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(match flow {
            ControlFlow::Continue(()) => None,
            ControlFlow::Break(position) => {
                let position = position.unwrap_or(Position { object: 0, block: 0 });
                Some(BlockBookmarkPhys {
                    objset: DESTROYED_OBJSET.into(),
                    object: position.object.into(),
                    level: 0.into(),
                    block: position.block.into(),
                })
            }
        })
    }

    fn bookmark(&self, object: u64, level: i8, block: u64) -> Bookmark {
        Bookmark { objset: self.objset, object, level, block }
    }

    /// Visits a block and, before or after it, what is below.
    fn visit_around<'v>(
        &self,
        block: &Visited<'_>,
        visit: &mut Visit<'v>,
        below: impl FnOnce(&mut Visit<'v>) -> Result<Flow>,
    ) -> Result<Flow> {
        let stop = |flow: ControlFlow<()>| match flow {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            ControlFlow::Break(()) => ControlFlow::Break(Some(self.first_position(block))),
        };
        if !self.children_first
            && let stop @ ControlFlow::Break(_) = stop(visit(block)?)
        {
            return Ok(stop);
        }
        if let stop @ ControlFlow::Break(_) = below(visit)? {
            return Ok(stop);
        }
        if self.children_first {
            return Ok(stop(visit(block)?));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The first level-0 block below a block.
    fn first_position(&self, block: &Visited<'_>) -> Position {
        let shift = block.dnode.map_or(0, |dnode| span_shift(dnode, block.at.level));
        Position { object: block.at.object, block: block.at.block.checked_shl(shift).unwrap_or(u64::MAX) }
    }

    fn visit_object<'v>(&self, object: u64, dnode: &Dnode, visit: &mut Visit<'v>) -> Result<Flow> {
        if dnode.object_type == ObjectType::NONE {
            return Ok(ControlFlow::Continue(()));
        }
        if object != 0 && self.resume.is_some_and(|resume| object < resume.object) {
            return Ok(ControlFlow::Continue(()));
        }
        let top = dnode.levels as i8 - 1;
        for (index, pointer) in dnode.pointers.iter().enumerate() {
            let at = self.bookmark(object, top, index as u64);
            if let stop @ ControlFlow::Break(_) = self.visit_block(dnode, pointer, at, visit)? {
                return Ok(stop);
            }
        }
        match &dnode.spill {
            Some(spill) => self.visit_block(dnode, spill, self.bookmark(object, 0, SPILL_BLOCK), visit),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    /// Whether everything below (and the block itself) was visited before the traversal was stopped.
    fn is_done(&self, dnode: &Dnode, at: &Bookmark) -> bool {
        let Some(resume) = self.resume else { return false };
        let shift = span_shift(dnode, at.level);
        let last = at.block.saturating_add(1).checked_shl(shift).filter(|end| end >> shift == at.block.saturating_add(1));
        let last = last.map_or(u64::MAX, |end| end - 1);
        if at.object != 0 {
            return Position { object: at.object, block: last } < resume;
        }
        match resume.object {
            0 => last < resume.block,
            // A block of the meta-dnode is done when all objects in it are.
            object => last.saturating_add(1).saturating_mul(DNODES_PER_BLOCK) <= object,
        }
    }

    fn visit_block<'v>(&self, dnode: &Dnode, pointer: &BlkPtr, at: Bookmark, visit: &mut Visit<'v>) -> Result<Flow> {
        if pointer.is_hole() || pointer.is_redacted() || pointer.birth() <= self.after_txg || self.is_done(dnode, &at) {
            return Ok(ControlFlow::Continue(()));
        }
        let block = Visited { pointer, at, dnode: Some(dnode) };
        self.visit_around(&block, visit, |visit| {
            if at.level > 0 {
                self.visit_indirect(dnode, &block, visit)
            } else if at.object == 0 {
                self.visit_dnodes(&block, visit)
            } else {
                Ok(ControlFlow::Continue(()))
            }
        })
    }

    fn visit_indirect<'v>(&self, dnode: &Dnode, block: &Visited<'_>, visit: &mut Visit<'v>) -> Result<Flow> {
        let data = self.context.cache.read(block.pointer, &block.at).within(|| block.at)?;
        let children = BlkPtr::slice_of(&data);
        let first = block.at.block.saturating_mul(children.len() as u64);
        for (index, pointer) in children.iter().enumerate() {
            let at = self.bookmark(block.at.object, block.at.level - 1, first.saturating_add(index as u64));
            if let stop @ ControlFlow::Break(_) = self.visit_block(dnode, pointer, at, visit)? {
                return Ok(stop);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn visit_dnodes<'v>(&self, block: &Visited<'_>, visit: &mut Visit<'v>) -> Result<Flow> {
        let data = self.context.cache.read(block.pointer, &block.at).within(|| block.at)?;
        let mut slot = 0;
        while let Some(bytes) = data.get(slot * DNODE_SLOT_BYTES..).filter(|bytes| bytes.len() >= DNODE_SLOT_BYTES) {
            let object = block.at.block.saturating_mul(DNODES_PER_BLOCK).saturating_add(slot as u64);
            if !Dnode::peek_free(bytes) && object != 0 {
                let dnode = Dnode::decode(bytes).within(|| block.at)?;
                if let stop @ ControlFlow::Break(_) = self.visit_object(object, &dnode, visit)? {
                    return Ok(stop);
                }
            }
            slot += Dnode::peek_slots(bytes);
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// log2 of how many level-0 blocks are below a block of this level.
fn span_shift(dnode: &Dnode, level: i8) -> u32 {
    u32::from(level.max(0).unsigned_abs()) * u32::from(dnode.indirect_shift).saturating_sub(POINTER_SHIFT)
}
