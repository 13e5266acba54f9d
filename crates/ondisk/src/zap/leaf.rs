//! A leaf of a hashed ZAP: one block, in itself a small hash table.
//!
//! # Theory
//! After a 48-byte header and a table of 16-bit bucket heads the block is cut into chunks of 24 bytes. A chunk is free, or an
//! entry, or 21 bytes of an array. Names and values are arrays: chains of chunks that hold big-endian integers.
//! Entries of one bucket are chained too. All links are 16-bit chunk numbers, [`CHAIN_END`] ends a chain, and free chunks form
//! a list of their own.
//!
//! ```text
//! | header 48 | bucket heads: size/32 of 2 bytes | chunk 0 | chunk 1 | ...
//! ```
//!
//! A leaf is identified by the first `prefix_length` bits of the hashes in it; the next bits choose the bucket. When a leaf is
//! full it is split: the entries whose next bit is 1 move to a new leaf.
//!
//! # Invariants
//! 1. No walk over links takes more steps than there are chunks, whatever the bytes say.
//! 2. A chunk number is compared with the chunk count, and the chunk's type checked, before the chunk is used.

use crate::corruption::Corruption;
use crate::zap_hash;

/// First word of a leaf.
#[doc(alias = "ZBT_LEAF")]
pub const BLOCK_TYPE: u64 = 1 << 63;
/// Identifies a leaf.
#[doc(alias = "ZAP_LEAF_MAGIC")]
pub const MAGIC: u32 = 0x02AB_1EAF;
/// Size of a chunk.
#[doc(alias = "ZAP_LEAF_CHUNKSIZE")]
pub const CHUNK_SIZE: usize = 24;
/// Array bytes in one chunk.
#[doc(alias = "ZAP_LEAF_ARRAY_BYTES")]
pub const ARRAY_BYTES: usize = 21;
/// Ends every chain.
pub const CHAIN_END: u16 = 0xffff;
/// When fewer chunks than this are free, the pointer table should grow soon.
#[doc(alias = "ZAP_LEAF_LOW_WATER")]
pub const LOW_WATER: u16 = 20;

const FREE: u8 = 253;
const ENTRY: u8 = 252;
const ARRAY: u8 = 251;
const HEADER_SIZE: usize = 48;
const FLAG_SORTED: u8 = 1;

// Offsets in the header.
const AT_PREFIX: usize = 16;
const AT_MAGIC: usize = 24;
const AT_FREE_COUNT: usize = 28;
const AT_ENTRY_COUNT: usize = 30;
const AT_PREFIX_LENGTH: usize = 32;
const AT_FREE_LIST: usize = 34;
const AT_FLAGS: usize = 36;

/// Why a leaf could not be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafError {
    /// Not enough free chunks: split the leaf.
    Full,
    /// The entry is larger than an empty leaf.
    TooBig,
    /// The leaf is damaged.
    Corrupt(Corruption),
}

impl From<Corruption> for LeafError {
    fn from(corruption: Corruption) -> Self {
        LeafError::Corrupt(corruption)
    }
}

/// An entry chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The chunk that holds the entry.
    pub chunk: u16,
    /// Bytes of one integer of the value: 1, 2, 4 or 8.
    #[doc(alias = "le_value_intlen")]
    pub integer_size: u8,
    /// Next entry in the bucket.
    #[doc(alias = "le_next")]
    pub next: u16,
    /// First chunk of the name.
    #[doc(alias = "le_name_chunk")]
    pub name_chunk: u16,
    /// Integers in the name: bytes including the final zero, or 64-bit words.
    #[doc(alias = "le_name_numints")]
    pub name_count: u16,
    /// First chunk of the value.
    #[doc(alias = "le_value_chunk")]
    pub value_chunk: u16,
    /// Integers in the value.
    #[doc(alias = "le_value_numints")]
    pub value_count: u16,
    /// Tells entries of equal hash apart.
    #[doc(alias = "le_cd")]
    pub collision: u32,
    /// The hash of the name.
    #[doc(alias = "le_hash")]
    pub hash: u64,
}

impl Entry {
    /// Bytes of the value.
    pub fn value_size(&self) -> usize {
        usize::from(self.value_count) * usize::from(self.integer_size)
    }
}

/// A key as a leaf stores it.
#[derive(Debug, Clone, Copy)]
pub struct LeafKey<'a> {
    /// The name's bytes with the final zero, or its words, each big-endian.
    pub bytes: &'a [u8],
    /// 1 for names, 8 for words.
    pub integer_size: usize,
}

/// An entry that was found, and where the link to it is.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The entry.
    pub entry: Entry,
    /// Offset in the block of the link that names the entry.
    link_at: usize,
}

/// A leaf over a block that can be read, and changed if `B` can.
#[derive(Debug)]
pub struct Leaf<B> {
    block: B,
    block_shift: u32,
}

/// How many chunks an array of `bytes` bytes takes.
pub const fn array_chunks(bytes: usize) -> usize {
    bytes.div_ceil(ARRAY_BYTES)
}

/// How many chunks a leaf of `1 << block_shift` bytes has.
#[doc(alias = "ZAP_LEAF_NUMCHUNKS_BS")]
pub const fn chunk_count(block_shift: u32) -> usize {
    ((1 << block_shift) - 2 * (1 << (block_shift - 5))) / CHUNK_SIZE - 2
}

/// True if `block` begins as a leaf does.
pub fn is_leaf(block: &[u8]) -> bool {
    block.get(..8) == Some(&BLOCK_TYPE.to_le_bytes())
}

impl<B> Leaf<B> {
    /// Gives the block back.
    pub fn into_block(self) -> B {
        self.block
    }
}

impl<B: AsRef<[u8]>> Leaf<B> {
    /// The leaf in `block`, if its header is one.
    pub fn open(block: B) -> Result<Self, Corruption> {
        let size = block.as_ref().len();
        let block_shift = size.checked_ilog2().unwrap_or(0);
        if !size.is_power_of_two() || !crate::zap_fat::BLOCK_SHIFT_RANGE.contains(&block_shift) {
            return Err(Corruption::new("ZAP leaf", "block size", size as u64));
        }
        let leaf = Leaf { block, block_shift };
        if !is_leaf(leaf.block.as_ref()) {
            return Err(Corruption::new("ZAP leaf", "block type", leaf.u64_at(0)));
        }
        if leaf.u32_at(AT_MAGIC) != MAGIC {
            return Err(Corruption::new("ZAP leaf", "magic", u64::from(leaf.u32_at(AT_MAGIC))));
        }
        // The bucket's bits follow the prefix's within the 64 bits of a hash.
        if leaf.prefix_length() + leaf.bucket_bits() > 64 {
            return Err(Corruption::new("ZAP leaf", "prefix length", u64::from(leaf.prefix_length())));
        }
        Ok(leaf)
    }

    // All offsets given to these are below the block's size by construction: header fields, buckets, checked chunks.
    fn u16_at(&self, at: usize) -> u16 {
        self.block.as_ref().get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
    }

    fn u32_at(&self, at: usize) -> u32 {
        self.block.as_ref().get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
    }

    fn u64_at(&self, at: usize) -> u64 {
        self.block.as_ref().get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    }

    fn u8_at(&self, at: usize) -> u8 {
        self.block.as_ref().get(at).copied().unwrap_or(0)
    }

    fn bucket_bits(&self) -> u32 {
        self.block_shift - 5
    }

    fn chunk_count(&self) -> usize {
        chunk_count(self.block_shift)
    }

    fn chunks_at(&self) -> usize {
        HEADER_SIZE + 2 * (1 << self.bucket_bits())
    }

    /// Whether there is room for one more entry.
    pub fn would_hold(&self, key: LeafKey<'_>, value_bytes: usize) -> bool {
        usize::from(self.free_chunks()) > array_chunks(key.bytes.len()) + array_chunks(value_bytes)
    }

    /// Bits of a hash that all entries of this leaf share.
    pub fn prefix(&self) -> u64 {
        self.u64_at(AT_PREFIX)
    }

    /// How many bits [`Leaf::prefix`] has.
    pub fn prefix_length(&self) -> u32 {
        u32::from(self.u16_at(AT_PREFIX_LENGTH))
    }

    /// Number of entries.
    pub fn entry_count(&self) -> u16 {
        self.u16_at(AT_ENTRY_COUNT)
    }

    /// Number of free chunks.
    pub fn free_chunks(&self) -> u16 {
        self.u16_at(AT_FREE_COUNT)
    }

    /// True if `hash` belongs in this leaf.
    pub fn covers(&self, hash: u64) -> bool {
        zap_hash::index(hash, self.prefix_length()) == self.prefix()
    }

    fn bucket(&self, hash: u64) -> usize {
        let bits = self.bucket_bits();
        let shift = 64 - bits - self.prefix_length();
        (hash >> shift) as usize & ((1 << bits) - 1)
    }

    fn bucket_at(&self, bucket: usize) -> usize {
        HEADER_SIZE + 2 * bucket
    }

    /// Offset of chunk `chunk`, if there is such a chunk.
    fn chunk_at(&self, chunk: u16) -> Result<usize, Corruption> {
        if usize::from(chunk) >= self.chunk_count() {
            return Err(Corruption::new("ZAP leaf", "chunk number", u64::from(chunk)));
        }
        Ok(self.chunks_at() + CHUNK_SIZE * usize::from(chunk))
    }

    /// Offset of chunk `chunk`, if it exists and has the type `wanted`.
    fn typed_chunk_at(&self, chunk: u16, wanted: u8) -> Result<usize, Corruption> {
        let at = self.chunk_at(chunk)?;
        let found = self.u8_at(at);
        if found != wanted {
            return Err(Corruption::new("ZAP leaf", "chunk type", u64::from(found)));
        }
        Ok(at)
    }

    /// The entry in chunk `chunk`.
    fn entry(&self, chunk: u16) -> Result<Entry, Corruption> {
        let at = self.typed_chunk_at(chunk, ENTRY)?;
        let integer_size = self.u8_at(at + 1);
        if !matches!(integer_size, 1 | 2 | 4 | 8) {
            return Err(Corruption::new("ZAP leaf entry", "integer size", u64::from(integer_size)));
        }
        Ok(Entry {
            chunk,
            integer_size,
            next: self.u16_at(at + 2),
            name_chunk: self.u16_at(at + 4),
            name_count: self.u16_at(at + 6),
            value_chunk: self.u16_at(at + 8),
            value_count: self.u16_at(at + 10),
            collision: self.u32_at(at + 12),
            hash: self.u64_at(at + 16),
        })
    }

    /// Calls `visit` with each entry of `bucket` and the offset of the link to it, until it returns true.
    fn walk_bucket(&self, bucket: usize, mut visit: impl FnMut(&Entry, usize) -> Result<bool, Corruption>) -> Result<(), Corruption> {
        let mut link_at = self.bucket_at(bucket);
        for _ in 0..=self.chunk_count() {
            let chunk = self.u16_at(link_at);
            if chunk == CHAIN_END {
                return Ok(());
            }
            let entry = self.entry(chunk)?;
            if visit(&entry, link_at)? {
                return Ok(());
            }
            link_at = self.chunk_at(chunk)? + 2;
        }
        Err(Corruption::new("ZAP leaf", "bucket chain (it is a circle)", bucket as u64))
    }

    /// The entry with this hash for which `matches` returns true; of several, the one with the lowest collision number.
    pub fn find(&self, hash: u64, mut matches: impl FnMut(&Entry) -> Result<bool, Corruption>) -> Result<Option<Found>, Corruption> {
        let mut found: Option<Found> = None;
        self.walk_bucket(self.bucket(hash), |entry, link_at| {
            let better = found.is_none_or(|found: Found| entry.collision < found.entry.collision);
            if entry.hash == hash && better && matches(entry)? {
                found = Some(Found { entry: *entry, link_at });
            }
            Ok(false)
        })?;
        Ok(found)
    }

    /// The entry with exactly this key.
    pub fn find_key(&self, hash: u64, key: LeafKey<'_>) -> Result<Option<Found>, Corruption> {
        let mut found = None;
        self.walk_bucket(self.bucket(hash), |entry, link_at| {
            let equal = entry.hash == hash
                && usize::from(entry.name_count) * key.integer_size == key.bytes.len()
                && self.array_equals(entry.name_chunk, key.bytes)?;
            if equal {
                found = Some(Found { entry: *entry, link_at });
            }
            Ok(equal)
        })?;
        Ok(found)
    }

    /// The first entry at or after the position (hash, collision) in the order of positions.
    pub fn find_next(&self, hash: u64, collision: u32) -> Result<Option<Entry>, Corruption> {
        let mut best: Option<Entry> = None;
        for bucket in self.bucket(hash)..1 << self.bucket_bits() {
            self.walk_bucket(bucket, |entry, _| {
                let position = (entry.hash, entry.collision);
                if position >= (hash, collision) && best.is_none_or(|best| position < (best.hash, best.collision)) {
                    best = Some(*entry);
                }
                Ok(false)
            })?;
            // Buckets are ordered by hash: no later bucket has a smaller position.
            if best.is_some() {
                break;
            }
        }
        Ok(best)
    }

    /// All entries, in no order.
    pub fn entries(&self) -> Result<Vec<Entry>, Corruption> {
        (0..self.chunk_count() as u16)
            .filter(|&chunk| self.chunk_at(chunk).is_ok_and(|at| self.u8_at(at) == ENTRY))
            .map(|chunk| self.entry(chunk))
            .collect()
    }

    /// All entries that the buckets lead to, by hash and collision number.
    pub fn entries_in_order(&self) -> Result<Vec<Entry>, Corruption> {
        let mut entries = Vec::new();
        for bucket in 0..1 << self.bucket_bits() {
            self.walk_bucket(bucket, |entry, _| {
                entries.push(*entry);
                Ok(false)
            })?;
        }
        entries.sort_by_key(|entry| (entry.hash, entry.collision));
        entries.dedup_by_key(|entry| (entry.hash, entry.collision));
        Ok(entries)
    }

    /// Calls `visit` with the pieces of an array of `size` bytes, until it returns false.
    fn walk_array(&self, first: u16, size: usize, mut visit: impl FnMut(&[u8]) -> bool) -> Result<(), Corruption> {
        if array_chunks(size) > self.chunk_count() {
            return Err(Corruption::new("ZAP leaf", "array size", size as u64));
        }
        let (mut chunk, mut left) = (first, size);
        while left > 0 {
            let at = self.typed_chunk_at(chunk, ARRAY)?;
            let take = left.min(ARRAY_BYTES);
            if !visit(self.block.as_ref().get(at + 1..at + 1 + take).unwrap_or(&[])) {
                return Ok(());
            }
            left -= take;
            chunk = self.u16_at(at + 22);
        }
        Ok(())
    }

    fn array_equals(&self, first: u16, bytes: &[u8]) -> Result<bool, Corruption> {
        let mut rest = bytes;
        let mut equal = true;
        self.walk_array(first, bytes.len(), |piece| {
            equal = rest.get(..piece.len()) == Some(piece);
            rest = rest.get(piece.len()..).unwrap_or(&[]);
            equal
        })?;
        Ok(equal)
    }

    fn read_array(&self, first: u16, size: usize) -> Result<Vec<u8>, Corruption> {
        let mut bytes = Vec::with_capacity(size.min(self.block.as_ref().len()));
        self.read_array_into(first, size, &mut bytes)?;
        Ok(bytes)
    }

    fn read_array_into(&self, first: u16, size: usize, bytes: &mut Vec<u8>) -> Result<(), Corruption> {
        bytes.clear();
        self.walk_array(first, size, |piece| {
            bytes.extend_from_slice(piece);
            true
        })
    }

    /// As [`Leaf::name`], into a buffer that is used again and again.
    pub fn name_into(&self, entry: &Entry, integer_size: usize, bytes: &mut Vec<u8>) -> Result<(), Corruption> {
        self.read_array_into(entry.name_chunk, usize::from(entry.name_count) * integer_size, bytes)
    }

    /// As [`Leaf::value`], into a buffer that is used again and again.
    pub fn value_into(&self, entry: &Entry, bytes: &mut Vec<u8>) -> Result<(), Corruption> {
        self.read_array_into(entry.value_chunk, entry.value_size(), bytes)
    }

    /// The name's bytes: with its final zero, or its words, each big-endian.
    pub fn name(&self, entry: &Entry, integer_size: usize) -> Result<Vec<u8>, Corruption> {
        self.read_array(entry.name_chunk, usize::from(entry.name_count) * integer_size)
    }

    /// The value's bytes: big-endian integers of [`Entry::integer_size`] bytes.
    pub fn value(&self, entry: &Entry) -> Result<Vec<u8>, Corruption> {
        self.read_array(entry.value_chunk, entry.value_size())
    }

    /// The lowest collision number that no entry of this hash has.
    fn unused_collision(&self, hash: u64) -> Result<u32, Corruption> {
        let mut used = Vec::new();
        self.walk_bucket(self.bucket(hash), |entry, _| {
            if entry.hash == hash {
                used.push(entry.collision);
            }
            Ok(false)
        })?;
        used.sort_unstable();
        used.dedup();
        Ok((0u32..).zip(&used).find(|(free, used)| free != *used).map_or(used.len() as u32, |(free, _)| free))
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Leaf<B> {
    /// Makes `block` a leaf without entries and without prefix.
    pub fn initialize(mut block: B, sorted: bool) -> Self {
        let bytes = block.as_mut();
        let block_shift = bytes.len().checked_ilog2().unwrap_or(0);
        assert!(bytes.len().is_power_of_two() && crate::zap_fat::BLOCK_SHIFT_RANGE.contains(&block_shift), "a leaf's size is a power of two");
        let chunks = chunk_count(block_shift);
        bytes.fill(0);
        let mut leaf = Leaf { block, block_shift };
        leaf.put(0, &BLOCK_TYPE.to_le_bytes());
        leaf.put(AT_MAGIC, &MAGIC.to_le_bytes());
        leaf.put(AT_FREE_COUNT, &(chunks as u16).to_le_bytes());
        leaf.put(AT_FLAGS, &[if sorted { FLAG_SORTED } else { 0 }]);
        leaf.empty_buckets();
        for chunk in 0..chunks {
            let at = leaf.chunks_at() + CHUNK_SIZE * chunk;
            let next = if chunk + 1 == chunks { CHAIN_END } else { chunk as u16 + 1 };
            leaf.put(at, &[FREE]);
            leaf.put(at + 22, &next.to_le_bytes());
        }
        leaf
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.block.as_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn put_u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn empty_buckets(&mut self) {
        let end = self.chunks_at();
        self.block.as_mut()[HEADER_SIZE..end].fill(0xff);
    }

    fn allocate(&mut self) -> Result<u16, LeafError> {
        let free = self.free_chunks();
        if free == 0 {
            return Err(LeafError::Full);
        }
        let chunk = self.u16_at(AT_FREE_LIST);
        let at = self.typed_chunk_at(chunk, FREE)?;
        self.put_u16(AT_FREE_LIST, self.u16_at(at + 22));
        self.put_u16(AT_FREE_COUNT, free - 1);
        Ok(chunk)
    }

    fn free(&mut self, chunk: u16) -> Result<(), Corruption> {
        let at = self.chunk_at(chunk)?;
        let list = self.u16_at(AT_FREE_LIST);
        // Zeroes, because they compress.
        self.put(at, &[0; CHUNK_SIZE]);
        self.put(at, &[FREE]);
        self.put_u16(at + 22, list);
        self.put_u16(AT_FREE_LIST, chunk);
        self.put_u16(AT_FREE_COUNT, self.free_chunks().saturating_add(1));
        Ok(())
    }

    /// Frees an array, its last chunk first, so that the free list keeps the order in which it was used.
    fn free_array(&mut self, first: u16, size: usize) -> Result<(), Corruption> {
        let mut chunks = Vec::with_capacity(array_chunks(size).min(self.chunk_count()));
        let mut chunk = first;
        for _ in 0..array_chunks(size) {
            let at = self.typed_chunk_at(chunk, ARRAY)?;
            chunks.push(chunk);
            chunk = self.u16_at(at + 22);
        }
        chunks.into_iter().rev().try_for_each(|chunk| self.free(chunk))
    }

    fn create_array(&mut self, bytes: &[u8]) -> Result<u16, LeafError> {
        let mut first = CHAIN_END;
        let mut link_at = None;
        for piece in bytes.chunks(ARRAY_BYTES) {
            let chunk = self.allocate()?;
            let at = self.chunk_at(chunk)?;
            self.put(at, &[0; CHUNK_SIZE]);
            self.put(at, &[ARRAY]);
            self.put(at + 1, piece);
            self.put_u16(at + 22, CHAIN_END);
            match link_at {
                None => first = chunk,
                Some(link_at) => self.put_u16(link_at, chunk),
            }
            link_at = Some(at + 22);
        }
        Ok(first)
    }

    /// Puts the entry in `chunk` into its bucket, which is ordered by collision number.
    fn link(&mut self, chunk: u16) -> Result<(), Corruption> {
        let entry = self.entry(chunk)?;
        let bucket = self.bucket(entry.hash);
        let mut place = None;
        self.walk_bucket(bucket, |other, link_at| {
            let here = other.collision > entry.collision;
            if here {
                place = Some(link_at);
            }
            Ok(here)
        })?;
        let link_at = match place {
            Some(link_at) => link_at,
            None => self.last_link(bucket)?,
        };
        let next = self.u16_at(link_at);
        let at = self.chunk_at(chunk)?;
        self.put_u16(at + 2, next);
        self.put_u16(link_at, chunk);
        Ok(())
    }

    fn last_link(&self, bucket: usize) -> Result<usize, Corruption> {
        let mut last = self.bucket_at(bucket);
        let mut failed = None;
        self.walk_bucket(bucket, |entry, _| {
            match self.chunk_at(entry.chunk) {
                Ok(at) => last = at + 2,
                Err(corruption) => failed = Some(corruption),
            }
            Ok(false)
        })?;
        failed.map_or(Ok(last), Err)
    }

    /// Adds an entry that is not there yet. Without a collision number the lowest unused one is taken.
    pub fn create(&mut self, hash: u64, key: LeafKey<'_>, collision: Option<u32>, integer_size: u8, value: &[u8]) -> Result<Entry, LeafError> {
        if !self.covers(hash) {
            return Err(Corruption::new("ZAP leaf", "prefix (the entry does not belong here)", self.prefix()).into());
        }
        let chunks = 1 + array_chunks(key.bytes.len()) + array_chunks(value.len());
        if chunks > self.chunk_count() || key.bytes.len() > 0xffff {
            return Err(LeafError::TooBig);
        }
        let collision = match collision {
            Some(collision) => collision,
            None => self.unused_collision(hash)?,
        };
        if usize::from(self.free_chunks()) < chunks {
            return Err(LeafError::Full);
        }
        let chunk = self.allocate()?;
        let name_chunk = self.create_array(key.bytes)?;
        let value_chunk = self.create_array(value)?;
        let at = self.chunk_at(chunk)?;
        self.put(at, &[ENTRY, integer_size]);
        self.put_u16(at + 2, CHAIN_END);
        self.put_u16(at + 4, name_chunk);
        self.put_u16(at + 6, (key.bytes.len() / key.integer_size) as u16);
        self.put_u16(at + 8, value_chunk);
        self.put_u16(at + 10, (value.len() / usize::from(integer_size)) as u16);
        self.put(at + 12, &collision.to_le_bytes());
        self.put(at + 16, &hash.to_le_bytes());
        self.link(chunk)?;
        self.put_u16(AT_ENTRY_COUNT, self.entry_count().saturating_add(1));
        Ok(self.entry(chunk)?)
    }

    /// Replaces the value of an entry.
    pub fn update(&mut self, found: &Found, integer_size: u8, value: &[u8]) -> Result<(), LeafError> {
        let entry = &found.entry;
        let (needed, given_up) = (array_chunks(value.len()), array_chunks(entry.value_size()));
        if needed > usize::from(self.free_chunks()) + given_up {
            return Err(LeafError::Full);
        }
        self.free_array(entry.value_chunk, entry.value_size())?;
        let value_chunk = self.create_array(value)?;
        let at = self.chunk_at(entry.chunk)?;
        self.put(at + 1, &[integer_size]);
        self.put_u16(at + 8, value_chunk);
        self.put_u16(at + 10, (value.len() / usize::from(integer_size)) as u16);
        Ok(())
    }

    /// Removes an entry; `name_integer_size` is 1 for names, 8 for words.
    pub fn remove(&mut self, found: &Found, name_integer_size: usize) -> Result<(), Corruption> {
        let entry = &found.entry;
        self.put_u16(found.link_at, entry.next);
        self.free_array(entry.value_chunk, entry.value_size())?;
        self.free_array(entry.name_chunk, usize::from(entry.name_count) * name_integer_size)?;
        self.free(entry.chunk)?;
        self.put_u16(AT_ENTRY_COUNT, self.entry_count().saturating_sub(1));
        Ok(())
    }

    /// Splits this leaf: the entries whose next hash bit is 1 move to `sibling`, which is new and empty.
    pub fn split(&mut self, sibling: &mut Self, name_integer_size: usize, sorted: bool) -> Result<(), LeafError> {
        assert!(self.block_shift == sibling.block_shift && sibling.entry_count() == 0, "the sibling is an empty leaf of the same size");
        let length = self.prefix_length() + 1;
        if length + self.bucket_bits() > 64 {
            return Err(Corruption::new("ZAP leaf", "prefix length", u64::from(length)).into());
        }
        let entries = self.entries()?;
        let prefix = self.prefix() << 1;
        self.set_prefix(prefix, length);
        sibling.set_prefix(prefix | 1, length);
        self.empty_buckets();
        if sorted {
            let flags = self.u8_at(AT_FLAGS) | FLAG_SORTED;
            self.put(AT_FLAGS, &[flags]);
        }
        for entry in entries {
            if entry.hash >> (64 - length) & 1 == 0 {
                self.link(entry.chunk)?;
                continue;
            }
            let name = self.name(&entry, name_integer_size)?;
            let value = self.value(&entry)?;
            let key = LeafKey { bytes: &name, integer_size: name_integer_size };
            sibling.create(entry.hash, key, Some(entry.collision), entry.integer_size, &value)?;
            self.free_array(entry.value_chunk, entry.value_size())?;
            self.free_array(entry.name_chunk, name.len())?;
            self.free(entry.chunk)?;
            self.put_u16(AT_ENTRY_COUNT, self.entry_count().saturating_sub(1));
        }
        Ok(())
    }

    /// Gives the leaf another prefix (of `length` bits).
    pub fn set_prefix(&mut self, prefix: u64, length: u32) {
        self.put(AT_PREFIX, &prefix.to_le_bytes());
        self.put_u16(AT_PREFIX_LENGTH, length as u16);
    }
}

#[cfg(test)]
mod tests;
