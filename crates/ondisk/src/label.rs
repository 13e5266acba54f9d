//! The four labels of a vdev.
//!
//! # Theory
//! Every leaf vdev says by itself which pool it belongs to: two labels at its start and two at its end, all equal, so
//! that one torn write or one overwritten end of the disk never takes them all. Labels are written in pairs (0 and 2,
//! then 1 and 3) around the uberblocks, so that whichever uberblock is the newest, a label that describes it is whole.
//! Labels are the only blocks written in place, hence they carry their checksum inside ([`EmbeddedChecksum`]).
//!
//! # On disk
//! ```text
//! the device:  | label 0 | label 1 | boot 3.5 MiB | data ...                        | label 2 | label 3 |
//!              0        256K      512K           4M                            size-512K  size-256K     size
//! a label:     | blank 8K | boot environment 8K | configuration (nvlist) 112K | uberblock ring 128K |
//! ```
//! The size of the device counts rounded down to whole labels. Data offsets (DVAs) count from 4 MiB.

use crate::corruption::Corruption;

/// Bytes of one label.
pub const LABEL_BYTES: u64 = 256 << 10;
/// How many labels a vdev has.
#[doc(alias = "VDEV_LABELS")]
pub const LABELS: usize = 4;
/// Where the boot environment is in a label, and how long it is.
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
pub const CONFIG_NVLIST_BYTES: usize = CONFIG_BYTES - EmbeddedChecksum::BYTES;
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

/// The checksum in the last 40 bytes of a block that is written in place: magic, then four words.
///
/// It is computed over the whole block, with the words first set to the *verifier*, which ties the block to its place:
/// for labels and uberblocks the offset on the device and three zeros.
#[doc(alias = "zio_eck_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddedChecksum {
    /// The byte order of the magic, and of the words.
    pub order: ByteOrder,
    /// The checksum as four numbers.
    pub words: [u64; 4],
}

impl EmbeddedChecksum {
    /// Bytes on disk.
    pub const BYTES: usize = 40;
    /// The magic number.
    #[doc(alias = "ZEC_MAGIC")]
    pub const MAGIC: u64 = 0x0210_da7a_b10c_7a11;

    /// The verifier of a label or an uberblock.
    pub const fn label_verifier(device_offset: u64) -> [u64; 4] {
        [device_offset, 0, 0, 0]
    }

    /// Reads the checksum at the end of `block`.
    pub fn read(block: &[u8]) -> Result<EmbeddedChecksum, Corruption> {
        let (_, tail) = block.split_last_chunk::<40>().ok_or(bad("length", block.len() as u64))?;
        let (chunks, _) = tail.as_chunks::<8>();
        let [magic, words @ ..] = chunks else { return Err(bad("length", block.len() as u64)) };
        let order = match u64::from_le_bytes(*magic) {
            Self::MAGIC => ByteOrder::Little,
            other if other.swap_bytes() == Self::MAGIC => ByteOrder::Big,
            other => return Err(bad("magic", other)),
        };
        let mut checksum = EmbeddedChecksum { order, words: [0; 4] };
        for (word, bytes) in checksum.words.iter_mut().zip(words) {
            *word = order.u64(*bytes);
        }
        Ok(checksum)
    }

    /// Writes magic and words to the end of `block`, which must be long enough.
    pub fn write(&self, block: &mut [u8]) {
        let (_, tail) = block.split_last_chunk_mut::<40>().expect("a block has room for its checksum");
        let words = [Self::MAGIC, self.words[0], self.words[1], self.words[2], self.words[3]];
        for (bytes, word) in tail.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = self.order.bytes(word);
        }
    }
}

fn bad(field: &'static str, found: u64) -> Corruption {
    Corruption::new("embedded checksum", field, found)
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

    #[test]
    fn an_embedded_checksum_survives_in_both_orders() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut block = vec![7u8; 512];
            let checksum = EmbeddedChecksum { order, words: [1, 2, 3, u64::MAX] };
            checksum.write(&mut block);
            assert_eq!(EmbeddedChecksum::read(&block), Ok(checksum));
            assert_eq!(block[471], 7);
            block[472] ^= 1;
            assert_eq!(EmbeddedChecksum::read(&block).unwrap_err().field, "magic");
        }
        assert_eq!(EmbeddedChecksum::read(&[0; 39]).unwrap_err().field, "length");
    }
}
