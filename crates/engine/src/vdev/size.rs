//! How large things are: sectors, metaslabs.

use disk::{Disk, DiskKind};

/// The smallest sector is 512 bytes.
pub const ASHIFT_MIN: u32 = 9;
/// The largest sector is 64 KiB.
pub const ASHIFT_MAX: u32 = 16;
/// Devices that claim larger physical sectors are not believed.
const ASHIFT_AUTOMATIC_MAX: u32 = 14;

/// log2 of the sector to use on a new device, if nobody asked for another.
pub fn default_ashift(disk: &dyn Disk) -> u32 {
    if disk.kind() == DiskKind::File {
        return ASHIFT_MIN;
    }
    let logical = shift_of(disk.sector_bytes());
    let physical = shift_of(disk.physical_sector_bytes());
    let best = if physical <= ASHIFT_AUTOMATIC_MAX { logical.max(physical) } else { logical };
    best.clamp(ASHIFT_MIN, ASHIFT_MAX)
}

/// log2, rounded up.
pub(super) fn shift_of(bytes: u64) -> u32 {
    bytes.max(1).next_power_of_two().trailing_zeros()
}

/// log2 of the metaslab size for a new top-level vdev with this much space.
///
/// About 16 metaslabs up to 8 GiB, of 512 MiB up to 100 GiB, about 200 up to 3 TiB, of 16 GiB beyond, and never more
/// than 131072; never smaller than the largest block.
#[doc(alias = "vdev_metaslab_set_size")]
pub fn metaslab_shift(asize: u64) -> u32 {
    const DEFAULT_SHIFT: u32 = 29;
    const SHIFT_MAX: u32 = 34;
    const SHIFT_MIN: u32 = 24;
    const COUNT_MIN: u64 = 16;
    const COUNT: u64 = 200;
    const COUNT_MAX: u64 = 1 << 17;
    // The position of the highest bit, counted from 1.
    let high_bit = |value: u64| u64::BITS - value.leading_zeros();
    let count = asize >> DEFAULT_SHIFT;
    let shift = if count < COUNT_MIN {
        high_bit(asize / COUNT_MIN)
    } else if count > COUNT {
        high_bit(asize / COUNT)
    } else {
        DEFAULT_SHIFT
    };
    if shift > SHIFT_MAX && asize >> SHIFT_MAX > COUNT_MAX {
        return high_bit(asize / COUNT_MAX);
    }
    shift.clamp(SHIFT_MIN, SHIFT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::MemDisk;

    #[test]
    fn metaslabs_have_the_sizes_of_openzfs() {
        // (asize, shift) of pools made by OpenZFS, and the borders of the rule.
        for (asize, shift) in [
            (62_390_272, 24),
            (95_944_704, 24),
            (1 << 30, 27),
            (8 << 30, 29),
            (100 << 30, 29),
            (101 << 30, 30),
            (3 << 40, 34),
            (2 << 50, 34),
            (4 << 50, 36),
        ] {
            assert_eq!(metaslab_shift(asize), shift, "{asize}");
        }
    }

    #[test]
    fn a_file_has_512_byte_sectors() {
        assert_eq!(default_ashift(&MemDisk::with_sector("d", 1 << 26, 4096)), 9);
        assert_eq!((shift_of(512), shift_of(4096), shift_of(0)), (9, 12, 0));
    }
}
