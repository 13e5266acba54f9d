//! The hashed ZAP: header and pointer table. (Its leaves are in [`crate::zap_leaf`].)
//!
//! # Theory
//! An extendible hash table over the blocks of one object, all of one power-of-two size.
//! Block 0 is the header. The pointer table maps the upper `shift` bits of a hash to the block number of a leaf;
//! many pointers may name one leaf, when the leaf is identified by fewer bits than the table.
//!
//! ```text
//! small:  [header | embedded table] [leaf] [leaf] ...
//! large:  [header | unused        ] [leaf] ... [table block] [table block] ... [leaf] ...
//! ```
//!
//! The embedded table is the second half of block 0. A larger table lives in blocks of its own, and when it doubles, it may
//! do so over many transactions: `next_start_block` names the larger copy and `blocks_copied` how far the copying has come.

use crate::corruption::Corruption;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First word of block 0.
#[doc(alias = "ZBT_HEADER")]
pub const BLOCK_TYPE: u64 = (1 << 63) + 1;
/// Second word of block 0.
#[doc(alias = "ZAP_MAGIC")]
pub const MAGIC: u64 = 0x2_F52A_B2AB;
/// Block size of a ZAP that grew from one block.
#[doc(alias = "fzap_default_block_shift")]
pub const DEFAULT_BLOCK_SHIFT: u32 = 14;
/// Smallest and largest block shift that we accept from a disk.
pub const BLOCK_SHIFT_RANGE: std::ops::RangeInclusive<u32> = 9..=24;
/// Longest name, with its terminating zero, outside directories.
#[doc(alias = "ZAP_MAXNAMELEN")]
pub const NAME_MAX: usize = 256;
/// Longest name, with its terminating zero, in a directory of a dataset with `longname`.
#[doc(alias = "ZAP_MAXNAMELEN_NEW")]
pub const LONG_NAME_MAX: usize = 1024;
/// Longest value in bytes.
#[doc(alias = "ZAP_MAXVALUELEN")]
pub const VALUE_MAX: usize = 8192;

/// One pointer of a pointer table: the block number of a leaf.
pub type Pointer = U64;

/// The external pointer table, as the header describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PointerTable {
    /// First block; zero if the table is embedded.
    #[doc(alias = "zt_blk")]
    pub start_block: U64,
    /// Number of blocks; zero if the table is embedded.
    #[doc(alias = "zt_numblks")]
    pub block_count: U64,
    /// How many bits of a hash index the table.
    #[doc(alias = "zt_shift")]
    pub shift: U64,
    /// First block of the copy of twice the size that is being made; zero if none.
    #[doc(alias = "zt_nextblk")]
    pub next_start_block: U64,
    /// How many blocks are copied already.
    #[doc(alias = "zt_blks_copied")]
    pub blocks_copied: U64,
}

/// The start of block 0.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FatHeader {
    /// [`BLOCK_TYPE`].
    #[doc(alias = "zap_block_type")]
    pub block_type: U64,
    /// [`MAGIC`].
    #[doc(alias = "zap_magic")]
    pub magic: U64,
    /// Where the pointer table is.
    #[doc(alias = "zap_ptrtbl")]
    pub pointer_table: PointerTable,
    /// The next block that nobody uses.
    #[doc(alias = "zap_freeblk")]
    pub next_free_block: U64,
    /// Number of leaves.
    #[doc(alias = "zap_num_leafs")]
    pub leaf_count: U64,
    /// Number of entries.
    #[doc(alias = "zap_num_entries")]
    pub entry_count: U64,
    /// Start of the hash.
    #[doc(alias = "zap_salt")]
    pub salt: U64,
    /// How names are normalised before they are hashed or compared.
    #[doc(alias = "zap_normflags")]
    pub normalization: U64,
    /// `FLAG_*` of [`crate::zap_hash`].
    #[doc(alias = "zap_flags")]
    pub flags: U64,
}

const _: () = assert!(size_of::<FatHeader>() == 104);

/// How many bits index the embedded table of a ZAP with blocks of `1 << block_shift` bytes.
#[doc(alias = "ZAP_EMBEDDED_PTRTBL_SHIFT")]
pub const fn embedded_shift(block_shift: u32) -> u32 {
    block_shift - 4
}

fn block_shift(block: &[u8]) -> Result<u32, Corruption> {
    let shift = block.len().checked_ilog2().unwrap_or(0);
    if !block.len().is_power_of_two() || !BLOCK_SHIFT_RANGE.contains(&shift) {
        return Err(Corruption::new("ZAP header", "block size", block.len() as u64));
    }
    Ok(shift)
}

/// The header in block 0, checked.
pub fn header(block: &[u8]) -> Result<FatHeader, Corruption> {
    let bad = |field, found| Err(Corruption::new("ZAP header", field, found));
    let block_shift = block_shift(block)?;
    let (header, _) = FatHeader::read_from_prefix(block).map_err(|_| Corruption::new("ZAP header", "size", block.len() as u64))?;
    if header.block_type.get() != BLOCK_TYPE {
        return bad("block type", header.block_type.get());
    }
    if header.magic.get() != MAGIC {
        return bad("magic", header.magic.get());
    }
    let table = &header.pointer_table;
    let shift = table.shift.get();
    if table.block_count.get() == 0 {
        if shift != u64::from(embedded_shift(block_shift)) {
            return bad("pointer table shift", shift);
        }
    } else {
        // An external table of 2^shift pointers of 8 bytes fills its blocks exactly.
        if shift > 48 || (8u64 << shift) >> block_shift != table.block_count.get() {
            return bad("pointer table shift", shift);
        }
        let limit = header.next_free_block.get();
        if table.start_block.get() == 0 || table.start_block.get().saturating_add(table.block_count.get()) > limit {
            return bad("pointer table block", table.start_block.get());
        }
        if table.next_start_block.get() != 0 && table.next_start_block.get().saturating_add(table.block_count.get() * 2) > limit {
            return bad("next pointer table block", table.next_start_block.get());
        }
        if table.blocks_copied.get() > table.block_count.get() {
            return bad("pointer table blocks copied", table.blocks_copied.get());
        }
    }
    // Object offsets are below 2^63, so block numbers are below 2^(63 - shift).
    if header.next_free_block.get() >> (63 - block_shift) != 0 {
        return bad("next free block", header.next_free_block.get());
    }
    Ok(header)
}

/// Writes the header into block 0.
pub fn write_header(block: &mut [u8], header: &FatHeader) {
    block[..size_of::<FatHeader>()].copy_from_slice(header.as_bytes());
}

/// Makes block 0 the header of a ZAP without entries, whose only leaf is block 1.
pub fn initialize(block: &mut [u8], salt: u64, normalization: u64, flags: u64) {
    let shift = block_shift(block).expect("a fat ZAP's blocks are a power of two of at least 512 bytes");
    block.fill(0);
    let header = FatHeader {
        block_type: U64::new(BLOCK_TYPE),
        magic: U64::new(MAGIC),
        pointer_table: PointerTable {
            start_block: U64::ZERO,
            block_count: U64::ZERO,
            shift: U64::new(u64::from(embedded_shift(shift))),
            next_start_block: U64::ZERO,
            blocks_copied: U64::ZERO,
        },
        next_free_block: U64::new(2),
        leaf_count: U64::new(1),
        entry_count: U64::ZERO,
        salt: U64::new(salt),
        normalization: U64::new(normalization),
        flags: U64::new(flags),
    };
    write_header(block, &header);
    for pointer in embedded_table_mut(block) {
        *pointer = U64::new(1);
    }
}

/// The embedded pointer table of block 0.
pub fn embedded_table(block: &[u8]) -> &[Pointer] {
    table(block.get(block.len() / 2..).unwrap_or(&[]))
}

/// The embedded pointer table of block 0, for writing.
pub fn embedded_table_mut(block: &mut [u8]) -> &mut [Pointer] {
    let half = block.len() / 2;
    table_mut(&mut block[half..])
}

/// A pointer table block as words.
pub fn table(block: &[u8]) -> &[Pointer] {
    block.get(..block.len() & !7).and_then(|bytes| <[U64]>::ref_from_bytes(bytes).ok()).unwrap_or(&[])
}

/// A pointer table block as words, for writing.
pub fn table_mut(block: &mut [u8]) -> &mut [Pointer] {
    let whole = block.len() & !7;
    <[U64]>::mut_from_bytes(&mut block[..whole]).expect("a multiple of 8 bytes is an array of words")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_new_header_reads_back() {
        let mut block = vec![0xa5; 1 << 14];
        initialize(&mut block, 99, 0, 3);
        let header = header(&block).unwrap();
        assert_eq!(header.pointer_table.shift.get(), 10);
        assert_eq!(header.next_free_block.get(), 2);
        assert_eq!((header.salt.get(), header.flags.get()), (99, 3));
        assert_eq!(embedded_table(&block).len(), 1024);
        assert!(embedded_table(&block).iter().all(|pointer| pointer.get() == 1));
        assert_eq!(&block[8..16], &[0xab, 0xb2, 0x2a, 0xf5, 2, 0, 0, 0]);
    }

    #[test]
    fn a_table_shift_that_does_not_fit_is_refused() {
        let mut block = vec![0; 1 << 14];
        initialize(&mut block, 99, 0, 0);
        block[32] = 11;
        assert_eq!(header(&block).unwrap_err().field, "pointer table shift");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(mut block in proptest::collection::vec(any::<u8>(), 1024), valid in any::<bool>()) {
            if valid {
                block[..8].copy_from_slice(&BLOCK_TYPE.to_le_bytes());
                block[8..16].copy_from_slice(&MAGIC.to_le_bytes());
            }
            let _ = header(&block);
            let _ = header(&block[..100]);
            prop_assert_eq!(embedded_table(&block).len(), 64);
        }
    }
}
