//! The fat form: finding, adding and removing entries in leaves.

use ondisk::corruption::Corruption;
use ondisk::zap_fat::{self, FatHeader};
use ondisk::zap_hash::{self, FLAG_WORD_KEYS};
use ondisk::zap_leaf::{Entry, Found, Leaf, LeafError, LeafKey};

use crate::zap::blocks::{ReadBlocks, WriteBlocks};
use crate::zap::fat::grow::{expand_leaf, grow_if_leaf_is_nearly_full};
use crate::zap::fat::shrink::merge_empty_leaves;
use crate::zap::key::{Key, Normalization};
use crate::zap::value::{Integers, Value};
use crate::zap::zap_object::Match;
use crate::bail;
use crate::error::Result;

/// The fixed properties of a fat ZAP.
#[derive(Debug, Clone, Copy)]
pub(in crate::zap) struct Fat {
    pub(in crate::zap) block_shift: u32,
    pub(in crate::zap) salt: u64,
    pub(in crate::zap) normalization: Normalization,
    pub(in crate::zap) flags: u64,
}

/// A key as a leaf stores it, with its hash, and how to compare it.
#[derive(Debug)]
pub(in crate::zap) struct FatKey {
    pub(in crate::zap) hash: u64,
    /// The name and a zero, or big-endian words.
    pub(in crate::zap) bytes: Vec<u8>,
    pub(in crate::zap) integer_size: usize,
}

impl FatKey {
    pub(in crate::zap) fn leaf_key(&self) -> LeafKey<'_> {
        LeafKey { bytes: &self.bytes, integer_size: self.integer_size }
    }
}

impl Fat {
    /// Reads block 0.
    pub(in crate::zap) fn open(block: &[u8]) -> Result<Fat> {
        let header = zap_fat::header(block)?;
        Ok(Fat {
            block_shift: block.len().trailing_zeros(),
            salt: header.salt.get(),
            normalization: Normalization::from_flags(header.normalization.get())?,
            flags: header.flags.get(),
        })
    }

    pub(in crate::zap) fn has_word_keys(&self) -> bool {
        self.flags & FLAG_WORD_KEYS != 0
    }

    /// Bytes of one integer of a name.
    pub(in crate::zap) fn name_integer_size(&self) -> usize {
        if self.has_word_keys() { 8 } else { 1 }
    }

    /// Whether leaves keep their chains ordered by collision number.
    pub(in crate::zap) fn is_sorted(&self) -> bool {
        self.normalization != Normalization::NONE
    }

    /// The key of a name.
    pub(in crate::zap) fn name_key(&self, name: &[u8]) -> Result<FatKey> {
        if self.has_word_keys() {
            bail!(Invalid, "a ZAP with keys of words was asked for a name");
        }
        let hash = Key::of_name(name, self.salt, self.flags, self.normalization).hash;
        Ok(FatKey { hash, bytes: [name, &[0]].concat(), integer_size: 1 })
    }

    /// The key of words.
    pub(in crate::zap) fn word_key(&self, words: &[u64]) -> Result<FatKey> {
        if !self.has_word_keys() {
            bail!(Invalid, "a ZAP with names was asked for a key of words");
        }
        let bytes = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        Ok(FatKey { hash: zap_hash::hash_words(self.salt, self.flags, words), bytes, integer_size: 8 })
    }

    /// The leaf of a hash: its block number.
    pub(in crate::zap) fn leaf_block(&self, blocks: &impl ReadBlocks, hash: u64) -> Result<u64> {
        let block = blocks.read(0)?;
        let header = zap_fat::header(&block)?;
        let index = zap_hash::index(hash, header.pointer_table.shift.get() as u32);
        let leaf = self.pointer(blocks, &block, &header, index)?;
        if leaf == 0 || leaf >= header.next_free_block.get() {
            return Err(Corruption::new("ZAP pointer table", "leaf block", leaf).into());
        }
        Ok(leaf)
    }

    /// Pointer `index` of the table.
    pub(in crate::zap) fn pointer(&self, blocks: &impl ReadBlocks, block_0: &[u8], header: &FatHeader, index: u64) -> Result<u64> {
        let table = &header.pointer_table;
        if table.block_count.get() == 0 {
            return Ok(zap_fat::embedded_table(block_0).get(index as usize).map_or(0, |pointer| pointer.get()));
        }
        let per_block = self.block_shift - 3;
        let block = blocks.read(table.start_block.get() + (index >> per_block))?;
        let index = index as usize & ((1 << per_block) - 1);
        Ok(zap_fat::table(&block).get(index).map_or(0, |pointer| pointer.get()))
    }

    /// Reads the leaf of a hash and passes it to `use_leaf`.
    pub(in crate::zap) fn with_leaf<T>(&self, blocks: &impl ReadBlocks, hash: u64, use_leaf: impl FnOnce(&Leaf<&[u8]>) -> Result<T>) -> Result<T> {
        let number = self.leaf_block(blocks, hash)?;
        let block = blocks.read(number)?;
        let leaf = Leaf::open(block.as_slice())?;
        if !leaf.covers(hash) {
            return Err(Corruption::new("ZAP leaf", "prefix", leaf.prefix()).into());
        }
        use_leaf(&leaf)
    }

    fn find<B: AsRef<[u8]>>(&self, leaf: &Leaf<B>, key: &FatKey, matching: Match) -> Result<Option<Found>> {
        if matching == Match::Exact || self.has_word_keys() {
            return Ok(leaf.find_key(key.hash, key.leaf_key())?);
        }
        let wanted = Key { original: key.bytes.strip_suffix(&[0]).unwrap_or(&key.bytes), hash: key.hash };
        Ok(leaf.find(key.hash, |entry| Ok(wanted.matches(without_zero(&leaf.name(entry, 1)?), self.normalization, matching)))?)
    }

    /// The value, and the name's bytes without the final zero.
    pub(in crate::zap) fn lookup(&self, blocks: &impl ReadBlocks, key: &FatKey, matching: Match) -> Result<Option<(Value, Vec<u8>)>> {
        self.with_leaf(blocks, key.hash, |leaf| {
            let Some(found) = self.find(leaf, key, matching)? else {
                return Ok(None);
            };
            Ok(Some((read_value(leaf, &found.entry)?, self.read_name(leaf, &found.entry)?)))
        })
    }

    /// The name of an entry: without the final zero, or big-endian words.
    pub(in crate::zap) fn read_name<B: AsRef<[u8]>>(&self, leaf: &Leaf<B>, entry: &Entry) -> Result<Vec<u8>> {
        let mut name = leaf.name(entry, self.name_integer_size())?;
        if !self.has_word_keys() {
            name.truncate(without_zero(&name).len());
        }
        Ok(name)
    }

    /// Number of entries.
    pub(in crate::zap) fn len(&self, blocks: &impl ReadBlocks) -> Result<u64> {
        Ok(zap_fat::header(&blocks.read(0)?)?.entry_count.get())
    }

    /// Adds, or with `replace` adds or replaces. `collision` is given when an entry keeps its old one.
    pub(in crate::zap) fn put(&self, blocks: &impl WriteBlocks, key: &FatKey, collision: Option<u32>, value: Integers<'_>, replace: bool) -> Result<()> {
        let (integer_size, value) = (value.integer_size(), value.to_be_bytes());
        self.check_sizes(blocks, key, &value)?;
        // What counts it cannot be missing when it is there.
        blocks.modify(0, |_| Ok(()))?;
        loop {
            let number = self.leaf_block(blocks, key.hash)?;
            let done = blocks.modify(number, |block| {
                let mut leaf = Leaf::open(block)?;
                let found = leaf.find_key(key.hash, key.leaf_key())?;
                let done = match found {
                    Some(_) if !replace => bail!(Exists, "the entry exists already"),
                    Some(found) => leaf.update(&found, integer_size, &value).map(|()| false),
                    None => leaf.create(key.hash, key.leaf_key(), collision, integer_size, &value).map(|_| true),
                };
                match done {
                    Ok(added) => Ok(Some(added)),
                    Err(LeafError::Full) => Ok(None),
                    Err(error) => Err(leaf_error(error)),
                }
            })?;
            match done {
                Some(added) => {
                    self.count(blocks, i64::from(added))?;
                    grow_if_leaf_is_nearly_full(self, blocks, number);
                    return Ok(());
                }
                None => expand_leaf(self, blocks, key.hash, number)?,
            }
        }
    }

    /// Makes everything ready for adding an entry of one word, or for removing it: its blocks belong to the group, the leaf has room.
    pub(in crate::zap) fn prepare(&self, blocks: &impl WriteBlocks, key: &FatKey, adds: bool) -> Result<()> {
        self.check_sizes(blocks, key, &[0; 8])?;
        blocks.modify(0, |_| Ok(()))?;
        loop {
            let number = self.leaf_block(blocks, key.hash)?;
            let fits = self.with_leaf(blocks, key.hash, |leaf| {
                // An entry that is there is removed before: names of other spellings have another size.
                Ok(!adds || leaf.would_hold(key.leaf_key(), 8) || leaf.find_key(key.hash, key.leaf_key())?.is_some())
            })?;
            if fits {
                return blocks.modify(number, |_| Ok(()));
            }
            expand_leaf(self, blocks, key.hash, number)?;
        }
    }

    fn check_sizes(&self, blocks: &impl ReadBlocks, key: &FatKey, value: &[u8]) -> Result<()> {
        if key.bytes.len() > blocks.name_max() {
            bail!(NameTooLong, "a name of {} bytes is longer than {}", key.bytes.len() - 1, blocks.name_max() - 1);
        }
        if value.len() > zap_fat::VALUE_MAX {
            bail!(TooBig, "a value of {} bytes is longer than {}", value.len(), zap_fat::VALUE_MAX);
        }
        Ok(())
    }

    fn count(&self, blocks: &impl WriteBlocks, change: i64) -> Result<()> {
        if change == 0 {
            return Ok(());
        }
        self.change_header(blocks, |header| header.entry_count = header.entry_count.get().saturating_add_signed(change).into())
    }

    /// Changes the header in block 0.
    pub(in crate::zap) fn change_header(&self, blocks: &impl WriteBlocks, change: impl FnOnce(&mut FatHeader)) -> Result<()> {
        blocks.modify(0, |block| {
            let mut header = zap_fat::header(block)?;
            change(&mut header);
            zap_fat::write_header(block, &header);
            Ok(())
        })
    }

    /// Removes; `false` if there is no such entry.
    pub(in crate::zap) fn remove(&self, blocks: &impl WriteBlocks, key: &FatKey, matching: Match) -> Result<bool> {
        let number = self.leaf_block(blocks, key.hash)?;
        // Looked up first, so that a name that is not there dirties nothing.
        let there = self.with_leaf(blocks, key.hash, |leaf| Ok(self.find(leaf, key, matching)?.is_some()))?;
        if !there {
            return Ok(false);
        }
        blocks.modify(0, |_| Ok(()))?;
        let left = blocks.modify(number, |block| {
            let mut leaf = Leaf::open(block)?;
            if let Some(found) = self.find(&leaf, key, matching)? {
                leaf.remove(&found, self.name_integer_size())?;
            }
            Ok(leaf.entry_count())
        })?;
        self.count(blocks, -1)?;
        if left == 0
            && let Err(error) = merge_empty_leaves(self, blocks, key.hash)
        {
            // The entry is gone all the same.
            tracing::warn!("empty leaves of a ZAP cannot be merged: {error}");
        }
        Ok(true)
    }

    /// The first entry at or after a position; the position wraps to the end as `None`.
    fn check_position<B: AsRef<[u8]>>(&self, leaf: &Leaf<B>, entry: &Entry) -> Result<()> {
        // There must be a position behind it, too.
        if entry.collision >= zap_hash::collision_limit(self.flags) - 1 {
            return Err(Corruption::new("ZAP leaf entry", "collision number", entry.collision.into()).into());
        }
        let beyond = entry.hash << zap_hash::hash_bits(self.flags);
        if beyond != 0 || !leaf.covers(entry.hash) {
            return Err(Corruption::new("ZAP leaf entry", "hash", entry.hash).into());
        }
        Ok(())
    }

    /// Calls `visit` with all entries, by position: each leaf is looked at once.
    pub(in crate::zap) fn each(&self, blocks: &impl ReadBlocks, visit: &mut dyn FnMut(&Entry, Vec<u8>, Value)) -> Result<()> {
        let mut hash = 0;
        loop {
            let prefix_length = self.with_leaf(blocks, hash, |leaf| {
                for entry in leaf.entries_in_order()? {
                    self.check_position(leaf, &entry)?;
                    visit(&entry, self.read_name(leaf, &entry)?, read_value(leaf, &entry)?);
                }
                Ok(leaf.prefix_length())
            })?;
            match after_leaf(hash, prefix_length) {
                Some(next) => hash = next,
                None => return Ok(()),
            }
        }
    }

    /// Calls `visit` with the name and the first integer of each entry, in no order, and makes nothing of them that it would have to allocate.
    pub(in crate::zap) fn each_number(&self, blocks: &impl ReadBlocks, visit: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        let (mut hash, mut name, mut value) = (0, Vec::new(), Vec::new());
        loop {
            let prefix_length = self.with_leaf(blocks, hash, |leaf| {
                for entry in leaf.entries_in_order()? {
                    leaf.name_into(&entry, self.name_integer_size(), &mut name)?;
                    leaf.value_into(&entry, &mut value)?;
                    let first = value.iter().take(usize::from(entry.integer_size)).fold(0, |word, &byte| word << 8 | u64::from(byte));
                    visit(if self.has_word_keys() { &name } else { without_zero(&name) }, first)?;
                }
                Ok(leaf.prefix_length())
            })?;
            match after_leaf(hash, prefix_length) {
                Some(next) => hash = next,
                None => return Ok(()),
            }
        }
    }

    pub(in crate::zap) fn next(&self, blocks: &impl ReadBlocks, mut hash: u64, mut collision: u32) -> Result<Option<(Entry, Vec<u8>, Value)>> {
        loop {
            let found = self.with_leaf(blocks, hash, |leaf| match leaf.find_next(hash, collision)? {
                Some(entry) => {
                    self.check_position(leaf, &entry)?;
                    Ok(Ok((entry, self.read_name(leaf, &entry)?, read_value(leaf, &entry)?)))
                }
                None => Ok(Err(leaf.prefix_length())),
            })?;
            match found {
                Ok(found) => return Ok(Some(found)),
                Err(prefix_length) => match after_leaf(hash, prefix_length) {
                    Some(next) => (hash, collision) = (next, 0),
                    None => return Ok(None),
                },
            }
        }
    }
}

/// The first hash of the leaf after that of `hash`, if there is one.
fn after_leaf(hash: u64, prefix_length: u32) -> Option<u64> {
    if prefix_length == 0 {
        return None;
    }
    let span = 1u64 << (64 - prefix_length.min(63));
    (hash & !(span - 1)).checked_add(span)
}

pub(in crate::zap) fn read_value<B: AsRef<[u8]>>(leaf: &Leaf<B>, entry: &Entry) -> Result<Value> {
    Ok(Value::new(entry.integer_size, leaf.value(entry)?))
}

pub(in crate::zap) fn leaf_error(error: LeafError) -> crate::error::Error {
    match error {
        LeafError::Corrupt(corruption) => corruption.into(),
        LeafError::TooBig => crate::error!(TooBig, "the entry is larger than a leaf"),
        LeafError::Full => crate::error!(TooBig, "the leaf has no room"),
    }
}

fn without_zero(name: &[u8]) -> &[u8] {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    name.get(..end).unwrap_or(&[])
}
