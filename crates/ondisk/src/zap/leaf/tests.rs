use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn key(name: &[u8]) -> LeafKey<'_> {
    LeafKey { bytes: name, integer_size: 1 }
}

#[test]
fn the_geometry_is_the_formats() {
    // A 16 KiB leaf: 512 buckets, 638 chunks, ending exactly at the block's end.
    assert_eq!(chunk_count(14), 638);
    assert_eq!(48 + 512 * 2 + 638 * 24, 16384);
    let leaf = Leaf::initialize(vec![0u8; 16384], false);
    assert_eq!(leaf.free_chunks(), 638);
    let bytes = leaf.block;
    assert_eq!(&bytes[24..28], &[0xaf, 0x1e, 0xab, 0x02]);
    assert_eq!(bytes[48 + 1024], 253);
    assert_eq!(&bytes[16384 - 2..], &[0xff, 0xff]);
}

#[test]
fn an_entry_is_written_at_its_offsets() {
    let mut leaf = Leaf::initialize(vec![0u8; 16384], false);
    let entry = leaf.create(0x8000_0000_0000_0000, key(b"ab\0"), None, 8, &0x0102_0304_0506_0708u64.to_be_bytes()).unwrap();
    assert_eq!((entry.chunk, entry.name_chunk, entry.value_chunk), (0, 1, 2));
    let chunks = 48 + 1024;
    let bytes = &leaf.block;
    assert_eq!(&bytes[chunks..chunks + 24], &[252, 8, 255, 255, 1, 0, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]);
    assert_eq!(&bytes[chunks + 24..chunks + 28], &[251, b'a', b'b', 0]);
    assert_eq!(&bytes[chunks + 48..chunks + 57], &[251, 1, 2, 3, 4, 5, 6, 7, 8]);
    // Bucket 256 of 512 names chunk 0.
    assert_eq!(&bytes[48 + 512..48 + 514], &[0, 0]);
}

#[test]
fn a_circle_of_links_ends() {
    let mut leaf = Leaf::initialize(vec![0u8; 1024], false);
    let entry = leaf.create(0, key(b"a\0"), None, 8, &[0; 8]).unwrap();
    let at = leaf.chunk_at(entry.chunk).unwrap();
    leaf.put_u16(at + 2, entry.chunk);
    assert!(leaf.find_key(0, key(b"b\0")).is_err());
    assert!(leaf.find_next(1 << 40, 0).is_err());
}

/// What a model knows of an entry: hash and value.
type Model = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

fn check(leaf: &Leaf<Vec<u8>>, model: &Model) {
    assert_eq!(usize::from(leaf.entry_count()), model.len());
    let used: usize = model.iter().map(|(name, (_, value))| 1 + array_chunks(name.len()) + array_chunks(value.len())).sum();
    assert_eq!(usize::from(leaf.free_chunks()), leaf.chunk_count() - used);
    for (name, (hash, value)) in model {
        let found = leaf.find_key(*hash, key(name)).unwrap().expect("the model has it");
        assert_eq!(&leaf.value(&found.entry).unwrap(), value);
        assert_eq!(&leaf.name(&found.entry, 1).unwrap(), name);
    }
    let (mut position, mut seen) = ((leaf.prefix() << (64 - leaf.prefix_length().max(1)), 0), 0);
    if leaf.prefix_length() == 0 {
        position.0 = 0;
    }
    while let Some(entry) = leaf.find_next(position.0, position.1).unwrap() {
        assert!((entry.hash, entry.collision) >= position);
        position = (entry.hash, entry.collision + 1);
        seen += 1;
    }
    assert_eq!(seen, model.len());
}

proptest! {
    #[test]
    fn a_leaf_is_a_dictionary(steps in proptest::collection::vec((0u8..40, 0u8..4, proptest::collection::vec(any::<u8>(), 1..60)), 1..200)) {
        let mut leaf = Leaf::initialize(vec![0u8; 2048], false);
        let mut model = Model::new();
        for (number, action, value) in steps {
            let name = vec![number + 1; usize::from(number) % 30 + 1];
            // Few different hashes, so that there are collisions.
            let hash = u64::from(number % 13) << 60;
            match (leaf.find_key(hash, key(&name)).unwrap(), action) {
                (Some(found), 0) => {
                    leaf.remove(&found, 1).unwrap();
                    model.remove(&name);
                }
                (Some(found), _) => {
                    if leaf.update(&found, 1, &value).is_ok() {
                        model.insert(name, (hash, value));
                    }
                }
                (None, _) => {
                    if leaf.create(hash, key(&name), None, 1, &value).is_ok() {
                        model.insert(name, (hash, value));
                    }
                }
            }
            check(&leaf, &model);
        }
        let mut sibling = Leaf::initialize(vec![0u8; 2048], false);
        leaf.split(&mut sibling, 1, false).unwrap();
        let (upper, lower): (Model, Model) = model.into_iter().partition(|(_, (hash, _))| hash >> 63 == 1);
        check(&leaf, &lower);
        check(&sibling, &upper);
    }

    #[test]
    fn a_damaged_leaf_never_panics(damage in proptest::collection::vec((0usize..1024, any::<u8>()), 1..40), hash in any::<u64>()) {
        let mut leaf = Leaf::initialize(vec![0u8; 1024], false);
        for number in 0..8u64 {
            leaf.create(number << 61, key(&[number as u8 + 1, 0]), None, 8, &[1; 24]).unwrap();
        }
        let mut block = leaf.block;
        for (at, byte) in damage {
            block[at] = byte;
        }
        if let Ok(mut leaf) = Leaf::open(block) {
            for entry in leaf.entries().unwrap_or_default() {
                let _ = (leaf.name(&entry, 8), leaf.value(&entry));
            }
            let _ = leaf.find_next(hash, 0);
            if leaf.covers(hash) {
                let _ = leaf.create(hash, key(b"new\0"), None, 2, &[3; 64]);
            }
            if let Ok(Some(found)) = leaf.find_key(hash, key(b"new\0")) {
                let _ = leaf.update(&found, 8, &[4; 8]);
                let _ = leaf.remove(&found, 1);
            }
            let mut sibling = Leaf::initialize(vec![0u8; 1024], false);
            let _ = leaf.split(&mut sibling, 1, true);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read(mut block in proptest::collection::vec(any::<u8>(), 512), hash in any::<u64>()) {
        block[..8].copy_from_slice(&BLOCK_TYPE.to_le_bytes());
        block[24..28].copy_from_slice(&MAGIC.to_le_bytes());
        block[33] = 0;
        if let Ok(leaf) = Leaf::open(block) {
            let _ = leaf.find(hash, |_| Ok(true));
            let _ = leaf.find_next(hash, 0);
            let _ = leaf.entries();
        }
    }
}
