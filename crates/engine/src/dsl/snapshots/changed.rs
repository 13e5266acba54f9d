//! Which objects may differ between two states of an object set.
//!
//! # Theory
//! Dnodes stand in the blocks of the meta-dnode. Where both states have the same pointer, all below it is the same and is not read, so
//! looking costs as much as was changed. A block that only one of the states has is read as well: what stood in it was made or is gone.
//! Trees of different heights are compared from the height of the higher one: the lower one is alone below its first blocks there.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ondisk::blkptr::BlkPtr;
use ondisk::dnode::{DNODE_SLOT_BYTES, DNODES_PER_BLOCK, Dnode as DiskDnode};

use crate::dmu::Objset;
use crate::error::{Error, Result, Within};
use crate::zio::Bookmark;

/// log2 of the bytes of a block pointer.
const POINTER_SHIFT: u8 = 7;

/// An object that may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaybeChanged {
    /// Its number.
    pub object: u64,
    /// The older state has an object of this number.
    pub in_old: bool,
    /// The newer state has one.
    pub in_new: bool,
}

/// What is done about each object.
pub type EachChanged<'v> = dyn FnMut(MaybeChanged) -> Result<ControlFlow<()>> + 'v;

/// Asked about a block that cannot be read: an error ends the search, else it goes on without what is below.
pub type PassOver<'v> = dyn FnMut(Error) -> Result<()> + 'v;

/// A part of the tree of one state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Hole,
    Block(BlkPtr),
    /// The whole tree, seen as a block of a level above it.
    Whole,
}

struct State<'a> {
    objset: &'a Objset,
    meta: DiskDnode,
}

impl State<'_> {
    fn of(objset: &Objset) -> State<'_> {
        State { objset, meta: objset.meta().on_disk() }
    }

    fn bookmark(&self, level: u8, block: u64) -> Bookmark {
        Bookmark { objset: self.objset.dataset(), object: 0, level: level as i8, block }
    }

    /// The parts below a part of this level.
    fn below(&self, part: Part, level: u8, block: u64) -> Result<Vec<Part>> {
        let part_of = |pointer: &BlkPtr| if pointer.is_hole() { Part::Hole } else { Part::Block(*pointer) };
        Ok(match part {
            Part::Hole => Vec::new(),
            Part::Whole if level > self.meta.levels => vec![Part::Whole],
            Part::Whole => self.meta.pointers.iter().map(part_of).collect(),
            Part::Block(pointer) => {
                let at = self.bookmark(level, block);
                let pointers = self.objset.context().cache.read_pointers(&pointer, &at).within(|| at)?;
                pointers.kept().iter().map(part_of).collect()
            }
        })
    }

    /// The objects in a block of dnodes.
    fn objects(&self, part: Part, block: u64) -> Result<Vec<u64>> {
        let Part::Block(pointer) = part else { return Ok(Vec::new()) };
        let at = self.bookmark(0, block);
        let data = self.objset.context().cache.read(&pointer, &at).within(|| at)?;
        let (mut objects, mut slot) = (Vec::new(), 0);
        while let Some(bytes) = data.get(slot * DNODE_SLOT_BYTES..).filter(|bytes| bytes.len() >= DNODE_SLOT_BYTES) {
            let object = block.saturating_mul(DNODES_PER_BLOCK).saturating_add(slot as u64);
            if !DiskDnode::peek_free(bytes) && object != 0 {
                objects.push(object);
            }
            slot += DiskDnode::peek_slots(bytes);
        }
        Ok(objects)
    }
}

struct Search<'a, 'v> {
    old: State<'a>,
    new: State<'a>,
    pass_over: &'a mut PassOver<'v>,
    each: &'a mut EachChanged<'v>,
}

impl Search<'_, '_> {
    /// What was read, or nothing of what is passed over.
    fn read<T>(&mut self, read: Result<Vec<T>>) -> Result<Vec<T>> {
        match read {
            Err(error) => (self.pass_over)(error).map(|()| Vec::new()),
            read => read,
        }
    }

    fn compare(&mut self, level: u8, block: u64, old: Part, new: Part) -> Result<ControlFlow<()>> {
        if level == 0 {
            return self.compare_dnodes(block, old, new);
        }
        let old = self.old.below(old, level, block);
        let old = self.read(old)?;
        let new = self.new.below(new, level, block);
        let new = self.read(new)?;
        let fan_out = 1u64.checked_shl(u32::from(self.new.meta.indirect_shift.saturating_sub(POINTER_SHIFT))).unwrap_or(1);
        let part = |parts: &[Part], index: usize| parts.get(index).copied().unwrap_or(Part::Hole);
        for index in 0..old.len().max(new.len()) {
            let (old, new) = (part(&old, index), part(&new, index));
            if old == new && old != Part::Whole {
                continue;
            }
            if self.compare(level - 1, block.saturating_mul(fan_out).saturating_add(index as u64), old, new)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn compare_dnodes(&mut self, block: u64, old: Part, new: Part) -> Result<ControlFlow<()>> {
        let old = self.old.objects(old, block);
        let old = self.read(old)?;
        let new = self.new.objects(new, block);
        let new = self.read(new)?;
        let mut found: BTreeMap<u64, MaybeChanged> = BTreeMap::new();
        for object in old {
            found.insert(object, MaybeChanged { object, in_old: true, in_new: false });
        }
        for object in new {
            found.entry(object).or_insert(MaybeChanged { object, in_old: false, in_new: false }).in_new = true;
        }
        for changed in found.into_values() {
            if (self.each)(changed)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Calls `each` with the objects that may differ, in ascending order, as both states are on disk.
///
/// # Errors
/// What `pass_over` does not pass over, or `each`'s error.
pub fn changed_objects(old: &Objset, new: &Objset, pass_over: &mut PassOver<'_>, each: &mut EachChanged<'_>) -> Result<()> {
    let (old, new) = (State::of(old), State::of(new));
    // Only object sets that were made with other parameters differ in these, and they have nothing in common.
    let alike = (old.meta.indirect_shift, old.meta.block_bytes) == (new.meta.indirect_shift, new.meta.block_bytes);
    let (top, old_part) = if alike { (old.meta.levels.max(new.meta.levels), Part::Whole) } else { (new.meta.levels, Part::Hole) };
    let mut search = Search { old, new, pass_over, each };
    search.compare(top, 0, old_part, Part::Whole).map(drop)
}
