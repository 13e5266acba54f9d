//! Cloned blocks: how many pointers lead to a block beyond the first.
//!
//! # Theory
//! A block that two files share, not because they were written the same but because one was cloned from the other, is counted
//! by its address: by vdev and offset of its first copy. A block that nobody cloned is not in the table. To know that
//! without looking there is, for each vdev, a count of entries for every 16 MiB.
//!
//! # On disk
//! ```text
//! MOS directory: com.fudosecurity:brt:vdev:N ──> u16 counts, with VdevPhys in the bonus
//!                                                 VdevPhys::entries ──> ZAP: offset (1 word) ──> references beyond the first
//! ```
//! The value is one 8-byte integer if the feature `block_cloning_endian` is active, else 8 bytes in the machine's order.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Key of the MOS's directory, before the number of the vdev.
pub const VDEV_PREFIX: &str = "com.fudosecurity:brt:vdev:";
/// Bytes of a vdev that one count is for, in new tables.
pub const RANGE_BYTES: u64 = 16 << 20;
/// Bytes of a block of the array of counts.
pub const COUNTS_BLOCK_BYTES: u64 = 32 << 10;
/// log2 of the blocks of the ZAP of entries.
pub const ENTRIES_BLOCK_SHIFT: u32 = 13;

/// The bonus of the array of counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[doc(alias = "brt_vdev_phys")]
pub struct VdevPhys {
    /// The ZAP of entries.
    pub entries: U64,
    /// How many counts there are.
    pub counts: U64,
    /// The order of the counts' bytes: 0 little-endian, 1 big-endian.
    pub byte_order: U64,
    /// The sum of all counts.
    pub total: U64,
    /// Bytes of the vdev that one count is for.
    pub range_bytes: U64,
    /// Space of all blocks in the table.
    pub used: U64,
    /// Space that would be needed besides if nothing were shared.
    pub saved: U64,
}

const _: () = assert!(size_of::<VdevPhys>() == 56);
