use proptest::prelude::*;

use super::*;

#[test]
fn arrays_are_turned_around_number_by_number() {
    let mut block = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    swap(ByteswapClass::U16, &mut block);
    assert_eq!(block, [2, 1, 4, 3, 6, 5, 8, 7, 9]);
    swap(ByteswapClass::U64, &mut block);
    assert_eq!(block, [7, 8, 5, 6, 3, 4, 1, 2, 9]);
}

#[test]
fn a_micro_zap_keeps_its_names() {
    let mut block = vec![0; 128];
    block[..8].copy_from_slice(&ZAP_MICRO.to_be_bytes());
    block[64..72].copy_from_slice(&5_u64.to_be_bytes());
    block[72..76].copy_from_slice(&6_u32.to_be_bytes());
    block[78..82].copy_from_slice(b"name");
    swap_block(ObjectType::DIRECTORY_CONTENTS, 0, &mut block);
    assert_eq!(block[..8], ZAP_MICRO.to_le_bytes());
    assert_eq!(block[64..72], 5_u64.to_le_bytes());
    assert_eq!(block[72..76], 6_u32.to_le_bytes());
    assert_eq!(&block[78..82], b"name");
}

#[test]
fn a_leaf_is_turned_around_chunk_by_chunk() {
    let mut block = vec![0; 16384];
    block[..8].copy_from_slice(&ZAP_LEAF.to_be_bytes());
    block[24..28].copy_from_slice(&0x2AB_1EAF_u32.to_be_bytes());
    block[48..50].copy_from_slice(&3_u16.to_be_bytes());
    let chunks = 48 + 1024;
    block[chunks] = LEAF_CHUNK_ENTRY;
    block[chunks + 16..chunks + 24].copy_from_slice(&0x1234_u64.to_be_bytes());
    block[chunks + 24] = LEAF_CHUNK_ARRAY;
    block[chunks + 25..chunks + 29].copy_from_slice(b"text");
    block[chunks + 46..chunks + 48].copy_from_slice(&0xffff_u16.to_be_bytes());
    swap(ByteswapClass::Zap, &mut block);
    assert_eq!(block[24..28], 0x2AB_1EAF_u32.to_le_bytes());
    assert_eq!(block[48..50], 3_u16.to_le_bytes());
    assert_eq!(block[chunks + 16..chunks + 24], 0x1234_u64.to_le_bytes());
    assert_eq!(&block[chunks + 25..chunks + 29], b"text");
}

#[test]
fn a_dnode_of_two_slots_is_one_dnode() {
    let mut block = vec![0; 1536];
    block[0] = ObjectType::PLAIN_FILE_CONTENTS.0;
    (block[2], block[3]) = (1, 1);
    block[4] = ObjectType::UINT64_OTHER.0;
    block[8..10].copy_from_slice(&256_u16.to_be_bytes());
    block[10..12].copy_from_slice(&16_u16.to_be_bytes());
    block[12] = 1;
    block[16..24].copy_from_slice(&7_u64.to_be_bytes());
    // A pointer's birth, the bonus, and garbage in the interior slot that must not be taken for a dnode.
    block[64 + 80..64 + 88].copy_from_slice(&99_u64.to_be_bytes());
    block[192..200].copy_from_slice(&11_u64.to_be_bytes());
    block[600..608].copy_from_slice(&12_u64.to_be_bytes());
    block[1024 + 5] = 9;
    swap_block(ObjectType::DNODE, 0, &mut block);
    assert_eq!(block[8..10], 256_u16.to_le_bytes());
    assert_eq!(block[16..24], 7_u64.to_le_bytes());
    assert_eq!(block[64 + 80..64 + 88], 99_u64.to_le_bytes());
    assert_eq!(block[192..200], 11_u64.to_le_bytes());
    assert_eq!(block[600..608], 12_u64.to_le_bytes());
    assert_eq!(block[1024 + 5], 0, "a free slot is cleared");
}

#[test]
fn entries_of_an_acl_have_their_own_lengths() {
    let mut entries = Vec::new();
    for (flags, id) in [(WHO_OWNER, None), (0x40, Some(1000_u64)), (WHO_EVERYONE, None)] {
        entries.extend_from_slice(&0_u16.to_be_bytes());
        entries.extend_from_slice(&u16::to_be_bytes(flags));
        entries.extend_from_slice(&0x1f_u32.to_be_bytes());
        entries.extend(id.iter().flat_map(|id| id.to_be_bytes()));
    }
    swap(ByteswapClass::Acl, &mut entries);
    assert_eq!(entries[16..24], 1000_u64.to_le_bytes());
    assert_eq!(entries[28..32], 0x1f_u32.to_le_bytes());
    assert_eq!(entries[26..28], WHO_EVERYONE.to_le_bytes());
}

proptest! {
    #[test]
    fn any_bytes_of_any_class_are_survived(
        object_type in any::<u8>(),
        level in 0_u8..3,
        mut block in proptest::collection::vec(any::<u8>(), 0..4200),
        first in proptest::sample::select(vec![0, ZAP_LEAF, ZAP_MICRO, 0x0a01_0303_0000_0000]),
    ) {
        if let Some(place) = block.first_chunk_mut::<8>() {
            *place = first.to_be_bytes();
        }
        let length = block.len();
        swap_block(ObjectType(object_type), level, &mut block);
        prop_assert_eq!(block.len(), length);
    }

    #[test]
    fn twice_is_nothing(block in proptest::collection::vec(any::<u8>(), 0..100)) {
        for class in [ByteswapClass::U16, ByteswapClass::U32, ByteswapClass::U64, ByteswapClass::OldAcl] {
            let mut twice = block.clone();
            swap(class, &mut twice);
            swap(class, &mut twice);
            prop_assert_eq!(&twice, &block);
        }
    }
}
