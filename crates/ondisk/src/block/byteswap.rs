//! Pools written by machines of the other byte order.
//!
//! # Theory
//! ZFS writes in the byte order of the machine and says so in each block pointer. We always write little-endian; a block
//! that a big-endian machine wrote is turned around whole, once, after it was verified and decompressed, by the class
//! that its object type has. What lies above never knows.
//!
//! A few things carry their own magic number instead and are not turned around here: labels and uberblocks, nvlists,
//! system attributes, intent log blocks.
//!
//! # Invariants
//! 1. No contents, however damaged, make this panic or touch bytes out of the block: what makes no sense is left as it is,
//!    for the decoder to refuse.

use crate::object_type::{ByteswapClass, ObjectType};

#[cfg(test)]
mod tests;

/// Turns a decompressed big-endian block of an object of type `object_type` at `level` into a little-endian one.
pub fn swap_block(object_type: ObjectType, level: u8, block: &mut [u8]) {
    // Indirect blocks are arrays of pointers in every object.
    let class = if level > 0 { Some(ByteswapClass::U64) } else { object_type.byteswap() };
    if let Some(class) = class {
        swap(class, block);
    }
}

/// Turns a block of the given class around.
pub fn swap(class: ByteswapClass, block: &mut [u8]) {
    match class {
        ByteswapClass::U8 => {}
        ByteswapClass::U16 => swap_array::<2>(block),
        ByteswapClass::U32 => swap_array::<4>(block),
        ByteswapClass::U64 => swap_array::<8>(block),
        ByteswapClass::Zap => swap_zap(block),
        ByteswapClass::Dnode => swap_dnodes(block),
        ByteswapClass::Objset => swap_objset(block),
        ByteswapClass::Znode => swap_znode(block),
        ByteswapClass::OldAcl => swap_old_entries(block),
        ByteswapClass::Acl => swap_entries(block),
    }
}

/// Turns each whole number of `N` bytes around.
fn swap_array<const N: usize>(bytes: &mut [u8]) {
    for number in bytes.as_chunks_mut::<N>().0 {
        number.reverse();
    }
}

/// Turns the number of `N` bytes at `offset` around, if it is within `bytes`.
fn swap_at<const N: usize>(bytes: &mut [u8], offset: usize) {
    if let Some(number) = offset.checked_add(N).and_then(|end| bytes.get_mut(offset..end)) {
        number.reverse();
    }
}

fn swap_range(bytes: &mut [u8], offset: usize, length: usize) {
    if let Some(range) = offset.checked_add(length).and_then(|end| bytes.get_mut(offset..end)) {
        swap_array::<8>(range);
    }
}

const ZAP_LEAF: u64 = 1 << 63;
const ZAP_MICRO: u64 = (1 << 63) + 3;

/// A ZAP block says at its start which of the four kinds it is.
fn swap_zap(block: &mut [u8]) {
    let kind = block.first_chunk::<8>().copied().map_or(0, u64::from_be_bytes);
    match kind {
        ZAP_MICRO => swap_micro_zap(block),
        ZAP_LEAF => swap_zap_leaf(block),
        _ => swap_array::<8>(block),
    }
}

/// Header of 64 bytes: kind, salt, normalization. Entries of 64 bytes: value (8), collision differentiator (4), name.
fn swap_micro_zap(block: &mut [u8]) {
    let (header, entries) = block.split_at_mut(block.len().min(64));
    swap_range(header, 0, 24);
    for entry in entries.as_chunks_mut::<64>().0 {
        swap_at::<8>(entry, 0);
        swap_at::<4>(entry, 8);
    }
}

const LEAF_CHUNK: usize = 24;
const LEAF_CHUNK_ARRAY: u8 = 251;
const LEAF_CHUNK_ENTRY: u8 = 252;
const LEAF_CHUNK_FREE: u8 = 253;

/// Header of 48 bytes, a hash table of one 16-bit number for 32 bytes of block, then chunks of 24 bytes.
fn swap_zap_leaf(block: &mut [u8]) {
    swap_at::<8>(block, 0);
    swap_at::<8>(block, 16);
    swap_at::<4>(block, 24);
    for offset in [28, 30, 32, 34] {
        swap_at::<2>(block, offset);
    }
    let hash_bytes = block.len() / 32 * 2;
    let Some(rest) = block.get_mut(2 * LEAF_CHUNK..) else { return };
    let (hashes, chunks) = rest.split_at_mut(hash_bytes.min(rest.len()));
    swap_array::<2>(hashes);
    for chunk in chunks.as_chunks_mut::<LEAF_CHUNK>().0 {
        match chunk[0] {
            LEAF_CHUNK_ENTRY => {
                for offset in [2, 4, 6, 8, 10] {
                    swap_at::<2>(chunk, offset);
                }
                swap_at::<4>(chunk, 12);
                swap_at::<8>(chunk, 16);
            }
            LEAF_CHUNK_ARRAY | LEAF_CHUNK_FREE => swap_at::<2>(chunk, 22),
            _ => {}
        }
    }
}

const SLOT: usize = 512;
const POINTERS_AT: usize = 64;
const POINTER: usize = 128;
const FLAG_SPILL: u8 = 4;

fn swap_dnodes(mut block: &mut [u8]) {
    while let Some(&[object_type, .., extra_slots]) = block.get(..13) {
        let slots = if object_type == 0 { 1 } else { usize::from(extra_slots) + 1 };
        let length = (slots * SLOT).min(block.len());
        let (dnode, rest) = block.split_at_mut(length);
        swap_dnode(dnode);
        block = rest;
    }
}

fn swap_dnode(dnode: &mut [u8]) {
    let Some(&[object_type, _, _, pointers, bonus_type, _, _, flags, _, _, bonus_low, bonus_high]) = dnode.get(..12) else {
        return;
    };
    if object_type == 0 {
        dnode.fill(0);
        return;
    }
    swap_at::<2>(dnode, 8);
    swap_at::<2>(dnode, 10);
    swap_range(dnode, 16, 16);
    let spill = if flags & FLAG_SPILL != 0 { POINTER } else { 0 };
    let bonus_at = POINTERS_AT + usize::from(pointers) * POINTER;
    swap_range(dnode, POINTERS_AT, bonus_at - POINTERS_AT);
    let spill_at = dnode.len().saturating_sub(spill);
    if (bonus_low, bonus_high) != (0, 0)
        && let (Some(class), Some(bonus)) = (ObjectType(bonus_type).byteswap(), dnode.get_mut(bonus_at..spill_at))
        // Dnodes do not nest: a bonus that claims to be one is damaged.
        && !matches!(class, ByteswapClass::Dnode | ByteswapClass::Objset)
    {
        swap(class, bonus);
    }
    swap_range(dnode, spill_at, spill);
}

/// Three more dnodes may follow: user, group and project accounting.
fn swap_objset(block: &mut [u8]) {
    swap_dnode_at(block, 0);
    swap_range(block, SLOT, 192);
    swap_range(block, 704, 16);
    for offset in [1024, 1536, 2048] {
        swap_dnode_at(block, offset);
    }
}

fn swap_dnode_at(block: &mut [u8], offset: usize) {
    if let Some(dnode) = block.get_mut(offset..offset + SLOT) {
        swap_dnode(dnode);
    }
}

const ACL_VERSION_FUID: u16 = 1;
const ACL_AT: usize = 176;
const ENTRIES_AT: usize = ACL_AT + 16;
const ENTRIES_BYTES: usize = 72;

/// 22 numbers, then the ACL: object (8), size (4), version (2), count (2), and room for 72 bytes of entries.
fn swap_znode(znode: &mut [u8]) {
    swap_range(znode, 0, ACL_AT);
    swap_at::<8>(znode, ACL_AT);
    swap_at::<4>(znode, ACL_AT + 8);
    swap_at::<2>(znode, ACL_AT + 12);
    swap_at::<2>(znode, ACL_AT + 14);
    let version = znode.get(ACL_AT + 12..ACL_AT + 14).and_then(|two| two.try_into().ok()).map_or(0, u16::from_le_bytes);
    if let Some(entries) = znode.get_mut(ENTRIES_AT..ENTRIES_AT + ENTRIES_BYTES) {
        if version == ACL_VERSION_FUID { swap_entries(entries) } else { swap_old_entries(entries) }
    }
}

/// Entries of 12 bytes: subject (4), mask (4), flags (2), type (2).
fn swap_old_entries(entries: &mut [u8]) {
    for entry in entries.as_chunks_mut::<12>().0 {
        swap_at::<4>(entry, 0);
        swap_at::<4>(entry, 4);
        swap_at::<2>(entry, 8);
        swap_at::<2>(entry, 10);
    }
}

const WHO_MASK: u16 = 0x7040;
const WHO_OWNER: u16 = 0x1000;
const WHO_GROUP: u16 = 0x2040;
const WHO_EVERYONE: u16 = 0x4000;
/// Types of entries with two 16-byte object ids.
const OBJECT_ENTRIES: std::ops::RangeInclusive<u16> = 5..=8;

/// Entries of 8 bytes, type (2), flags (2), mask (4), or of 16 with an id (8) after them, or of 48 with two object ids.
fn swap_entries(mut entries: &mut [u8]) {
    while entries.len() >= 8 {
        swap_at::<2>(entries, 0);
        swap_at::<2>(entries, 2);
        swap_at::<4>(entries, 4);
        let Some(&[type_low, type_high, flags_low, flags_high]) = entries.first_chunk::<4>() else { return };
        let (entry_type, flags) = (u16::from_le_bytes([type_low, type_high]), u16::from_le_bytes([flags_low, flags_high]));
        let length = match flags & WHO_MASK {
            WHO_OWNER | WHO_GROUP | WHO_EVERYONE => 8,
            _ => {
                swap_at::<8>(entries, 8);
                if OBJECT_ENTRIES.contains(&entry_type) { 48 } else { 16 }
            }
        };
        entries = entries.get_mut(length..).unwrap_or_default();
    }
}
