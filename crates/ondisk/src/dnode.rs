//! The dnode: one object.
//!
//! # Theory
//! An object is an array of equal blocks. Its dnode says how large they are and holds the top of the tree that finds
//! them: one to three block pointers, each the root of a tree `levels` high whose inner blocks ("indirect blocks") are
//! arrays of block pointers. What is left of the dnode is the *bonus buffer*, a small piece of data that comes with the
//! object (file attributes, DSL records). A dnode takes one or more slots of 512 bytes in its object set's meta-dnode.
//!
//! # On disk
//! ```text
//!   0 type        1 indirect shift  2 levels    3 block pointers  4 bonus type  5 checksum  6 compression  7 flags
//!   8 block size in sectors (2)    10 bonus length (2)           12 extra slots  13 padding (3)
//!  16 highest block id (8)         24 space used (8)             32 padding (32)
//!  64 block pointers (128 each), then the bonus; the last 128 bytes are the spill pointer if flags say so
//! ```

use crate::blkptr::BlkPtr;
use crate::corruption::Corruption;
use crate::object_type::ObjectType;

/// Bytes of one slot.
pub const DNODE_SLOT_BYTES: usize = 512;
/// Bytes before the block pointers.
pub const DNODE_CORE_BYTES: usize = 64;
/// Bytes of a block of dnodes.
#[doc(alias = "DNODE_BLOCK_SIZE")]
pub const DNODE_BLOCK_BYTES: u64 = 16 << 10;
/// Slots in a block of dnodes.
pub const DNODES_PER_BLOCK: u64 = DNODE_BLOCK_BYTES / DNODE_SLOT_BYTES as u64;
/// Most slots of one dnode (16 KiB).
pub const DNODE_SLOTS_MAX: usize = 32;
/// Bytes of a block pointer.
pub const BLKPTR_BYTES: usize = 128;
/// log2 of the bytes of a block pointer.
pub const BLKPTR_SHIFT: u32 = 7;
/// Most block pointers in a dnode.
pub const BLOCK_POINTERS_MAX: usize = 3;
/// Most levels of a tree: 2^64 bytes in blocks of 512, with 32 pointers in each indirect block. (Real files have fewer; OpenZFS's
/// ztest makes objects that have not.)
#[doc(alias = "DN_MAX_LEVELS")]
pub const LEVELS_MAX: u8 = 12;
/// Smallest and largest log2 of an indirect block.
pub const INDIRECT_SHIFT_MIN: u8 = 12;
/// Largest log2 of an indirect block.
pub const INDIRECT_SHIFT_MAX: u8 = 17;
/// The largest block: 16 MiB.
pub const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Object numbers are below this.
#[doc(alias = "DN_MAX_OBJECT")]
pub const OBJECTS_MAX: u64 = 1 << 48;

/// `used` is in bytes, not in sectors.
#[doc(alias = "DNODE_FLAG_USED_BYTES")]
pub const FLAG_USED_BYTES: u8 = 1;
/// The object is counted in its owner's used space.
#[doc(alias = "DNODE_FLAG_USERUSED_ACCOUNTED")]
pub const FLAG_USER_ACCOUNTED: u8 = 2;
/// There is a spill pointer.
#[doc(alias = "DNODE_FLAG_SPILL_BLKPTR")]
pub const FLAG_SPILL: u8 = 4;
/// The object is counted in its owner's number of objects.
#[doc(alias = "DNODE_FLAG_USEROBJUSED_ACCOUNTED")]
pub const FLAG_USER_OBJECTS_ACCOUNTED: u8 = 8;

/// A dnode, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dnode {
    /// The type of the object; [`ObjectType::NONE`] for a free slot.
    #[doc(alias = "dn_type")]
    pub object_type: ObjectType,
    /// log2 of the size of indirect blocks.
    #[doc(alias = "dn_indblkshift")]
    pub indirect_shift: u8,
    /// Height of the tree; 1 if the dnode points at data.
    #[doc(alias = "dn_nlevels")]
    pub levels: u8,
    /// The type of the bonus.
    #[doc(alias = "dn_bonustype")]
    pub bonus_type: ObjectType,
    /// Checksum id; 0 inherits.
    #[doc(alias = "dn_checksum")]
    pub checksum: u8,
    /// Compression id; 0 inherits.
    #[doc(alias = "dn_compress")]
    pub compression: u8,
    /// `FLAG_*`.
    #[doc(alias = "dn_flags")]
    pub flags: u8,
    /// Bytes of a data block.
    #[doc(alias = "dn_datablkszsec")]
    pub block_bytes: u64,
    /// Slots that this dnode takes, 1 to 32.
    #[doc(alias = "dn_extra_slots")]
    pub slots: u8,
    /// The highest block id ever written.
    #[doc(alias = "dn_maxblkid")]
    pub max_block: u64,
    /// Space allocated, in bytes if `FLAG_USED_BYTES`, else in sectors.
    #[doc(alias = "dn_used")]
    pub used: u64,
    /// The roots of the tree.
    #[doc(alias = "dn_blkptr")]
    pub pointers: Vec<BlkPtr>,
    /// The bonus data; its length is `dn_bonuslen`.
    #[doc(alias = "dn_bonus")]
    pub bonus: Vec<u8>,
    /// What stands behind the bonus, if that is not all zeros: where a bonus is encrypted, all of its place is.
    pub bonus_rest: Vec<u8>,
    /// The spill block.
    #[doc(alias = "dn_spill")]
    pub spill: Option<BlkPtr>,
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..offset + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes.get(offset..offset + 2).and_then(|two| two.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn byte_at(bytes: &[u8], offset: usize) -> u8 {
    bytes.get(offset).copied().unwrap_or(0)
}

fn pointer_at(bytes: &[u8], offset: usize) -> Result<BlkPtr, Corruption> {
    bytes
        .get(offset..offset + BLKPTR_BYTES)
        .and_then(BlkPtr::from_bytes)
        .ok_or(Corruption::new("dnode", "length", bytes.len() as u64))
}

impl Dnode {
    /// Slots that the dnode at the start of `bytes` takes, without looking at the rest; 1 for a free slot.
    pub fn peek_slots(bytes: &[u8]) -> usize {
        if byte_at(bytes, 0) == 0 { 1 } else { usize::from(byte_at(bytes, 12)).min(DNODE_SLOTS_MAX - 1) + 1 }
    }

    /// Whether the slot at the start of `bytes` is free.
    pub fn peek_free(bytes: &[u8]) -> bool {
        byte_at(bytes, 0) == 0
    }

    /// Decodes the dnode at the start of `bytes` (little-endian), which may hold more than its slots.
    ///
    /// # Errors
    /// Names the first field that cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let bad = |field, found| Corruption::new("dnode", field, found);
        if bytes.len() < DNODE_SLOT_BYTES {
            return Err(bad("length", bytes.len() as u64));
        }
        let slots = usize::from(byte_at(bytes, 12)) + 1;
        if slots > DNODE_SLOTS_MAX || slots * DNODE_SLOT_BYTES > bytes.len() {
            return Err(bad("extra slots", slots as u64));
        }
        let bytes = bytes.get(..slots * DNODE_SLOT_BYTES).unwrap_or(bytes);
        let (indirect_shift, levels, count) = (byte_at(bytes, 1), byte_at(bytes, 2), usize::from(byte_at(bytes, 3)));
        let object_type = ObjectType(byte_at(bytes, 0));
        if object_type == ObjectType::NONE {
            return Ok(Dnode { slots: slots as u8, ..Dnode::free() });
        }
        if !(1..=LEVELS_MAX).contains(&levels) {
            return Err(bad("levels", levels.into()));
        }
        if !(1..=BLOCK_POINTERS_MAX).contains(&count) {
            return Err(bad("block pointers", count as u64));
        }
        // Of an object without indirect blocks too: it may get some.
        if !(9..=24).contains(&indirect_shift) {
            return Err(bad("indirect shift", indirect_shift.into()));
        }
        let block_bytes = u64::from(u16_at(bytes, 8)) << 9;
        if block_bytes == 0 || block_bytes > BLOCK_BYTES_MAX {
            return Err(bad("block size", block_bytes));
        }
        let max_block = u64_at(bytes, 16);
        if max_block.checked_add(1).and_then(|blocks| blocks.checked_mul(block_bytes)).is_none() {
            return Err(bad("highest block (it is beyond 64 bits of bytes)", max_block));
        }
        let flags = byte_at(bytes, 7);
        let bonus_at = DNODE_CORE_BYTES + count * BLKPTR_BYTES;
        let has_spill = flags & FLAG_SPILL != 0;
        let bonus_end = bytes.len() - if has_spill { BLKPTR_BYTES } else { 0 };
        let bonus_length = usize::from(u16_at(bytes, 10));
        if bonus_at + bonus_length > bonus_end {
            return Err(bad("bonus length", bonus_length as u64));
        }
        let rest = bytes.get(bonus_at + bonus_length..bonus_end).unwrap_or_default();
        let pointers = (0..count).map(|i| pointer_at(bytes, DNODE_CORE_BYTES + i * BLKPTR_BYTES)).collect::<Result<_, _>>()?;
        Ok(Dnode {
            object_type,
            indirect_shift,
            levels,
            bonus_type: ObjectType(byte_at(bytes, 4)),
            checksum: byte_at(bytes, 5),
            compression: byte_at(bytes, 6),
            flags,
            block_bytes,
            slots: slots as u8,
            max_block,
            used: u64_at(bytes, 24),
            pointers,
            bonus: bytes.get(bonus_at..bonus_at + bonus_length).unwrap_or_default().to_vec(),
            bonus_rest: if rest.iter().all(|byte| *byte == 0) { Vec::new() } else { rest.to_vec() },
            spill: if has_spill { Some(pointer_at(bytes, bonus_end)?) } else { None },
        })
    }

    /// A free slot.
    pub fn free() -> Self {
        Dnode {
            object_type: ObjectType::NONE,
            indirect_shift: 0,
            levels: 1,
            bonus_type: ObjectType::NONE,
            checksum: 0,
            compression: 0,
            flags: 0,
            block_bytes: 512,
            slots: 1,
            max_block: 0,
            used: 0,
            pointers: Vec::new(),
            bonus: Vec::new(),
            bonus_rest: Vec::new(),
            spill: None,
        }
    }

    /// Encodes into `slots * 512` bytes, which must be what `out` has. A free dnode becomes zeros.
    ///
    /// # Panics
    /// If the parts do not fit into the slots: that is a programmer's error.
    pub fn encode(&self, out: &mut [u8]) {
        assert_eq!(out.len(), usize::from(self.slots) * DNODE_SLOT_BYTES, "dnode: encoded into the wrong number of slots");
        out.fill(0);
        if self.object_type == ObjectType::NONE {
            return;
        }
        let bonus_at = DNODE_CORE_BYTES + self.pointers.len() * BLKPTR_BYTES;
        let bonus_end = out.len() - if self.spill.is_some() { BLKPTR_BYTES } else { 0 };
        let bonus_bytes = self.bonus.len() + self.bonus_rest.len();
        assert!(bonus_at + bonus_bytes <= bonus_end, "dnode: bonus of {bonus_bytes} bytes does not fit");
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = out.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        let head = [
            self.object_type.0,
            self.indirect_shift,
            self.levels,
            self.pointers.len() as u8,
            self.bonus_type.0,
            self.checksum,
            self.compression,
            (self.flags & !FLAG_SPILL) | if self.spill.is_some() { FLAG_SPILL } else { 0 },
        ];
        put(0, &head);
        put(8, &((self.block_bytes >> 9) as u16).to_le_bytes());
        put(10, &(self.bonus.len() as u16).to_le_bytes());
        put(12, &[self.slots - 1]);
        put(16, &self.max_block.to_le_bytes());
        put(24, &self.used.to_le_bytes());
        for (i, pointer) in self.pointers.iter().enumerate() {
            put(DNODE_CORE_BYTES + i * BLKPTR_BYTES, pointer.as_bytes());
        }
        put(bonus_at, &self.bonus);
        put(bonus_at + self.bonus.len(), &self.bonus_rest);
        if let Some(spill) = &self.spill {
            put(bonus_end, spill.as_bytes());
        }
    }

    /// Most bytes that the bonus can have beside `pointers` block pointers in `slots` slots, without a spill pointer.
    pub fn bonus_bytes_max(slots: usize, pointers: usize) -> usize {
        slots * DNODE_SLOT_BYTES - DNODE_CORE_BYTES - pointers * BLKPTR_BYTES
    }

    /// Space allocated, in bytes.
    pub fn used_bytes(&self) -> u64 {
        if self.flags & FLAG_USED_BYTES != 0 { self.used } else { self.used << 9 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            if let Ok(dnode) = Dnode::decode(&bytes) && dnode.object_type != ObjectType::NONE {
                let mut out = vec![0; usize::from(dnode.slots) * DNODE_SLOT_BYTES];
                dnode.encode(&mut out);
                prop_assert_eq!(Dnode::decode(&out).unwrap(), dnode);
            }
        }
    }

    /// Found while fuzzing: the size of such an object, and the tree that it would grow, do not fit into numbers.
    #[test]
    fn objects_that_cannot_grow_or_end_are_refused() {
        let mut bytes = [0; DNODE_SLOT_BYTES];
        bytes[..12].copy_from_slice(&[19, 17, 1, 1, 0, 0, 0, 0, 8, 0, 0, 0]);
        assert!(Dnode::decode(&bytes).is_ok());
        for shift in [0, 7, 8, 25, 255] {
            let mut bytes = bytes;
            bytes[1] = shift;
            assert_eq!(Dnode::decode(&bytes).map_err(|corruption| corruption.field), Err("indirect shift"));
        }
        for (max_block, fits) in [((1u64 << 52) - 2, true), ((1 << 52) - 1, false), (u64::MAX, false)] {
            bytes[16..24].copy_from_slice(&max_block.to_le_bytes());
            assert_eq!(Dnode::decode(&bytes).is_ok(), fits, "{max_block}");
        }
    }

    #[test]
    fn a_dnode_round_trips() {
        let dnode = Dnode {
            object_type: ObjectType(19),
            indirect_shift: 17,
            levels: 2,
            bonus_type: ObjectType(44),
            checksum: 7,
            compression: 15,
            flags: FLAG_USED_BYTES,
            block_bytes: 128 << 10,
            slots: 2,
            max_block: 77,
            used: 12345,
            pointers: vec![BlkPtr::default()],
            bonus: vec![7; 300],
            bonus_rest: vec![8; 30],
            spill: Some(BlkPtr::default()),
        };
        let mut out = vec![0; 1024];
        dnode.encode(&mut out);
        let mut expected = dnode;
        expected.flags |= FLAG_SPILL;
        expected.bonus_rest.resize(1024 - DNODE_CORE_BYTES - 300 - 2 * BLKPTR_BYTES, 0);
        assert_eq!(Dnode::decode(&out).unwrap(), expected);
        // ztest makes trees that are higher than they need to be.
        out[2] = LEVELS_MAX;
        assert_eq!(Dnode::decode(&out).unwrap().levels, 12);
        out[2] = LEVELS_MAX + 1;
        assert!(Dnode::decode(&out).is_err());
    }
}
