//! Data virtual addresses: where one copy of a block is.
//!
//! # Theory
//! A DVA names a top-level vdev, a byte offset in the space that the vdev presents, and how much of that space the block
//! takes there, parity and padding included. The offset is into the *allocatable* space: the two front labels and the
//! boot area (4 MiB) lie before offset zero and are added by the vdev layer.
//!
//! # On disk
//! ```text
//!       64      56      48      40      32      24      16      8       0
//! word 0 |  pad  |     vdev (24 bits)    |  pad  |  allocated/512 (24)   |
//! word 1 |G|                    offset / 512 (63 bits)                  |
//! ```
//! `G` says that what lies at the offset is the header of a gang block.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bits;

/// The unit in which sizes and offsets are stored.
pub const SECTOR_SHIFT: u32 = 9;

const VDEV_BITS: u32 = 24;
const ALLOCATED_BITS: u32 = 24;
const OFFSET_BITS: u32 = 63;

/// The largest vdev id that a DVA can name.
pub const MAX_VDEV: u32 = (1 << VDEV_BITS) - 1;

/// The two words of a DVA as they are on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawDva {
    /// Vdev id and allocated size.
    pub location: U64,
    /// Gang bit and offset.
    pub offset: U64,
}

const _: () = assert!(size_of::<RawDva>() == 16);

impl RawDva {
    /// The decoded address. Every bit pattern is one.
    pub fn decode(&self) -> Dva {
        let (location, offset) = (self.location.get(), self.offset.get());
        Dva {
            vdev: bits::get(location, 32, VDEV_BITS) as u32,
            allocated: bits::get_scaled(location, 0, ALLOCATED_BITS, SECTOR_SHIFT, 0),
            // 63 bits of sectors do not fit 64 bits of bytes: such an offset is beyond every disk, and stays so.
            offset: bits::get(offset, 0, OFFSET_BITS).min(u64::MAX >> SECTOR_SHIFT) << SECTOR_SHIFT,
            gang: bits::get(offset, 63, 1) != 0,
        }
    }

    /// Both words are zero: there is no address here.
    pub fn is_empty(&self) -> bool {
        self.location.get() == 0 && self.offset.get() == 0
    }

    /// The address takes space, so it is one.
    pub fn is_valid(&self) -> bool {
        bits::get(self.location.get(), 0, ALLOCATED_BITS) != 0
    }
}

/// Where one copy of a block is. Sizes and offsets in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dva {
    /// Id of the top-level vdev.
    pub vdev: u32,
    /// Byte offset in the allocatable space of that vdev.
    pub offset: u64,
    /// Bytes taken there (ASIZE); of a gang block, all its members included.
    #[doc(alias = "asize")]
    pub allocated: u64,
    /// It is the place of the header of a gang block.
    pub gang: bool,
}

impl Dva {
    /// A plain address.
    pub const fn new(vdev: u32, offset: u64, allocated: u64) -> Self {
        Dva { vdev, offset, allocated, gang: false }
    }

    /// The two words.
    ///
    /// # Panics
    /// When offset or size are no whole sectors or too large: the allocator makes them.
    pub fn encode(&self) -> RawDva {
        let location = bits::set(
            bits::set_scaled(0, 0, ALLOCATED_BITS, SECTOR_SHIFT, 0, self.allocated),
            32,
            VDEV_BITS,
            u64::from(self.vdev),
        );
        let offset = bits::set_scaled(u64::from(self.gang) << 63, 0, OFFSET_BITS, SECTOR_SHIFT, 0, self.offset);
        RawDva { location: location.into(), offset: offset.into() }
    }
}

impl fmt::Display for Dva {
    /// As `zdb` prints it: `<vdev:offset:allocated>`, hexadecimal but for the vdev.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}:{:x}:{:x}>", self.vdev, self.offset, self.allocated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_where_the_format_has_them() {
        let dva = Dva { vdev: 3, offset: 0x4000, allocated: 0x1000, gang: true };
        let raw = dva.encode();
        assert_eq!(raw.location.get(), (3 << 32) | 8);
        assert_eq!(raw.offset.get(), (1 << 63) | 0x20);
        assert_eq!(raw.decode(), dva);
        assert_eq!(dva.to_string(), "<3:4000:1000>");
    }

    #[test]
    fn any_words_decode() {
        let raw = RawDva { location: u64::MAX.into(), offset: u64::MAX.into() };
        let dva = raw.decode();
        assert_eq!(dva.vdev, MAX_VDEV);
        assert_eq!(dva.offset, u64::MAX - 511);
        assert!(raw.is_valid() && !raw.is_empty());
        // Found by the fuzzer: an offset of no whole sectors could not be encoded again, as freeing a block does.
        assert_eq!(dva.encode().decode(), dva);
    }
}
