//! Damage done to blocks of a pool on disks in memory, while it is exported.

use disk::Disk;
use ondisk::blkptr::BlkPtr;

use super::MemoryDisks;

/// Where a vdev's space begins on its devices: behind two labels and the boot area.
const DATA_START: u64 = 4 << 20;
/// A gang block's own place holds a header only.
const HEADER_BYTES: u64 = 512;

impl MemoryDisks {
    /// Inverts those copies of a block for which `which` holds, of the number of the address and of the side. Returns how many that were.
    pub fn damage_block(&self, pointer: &BlkPtr, which: &dyn Fn(usize, usize) -> bool) -> usize {
        let mut damaged = 0;
        for (number, dva) in pointer.dvas().enumerate() {
            let length = if dva.gang { HEADER_BYTES } else { pointer.physical_size() };
            for (side, disk) in self.sides_of(dva.vdev as usize).iter().enumerate() {
                if which(number, side) {
                    disk.corrupt(DATA_START + dva.offset, length as usize);
                    damaged += 1;
                }
            }
        }
        damaged
    }

    /// Inverts all bytes of a disk in a range of its data.
    pub fn damage_range(&self, disk: usize, range: std::ops::Range<u64>) {
        let (disk, labels) = (self.disk(disk), 512 << 10);
        let end = range.end.min(disk.size_bytes() - labels);
        disk.corrupt(range.start, (end - range.start) as usize);
    }
}
