//! Blocks' addresses, and the objects that hold them.

use ondisk::blkptr::{BLKPTR_BYTES, BlkPtr, BlockPointer};
use ondisk::dnode::{DNODE_SLOT_BYTES, Dnode};
use ondisk::object_type::{ByteswapClass, ObjectType};
use ondisk::objset::Objset;
use ondisk::uberblock::Uberblock;
use transform::checksum::{GANG_HEADER, embedded};

use crate::seeds;

fn check_pointer(bp: &BlkPtr) {
    let _ = (bp.to_string(), bp.is_metadata(), bp.allocated_size(), bp.physical_size(), bp.logical_size());
    let _ = (bp.birth(), bp.fill(), bp.first_dva(), bp.is_gang(), bp.dvas().count(), bp.same_block(&BlkPtr::ZERO));
    let _ = ondisk::bpobj::listed(bp, true);
    let Ok(decoded) = bp.decode() else { return };
    let again = decoded.encode().decode();
    match (&decoded, &again) {
        // A hole that was never written is all zeros, whatever it would have been.
        (BlockPointer::Hole(hole), Ok(BlockPointer::Hole(_))) if hole.logical_birth == 0 => {}
        (BlockPointer::Embedded(one), Ok(BlockPointer::Embedded(other))) => assert_eq!(one.payload(), other.payload()),
        (one, Ok(other)) => assert_eq!(format!("{one:?}"), format!("{other:?}")),
        (one, Err(error)) => panic!("{one:?} is refused when it is read again: {error}"),
    }
}

pub(super) fn block_pointer(bytes: &[u8]) {
    for bp in BlkPtr::slice_of(bytes) {
        check_pointer(bp);
    }
}

pub(super) fn block_pointer_seeds() -> Vec<Vec<u8>> {
    seeds::pointers()
}

pub(super) fn dnode(bytes: &[u8]) {
    let mut at = 0;
    while let Some(slots) = bytes.get(at..).filter(|rest| rest.len() >= DNODE_SLOT_BYTES) {
        at += Dnode::peek_slots(slots) * DNODE_SLOT_BYTES;
        let Ok(dnode) = Dnode::decode(slots) else { continue };
        let _ = dnode.used_bytes();
        dnode.pointers.iter().chain(&dnode.spill).for_each(check_pointer);
        if dnode.object_type != ObjectType::NONE {
            let mut out = vec![0; usize::from(dnode.slots) * DNODE_SLOT_BYTES];
            dnode.encode(&mut out);
            assert_eq!(Dnode::decode(&out), Ok(dnode));
        }
    }
}

pub(super) fn dnode_seeds() -> Vec<Vec<u8>> {
    seeds::blocks(ObjectType::DNODE)
}

pub(super) fn objset(bytes: &[u8]) {
    let Ok(objset) = Objset::decode(bytes) else { return };
    let encoded = objset.encode();
    let again = Objset::decode(&encoded).expect("what was encoded");
    assert_eq!((again.meta, again.objset_type, again.flags), (objset.meta, objset.objset_type, objset.flags));
    assert_eq!(encoded, Objset::decode(&encoded).expect("what was encoded").encode());
}

pub(super) fn objset_seeds() -> Vec<Vec<u8>> {
    seeds::blocks(ObjectType::OBJSET)
}

pub(super) fn uberblock(bytes: &[u8]) {
    let Ok(uberblock) = Uberblock::decode(bytes) else { return };
    if let Some(multihost) = uberblock.multihost {
        let _ = (multihost.interval_ms(), multihost.sequence(), multihost.fail_intervals());
    }
    let _ = (uberblock.raidz_reflow.offset(), uberblock.raidz_reflow.scratch_state(), uberblock.compare_age(&Uberblock::empty()));
    assert_eq!(Uberblock::decode(&uberblock.encode()), Ok(uberblock));
}

pub(super) fn uberblock_seeds() -> Vec<Vec<u8>> {
    let mut all = seeds::uberblocks();
    let mut big = all.clone();
    big.iter_mut().flat_map(|bytes| bytes.as_chunks_mut::<8>().0).for_each(|word| word.reverse());
    all.extend(big);
    all
}

pub(super) fn byteswap(bytes: &[u8]) {
    let Some((class, block)) = bytes.split_first() else { return };
    let mut block = block.to_vec();
    ondisk::byteswap::swap(ByteswapClass::ALL[usize::from(*class) % ByteswapClass::ALL.len()], &mut block);
    ondisk::byteswap::swap_block(ObjectType(*class), class >> 7, &mut block);
}

pub(super) fn byteswap_seeds() -> Vec<Vec<u8>> {
    let types =
        [(4, ObjectType::DIRECTORY_CONTENTS), (5, ObjectType::DNODE), (6, ObjectType::OBJSET), (4, ObjectType::MASTER_NODE)];
    let blocks = types
        .into_iter()
        .flat_map(|(class, kind)| seeds::blocks(kind).into_iter().map(move |block| [&[class], block.as_slice()].concat()));
    blocks.chain([[&[7], [3; 264].as_slice()].concat(), vec![9; 200]]).collect()
}

/// A gang header in its last bytes' checksum, and the pointers in it.
pub(super) fn gang_header(bytes: &[u8]) {
    let mut header = bytes.to_vec();
    header.resize(512, 0);
    let verifier = [0, 0x4000, 77, 0];
    let _ = embedded::embedded(GANG_HEADER, &header, verifier);
    assert!(embedded::seal(GANG_HEADER, &mut header, verifier).is_ok());
    assert!(embedded::verify_embedded(GANG_HEADER, &header, verifier));
    let _ = embedded::embedded(GANG_HEADER, bytes, verifier);
    block_pointer(&header[..3 * BLKPTR_BYTES]);
}

pub(super) fn gang_header_seeds() -> Vec<Vec<u8>> {
    let pointers = seeds::pointers().concat();
    pointers.chunks(3 * BLKPTR_BYTES).take(8).map(<[u8]>::to_vec).collect()
}
