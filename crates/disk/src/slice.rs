//! A part of another disk: a partition, where the kernel does not make one of it (an image of a whole disk).

use crate::{Disk, DiskKind, DiskRef, check_range};
use std::io;

/// The bytes from `start` on of another disk, as a disk.
pub struct SliceDisk {
    name: String,
    inner: DiskRef,
    start: u64,
    length: u64,
}

impl SliceDisk {
    /// The `length` bytes at `start`, which must be on the disk.
    pub fn new(name: impl Into<String>, inner: DiskRef, start: u64, length: u64) -> io::Result<SliceDisk> {
        match start.checked_add(length) {
            Some(end) if end <= inner.size_bytes() => Ok(SliceDisk { name: name.into(), inner, start, length }),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the part is not on the disk")),
        }
    }
}

impl Disk for SliceDisk {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        check_range(offset, buf.len(), self.length)?;
        self.inner.read_at(buf, self.start + offset)
    }

    fn read_vectored_at(&self, bufs: &mut [&mut [u8]], offset: u64) -> io::Result<()> {
        check_range(offset, bufs.iter().map(|b| b.len()).sum(), self.length)?;
        self.inner.read_vectored_at(bufs, self.start + offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        check_range(offset, buf.len(), self.length)?;
        self.inner.write_at(buf, self.start + offset)
    }

    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        check_range(offset, bufs.iter().map(|b| b.len()).sum(), self.length)?;
        self.inner.write_vectored_at(bufs, self.start + offset)
    }

    fn write_durable_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        check_range(offset, bufs.iter().map(|b| b.len()).sum(), self.length)?;
        self.inner.write_durable_at(bufs, self.start + offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn has_write_cache(&self) -> bool {
        self.inner.has_write_cache()
    }

    fn gains_by_preparing(&self) -> bool {
        self.inner.gains_by_preparing()
    }

    fn prepare(&self, offset: u64, length: u64) -> io::Result<()> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.inner.prepare(self.start + offset, length)
    }

    fn can_discard(&self) -> bool {
        self.inner.can_discard()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.inner.discard(self.start + offset, length)
    }

    fn drive(&self) -> Option<u64> {
        self.inner.drive()
    }

    fn size_bytes(&self) -> u64 {
        self.length
    }

    fn sector_bytes(&self) -> u64 {
        self.inner.sector_bytes()
    }

    fn physical_sector_bytes(&self) -> u64 {
        self.inner.physical_sector_bytes()
    }

    fn kind(&self) -> DiskKind {
        self.inner.kind()
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDisk;
    use std::sync::Arc;

    #[test]
    fn a_slice_stays_inside() {
        let whole = Arc::new(MemDisk::new("d", 1 << 16));
        let part = SliceDisk::new("p", whole.clone(), 4096, 8192).unwrap();
        part.write_at(&[1, 2], 8190).unwrap();
        part.write_vectored_at(&[&[3], &[4]], 0).unwrap();
        let mut back = [0; 2];
        whole.read_at(&mut back, 4096 + 8190).unwrap();
        assert_eq!(back, [1, 2]);
        part.read_at(&mut back, 0).unwrap();
        assert_eq!(back, [3, 4]);
        let (mut first, mut rest) = ([0; 1], [9; 2]);
        part.read_vectored_at(&mut [&mut first, &mut rest], 0).unwrap();
        assert_eq!((first, rest), ([3], [4, 0]));
        assert!(part.read_vectored_at(&mut [&mut [0], &mut [0]], 8191).is_err());
        assert!(part.write_at(&[1, 2], 8191).is_err());
        assert!(part.discard(8192, 1).is_err());
        assert!(SliceDisk::new("p", whole, 1 << 16, 1).is_err());
    }
}
