//! Seeds, cut from the pools of [`crate::image`].

use ondisk::blkptr::{BLKPTR_BYTES, BlkPtr};
use ondisk::dnode::Dnode;
use ondisk::nvlist::NvList;
use ondisk::object_type::ObjectType;

use crate::image::{Node, bases};

/// The most seeds of a kind from one pool.
const SEEDS_MAX: usize = 8;

fn nodes(fits: impl Fn(&Node) -> bool) -> Vec<Vec<u8>> {
    let of_base = |base: &'static crate::image::Base| base.nodes.iter().filter(|node| fits(node)).take(SEEDS_MAX);
    bases().iter().flat_map(of_base).map(|node| node.contents.iter().take(16 << 10).copied().collect()).collect()
}

/// Blocks of objects of a type.
pub(crate) fn blocks(object_type: ObjectType) -> Vec<Vec<u8>> {
    nodes(|node| node.pointer.level == 0 && node.pointer.object_type == object_type)
}

/// Blocks of ZAPs that begin with this word.
pub(crate) fn zaps(block_type: u64) -> Vec<Vec<u8>> {
    nodes(|node| {
        node.pointer.level == 0 && node.contents.len() <= 16 << 10 && node.contents.starts_with(&block_type.to_le_bytes())
    })
}

/// Block pointers of all kinds.
pub(crate) fn pointers() -> Vec<Vec<u8>> {
    let indirect = nodes(|node| node.pointer.level > 0);
    let raw = indirect.iter().flat_map(|block| block.chunks_exact(BLKPTR_BYTES).take(3)).map(<[u8]>::to_vec);
    let embedded = dnodes().into_iter().flat_map(|dnode| dnode.pointers).filter(BlkPtr::is_embedded).take(5);
    raw.chain(embedded.map(|bp| bp.as_bytes().to_vec())).collect()
}

fn dnodes() -> Vec<Dnode> {
    let blocks = bases()
        .iter()
        .flat_map(|base| &base.nodes)
        .filter(|node| node.pointer.level == 0 && node.pointer.object_type == ObjectType::DNODE);
    let slots = blocks.flat_map(|node| (0..node.contents.len()).step_by(512).map(|at| &node.contents[at..]));
    slots.filter(|slot| !Dnode::peek_free(slot)).filter_map(|slot| Dnode::decode(slot).ok()).collect()
}

/// Bonus buffers of a type.
pub(crate) fn bonuses(bonus_type: ObjectType) -> Vec<Vec<u8>> {
    dnodes().into_iter().filter(|dnode| dnode.bonus_type == bonus_type).take(3 * SEEDS_MAX).map(|dnode| dnode.bonus).collect()
}

/// The uberblocks.
pub(crate) fn uberblocks() -> Vec<Vec<u8>> {
    bases().iter().map(crate::image::Base::uberblock_bytes).collect()
}

/// The configurations of the labels, and those in the pools.
pub(crate) fn configs() -> Vec<NvList> {
    let labels = bases().iter().flat_map(|base| base.configs().cloned());
    let stored = blocks(ObjectType::PACKED_NVLIST).into_iter().filter_map(|block| NvList::decode(&block).ok());
    labels.chain(stored).collect()
}
