//! Values: arrays of integers of 1, 2, 4 or 8 bytes.

/// A value that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    integer_size: u8,
    /// Big-endian, as a leaf stores it.
    bytes: Vec<u8>,
}

impl Value {
    pub(super) fn new(integer_size: u8, bytes: Vec<u8>) -> Self {
        debug_assert!(bytes.len().is_multiple_of(usize::from(integer_size)));
        Value { integer_size, bytes }
    }

    pub(super) fn of_word(word: u64) -> Self {
        Value { integer_size: 8, bytes: word.to_be_bytes().to_vec() }
    }

    /// Bytes of one integer.
    pub fn integer_size(&self) -> usize {
        usize::from(self.integer_size)
    }

    /// Number of integers.
    pub fn count(&self) -> usize {
        self.bytes.len() / self.integer_size()
    }

    /// The integers, widened.
    pub fn integers(&self) -> impl Iterator<Item = u64> + '_ {
        self.bytes.chunks_exact(self.integer_size()).map(|integer| integer.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)))
    }

    /// The integers, widened.
    pub fn to_u64s(&self) -> Vec<u64> {
        self.integers().collect()
    }

    /// The first integer, widened; 0 if there is none.
    pub fn first(&self) -> u64 {
        self.integers().next().unwrap_or(0)
    }

    /// The integers as little-endian bytes, which is what a structure stored as integers looks like in memory.
    pub fn to_le_bytes(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for integer in bytes.chunks_exact_mut(self.integer_size()) {
            integer.reverse();
        }
        bytes
    }

    /// A string value without the zero that ends it.
    pub fn to_text(&self) -> String {
        let end = self.bytes.iter().position(|&byte| byte == 0).unwrap_or(self.bytes.len());
        String::from_utf8_lossy(self.bytes.get(..end).unwrap_or(&[])).into_owned()
    }
}

/// A value to be written.
#[derive(Debug, Clone, Copy)]
pub enum Integers<'a> {
    /// Bytes.
    U8(&'a [u8]),
    /// 16-bit integers.
    U16(&'a [u16]),
    /// 32-bit integers.
    U32(&'a [u32]),
    /// 64-bit integers.
    U64(&'a [u64]),
}

impl Integers<'_> {
    pub(super) fn integer_size(self) -> u8 {
        match self {
            Integers::U8(_) => 1,
            Integers::U16(_) => 2,
            Integers::U32(_) => 4,
            Integers::U64(_) => 8,
        }
    }

    /// The one word that a micro slot can hold.
    pub(super) fn single_word(self) -> Option<u64> {
        match self {
            Integers::U64([word]) => Some(*word),
            _ => None,
        }
    }

    pub(super) fn to_be_bytes(self) -> Vec<u8> {
        match self {
            Integers::U8(integers) => integers.to_vec(),
            Integers::U16(integers) => integers.iter().flat_map(|integer| integer.to_be_bytes()).collect(),
            Integers::U32(integers) => integers.iter().flat_map(|integer| integer.to_be_bytes()).collect(),
            Integers::U64(integers) => integers.iter().flat_map(|integer| integer.to_be_bytes()).collect(),
        }
    }
}

impl<'a> From<&'a Value> for Vec<u64> {
    fn from(value: &'a Value) -> Self {
        value.to_u64s()
    }
}
