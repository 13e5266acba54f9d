//! Name/value lists: XDR and native encodings.
//!
//! # Theory
//! An nvlist is an ordered list of typed, named values, in which a value may be a list again. Labels, the pool's
//! configuration, the history, extended attributes kept as system attributes and the head of a send package are nvlists.
//! Order is kept: it is what a dump shows, and what a second encoding has to reproduce byte for byte.
//! Names and strings are bytes without a NUL; mostly, but not surely, UTF-8.
//!
//! # On disk
//! A packed list starts with four bytes: the encoding (0 native, 1 XDR), the byte order of the machine that packed it
//! (1 little-endian), and two zeros. XDR is big-endian in units of four bytes (`xdr.rs`); native is an image of the
//! packing program's memory with the pointers set to zero (`native.rs`). OpenZFS writes XDR everywhere on disk.
//!
//! # Invariants
//! 1. Nothing is allocated for a count before it is known that so many elements can be in the bytes that are left.
//! 2. Lists are nested at most [`DEPTH_MAX`] deep, so that decoding needs bounded stack.

use crate::corruption::Corruption;
use std::borrow::Cow;
use std::fmt;

mod native;
#[cfg(test)]
mod tests;
mod xdr;

/// How deep lists may be nested in lists. OpenZFS's kernel module stops at 20.
pub const DEPTH_MAX: usize = 20;

/// The persistent flag of a list in which each name occurs once: all that ZFS writes.
#[doc(alias = "NV_UNIQUE_NAME")]
pub const UNIQUE_NAME: u32 = 1;

const ENCODING_NATIVE: u8 = 0;
const ENCODING_XDR: u8 = 1;

fn bad(field: &'static str, found: u64) -> Corruption {
    Corruption::new("nvlist", field, found)
}

/// A string as nvlists have it: bytes without a NUL, usually UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NvString(Vec<u8>);

impl NvString {
    /// Takes the bytes up to a NUL, as any C program would.
    pub fn from_bytes(mut bytes: Vec<u8>) -> NvString {
        if let Some(end) = bytes.iter().position(|&b| b == 0) {
            bytes.truncate(end);
        }
        NvString(bytes)
    }

    /// The bytes, without a terminator.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The string if it is UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The string for people: what is not UTF-8 is replaced.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl From<&str> for NvString {
    fn from(text: &str) -> NvString {
        NvString::from_bytes(text.as_bytes().to_vec())
    }
}

impl From<String> for NvString {
    fn from(text: String) -> NvString {
        NvString::from_bytes(text.into_bytes())
    }
}

impl From<&[u8]> for NvString {
    fn from(bytes: &[u8]) -> NvString {
        NvString::from_bytes(bytes.to_vec())
    }
}

impl PartialEq<str> for NvString {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for NvString {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Display for NvString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string_lossy())
    }
}

impl fmt::Debug for NvString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string_lossy(), f)
    }
}

/// The number of a type on disk.
#[doc(alias = "data_type_t")]
pub type TypeNumber = u32;

/// A value: one variant for each type of nvlists.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    /// The name alone; its presence is the value.
    Boolean,
    Byte(u8),
    Int16(i16),
    UInt16(u16),
    Int32(i32),
    UInt32(u32),
    Int64(i64),
    UInt64(u64),
    String(NvString),
    ByteArray(Vec<u8>),
    Int16Array(Vec<i16>),
    UInt16Array(Vec<u16>),
    Int32Array(Vec<i32>),
    UInt32Array(Vec<u32>),
    Int64Array(Vec<i64>),
    UInt64Array(Vec<u64>),
    StringArray(Vec<NvString>),
    /// A time span in nanoseconds.
    HighResolutionTime(i64),
    List(NvList),
    ListArray(Vec<NvList>),
    BooleanValue(bool),
    Int8(i8),
    UInt8(u8),
    BooleanArray(Vec<bool>),
    Int8Array(Vec<i8>),
    UInt8Array(Vec<u8>),
    /// Never on disk, but part of the format.
    Double(f64),
}

impl Value {
    /// The number of this value's type on disk.
    pub fn type_number(&self) -> TypeNumber {
        match self {
            Value::Boolean => 1,
            Value::Byte(_) => 2,
            Value::Int16(_) => 3,
            Value::UInt16(_) => 4,
            Value::Int32(_) => 5,
            Value::UInt32(_) => 6,
            Value::Int64(_) => 7,
            Value::UInt64(_) => 8,
            Value::String(_) => 9,
            Value::ByteArray(_) => 10,
            Value::Int16Array(_) => 11,
            Value::UInt16Array(_) => 12,
            Value::Int32Array(_) => 13,
            Value::UInt32Array(_) => 14,
            Value::Int64Array(_) => 15,
            Value::UInt64Array(_) => 16,
            Value::StringArray(_) => 17,
            Value::HighResolutionTime(_) => 18,
            Value::List(_) => 19,
            Value::ListArray(_) => 20,
            Value::BooleanValue(_) => 21,
            Value::Int8(_) => 22,
            Value::UInt8(_) => 23,
            Value::BooleanArray(_) => 24,
            Value::Int8Array(_) => 25,
            Value::UInt8Array(_) => 26,
            Value::Double(_) => 27,
        }
    }

    /// The element count that is stored: 0 for a bare name, 1 for a scalar.
    fn elements(&self) -> usize {
        match self {
            Value::Boolean => 0,
            Value::ByteArray(v) | Value::UInt8Array(v) => v.len(),
            Value::Int8Array(v) => v.len(),
            Value::Int16Array(v) => v.len(),
            Value::UInt16Array(v) => v.len(),
            Value::Int32Array(v) => v.len(),
            Value::UInt32Array(v) => v.len(),
            Value::Int64Array(v) => v.len(),
            Value::UInt64Array(v) => v.len(),
            Value::StringArray(v) => v.len(),
            Value::ListArray(v) => v.len(),
            Value::BooleanArray(v) => v.len(),
            _ => 1,
        }
    }

    /// How many bytes the value has in the memory image of a native pair, where lists are only their heads.
    fn native_size(&self) -> usize {
        match self {
            Value::Boolean => 0,
            Value::Byte(_) | Value::Int8(_) | Value::UInt8(_) => 1,
            Value::Int16(_) | Value::UInt16(_) => 2,
            Value::Int32(_) | Value::UInt32(_) | Value::BooleanValue(_) => 4,
            Value::Int64(_) | Value::UInt64(_) | Value::HighResolutionTime(_) | Value::Double(_) => 8,
            Value::String(s) => s.as_bytes().len() + 1,
            Value::ByteArray(v) | Value::UInt8Array(v) => v.len(),
            Value::Int8Array(v) => v.len(),
            Value::Int16Array(v) => v.len() * 2,
            Value::UInt16Array(v) => v.len() * 2,
            Value::Int32Array(v) => v.len() * 4,
            Value::UInt32Array(v) => v.len() * 4,
            Value::BooleanArray(v) => v.len() * 4,
            Value::Int64Array(v) => v.len() * 8,
            Value::UInt64Array(v) => v.len() * 8,
            Value::StringArray(v) => v.iter().map(|s| 8 + s.as_bytes().len() + 1).sum(),
            Value::List(_) => native::LIST_HEAD,
            Value::ListArray(v) => v.len() * (8 + native::LIST_HEAD),
        }
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::UInt64(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::String(value.into())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::String(value.into())
    }
}

impl From<NvString> for Value {
    fn from(value: NvString) -> Value {
        Value::String(value)
    }
}

impl From<NvList> for Value {
    fn from(value: NvList) -> Value {
        Value::List(value)
    }
}

impl From<Vec<NvList>> for Value {
    fn from(value: Vec<NvList>) -> Value {
        Value::ListArray(value)
    }
}

impl From<Vec<u64>> for Value {
    fn from(value: Vec<u64>) -> Value {
        Value::UInt64Array(value)
    }
}

/// An ordered list of names and values.
#[derive(Debug, Clone, PartialEq)]
pub struct NvList {
    /// The persistent flags; [`UNIQUE_NAME`] almost always.
    #[doc(alias = "nvl_nvflag")]
    pub flags: u32,
    pairs: Vec<(NvString, Value)>,
}

impl Default for NvList {
    fn default() -> NvList {
        NvList::new()
    }
}

impl NvList {
    /// An empty list of unique names.
    pub fn new() -> NvList {
        NvList { flags: UNIQUE_NAME, pairs: Vec::new() }
    }

    /// The pairs in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, (NvString, Value)> {
        self.pairs.iter()
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The first value of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.get_bytes(name.as_bytes())
    }

    /// The first value of a name that need not be UTF-8.
    pub fn get_bytes(&self, name: &[u8]) -> Option<&Value> {
        self.pairs.iter().find(|(n, _)| n.as_bytes() == name).map(|(_, v)| v)
    }

    /// The first value of this name, to change it in place.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.pairs.iter_mut().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// Whether the name is there, with any value.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The unsigned 64-bit number of this name.
    pub fn u64(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::UInt64(v) => Some(*v),
            _ => None,
        }
    }

    /// The number of this name, of whichever integer type, if it is not negative.
    pub fn unsigned(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::UInt64(v) => Some(*v),
            Value::UInt32(v) => Some(u64::from(*v)),
            Value::UInt16(v) => Some(u64::from(*v)),
            Value::UInt8(v) | Value::Byte(v) => Some(u64::from(*v)),
            Value::Int64(v) | Value::HighResolutionTime(v) => u64::try_from(*v).ok(),
            Value::Int32(v) => u64::try_from(*v).ok(),
            Value::Int16(v) => u64::try_from(*v).ok(),
            Value::Int8(v) => u64::try_from(*v).ok(),
            _ => None,
        }
    }

    /// The string of this name, if it is UTF-8.
    pub fn str(&self, name: &str) -> Option<&str> {
        self.string(name)?.to_str()
    }

    /// The string of this name as it is.
    pub fn string(&self, name: &str) -> Option<&NvString> {
        match self.get(name)? {
            Value::String(v) => Some(v),
            _ => None,
        }
    }

    /// The list of this name.
    pub fn nvlist(&self, name: &str) -> Option<&NvList> {
        match self.get(name)? {
            Value::List(v) => Some(v),
            _ => None,
        }
    }

    /// The lists of this name.
    pub fn nvlist_array(&self, name: &str) -> Option<&[NvList]> {
        match self.get(name)? {
            Value::ListArray(v) => Some(v),
            _ => None,
        }
    }

    /// The unsigned 64-bit numbers of this name.
    pub fn u64_array(&self, name: &str) -> Option<&[u64]> {
        match self.get(name)? {
            Value::UInt64Array(v) => Some(v),
            _ => None,
        }
    }

    /// The strings of this name.
    pub fn string_array(&self, name: &str) -> Option<&[NvString]> {
        match self.get(name)? {
            Value::StringArray(v) => Some(v),
            _ => None,
        }
    }

    /// The bytes of this name, from either of the two types that hold bytes.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        match self.get(name)? {
            Value::ByteArray(v) | Value::UInt8Array(v) => Some(v),
            _ => None,
        }
    }

    /// True if the name is there as a bare boolean, or as a boolean or number that is not zero.
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Some(Value::Boolean | Value::BooleanValue(true)) => true,
            Some(_) => self.unsigned(name).is_some_and(|v| v != 0),
            None => false,
        }
    }

    /// The number of this name, or which name is missing.
    pub fn require_u64(&self, name: &'static str) -> Result<u64, Corruption> {
        self.u64(name).ok_or(bad(name, 0))
    }

    /// The string of this name, or which name is missing.
    pub fn require_str(&self, name: &'static str) -> Result<&str, Corruption> {
        self.str(name).ok_or(bad(name, 0))
    }

    /// The list of this name, or which name is missing.
    pub fn require_nvlist(&self, name: &'static str) -> Result<&NvList, Corruption> {
        self.nvlist(name).ok_or(bad(name, 0))
    }

    /// Sets a value. As in OpenZFS an older value of the name goes away and the new one comes last.
    pub fn set(&mut self, name: impl Into<NvString>, value: impl Into<Value>) {
        let name = name.into();
        self.pairs.retain(|(n, _)| *n != name);
        self.pairs.push((name, value.into()));
    }

    /// Sets a value without moving a name that is there already.
    pub fn replace(&mut self, name: &str, value: impl Into<Value>) {
        match self.get_mut(name) {
            Some(old) => *old = value.into(),
            None => self.pairs.push((name.into(), value.into())),
        }
    }

    /// Adds a bare name.
    pub fn set_flag(&mut self, name: impl Into<NvString>) {
        self.set(name, Value::Boolean);
    }

    /// Appends without looking for the name: a list that is not of unique names, or a name known to be new.
    pub fn push(&mut self, name: impl Into<NvString>, value: impl Into<Value>) {
        self.pairs.push((name.into(), value.into()));
    }

    /// Removes all values of a name; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.remove_bytes(name.as_bytes())
    }

    /// Removes all values of a name that need not be UTF-8; whether there was one.
    pub fn remove_bytes(&mut self, name: &[u8]) -> bool {
        let before = self.pairs.len();
        self.pairs.retain(|(n, _)| n.as_bytes() != name);
        self.pairs.len() != before
    }

    /// The list packed as XDR: what goes to disk.
    pub fn encode_xdr(&self) -> Vec<u8> {
        let mut out = vec![ENCODING_XDR, 1, 0, 0];
        xdr::encode_list(self, &mut out);
        out
    }

    /// The list packed as a little-endian machine's memory.
    pub fn encode_native(&self) -> Vec<u8> {
        let mut out = vec![ENCODING_NATIVE, 1, 0, 0];
        native::encode(self, &mut out);
        out
    }

    /// Unpacks a list of either encoding; what follows it is not looked at.
    pub fn decode(bytes: &[u8]) -> Result<NvList, Corruption> {
        NvList::decode_prefix(bytes).map(|(list, _)| list)
    }

    /// Unpacks a list and says how many bytes it took.
    pub fn decode_prefix(bytes: &[u8]) -> Result<(NvList, usize), Corruption> {
        let Some(([encoding, order, ..], _)) = bytes.split_first_chunk::<4>() else {
            return Err(bad("length", bytes.len() as u64));
        };
        let mut reader = Reader { bytes, at: 4 };
        let list = match (*encoding, *order) {
            (ENCODING_XDR, _) => xdr::decode_list(&mut reader, 0)?,
            (ENCODING_NATIVE, 1) => native::decode(&mut reader, native::Order::Little)?,
            (ENCODING_NATIVE, 0) => native::decode(&mut reader, native::Order::Big)?,
            (ENCODING_NATIVE, order) => return Err(bad("byte order", u64::from(order))),
            (encoding, _) => return Err(bad("encoding", u64::from(encoding))),
        };
        Ok((list, reader.at))
    }

    /// How deep lists are nested in this one; 0 without any.
    pub fn depth(&self) -> usize {
        let below = |list: &NvList| list.depth() + 1;
        let of_value = |(_, value): &(NvString, Value)| match value {
            Value::List(list) => below(list),
            Value::ListArray(lists) => lists.iter().map(below).max().unwrap_or(0),
            _ => 0,
        };
        self.pairs.iter().map(of_value).max().unwrap_or(0)
    }
}

impl<'a> IntoIterator for &'a NvList {
    type Item = &'a (NvString, Value);
    type IntoIter = std::slice::Iter<'a, (NvString, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<(NvString, Value)> for NvList {
    fn from_iter<T: IntoIterator<Item = (NvString, Value)>>(pairs: T) -> NvList {
        NvList { flags: UNIQUE_NAME, pairs: pairs.into_iter().collect() }
    }
}

/// A place in packed bytes that never goes past their end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Corruption> {
        let end = self.at.checked_add(length).ok_or(bad("length", length as u64))?;
        let slice = self.bytes.get(self.at..end).ok_or(bad("length", length as u64))?;
        self.at = end;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Corruption> {
        let slice = self.take(N)?;
        <[u8; N]>::try_from(slice).map_err(|_| bad("length", N as u64))
    }

    /// A count of things that take at least `least` bytes each (invariant 1).
    fn check_count(&self, count: usize, least: usize) -> Result<usize, Corruption> {
        if count > self.left() / least { Err(bad("count", count as u64)) } else { Ok(count) }
    }
}

/// A length as the 32 bits that the format has for it.
fn word(length: usize) -> u32 {
    u32::try_from(length).expect("an nvlist stays below 4 GiB")
}

fn align(length: usize, unit: usize) -> usize {
    length.next_multiple_of(unit)
}
