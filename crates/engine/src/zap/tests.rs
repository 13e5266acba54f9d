//! A ZAP on blocks in memory, against a `HashMap`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ondisk::zap_micro;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::blocks::{ReadBlocks, WriteBlocks};
use super::fat::fat_zap::Fat;
use super::key::Normalization;
use super::micro::Micro;
use super::upgrade::{create_fat, create_micro, upgrade};
use super::value::Integers;
use super::zap_object::Match;
use crate::error::{ErrorKind, Result};

/// An object in memory.
struct Blocks {
    size: Cell<usize>,
    blocks: RefCell<BTreeMap<u64, Arc<Vec<u8>>>>,
    freed: Cell<u64>,
    /// Blocks that cannot be read, and that have not been read before.
    unreadable: RefCell<BTreeSet<u64>>,
    /// A block that cannot be written.
    unwritable: Cell<Option<u64>>,
}

impl Blocks {
    fn new(size: usize) -> Self {
        Blocks { size: Cell::new(size), blocks: RefCell::default(), freed: Cell::new(0), unreadable: RefCell::default(), unwritable: Cell::new(None) }
    }
}

impl ReadBlocks for Blocks {
    fn block_size(&self) -> usize {
        self.size.get()
    }

    fn read(&self, block: u64) -> Result<Arc<Vec<u8>>> {
        if self.unreadable.borrow().contains(&block) {
            crate::bail!(Io, "block {block} cannot be read");
        }
        Ok(self.blocks.borrow().get(&block).cloned().unwrap_or_else(|| Arc::new(vec![0; self.size.get()])))
    }

    fn name_max(&self) -> usize {
        256
    }

    fn micro_max(&self) -> usize {
        4096
    }
}

impl WriteBlocks for Blocks {
    fn modify<T>(&self, block: u64, change: impl FnOnce(&mut [u8]) -> Result<T>) -> Result<T> {
        let mut contents = self.read(block)?.to_vec();
        let result = change(&mut contents);
        self.blocks.borrow_mut().insert(block, Arc::new(contents));
        result
    }

    fn write(&self, block: u64, contents: Vec<u8>) -> Result<()> {
        assert_eq!(contents.len(), self.size.get());
        if self.unwritable.get() == Some(block) {
            crate::bail!(Io, "block {block} cannot be written");
        }
        self.blocks.borrow_mut().insert(block, Arc::new(contents));
        Ok(())
    }

    fn set_block_size(&self, size: usize) -> Result<()> {
        assert!(self.blocks.borrow().keys().all(|&block| block == 0));
        self.size.set(size);
        if let Some(block) = self.blocks.borrow_mut().get_mut(&0) {
            Arc::make_mut(block).resize(size, 0);
        }
        Ok(())
    }

    fn free(&self, first: u64, count: u64) -> Result<()> {
        for block in first..first + count {
            assert!(self.blocks.borrow_mut().remove(&block).is_some(), "block {block} freed twice");
            self.freed.set(self.freed.get() + 1);
        }
        Ok(())
    }
}

/// Walks all pointers and leaves: invariant 3 and the counts.
fn check_tree(fat: &Fat, blocks: &Blocks, entries: usize) {
    let block_0 = blocks.read(0).unwrap();
    let header = ondisk::zap_fat::header(&block_0).unwrap();
    let shift = header.pointer_table.shift.get();
    let (mut index, mut leaves, mut seen) = (0u64, 0, 0);
    while index < 1 << shift {
        let pointer = fat.pointer(blocks, &block_0, &header, index).unwrap();
        let block = blocks.read(pointer).unwrap();
        let leaf = ondisk::zap_leaf::Leaf::open(block.as_slice()).unwrap();
        let span = 1u64 << (shift - u64::from(leaf.prefix_length()));
        assert_eq!(leaf.prefix(), index >> (shift - u64::from(leaf.prefix_length())));
        for other in index..index + span {
            assert_eq!(fat.pointer(blocks, &block_0, &header, other).unwrap(), pointer);
        }
        assert!(pointer < header.next_free_block.get());
        leaves += 1;
        seen += usize::from(leaf.entry_count());
        index += span;
    }
    assert_eq!(leaves, header.leaf_count.get());
    assert_eq!(seen, entries);
    assert_eq!(header.entry_count.get(), entries as u64);
}

type Model = BTreeMap<Vec<u8>, Vec<u64>>;

fn check_fat(fat: &Fat, blocks: &Blocks, model: &Model) {
    check_tree(fat, blocks, model.len());
    for (name, value) in model {
        let key = fat.name_key(name).unwrap();
        let (found, stored) = fat.lookup(blocks, &key, Match::Exact).unwrap().expect("the model has it");
        assert_eq!((&found.to_u64s(), &stored), (value, name));
    }
    let (mut position, mut names) = ((0, 0), Vec::new());
    while let Some((entry, name, _)) = fat.next(blocks, position.0, position.1).unwrap() {
        assert!((entry.hash, entry.collision) >= position);
        position = (entry.hash, entry.collision + 1);
        names.push(name);
    }
    names.sort();
    assert_eq!(names, model.keys().cloned().collect::<Vec<_>>());
}

fn random_fat(seed: u64, block_size: usize, steps: usize, names: u32) {
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let blocks = Blocks::new(block_size);
    let fat = create_fat(&blocks, rng.random::<u64>() | 1, Normalization::NONE, 0).unwrap();
    let mut model = Model::new();
    for step in 0..steps {
        // Phases of growth and of removal, so that leaves become empty again.
        let removing = step * 4 / steps % 2 == 1;
        let number: u32 = rng.random_range(0..names);
        let name = format!("{}{number}", "n".repeat(number as usize % 60)).into_bytes();
        let key = fat.name_key(&name).unwrap();
        if rng.random_range(0..10) < if removing { 9 } else { 2 } {
            let removed = fat.remove(&blocks, &key, Match::Exact).unwrap();
            assert_eq!(removed, model.remove(&name).is_some());
        } else {
            let value: Vec<u64> = (0..rng.random_range(1..5)).map(|_| rng.random()).collect();
            let replace = rng.random();
            let result = fat.put(&blocks, &key, None, Integers::U64(&value), replace);
            if model.contains_key(&name) && !replace {
                assert_eq!(result.unwrap_err().kind(), ErrorKind::Exists);
            } else {
                result.unwrap();
                model.insert(name, value);
            }
        }
        if step % (steps / 8) == 0 {
            check_fat(&fat, &blocks, &model);
        }
    }
    check_fat(&fat, &blocks, &model);
    for name in model.keys() {
        assert!(fat.remove(&blocks, &fat.name_key(name).unwrap(), Match::Exact).unwrap());
    }
    check_fat(&fat, &blocks, &Model::new());
    assert!(blocks.freed.get() > 0, "no leaves were merged");
}

#[test]
fn a_fat_zap_is_a_dictionary() {
    random_fat(1, 1024, 6000, 4000);
    random_fat(2, 16384, 12000, 9000);
}

#[test]
fn a_pointer_table_moves_to_blocks_of_its_own_and_doubles_there() {
    let blocks = Blocks::new(512);
    let fat = create_fat(&blocks, 77, Normalization::NONE, 0).unwrap();
    let mut model = Model::new();
    for number in 0..5000u64 {
        let name = format!("file{number}").into_bytes();
        fat.put(&blocks, &fat.name_key(&name).unwrap(), None, Integers::U64(&[number]), false).unwrap();
        model.insert(name, vec![number]);
    }
    let header = ondisk::zap_fat::header(&blocks.read(0).unwrap()).unwrap();
    assert!(header.pointer_table.block_count.get() > 4, "{header:?}");
    check_fat(&fat, &blocks, &model);
}

/// A block of the pointer table, or a leaf, that cannot be read: an entry that was there was said not to be (so the file that it names was freed),
/// one that was removed was said to be there, and a leaf was split, or two merged, without all pointers following.
#[test]
fn a_change_is_done_or_has_not_happened() {
    let (mut failed, mut random) = (0, ChaCha8Rng::seed_from_u64(0x2a9));
    for round in 0..60 {
        let blocks = Blocks::new(512);
        let fat = create_fat(&blocks, 77 + round, Normalization::NONE, 0).unwrap();
        let mut model = Model::new();
        for step in 0..1500 {
            let name = format!("file{}", random.random_range(0..if step < 1000 { 2000 } else { 300 })).into_bytes();
            let key = fat.name_key(&name).unwrap();
            if step > 300 && random.random_bool(0.3) {
                let used = zap_fat_blocks(&blocks);
                blocks.unreadable.borrow_mut().insert(random.random_range(1..used));
            }
            if random.random_bool(if step < 1000 { 0.2 } else { 0.9 }) {
                match fat.remove(&blocks, &key, Match::Exact) {
                    Ok(removed) => assert_eq!(removed, model.remove(&name).is_some()),
                    Err(_) => failed += 1,
                }
            } else {
                match fat.put(&blocks, &key, None, Integers::U64(&[step]), true) {
                    Ok(()) => drop(model.insert(name, vec![step])),
                    Err(_) => failed += 1,
                }
            }
            if !std::mem::take(&mut *blocks.unreadable.borrow_mut()).is_empty() && step % 20 == 0 {
                check_tree(&fat, &blocks, model.len());
            }
        }
        check_fat(&fat, &blocks, &model);
    }
    assert!(failed > 100, "{failed}");
}

/// Where the new leaf could not be written, the old one had lost the half of its names that were to be in the new one.
#[test]
fn a_split_that_fails_loses_no_names() {
    let blocks = Blocks::new(512);
    let fat = create_fat(&blocks, 77, Normalization::NONE, 0).unwrap();
    let (mut model, mut failed) = (Model::new(), 0);
    for number in 0..1000u64 {
        let name = format!("file{number}").into_bytes();
        let key = fat.name_key(&name).unwrap();
        blocks.unwritable.set(Some(zap_fat_blocks(&blocks)));
        let put = fat.put(&blocks, &key, None, Integers::U64(&[number]), false);
        blocks.unwritable.set(None);
        if put.is_err() {
            failed += 1;
            check_fat(&fat, &blocks, &model);
            fat.put(&blocks, &key, None, Integers::U64(&[number]), false).unwrap();
        }
        model.insert(name, vec![number]);
    }
    check_fat(&fat, &blocks, &model);
    assert!(failed > 20, "{failed}");
}

fn zap_fat_blocks(blocks: &Blocks) -> u64 {
    ondisk::zap_fat::header(&blocks.read(0).unwrap()).unwrap().next_free_block.get()
}

#[test]
fn keys_of_words_with_48_bit_hashes() {
    let blocks = Blocks::new(1024);
    let flags = super::FLAG_HASH_64 | super::FLAG_WORD_KEYS;
    let fat = create_fat(&blocks, 5, Normalization::NONE, flags).unwrap();
    for number in 0..500u64 {
        fat.put(&blocks, &fat.word_key(&[number, number << 40]).unwrap(), None, Integers::U8(&[number as u8; 3]), false).unwrap();
    }
    for number in 0..500u64 {
        let (value, key) = fat.lookup(&blocks, &fat.word_key(&[number, number << 40]).unwrap(), Match::Exact).unwrap().unwrap();
        assert_eq!((value.integer_size(), value.to_u64s()), (1, vec![number & 255; 3]));
        assert_eq!(key, [number.to_be_bytes(), (number << 40).to_be_bytes()].concat());
    }
    assert!(fat.lookup(&blocks, &fat.word_key(&[1, 1]).unwrap(), Match::Exact).unwrap().is_none());
    assert!(fat.name_key(b"name").is_err());
    check_tree(&fat, &blocks, 500);
}

#[test]
fn a_micro_zap_is_a_dictionary_and_its_positions_survive_the_upgrade() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let blocks = Blocks::new(512);
    create_micro(&blocks, 12345, Normalization::NONE).unwrap();
    let mut micro = Micro::open(&blocks.read(0).unwrap()).unwrap();
    let mut model: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..2000 {
        let name = format!("entry {}", rng.random_range(0..60));
        let key = micro.key(name.as_bytes());
        match rng.random_range(0..3) {
            0 => assert_eq!(micro.remove(&blocks, &key, Match::Exact).unwrap(), model.remove(&name).is_some()),
            _ => {
                if micro.is_full() {
                    micro.grow(&blocks).unwrap();
                }
                let value = rng.random();
                micro.update(&blocks, &key, value).unwrap();
                model.insert(name, value);
            }
        }
    }
    let reopened = Micro::open(&blocks.read(0).unwrap()).unwrap();
    let walk = |micro: &Micro| {
        let (mut position, mut found) = ((0, 0), Vec::new());
        while let Some(entry) = micro.next(&blocks, position.0, position.1).unwrap() {
            position = (entry.hash, entry.collision + 1);
            found.push((entry.hash, entry.collision, entry.name, entry.value));
        }
        found
    };
    let before = walk(&micro);
    assert_eq!(walk(&reopened), before);
    let mut names: Vec<_> = before.iter().map(|(_, _, name, value)| (String::from_utf8(name.clone()).unwrap(), *value)).collect();
    names.sort();
    assert_eq!(names, model.into_iter().collect::<Vec<_>>());

    let fat = upgrade(&blocks, &micro).unwrap();
    let (mut position, mut after) = ((0, 0), Vec::new());
    while let Some((entry, name, value)) = fat.next(&blocks, position.0, position.1).unwrap() {
        position = (entry.hash, entry.collision + 1);
        after.push((entry.hash, entry.collision, name, value.first()));
    }
    assert_eq!(after, before);
}

#[test]
fn lookups_can_ignore_case() {
    let blocks = Blocks::new(1024);
    let fat = create_fat(&blocks, 5, Normalization::NONE.ignoring_case(), 0).unwrap();
    for (number, name) in ["Readme", "README", "other"].into_iter().enumerate() {
        fat.put(&blocks, &fat.name_key(name.as_bytes()).unwrap(), None, Integers::U64(&[number as u64]), false).unwrap();
    }
    let find = |name: &str, matching| fat.lookup(&blocks, &fat.name_key(name.as_bytes()).unwrap(), matching).unwrap().map(|(value, _)| value.first());
    assert_eq!(find("readme", Match::Normalized), Some(0));
    assert_eq!(find("readme", Match::NormalizedWithCase), None);
    assert_eq!(find("README", Match::Exact), Some(1));
    assert_eq!(find("OTHER", Match::Normalized), Some(2));
    assert_eq!(find("OTHER", Match::Exact), None);
}

#[test]
fn names_and_values_have_limits() {
    let blocks = Blocks::new(16384);
    let fat = create_fat(&blocks, 5, Normalization::NONE, 0).unwrap();
    let put = |name: &[u8], value: &[u8]| fat.put(&blocks, &fat.name_key(name).unwrap(), None, Integers::U8(value), false).map_err(|error| error.kind());
    assert_eq!(put(&[b'n'; 255], &[1; 8192]), Ok(()));
    assert_eq!(put(&[b'm'; 256], &[1]), Err(ErrorKind::NameTooLong));
    assert_eq!(put(b"v", &[1; 8193]), Err(ErrorKind::TooBig));
}

#[test]
fn positions_pack_into_words() {
    use super::cursor::Cursor;
    let cursor = Cursor::after(0xabcd_ef10_0000_0000, 2);
    assert_eq!(cursor.pack(0), 0x0abc_def1 | 3 << 28);
    assert_eq!(Cursor::unpack(cursor.pack(0), 0), cursor);
    assert_eq!(Cursor::unpack(u64::MAX, 0).pack(0), u64::MAX);
}

/// Found by the fuzzer: an entry without a position behind it was listed for ever, and into memory without bound when a pool
/// was imported; one that shares its position with another hid that one.
#[test]
fn entries_of_impossible_positions_are_refused() {
    let blocks = Blocks::new(4096);
    let fat = create_fat(&blocks, 99, Normalization::NONE, 0).unwrap();
    fat.put(&blocks, &fat.name_key(b"name").unwrap(), None, Integers::U64(&[1]), false).unwrap();
    let (entry, ..) = fat.next(&blocks, 0, 0).unwrap().unwrap();
    let at = 48 + 2 * (4096 / 32) + 24 * usize::from(entry.chunk);
    let leaf = blocks.read(1).unwrap().to_vec();
    for (offset, bytes) in [(12, &[0xff; 4][..]), (12, &[0xfe, 0xff, 0xff, 0xff][..]), (16, &[1][..])] {
        let mut damaged = leaf.clone();
        damaged[at + offset..][..bytes.len()].copy_from_slice(bytes);
        blocks.write(1, damaged).unwrap();
        assert_eq!(fat.next(&blocks, 0, 0).map(|_| ()).unwrap_err().kind(), ErrorKind::Corrupt, "at {offset}");
    }

    let mut block = vec![0; 512];
    zap_micro::initialize(&mut block, 7, 0);
    zap_micro::write_slot(&mut block, 0, b"a", 1, 0);
    zap_micro::write_slot(&mut block, 1, b"a", 2, 0);
    assert_eq!(Micro::open(&block).unwrap().len(), 2);
    for collision in [u32::MAX - 1, u32::MAX] {
        zap_micro::write_slot(&mut block, 1, b"b", 2, collision);
        assert_eq!(Micro::open(&block).map(|_| ()).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

/// So many names of one length that have one hash, whatever the salt is: the CRC is linear, so those whose changes add up to nothing in the
/// bits that count are found by elimination.
fn names_of_one_hash(count: usize) -> Vec<Vec<u8>> {
    let plain = vec![b'a'; 64];
    let changed = |mask: u64| (0..64).map(|at| if mask >> at & 1 == 1 { b'b' } else { b'a' }).collect::<Vec<u8>>();
    let hash = |name: &[u8]| ondisk::zap_hash::hash_name(0, 0, name);
    let (mut rows, mut kernel): (Vec<(u64, u64)>, Vec<u64>) = (Vec::new(), Vec::new());
    for at in 0..64 {
        let (mut delta, mut mask) = (hash(&plain) ^ hash(&changed(1 << at)), 1u64 << at);
        for (row, of) in &rows {
            if delta ^ row < delta {
                (delta, mask) = (delta ^ row, mask ^ of);
            }
        }
        if delta == 0 { kernel.push(mask) } else { rows.push((delta, mask)) }
        rows.sort_unstable_by(|a, b| b.cmp(a));
    }
    assert!(1 << kernel.len().min(20) >= count);
    let combined = |number: usize| kernel.iter().enumerate().filter(|(bit, _)| *bit < 20 && number >> bit & 1 == 1).fold(0, |sum, (_, mask)| sum ^ mask);
    (0..count).map(|number| changed(combined(number))).collect()
}

/// The pointer table doubled until a leaf for each hash would have been possible: half a gigabyte, in one transaction.
#[test]
fn names_of_one_hash_do_not_make_a_huge_table() {
    let names = names_of_one_hash(300);
    let blocks = Blocks::new(16_384);
    let fat = create_fat(&blocks, 0x1234_5678_9abc_def1, Normalization::NONE, 0).unwrap();
    let keys: Vec<_> = names.iter().map(|name| fat.name_key(name).unwrap()).collect();
    assert!(keys.iter().all(|key| key.hash == keys[0].hash));
    let put = |key| fat.put(&blocks, key, None, Integers::U64(&[1]), false);
    let fits = keys.iter().take_while(|key| put(key).is_ok()).count();
    assert!((50..200).contains(&fits), "{fits}");
    assert_eq!(put(&keys[fits]).unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(blocks.blocks.borrow().len() < 300, "{} blocks", blocks.blocks.borrow().len());
    check_tree(&fat, &blocks, fits);
    // Others still find room.
    for number in 0..2000u64 {
        fat.put(&blocks, &fat.name_key(format!("other {number}").as_bytes()).unwrap(), None, Integers::U64(&[number]), false).unwrap();
    }
    check_tree(&fat, &blocks, fits + 2000);
}
