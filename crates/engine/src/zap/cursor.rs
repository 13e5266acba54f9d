//! Going through all entries.
//!
//! # Theory
//! A position is (hash, collision number) and packs into a word: the upper bits of the hash below, the collision number above.
//! With 28 hash bits and few collisions the word fits 32 bits, which old directory readers want.
//! Positions are those of entries, not of blocks, so a cursor needs no lock between its steps.

use ondisk::zap_hash;

use super::value::Value;

/// A place between two entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub(super) hash: u64,
    pub(super) collision: u32,
    pub(super) at_end: bool,
}

/// The packed position behind the last entry.
const END: u64 = u64::MAX;

impl Cursor {
    /// Before the first entry.
    pub const fn start() -> Self {
        Cursor { hash: 0, collision: 0, at_end: false }
    }

    /// At a packed position of a ZAP with `flags`.
    pub(super) fn unpack(position: u64, flags: u64) -> Self {
        if position == END {
            return Cursor { hash: u64::MAX, collision: 0, at_end: true };
        }
        let bits = zap_hash::hash_bits(flags);
        let collision = u32::try_from(position >> bits).ok().filter(|&collision| collision < zap_hash::collision_limit(flags));
        Cursor { hash: position << (64 - bits), collision: collision.unwrap_or(0), at_end: false }
    }

    pub(super) fn pack(self, flags: u64) -> u64 {
        if self.at_end {
            return END;
        }
        let bits = zap_hash::hash_bits(flags);
        self.hash >> (64 - bits) | u64::from(self.collision) << bits
    }

    pub(super) fn after(hash: u64, collision: u32) -> Self {
        Cursor { hash, collision: collision.saturating_add(1), at_end: false }
    }
}

/// An entry that a cursor came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorEntry {
    /// The name, without a final zero; or the words of the key, each big-endian.
    pub name: Vec<u8>,
    /// The value.
    pub value: Value,
    /// The packed position behind this entry.
    pub next_position: u64,
}

impl CursorEntry {
    /// The name as text; bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// The key of a ZAP with keys of words.
    pub fn words(&self) -> Vec<u64> {
        self.name.chunks_exact(8).map(|word| word.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))).collect()
    }
}
