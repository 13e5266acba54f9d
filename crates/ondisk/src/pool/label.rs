//! The four labels of a vdev.
//!
//! # Theory
//! Every leaf vdev says by itself which pool it belongs to: two labels at its start and two at its end, all equal, so
//! that one torn write or one overwritten end of the disk never takes them all. Labels are written in pairs (0 and 2,
//! then 1 and 3) around the uberblocks, so that whichever uberblock is the newest, a label that describes it is whole.
//! Labels and uberblocks are written in place, so they carry their checksum inside: the last [`CHECKSUM_BYTES`] of the
//! boot environment, of the configuration and of each slot of the ring are a magic number and a SHA-256 over the whole,
//! keyed with the offset on the device.
//!
//! # On disk
//! ```text
//! the device:  | label 0 | label 1 | boot 3.5 MiB | data ...                        | label 2 | label 3 |
//!              0        256K      512K           4M                            size-512K  size-256K     size
//! a label:     | blank 8K | boot environment 8K | configuration (nvlist) 112K | uberblock ring 128K |
//! ```
//! The size of the device counts rounded down to whole labels. Data offsets (DVAs) count from 4 MiB.

/// Bytes of one label.
pub const LABEL_BYTES: u64 = 256 << 10;
/// How many labels a vdev has.
#[doc(alias = "VDEV_LABELS")]
pub const LABELS: usize = 4;
/// Bytes of the checksum at the end of each of a label's parts.
#[doc(alias = "zio_eck_t")]
pub const CHECKSUM_BYTES: usize = 40;
/// Where the boot environment is in a label.
pub const BOOT_ENVIRONMENT_OFFSET: u64 = 8 << 10;
/// Bytes of the boot environment, checksum included.
pub const BOOT_ENVIRONMENT_BYTES: usize = 8 << 10;
/// Where the configuration is in a label.
#[doc(alias = "vl_vdev_phys")]
pub const CONFIG_OFFSET: u64 = 16 << 10;
/// Bytes of the configuration, checksum included.
#[doc(alias = "VDEV_PHYS_SIZE")]
pub const CONFIG_BYTES: usize = 112 << 10;
/// Bytes the packed nvlist may have.
pub const CONFIG_NVLIST_BYTES: usize = CONFIG_BYTES - CHECKSUM_BYTES;
/// Where the ring of uberblocks is in a label.
pub const RING_OFFSET: u64 = 128 << 10;
/// Bytes of the ring.
#[doc(alias = "VDEV_UBERBLOCK_RING")]
pub const RING_BYTES: u64 = 128 << 10;
/// Where the area for boot loaders is on the device.
pub const BOOT_OFFSET: u64 = 2 * LABEL_BYTES;
/// Bytes of the area for boot loaders.
pub const BOOT_BYTES: u64 = 7 << 19;
/// What is before the data: two labels and the boot area.
#[doc(alias = "VDEV_LABEL_START_SIZE")]
pub const START_BYTES: u64 = BOOT_OFFSET + BOOT_BYTES;
/// What is behind the data: two labels.
#[doc(alias = "VDEV_LABEL_END_SIZE")]
pub const END_BYTES: u64 = 2 * LABEL_BYTES;
/// The smallest device that ZFS takes.
#[doc(alias = "SPA_MINDEVSIZE")]
pub const DEVICE_BYTES_MIN: u64 = 64 << 20;

const _: () = assert!(START_BYTES == 4 << 20);
const _: () = assert!(RING_OFFSET + RING_BYTES == LABEL_BYTES);
const _: () = assert!(CONFIG_OFFSET + CONFIG_BYTES as u64 == RING_OFFSET);

/// A device's size as labels see it: whole labels only.
#[doc(alias = "psize")]
pub const fn usable_bytes(device_bytes: u64) -> u64 {
    device_bytes / LABEL_BYTES * LABEL_BYTES
}

/// The bytes for data on a device; `None` if it is too small for ZFS.
pub const fn data_bytes(device_bytes: u64) -> Option<u64> {
    if device_bytes < DEVICE_BYTES_MIN { None } else { Some(usable_bytes(device_bytes) - START_BYTES - END_BYTES) }
}

/// Where label `label` starts on a device. The device must have room for four.
pub const fn label_offset(device_bytes: u64, label: usize) -> u64 {
    assert!(label < LABELS && device_bytes >= LABELS as u64 * LABEL_BYTES);
    let index = label as u64 * LABEL_BYTES;
    if label < LABELS / 2 { index } else { usable_bytes(device_bytes) - LABELS as u64 * LABEL_BYTES + index }
}

/// The shape of an uberblock ring, which follows from the sector size of the top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    slot_shift: u32,
}

impl Ring {
    /// The smallest slot is 1 KiB, the largest 8 KiB.
    pub fn new(ashift: u32) -> Ring {
        Ring { slot_shift: ashift.clamp(10, 13) }
    }

    /// Bytes of one slot.
    pub fn slot_bytes(self) -> usize {
        1 << self.slot_shift
    }

    /// How many slots there are.
    pub fn slots(self) -> u64 {
        RING_BYTES >> self.slot_shift
    }

    /// Where slot `slot` is in the label.
    pub fn slot_offset(self, slot: u64) -> u64 {
        assert!(slot < self.slots());
        RING_OFFSET + (slot << self.slot_shift)
    }

    /// The slot for the uberblock of `txg`. With multihost protection the last slot is kept for heartbeats.
    pub fn slot_of(self, txg: u64, multihost: bool) -> u64 {
        txg % (self.slots() - u64::from(multihost))
    }
}

/// The order of the bytes in a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first: what we write.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The number in eight bytes.
    pub const fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        }
    }

    /// The eight bytes of a number.
    pub const fn bytes(self, value: u64) -> [u8; 8] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_at_both_ends_of_whole_labels() {
        let device = (64 << 20) + 100_000;
        let offsets: Vec<u64> = (0..LABELS).map(|l| label_offset(device, l)).collect();
        assert_eq!(offsets, [0, 256 << 10, (64 << 20) - (512 << 10), (64 << 20) - (256 << 10)]);
        assert_eq!(data_bytes(device), Some((64 << 20) - (4 << 20) - (512 << 10)));
        assert_eq!(data_bytes(DEVICE_BYTES_MIN - 1), None);
    }

    #[test]
    fn the_ring_has_slots_of_1_to_8_kib() {
        for (ashift, bytes, slots) in [(9, 1024, 128), (12, 4096, 32), (13, 8192, 16), (16, 8192, 16)] {
            let ring = Ring::new(ashift);
            assert_eq!((ring.slot_bytes(), ring.slots()), (bytes, slots));
            assert_eq!(ring.slot_offset(slots - 1), LABEL_BYTES - bytes as u64);
            assert_eq!(ring.slot_of(slots - 1, false), slots - 1);
            assert_eq!(ring.slot_of(slots - 1, true), 0);
        }
    }
}
