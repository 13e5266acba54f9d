//! nvlists as the memory of the program that packed them.
//!
//! # On disk
//! The outermost list: version, flags (4 bytes each), pairs, a zero word. A pair: size (4), name size with its NUL (2),
//! zero (2), element count (4), type (4), the name, padded to 8, and the value, padded to 8. A list as a value is a
//! head of 24 bytes (version, flags, a dead pointer, two dead words); its pairs, with a zero word as their end, follow
//! *behind* the pair that holds the head. An array of strings or of lists starts with 8 dead bytes for each element.

use super::{DEPTH_MAX, NvList, NvString, Reader, TypeNumber, Value, align, bad, word};
use crate::corruption::Corruption;

/// The bytes of a list's head.
pub(super) const LIST_HEAD: usize = 24;
/// The bytes of a pair before its name.
const PAIR_HEAD: usize = 16;
/// The least bytes of a pair: a name of one NUL.
const PAIR_LEAST: usize = 24;

/// The byte order of the machine that packed the list.
#[derive(Clone, Copy)]
pub(super) enum Order {
    Little,
    Big,
}

/// The size of a pair in memory, which XDR pairs state too.
pub(super) fn pair_size(name: &NvString, value: &Value) -> usize {
    align(PAIR_HEAD + name.as_bytes().len() + 1, 8) + align(value.native_size(), 8)
}

fn put(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_head(out: &mut Vec<u8>, list: &NvList) {
    put(out, 0);
    put(out, list.flags);
    out.resize(out.len() + 16, 0);
}

/// Appends the outermost list.
pub(super) fn encode(list: &NvList, out: &mut Vec<u8>) {
    put(out, 0);
    put(out, list.flags);
    encode_pairs(list, out);
}

fn encode_pairs(list: &NvList, out: &mut Vec<u8>) {
    for (name, value) in list {
        let end = out.len() + pair_size(name, value);
        let name_size = u16::try_from(name.as_bytes().len() + 1).expect("a name has less than 32 KiB");
        let value_at = out.len() + align(PAIR_HEAD + usize::from(name_size), 8);
        put(out, word(pair_size(name, value)));
        out.extend_from_slice(&name_size.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        put(out, word(value.elements()));
        put(out, value.type_number());
        out.extend_from_slice(name.as_bytes());
        out.resize(value_at, 0);
        encode_value(value, out);
        out.resize(end, 0);
        match value {
            Value::List(list) => encode_pairs(list, out),
            Value::ListArray(lists) => lists.iter().for_each(|list| encode_pairs(list, out)),
            _ => {}
        }
    }
    put(out, 0);
}

fn encode_value(value: &Value, out: &mut Vec<u8>) {
    macro_rules! each {
        ($values:expr) => {
            $values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()))
        };
    }
    match value {
        Value::Boolean => {}
        Value::Byte(v) | Value::UInt8(v) => out.push(*v),
        Value::Int8(v) => out.push(v.cast_unsigned()),
        Value::Int16(v) => each!([v]),
        Value::UInt16(v) => each!([v]),
        Value::Int32(v) => each!([v]),
        Value::UInt32(v) => each!([v]),
        Value::Int64(v) | Value::HighResolutionTime(v) => each!([v]),
        Value::UInt64(v) => each!([v]),
        Value::Double(v) => each!([v]),
        Value::BooleanValue(v) => put(out, u32::from(*v)),
        Value::String(v) => out.extend_from_slice(v.as_bytes()),
        Value::ByteArray(v) | Value::UInt8Array(v) => out.extend_from_slice(v),
        Value::Int8Array(v) => each!(v),
        Value::Int16Array(v) => each!(v),
        Value::UInt16Array(v) => each!(v),
        Value::Int32Array(v) => each!(v),
        Value::UInt32Array(v) => each!(v),
        Value::Int64Array(v) => each!(v),
        Value::UInt64Array(v) => each!(v),
        Value::BooleanArray(v) => v.iter().for_each(|v| put(out, u32::from(*v))),
        Value::StringArray(v) => {
            out.resize(out.len() + 8 * v.len(), 0);
            for string in v {
                out.extend_from_slice(string.as_bytes());
                out.push(0);
            }
        }
        Value::List(v) => put_head(out, v),
        Value::ListArray(v) => {
            out.resize(out.len() + 8 * v.len(), 0);
            v.iter().for_each(|v| put_head(out, v));
        }
    }
}

/// Reads the outermost list.
pub(super) fn decode(reader: &mut Reader<'_>, order: Order) -> Result<NvList, Corruption> {
    let mut list = NvList::new();
    list.flags = head(reader, order)?;
    decode_pairs(reader, order, &mut list, 0)?;
    Ok(list)
}

fn number32(reader: &mut Reader<'_>, order: Order) -> Result<u32, Corruption> {
    let bytes = reader.array()?;
    Ok(match order {
        Order::Little => u32::from_le_bytes(bytes),
        Order::Big => u32::from_be_bytes(bytes),
    })
}

fn number16(reader: &mut Reader<'_>, order: Order) -> Result<u16, Corruption> {
    let bytes = reader.array()?;
    Ok(match order {
        Order::Little => u16::from_le_bytes(bytes),
        Order::Big => u16::from_be_bytes(bytes),
    })
}

fn number64(reader: &mut Reader<'_>, order: Order) -> Result<u64, Corruption> {
    let bytes = reader.array()?;
    Ok(match order {
        Order::Little => u64::from_le_bytes(bytes),
        Order::Big => u64::from_be_bytes(bytes),
    })
}

fn length(reader: &mut Reader<'_>, order: Order) -> Result<usize, Corruption> {
    usize::try_from(number32(reader, order)?).map_err(|_| bad("length", u64::MAX))
}

/// Version and flags; the flags.
fn head(reader: &mut Reader<'_>, order: Order) -> Result<u32, Corruption> {
    match number32(reader, order)? {
        0 => number32(reader, order),
        version => Err(bad("version", u64::from(version))),
    }
}

fn decode_pairs(
    reader: &mut Reader<'_>,
    order: Order,
    list: &mut NvList,
    depth: usize,
) -> Result<(), Corruption> {
    if depth > DEPTH_MAX {
        return Err(bad("depth", depth as u64));
    }
    loop {
        let size = length(reader, order)?;
        if size == 0 {
            return Ok(());
        }
        if size < PAIR_LEAST {
            return Err(bad("pair size", size as u64));
        }
        let mut pair = Reader { bytes: reader.take(size - 4)?, at: 0 };
        let name_size = usize::from(number16(&mut pair, order)?);
        number16(&mut pair, order)?;
        let count = length(&mut pair, order)?;
        let kind = number32(&mut pair, order)?;
        let name = match pair.take(name_size)?.split_last() {
            Some((0, name)) => NvString::from_bytes(name.to_vec()),
            _ => return Err(bad("name size", name_size as u64)),
        };
        let padded = align(PAIR_HEAD + name_size, 8);
        pair.take(padded - PAIR_HEAD - name_size)?;
        let mut value = decode_value(&mut pair, order, kind, count)?;
        match &mut value {
            Value::List(inner) => decode_pairs(reader, order, inner, depth + 1)?,
            Value::ListArray(inner) => {
                for list in inner {
                    decode_pairs(reader, order, list, depth + 1)?;
                }
            }
            _ => {}
        }
        list.push(name, value);
    }
}

fn string(pair: &mut Reader<'_>) -> Result<NvString, Corruption> {
    let rest = pair.bytes.get(pair.at..).unwrap_or(&[]);
    let end = rest.iter().position(|&b| b == 0).ok_or(bad("string", rest.len() as u64))?;
    let bytes = pair.take(end)?.to_vec();
    pair.take(1)?;
    Ok(NvString(bytes))
}

fn array<T>(
    pair: &mut Reader<'_>,
    count: usize,
    size: usize,
    element: impl Fn(&mut Reader<'_>) -> Result<T, Corruption>,
) -> Result<Vec<T>, Corruption> {
    pair.check_count(count, size)?;
    (0..count).map(|_| element(pair)).collect()
}

fn boolean(pair: &mut Reader<'_>, order: Order) -> Result<bool, Corruption> {
    match number32(pair, order)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(bad("boolean", u64::from(other))),
    }
}

fn list_head(pair: &mut Reader<'_>, order: Order) -> Result<NvList, Corruption> {
    let mut list = NvList::new();
    list.flags = head(pair, order)?;
    pair.take(LIST_HEAD - 8)?;
    Ok(list)
}

fn decode_value(
    pair: &mut Reader<'_>,
    order: Order,
    kind: TypeNumber,
    count: usize,
) -> Result<Value, Corruption> {
    let least = usize::from(kind != 1);
    if matches!(kind, 1..=9 | 18 | 19 | 21..=23 | 27) && count != least {
        return Err(bad("element count", count as u64));
    }
    let byte = |pair: &mut Reader<'_>| pair.array::<1>().map(|[b]| b);
    let signed64 = |pair: &mut Reader<'_>| number64(pair, order).map(u64::cast_signed);
    Ok(match kind {
        1 => Value::Boolean,
        2 => Value::Byte(byte(pair)?),
        3 => Value::Int16(number16(pair, order)?.cast_signed()),
        4 => Value::UInt16(number16(pair, order)?),
        5 => Value::Int32(number32(pair, order)?.cast_signed()),
        6 => Value::UInt32(number32(pair, order)?),
        7 => Value::Int64(signed64(pair)?),
        8 => Value::UInt64(number64(pair, order)?),
        9 => Value::String(string(pair)?),
        10 => Value::ByteArray(pair.take(count)?.to_vec()),
        11 => Value::Int16Array(array(pair, count, 2, |p| Ok(number16(p, order)?.cast_signed()))?),
        12 => Value::UInt16Array(array(pair, count, 2, |p| number16(p, order))?),
        13 => Value::Int32Array(array(pair, count, 4, |p| Ok(number32(p, order)?.cast_signed()))?),
        14 => Value::UInt32Array(array(pair, count, 4, |p| number32(p, order))?),
        15 => Value::Int64Array(array(pair, count, 8, signed64)?),
        16 => Value::UInt64Array(array(pair, count, 8, |p| number64(p, order))?),
        17 => {
            pair.check_count(count, 9)?;
            pair.take(8 * count)?;
            Value::StringArray(array(pair, count, 1, string)?)
        }
        18 => Value::HighResolutionTime(signed64(pair)?),
        19 => Value::List(list_head(pair, order)?),
        20 => {
            pair.check_count(count, 8 + LIST_HEAD)?;
            pair.take(8 * count)?;
            Value::ListArray(array(pair, count, LIST_HEAD, |p| list_head(p, order))?)
        }
        21 => Value::BooleanValue(boolean(pair, order)?),
        22 => Value::Int8(byte(pair)?.cast_signed()),
        23 => Value::UInt8(byte(pair)?),
        24 => Value::BooleanArray(array(pair, count, 4, |p| boolean(p, order))?),
        25 => Value::Int8Array(array(pair, count, 1, |p| Ok(byte(p)?.cast_signed()))?),
        26 => Value::UInt8Array(pair.take(count)?.to_vec()),
        27 => Value::Double(f64::from_bits(number64(pair, order)?)),
        other => return Err(bad("type", u64::from(other))),
    })
}
