//! The one-block ZAP.
//!
//! # Theory
//! A ZAP with short names and one 64-bit value each is one block: a 64-byte header, then 64-byte slots.
//! A slot whose name is empty is free. Nothing orders the slots: a reader builds an index in memory.
//! The collision number tells entries of equal hash apart, so that a position in an iteration survives changes.
//!
//! # Invariants
//! 1. A name has at most [`NAME_MAX`] bytes and no zero byte.

use crate::corruption::Corruption;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First word of a micro ZAP's block.
#[doc(alias = "ZBT_MICRO")]
pub const BLOCK_TYPE: u64 = (1 << 63) + 3;
/// Size of a slot, and of the header.
#[doc(alias = "MZAP_ENT_LEN")]
pub const SLOT_SIZE: usize = 64;
/// Longest name in bytes, without the terminating zero.
#[doc(alias = "MZAP_NAME_LEN")]
pub const NAME_MAX: usize = 49;
/// Largest block that slot numbers of 16 bits allow, rounded down to a power of two.
#[doc(alias = "MZAP_MAX_SIZE")]
pub const BLOCK_MAX: usize = 1 << 20;

/// The header.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MicroHeader {
    /// [`BLOCK_TYPE`].
    #[doc(alias = "mz_block_type")]
    pub block_type: U64,
    /// Start of the hash.
    #[doc(alias = "mz_salt")]
    pub salt: U64,
    /// How names are normalised before they are hashed or compared.
    #[doc(alias = "mz_normflags")]
    pub normalization: U64,
    /// Zero.
    #[doc(alias = "mz_pad")]
    pub pad: [U64; 5],
}

/// One slot.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MicroSlot {
    /// The value.
    #[doc(alias = "mze_value")]
    pub value: U64,
    /// Tells entries of equal hash apart.
    #[doc(alias = "mze_cd")]
    pub collision: U32,
    /// Zero.
    #[doc(alias = "mze_pad")]
    pub pad: U16,
    /// The name, ended by a zero; an empty name is a free slot.
    #[doc(alias = "mze_name")]
    pub name: [u8; NAME_MAX + 1],
}

const _: () = assert!(size_of::<MicroHeader>() == SLOT_SIZE && size_of::<MicroSlot>() == SLOT_SIZE);

impl MicroSlot {
    /// The bytes of the name, up to its zero (or all, if the disk lost the zero).
    pub fn name(&self) -> &[u8] {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        self.name.get(..end).unwrap_or(&[])
    }

    /// True if the slot holds no entry.
    pub fn is_free(&self) -> bool {
        self.name.first() == Some(&0)
    }
}

/// How many slots a block of `block_size` bytes has.
pub const fn slot_count(block_size: usize) -> usize {
    (block_size / SLOT_SIZE).saturating_sub(1)
}

/// The header of a block, checked.
pub fn header(block: &[u8]) -> Result<&MicroHeader, Corruption> {
    let (header, _) = MicroHeader::ref_from_prefix(block).map_err(|_| Corruption::new("micro ZAP", "size", block.len() as u64))?;
    if header.block_type.get() != BLOCK_TYPE {
        return Err(Corruption::new("micro ZAP", "block type", header.block_type.get()));
    }
    if block.len() > BLOCK_MAX {
        return Err(Corruption::new("micro ZAP", "size", block.len() as u64));
    }
    Ok(header)
}

/// All slots of a block; none if the block is too small to have any.
pub fn slots(block: &[u8]) -> &[MicroSlot] {
    let whole = slot_count(block.len()) * SLOT_SIZE;
    block.get(SLOT_SIZE..SLOT_SIZE + whole).and_then(|bytes| <[MicroSlot]>::ref_from_bytes(bytes).ok()).unwrap_or(&[])
}

/// Slot `index` for writing.
pub fn slot_mut(block: &mut [u8], index: usize) -> Option<&mut MicroSlot> {
    let start = SLOT_SIZE.checked_mul(index.checked_add(1)?)?;
    MicroSlot::mut_from_bytes(block.get_mut(start..start.checked_add(SLOT_SIZE)?)?).ok()
}

/// Makes `block` an empty micro ZAP.
pub fn initialize(block: &mut [u8], salt: u64, normalization: u64) {
    assert!(block.len() >= SLOT_SIZE, "a micro ZAP needs room for its header");
    block.fill(0);
    let header = MicroHeader { block_type: U64::new(BLOCK_TYPE), salt: U64::new(salt), normalization: U64::new(normalization), pad: [U64::ZERO; 5] };
    block[..SLOT_SIZE].copy_from_slice(header.as_bytes());
}

/// Writes an entry into slot `index`.
pub fn write_slot(block: &mut [u8], index: usize, name: &[u8], value: u64, collision: u32) {
    assert!(!name.is_empty() && name.len() <= NAME_MAX, "a micro ZAP name has 1 to 49 bytes");
    let slot = slot_mut(block, index).expect("the caller chose a slot of this block");
    slot.value = U64::new(value);
    slot.collision = U32::new(collision);
    slot.pad = U16::ZERO;
    slot.name = [0; NAME_MAX + 1];
    slot.name[..name.len()].copy_from_slice(name);
}

/// Frees slot `index`.
pub fn clear_slot(block: &mut [u8], index: usize) {
    if let Some(slot) = slot_mut(block, index) {
        slot.as_mut_bytes().fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_slot_is_written_at_its_offsets() {
        let mut block = vec![0xff; 512];
        initialize(&mut block, 0x1122_3344_5566_7788, 2);
        write_slot(&mut block, 1, b"ROOT", 34, 7);
        assert_eq!(&block[..8], &[3, 0, 0, 0, 0, 0, 0, 0x80]);
        assert_eq!(&block[8..16], &0x1122_3344_5566_7788u64.to_le_bytes());
        assert_eq!(&block[128..142], &[34, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0]);
        assert_eq!(&block[142..147], b"ROOT\0");
        assert_eq!(slot_count(512), 7);
        assert_eq!(slots(&block)[1].name(), b"ROOT");
        assert!(slots(&block)[0].is_free());
        clear_slot(&mut block, 1);
        assert!(slots(&block).iter().all(MicroSlot::is_free));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(block in proptest::collection::vec(any::<u8>(), 0..700)) {
            let _ = header(&block);
            for slot in slots(&block) {
                prop_assert!(slot.name().len() <= NAME_MAX + 1);
            }
        }
    }
}
