//! Finds all blocks of a base.

use std::collections::HashMap;

use disk::Disk;
use ondisk::blkptr::{BLKPTR_BYTES, BlkPtr, BlockPointer, DataPointer, Protection};
use ondisk::dnode::{DNODE_CORE_BYTES, DNODE_SLOT_BYTES, Dnode};
use ondisk::label::START_BYTES;
use ondisk::object_type::ObjectType;

use super::Base;

/// A block.
#[derive(Debug)]
pub struct Node {
    /// The pointer to it.
    pub pointer: DataPointer,
    /// Its contents.
    pub contents: Vec<u8>,
    /// The pointers to it: block and offset, or `None` for the uberblock.
    pub(super) parents: Vec<(Option<usize>, usize)>,
    /// Offsets of words that are not zero: mutations elsewhere are mostly without effect.
    pub(super) words: Vec<u32>,
}

/// Where in a dataset's record the pointer to its contents is.
const DATASET_POINTER: usize = 128;
/// Of the contents of files this many blocks are enough.
const FILE_BLOCKS_MAX: usize = 40;

struct Walk<'a> {
    base: &'a Base,
    nodes: Vec<Node>,
    /// By first DVA: what is shared is found once. Blocks whose walk has not ended have none.
    known: HashMap<(u32, u64), usize>,
    file_blocks: usize,
}

/// All blocks that the uberblock leads to; what a block points at comes before it.
pub(super) fn walk(base: &Base) -> Vec<Node> {
    let mut walk = Walk { base, nodes: Vec::new(), known: HashMap::new(), file_blocks: 0 };
    let root = BlkPtr::from_bytes(&base.uberblock.root).expect("of the right size");
    let index = walk.visit(&root).expect("the root can be read");
    walk.nodes[index].parents.push((None, 0));
    walk.nodes
}

impl Walk<'_> {
    fn read(&self, pointer: &DataPointer) -> Option<Vec<u8>> {
        let dva = pointer.dvas()[0];
        let device = self.base.devices.iter().find(|device| device.top == dva.vdev)?;
        let mut physical = vec![0; pointer.physical_size as usize];
        device.disk.read_at(&mut physical, dva.offset + START_BYTES).ok()?;
        transform::compress::decompress(number(pointer), &physical, pointer.logical_size as usize).ok()
    }

    /// The block's number, if it is one that can be changed.
    fn visit(&mut self, bp: &BlkPtr) -> Option<usize> {
        let Ok(BlockPointer::Data(pointer)) = bp.decode() else { return None };
        let dva = pointer.dvas()[0];
        let place = (dva.vdev, dva.offset);
        if let Some(index) = self.known.get(&place) {
            return Some(*index);
        }
        if pointer.is_gang() || pointer.protection != Protection::None || !pointer.little_endian {
            return None;
        }
        if pointer.level == 0 && pointer.object_type == ObjectType::PLAIN_FILE_CONTENTS {
            self.file_blocks += 1;
            if self.file_blocks > FILE_BLOCKS_MAX {
                return None;
            }
        }
        let contents = self.read(&pointer)?;
        let mut found = Vec::new();
        for at in pointers_in(&pointer, &contents) {
            let child = contents.get(at..at + BLKPTR_BYTES).and_then(BlkPtr::from_bytes);
            found.extend(child.and_then(|child| self.visit(&child)).map(|child| (child, at)));
        }
        let index = self.nodes.len();
        for (child, at) in found {
            self.nodes[child].parents.push((Some(index), at));
        }
        self.known.insert(place, index);
        let is_used = |at: &u32| contents[*at as usize..].iter().take(8).any(|byte| *byte != 0);
        let words = (0..contents.len() as u32).step_by(8).filter(is_used).collect();
        self.nodes.push(Node { pointer, contents, parents: Vec::new(), words });
        Some(index)
    }
}

/// The number of the compression.
pub(super) fn number(pointer: &DataPointer) -> u8 {
    pointer.compression.number()
}

/// Where in a block there are pointers.
fn pointers_in(pointer: &DataPointer, contents: &[u8]) -> Vec<usize> {
    if pointer.level > 0 {
        return (0..contents.len()).step_by(BLKPTR_BYTES).collect();
    }
    let mut places = Vec::new();
    match pointer.object_type {
        ObjectType::OBJSET => {
            for at in [0, 1024, 1536, 2048].into_iter().filter(|at| at + DNODE_SLOT_BYTES <= contents.len()) {
                pointers_of_dnode(contents, at, &mut places);
            }
        }
        ObjectType::DNODE => {
            let mut at = 0;
            while at < contents.len() {
                pointers_of_dnode(contents, at, &mut places);
                at += Dnode::peek_slots(&contents[at..]) * DNODE_SLOT_BYTES;
            }
        }
        _ => {}
    }
    places
}

fn pointers_of_dnode(contents: &[u8], at: usize, places: &mut Vec<usize>) {
    let Ok(dnode) = Dnode::decode(&contents[at..]) else { return };
    if dnode.object_type == ObjectType::NONE {
        return;
    }
    let first = at + DNODE_CORE_BYTES;
    places.extend((0..dnode.pointers.len()).map(|index| first + index * BLKPTR_BYTES));
    if dnode.spill.is_some() {
        places.push(at + usize::from(dnode.slots) * DNODE_SLOT_BYTES - BLKPTR_BYTES);
    }
    if dnode.bonus_type == ObjectType::DSL_DATASET {
        places.push(first + dnode.pointers.len() * BLKPTR_BYTES + DATASET_POINTER);
    }
}
