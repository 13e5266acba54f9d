//! nvlists as XDR (RFC 4506): big-endian, everything a multiple of four bytes.
//!
//! # On disk
//! A list: version (0), flags, pairs, and two zero words as the end.
//! A pair: its size here, its size as a native pair (which readers take for the end if it is 0, and check otherwise),
//! the name, the type, the element count, the value.
//! A string is its length and its bytes, padded. Small integers take four bytes each, in arrays too, and arrays repeat
//! their count; only an array of type *byte* is dense and does not. An array without elements has not even the count,
//! although the pair's size includes it.

use super::{DEPTH_MAX, NvList, NvString, Reader, TypeNumber, Value, align, bad, native, word};
use crate::corruption::Corruption;

/// The least bytes a list takes: version, flags, and the end.
const LIST_LEAST: usize = 16;

fn put(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(align(out.len(), 4), 0);
}

fn put_string(out: &mut Vec<u8>, string: &NvString) {
    put(out, word(string.as_bytes().len()));
    put_padded(out, string.as_bytes());
}

/// Every append is a multiple of four, and so is the head, hence padding by the length of `out` is right.
pub(super) fn encode_list(list: &NvList, out: &mut Vec<u8>) {
    put(out, 0);
    put(out, list.flags);
    for (name, value) in list {
        let start = out.len();
        put(out, 0);
        put(out, word(native::pair_size(name, value)));
        put_string(out, name);
        put(out, value.type_number());
        put(out, word(value.elements()));
        let counted = encode_value(value, out);
        let size = word(out.len() - start + counted);
        out.splice(start..start + 4, size.to_be_bytes());
    }
    put(out, 0);
    put(out, 0);
}

/// Appends the value; returns the bytes of a count that is part of the pair's size but not written.
fn encode_value(value: &Value, out: &mut Vec<u8>) -> usize {
    let counted = !matches!(value, Value::ByteArray(_) | Value::StringArray(_) | Value::ListArray(_));
    if value.elements() == 0 {
        return if counted && !matches!(value, Value::Boolean) { 4 } else { 0 };
    }
    let mut words = |values: &mut dyn Iterator<Item = u32>| {
        put(out, word(value.elements()));
        values.for_each(|v| put(out, v));
    };
    match value {
        Value::Int8Array(v) => words(&mut v.iter().map(|&v| i32::from(v).cast_unsigned())),
        Value::UInt8Array(v) => words(&mut v.iter().map(|&v| u32::from(v))),
        Value::Int16Array(v) => words(&mut v.iter().map(|&v| i32::from(v).cast_unsigned())),
        Value::UInt16Array(v) => words(&mut v.iter().map(|&v| u32::from(v))),
        Value::Int32Array(v) => words(&mut v.iter().map(|&v| v.cast_unsigned())),
        Value::UInt32Array(v) => words(&mut v.iter().copied()),
        Value::BooleanArray(v) => words(&mut v.iter().map(|&v| u32::from(v))),
        Value::Int64Array(v) => {
            words(&mut std::iter::empty());
            v.iter().for_each(|v| out.extend_from_slice(&v.to_be_bytes()));
        }
        Value::UInt64Array(v) => {
            words(&mut std::iter::empty());
            v.iter().for_each(|v| out.extend_from_slice(&v.to_be_bytes()));
        }
        Value::Boolean => {}
        Value::Byte(v) | Value::UInt8(v) => put(out, u32::from(*v)),
        Value::Int8(v) => put(out, i32::from(*v).cast_unsigned()),
        Value::Int16(v) => put(out, i32::from(*v).cast_unsigned()),
        Value::UInt16(v) => put(out, u32::from(*v)),
        Value::Int32(v) => put(out, v.cast_unsigned()),
        Value::UInt32(v) => put(out, *v),
        Value::BooleanValue(v) => put(out, u32::from(*v)),
        Value::Int64(v) | Value::HighResolutionTime(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::UInt64(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::Double(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::String(v) => put_string(out, v),
        Value::ByteArray(v) => put_padded(out, v),
        Value::StringArray(v) => v.iter().for_each(|v| put_string(out, v)),
        Value::List(v) => encode_list(v, out),
        Value::ListArray(v) => v.iter().for_each(|v| encode_list(v, out)),
    }
    0
}

impl Reader<'_> {
    fn xdr_word(&mut self) -> Result<u32, Corruption> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn xdr_length(&mut self) -> Result<usize, Corruption> {
        usize::try_from(self.xdr_word()?).map_err(|_| bad("length", u64::MAX))
    }

    fn xdr_padded(&mut self, length: usize) -> Result<Vec<u8>, Corruption> {
        let bytes = self.take(length)?.to_vec();
        self.take(align(length, 4) - length)?;
        Ok(bytes)
    }

    fn xdr_string(&mut self) -> Result<NvString, Corruption> {
        let length = self.xdr_length()?;
        self.check_count(length, 1)?;
        self.xdr_padded(length).map(NvString::from_bytes)
    }

    fn xdr_boolean(&mut self) -> Result<bool, Corruption> {
        match self.xdr_word()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(bad("boolean", u64::from(other))),
        }
    }

    /// An array that repeats its count, of elements that take `size` bytes each.
    fn xdr_array<T>(
        &mut self,
        count: usize,
        size: usize,
        element: impl Fn(&mut Self) -> Result<T, Corruption>,
    ) -> Result<Vec<T>, Corruption> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let repeated = self.xdr_length()?;
        if repeated != count {
            return Err(bad("count", repeated as u64));
        }
        self.check_count(count, size)?;
        (0..count).map(|_| element(self)).collect()
    }
}

// The upper bytes of a small integer are whatever the writer's sign extension made them.
#[allow(clippy::cast_possible_truncation)]
fn low8(word: u32) -> u8 {
    word as u8
}

#[allow(clippy::cast_possible_truncation)]
fn low16(word: u32) -> u16 {
    word as u16
}

pub(super) fn decode_list(reader: &mut Reader<'_>, depth: usize) -> Result<NvList, Corruption> {
    if depth > DEPTH_MAX {
        return Err(bad("depth", depth as u64));
    }
    let version = reader.xdr_word()?;
    if version != 0 {
        return Err(bad("version", u64::from(version)));
    }
    let mut list = NvList::new();
    list.flags = reader.xdr_word()?;
    loop {
        let _encoded_size = reader.xdr_word()?;
        if reader.xdr_word()? == 0 {
            return Ok(list);
        }
        let name = reader.xdr_string()?;
        let kind = reader.xdr_word()?;
        let count = reader.xdr_length()?;
        let value = decode_value(reader, kind, count, depth)?;
        list.push(name, value);
    }
}

fn decode_value(
    reader: &mut Reader<'_>,
    kind: TypeNumber,
    count: usize,
    depth: usize,
) -> Result<Value, Corruption> {
    let least = usize::from(kind != 1);
    let scalar = matches!(kind, 1..=9 | 18 | 19 | 21..=23 | 27);
    if scalar && count != least {
        return Err(bad("element count", count as u64));
    }
    Ok(match kind {
        1 => Value::Boolean,
        2 => Value::Byte(low8(reader.xdr_word()?)),
        3 => Value::Int16(low16(reader.xdr_word()?).cast_signed()),
        4 => Value::UInt16(low16(reader.xdr_word()?)),
        5 => Value::Int32(reader.xdr_word()?.cast_signed()),
        6 => Value::UInt32(reader.xdr_word()?),
        7 => Value::Int64(i64::from_be_bytes(reader.array()?)),
        8 => Value::UInt64(u64::from_be_bytes(reader.array()?)),
        9 => Value::String(reader.xdr_string()?),
        10 => {
            reader.check_count(count, 1)?;
            Value::ByteArray(reader.xdr_padded(count)?)
        }
        11 => Value::Int16Array(reader.xdr_array(count, 4, |r| Ok(low16(r.xdr_word()?).cast_signed()))?),
        12 => Value::UInt16Array(reader.xdr_array(count, 4, |r| Ok(low16(r.xdr_word()?)))?),
        13 => Value::Int32Array(reader.xdr_array(count, 4, |r| Ok(r.xdr_word()?.cast_signed()))?),
        14 => Value::UInt32Array(reader.xdr_array(count, 4, Reader::xdr_word)?),
        15 => Value::Int64Array(reader.xdr_array(count, 8, |r| Ok(i64::from_be_bytes(r.array()?)))?),
        16 => Value::UInt64Array(reader.xdr_array(count, 8, |r| Ok(u64::from_be_bytes(r.array()?)))?),
        17 => {
            reader.check_count(count, 4)?;
            Value::StringArray((0..count).map(|_| reader.xdr_string()).collect::<Result<_, _>>()?)
        }
        18 => Value::HighResolutionTime(i64::from_be_bytes(reader.array()?)),
        19 => Value::List(decode_list(reader, depth + 1)?),
        20 => {
            reader.check_count(count, LIST_LEAST)?;
            Value::ListArray((0..count).map(|_| decode_list(reader, depth + 1)).collect::<Result<_, _>>()?)
        }
        21 => Value::BooleanValue(reader.xdr_boolean()?),
        22 => Value::Int8(low8(reader.xdr_word()?).cast_signed()),
        23 => Value::UInt8(low8(reader.xdr_word()?)),
        24 => Value::BooleanArray(reader.xdr_array(count, 4, Reader::xdr_boolean)?),
        25 => Value::Int8Array(reader.xdr_array(count, 4, |r| Ok(low8(r.xdr_word()?).cast_signed()))?),
        26 => Value::UInt8Array(reader.xdr_array(count, 4, |r| Ok(low8(r.xdr_word()?)))?),
        27 => Value::Double(f64::from_be_bytes(reader.array()?)),
        other => return Err(bad("type", u64::from(other))),
    })
}
