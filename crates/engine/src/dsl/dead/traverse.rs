//! Visiting all blocks of an object set.
//!
//! # Theory
//! The blocks of an object set form a tree: its own block, the levels of the meta-dnode, blocks of dnodes, the levels of each
//! object. A traversal visits them in a fixed order, so that it can stop at any block and go on there later: an object
//! after all with lower numbers, a block after all before it in the object. Subtrees that are older than a given txg are
//! left out without being read, since a block is never older than what it points to.
//!
//! Blocks are visited before or after what is below them. To free them, after: a block that was freed is not needed to find
//! those below it any more. The place to go on at is a block of data, or the first object of a block of dnodes that was not looked
//! into yet. OpenZFS stops at a block of dnodes, too, when all below it is done: that is named as a block of object 0.
//!
//! ```text
//!   objset block -> meta-dnode's tree -> each dnode's tree, its spill block;  then the three accounting objects
//! ```

use std::cell::Cell;
use std::ops::ControlFlow;

use ondisk::blkptr::BlkPtr;
use ondisk::bpobj::{BlockBookmarkPhys, DESTROYED_OBJSET};
use ondisk::dnode::{DNODE_SLOT_BYTES, DNODES_PER_BLOCK, Dnode};
use ondisk::object_type::ObjectType;
use ondisk::objset::Objset as DiskObjset;

use crate::dmu::{DmuContext, USED_BY_GROUP, USED_BY_PROJECT, USED_BY_USER};
use crate::error::{Error, Result, Within};
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
    /// A block of dnodes that is to be visited, but not what is below it.
    done_below: Option<u64>,
    pause: Option<&'a dyn Fn() -> bool>,
    is_lost: Option<&'a dyn Fn(&Error) -> bool>,
    /// Where a block could not be read.
    failed: Cell<Option<Position>>,
}

/// A level-0 block of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    object: u64,
    block: u64,
}

impl Position {
    /// All zeros is the start: block 0 of object 0 would be a block of dnodes with all below it done.
    fn bookmark(self) -> BlockBookmarkPhys {
        if self == (Position { object: 0, block: 0 }) {
            return BlockBookmarkPhys::default();
        }
        BlockBookmarkPhys { objset: DESTROYED_OBJSET.into(), object: self.object.into(), level: 0.into(), block: self.block.into() }
    }
}

type Flow = ControlFlow<Option<Position>>;

impl<'a> Traversal<'a> {
    /// All blocks born after `after_txg`, each before what is below it.
    pub fn new(context: &'a DmuContext, objset: u64, after_txg: u64) -> Self {
        Traversal {
            context,
            objset,
            after_txg,
            children_first: false,
            resume: None,
            done_below: None,
            pause: None,
            is_lost: None,
            failed: Cell::new(None),
        }
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
        let (object, block) = (at.object.get(), at.block.get());
        (self.resume, self.done_below) = match object {
            _ if *at == BlockBookmarkPhys::default() => (None, None),
            0 => (Some(Position { object: block.saturating_mul(DNODES_PER_BLOCK), block: 0 }), Some(block)),
            object => (Some(Position { object, block }), None),
        };
        self
    }

    /// Goes on before a level-0 block that an earlier traversal came to and did not visit, where each is visited before what is below it.
    #[must_use]
    pub fn go_on_at(mut self, at: &BlockBookmarkPhys) -> Self {
        let (object, block) = (at.object.get(), at.block.get());
        self.resume = match (object, block) {
            (0, 0) => None,
            (0, block) => Some(Position { object: block.saturating_mul(DNODES_PER_BLOCK), block: 0 }),
            (object, block) => Some(Position { object, block }),
        };
        self
    }

    /// Asked before each block of dnodes whether to stop there.
    #[must_use]
    pub fn pause_if(mut self, pause: &'a dyn Fn() -> bool) -> Self {
        self.pause = Some(pause);
        self
    }

    /// Asked about a block that cannot be read or makes no sense: `true`, and it is visited without what is below it.
    #[must_use]
    #[doc(alias = "TRAVERSE_HARD")]
    pub fn pass_over(mut self, is_lost: &'a dyn Fn(&Error) -> bool) -> Self {
        self.is_lost = Some(is_lost);
        self
    }

    /// What could be read, and nothing if it is lost and to be passed over.
    fn unless_lost<T>(&self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Err(error) if self.is_lost.is_some_and(|is_lost| is_lost(&error)) => {
                tracing::error!("passed over, with all below it: {error}");
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// After an error: where to go on if the block that could not be read can be read again. All before it was visited.
    /// `None`: where the traversal began.
    pub fn failed_at(&self) -> Option<BlockBookmarkPhys> {
        self.failed.get().map(Position::bookmark)
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
            let read = self.context.cache.read(root.pointer, &at).and_then(|data| Ok(DiskObjset::decode(&data)?)).within(|| at);
            let Some(phys) = self.unless_lost(read)? else { return Ok(ControlFlow::Continue(())) };
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
            ControlFlow::Break(position) => Some(position.unwrap_or(Position { object: 0, block: 0 }).bookmark()),
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

    /// Where to begin to have all of a block that was not looked into.
    fn position_before(&self, block: &Bookmark, dnode: &Dnode) -> Position {
        let first = block.block.checked_shl(span_shift(dnode, block.level)).unwrap_or(u64::MAX);
        match block.object {
            0 => Position { object: first.saturating_mul(DNODES_PER_BLOCK), block: 0 },
            object => Position { object, block: first },
        }
    }

    /// What is below here cannot be read or makes no sense. What was done before this traversal began stays done.
    fn note_failure(&self, at: Position) {
        self.failed.set(Some(at).filter(|at| self.resume.is_none_or(|resume| *at > resume)));
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
        // A block of the meta-dnode is done when all objects in it are; that which the traversal stopped at is not.
        last.saturating_add(1).saturating_mul(DNODES_PER_BLOCK) <= resume.object
    }

    fn visit_block<'v>(&self, dnode: &Dnode, pointer: &BlkPtr, at: Bookmark, visit: &mut Visit<'v>) -> Result<Flow> {
        if pointer.is_hole() || pointer.is_redacted() || pointer.birth() <= self.after_txg || self.is_done(dnode, &at) {
            return Ok(ControlFlow::Continue(()));
        }
        let is_dnodes = at.object == 0 && at.level == 0;
        let done_below = is_dnodes && self.done_below == Some(at.block);
        if is_dnodes && !done_below && self.pause.is_some_and(|pause| pause()) {
            return Ok(ControlFlow::Break(Some(self.position_before(&at, dnode))));
        }
        let block = Visited { pointer, at, dnode: Some(dnode) };
        self.visit_around(&block, visit, |visit| {
            if done_below {
                Ok(ControlFlow::Continue(()))
            } else if at.level > 0 {
                self.visit_indirect(dnode, &block, visit)
            } else if at.object == 0 {
                self.visit_dnodes(dnode, &block, visit)
            } else {
                Ok(ControlFlow::Continue(()))
            }
        })
    }

    fn visit_indirect<'v>(&self, dnode: &Dnode, block: &Visited<'_>, visit: &mut Visit<'v>) -> Result<Flow> {
        let read = self.unless_lost(self.context.cache.read_pointers(block.pointer, &block.at).within(|| block.at));
        let Some(children) = read.inspect_err(|_| self.note_failure(self.position_before(&block.at, dnode)))? else {
            return Ok(ControlFlow::Continue(()));
        };
        let first = block.at.block.saturating_mul(children.count() as u64);
        for (index, pointer) in children.kept().iter().enumerate() {
            let at = self.bookmark(block.at.object, block.at.level - 1, first.saturating_add(index as u64));
            if let stop @ ControlFlow::Break(_) = self.visit_block(dnode, pointer, at, visit)? {
                return Ok(stop);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn visit_dnodes<'v>(&self, meta: &Dnode, block: &Visited<'_>, visit: &mut Visit<'v>) -> Result<Flow> {
        let read = self.unless_lost(self.context.cache.read(block.pointer, &block.at).within(|| block.at));
        let Some(data) = read.inspect_err(|_| self.note_failure(self.position_before(&block.at, meta)))? else {
            return Ok(ControlFlow::Continue(()));
        };
        let mut slot = 0;
        while let Some(bytes) = data.get(slot * DNODE_SLOT_BYTES..).filter(|bytes| bytes.len() >= DNODE_SLOT_BYTES) {
            let object = block.at.block.saturating_mul(DNODES_PER_BLOCK).saturating_add(slot as u64);
            if !Dnode::peek_free(bytes) && object != 0 {
                let decoded = self.unless_lost(Dnode::decode(bytes).within(|| block.at));
                if let Some(dnode) = decoded.inspect_err(|_| self.note_failure(Position { object, block: 0 }))?
                    && let stop @ ControlFlow::Break(_) = self.visit_object(object, &dnode, visit)? {
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
