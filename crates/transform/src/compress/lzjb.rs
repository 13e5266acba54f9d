//! LZJB: the small Lempel-Ziv of the first ZFS, still the default for pools without the lz4 feature.
//!
//! # Theory
//! A byte of eight flags (lowest bit first) precedes each eight items. An item is a literal byte, or two bytes big-endian:
//! six bits of length minus 3, ten bits of distance back. A hash of the next three bytes finds the last place they were seen.

use super::DecompressError;

const MATCH_MIN: usize = 3;
const MATCH_MAX: usize = MATCH_MIN + 63;
const DISTANCE_MASK: usize = 0x3ff;
const TABLE_ENTRIES: usize = 1024;

/// What eight items and their flags can take.
const GROUP_BYTES_MAX: usize = 1 + 8 * 2;

pub(super) fn compress(source: &[u8], destination: &mut [u8]) -> Option<usize> {
    // Positions modulo 2^16: distances are only ten bits, and what is found is compared anyway.
    let mut seen = [0u16; TABLE_ENTRIES];
    let (mut from, mut to) = (0, 0);
    while from < source.len() {
        let flags_at = to;
        if destination.len() - to < GROUP_BYTES_MAX {
            return None;
        }
        to += 1;
        let mut flags = 0u8;
        for bit in 0..8 {
            if from >= source.len() {
                break;
            }
            if let Some((length, distance)) = find(source, from, &mut seen) {
                flags |= 1 << bit;
                let item = ((length - MATCH_MIN) << 10 | distance) as u16;
                destination[to..to + 2].copy_from_slice(&item.to_be_bytes());
                to += 2;
                from += length;
            } else {
                destination[to] = source[from];
                to += 1;
                from += 1;
            }
        }
        destination[flags_at] = flags;
    }
    Some(to)
}

/// The match at `from`, as length and distance; notes that these bytes have been seen here.
fn find(source: &[u8], from: usize, seen: &mut [u16; TABLE_ENTRIES]) -> Option<(usize, usize)> {
    let ahead: &[u8; MATCH_MAX] = source[from..].first_chunk()?;
    let mut hash = usize::from(ahead[0]) << 16 | usize::from(ahead[1]) << 8 | usize::from(ahead[2]);
    hash += hash >> 9;
    hash += hash >> 5;
    let entry = &mut seen[hash % TABLE_ENTRIES];
    let distance = from.wrapping_sub(usize::from(*entry)) & DISTANCE_MASK;
    *entry = from as u16;
    if distance == 0 || distance > from {
        return None;
    }
    let length = ahead
        .iter()
        .zip(&source[from - distance..])
        .take_while(|(a, b)| a == b)
        .count();
    (length >= MATCH_MIN).then_some((length, distance))
}

pub(super) fn decompress(source: &[u8], destination: &mut [u8]) -> Result<(), DecompressError> {
    let mut source = source.iter();
    let mut next = || source.next().copied().ok_or(DecompressError::BadData);
    let mut to = 0;
    while to < destination.len() {
        let flags = next()?;
        for bit in 0..8 {
            if to == destination.len() {
                break;
            }
            if flags & (1 << bit) == 0 {
                destination[to] = next()?;
                to += 1;
                continue;
            }
            let item = usize::from(u16::from_be_bytes([next()?, next()?]));
            let distance = item & DISTANCE_MASK;
            if distance == 0 || distance > to {
                return Err(DecompressError::BadData);
            }
            let end = destination.len().min(to + (item >> 10) + MATCH_MIN);
            // Byte by byte: the copy may overlap itself.
            while to < end {
                destination[to] = destination[to - distance];
                to += 1;
            }
        }
    }
    Ok(())
}
