//! Partitions of a disk image.
//!
//! # Theory
//! ZFS puts a GUID partition table on a whole disk that it is given, and itself into the first partition. For a disk
//! the kernel makes devices of the partitions; for an image in a file we look ourselves.
//!
//! # On disk
//! Sector 1 has the header: `EFI PART`, at 72 the first sector of the table, at 80 the number of entries, at 84 their
//! size. An entry has the type's guid (all zero: unused), at 32 the first and at 40 the last sector.

use crate::{Disk, DiskRef, SliceDisk};
use std::ops::Range;
use std::sync::Arc;

const ENTRIES_MAX: u32 = 1024;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b))
}

/// The partitions of a disk with a GUID partition table, by number from 1; none without one. The backup is not read.
pub fn partitions(disk: &DiskRef) -> Vec<(u32, DiskRef)> {
    let part = |(number, range): (u32, Range<u64>)| {
        let part =
            SliceDisk::new(format!("{}#{number}", disk.name()), Arc::clone(disk), range.start, range.end - range.start).ok()?;
        Some((number, Arc::new(part) as Arc<dyn Disk>))
    };
    ranges(disk).into_iter().filter_map(part).collect()
}

/// As [`partitions`]: where they are.
pub(crate) fn ranges(disk: &DiskRef) -> Vec<(u32, Range<u64>)> {
    [512, 4096].into_iter().find_map(|sector| table(disk, sector)).unwrap_or_default()
}

fn table(disk: &DiskRef, sector: u64) -> Option<Vec<(u32, Range<u64>)>> {
    let mut header = [0; 92];
    disk.read_at(&mut header, sector).ok()?;
    if !header.starts_with(b"EFI PART") {
        return None;
    }
    let table_at = u64_at(&header, 72)?.checked_mul(sector)?;
    let count = u32_at(&header, 80)?.min(ENTRIES_MAX);
    let size = u32_at(&header, 84)? as usize;
    if !(128..=4096).contains(&size) {
        return None;
    }
    let mut entries = vec![0; size * count as usize];
    disk.read_at(&mut entries, table_at).ok()?;
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(entries.chunks_exact(size)) {
        if entry[..16] == [0; 16] {
            continue;
        }
        let first = u64_at(entry, 32)?.checked_mul(sector)?;
        let end = u64_at(entry, 40)?.checked_add(1)?.checked_mul(sector)?;
        if first <= end {
            found.push((number, first..end));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDisk;

    #[test]
    fn partitions_are_found_by_number() {
        let disk: DiskRef = Arc::new(MemDisk::new("d", 1 << 20));
        assert!(partitions(&disk).is_empty());
        let mut header = [0u8; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[72] = 2;
        header[80] = 9;
        header[84] = 128;
        disk.write_at(&header, 512).unwrap();
        for (index, first, last) in [(0u64, 40u64, 99u64), (8, 100, 1000), (3, 5, 1 << 60), (4, 9, 3)] {
            let mut entry = [0u8; 128];
            entry[0] = 1;
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
            disk.write_at(&entry, 1024 + 128 * index).unwrap();
        }
        let found: Vec<(u32, String, u64)> =
            partitions(&disk).into_iter().map(|(n, d)| (n, d.name().to_owned(), d.size_bytes())).collect();
        // The third entry overflows when its end is computed in bytes: the table is not believed.
        assert!(found.is_empty());
        disk.write_at(&[0; 128], 1024 + 128 * 3).unwrap();
        let found: Vec<(u32, String, u64)> =
            partitions(&disk).into_iter().map(|(n, d)| (n, d.name().to_owned(), d.size_bytes())).collect();
        assert_eq!(found, [(1, "d#1".to_owned(), 60 * 512), (9, "d#9".to_owned(), 901 * 512)]);
    }
}
