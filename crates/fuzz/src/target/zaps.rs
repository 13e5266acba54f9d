//! The three kinds of ZAP blocks.

use ondisk::zap_leaf::{self, Leaf, LeafKey};
use ondisk::{zap_fat, zap_hash, zap_micro};

use crate::{Input, seeds};

pub(super) fn micro(bytes: &[u8]) {
    let mut block = bytes.to_vec();
    let _ = zap_micro::header(&block).is_ok();
    let slots = zap_micro::slots(&block);
    for slot in slots {
        let _ = (slot.name().len(), slot.is_free(), slot.value.get());
    }
    let count = slots.len();
    assert_eq!(count, zap_micro::slot_count(block.len()));
    if count > 0 {
        zap_micro::write_slot(&mut block, count - 1, b"name", 7, 0);
        zap_micro::clear_slot(&mut block, 0);
    }
}

pub(super) fn micro_seeds() -> Vec<Vec<u8>> {
    seeds::zaps(zap_micro::BLOCK_TYPE)
}

pub(super) fn fat_header(bytes: &[u8]) {
    if let Ok(header) = zap_fat::header(bytes) {
        assert_eq!(zap_fat::embedded_table(bytes).len(), bytes.len() / 16);
        let mut block = bytes.to_vec();
        zap_fat::write_header(&mut block, &header);
        assert_eq!(block, bytes);
    }
    let _ = zap_fat::table(bytes).iter().map(|pointer| pointer.get()).max();
}

pub(super) fn fat_header_seeds() -> Vec<Vec<u8>> {
    seeds::zaps(zap_fat::BLOCK_TYPE)
}

pub(super) fn leaf(bytes: &[u8]) {
    let Ok(leaf) = Leaf::open(bytes) else { return };
    let _ = (leaf.covers(7), leaf.find_next(0, 0), leaf.find_next(u64::MAX, u32::MAX));
    let Ok(entries) = leaf.entries() else { return };
    for entry in entries.iter().take(64) {
        let _ = leaf.value(entry);
        let Ok(name) = leaf.name(entry, 1) else { continue };
        let _ = leaf.name(entry, 8);
        let _ = leaf.find_key(entry.hash, LeafKey { bytes: &name, integer_size: 1 });
        let _ = leaf.find(entry.hash, |found| Ok(found.collision > 3));
        let _ = zap_hash::hash_name(entry.hash, 3, &name);
    }
}

/// The last bytes are operations on the leaf.
pub(super) fn leaf_write(bytes: &[u8]) {
    let (block, operations) = bytes.split_at(bytes.len().checked_ilog2().map_or(0, |shift| 1 << shift));
    let Ok(mut leaf) = Leaf::open(block.to_vec()) else { return };
    let mut input = Input::new(operations);
    for _ in 0..16 {
        let operation = input.u8();
        let entries = leaf.entries().unwrap_or_default();
        let chosen = entries.get(input.below(entries.len()));
        let hash = chosen.map_or(input.u64(), |entry| entry.hash ^ u64::from(operation >> 4));
        let integer_size = if operation & 0x80 == 0 { 1 } else { 8 };
        let name = chosen.and_then(|entry| leaf.name(entry, integer_size).ok()).unwrap_or_else(|| b"new\0\0\0\0\0".to_vec());
        let key = LeafKey { bytes: &name, integer_size };
        let found = leaf.find_key(hash, key).ok().flatten();
        let value = vec![1; 8 * usize::from(input.u8())];
        match (operation & 3, found) {
            (0, Some(found)) => drop(leaf.remove(&found, integer_size)),
            (1, Some(found)) => drop(leaf.update(&found, 8, &value)),
            (2, _) => {
                let mut sibling = Leaf::initialize(vec![0; block.len()], true);
                if leaf.split(&mut sibling, integer_size, true).is_err() {
                    return;
                }
            }
            _ => drop(leaf.create(hash, LeafKey { bytes: &name[..name.len() / 8 * 8], integer_size }, None, 8, &value)),
        }
    }
}

pub(super) fn leaf_seeds() -> Vec<Vec<u8>> {
    let mut seeds = seeds::zaps(zap_leaf::BLOCK_TYPE);
    for shift in [9, 12] {
        let mut leaf = Leaf::initialize(vec![0; 1 << shift], false);
        for number in 0..6u64 {
            let name = format!("name {number}\0");
            let key = LeafKey { bytes: name.as_bytes(), integer_size: 1 };
            let hash = zap_hash::hash_name(99, 0, name.as_bytes());
            if leaf.create(hash, key, None, 8, &number.to_be_bytes()).is_err() {
                break;
            }
        }
        seeds.push(leaf.into_block());
    }
    seeds
}
