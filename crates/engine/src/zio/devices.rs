//! What zio needs of the vdevs.
//!
//! # Theory
//! A top-level vdev presents one space of bytes, and one or more ways to read the same bytes: the sides of a mirror, or
//! the combinations of columns from which a RAIDZ row can be computed. Only the one who knows the checksum can tell which of
//! them is right, so they are numbered and zio asks for them one by one when the ordinary read gave the wrong bytes.
//!
//! This is a trait so that the layer can be tested on plain memory.

use std::sync::Arc;

use crate::error::Result;
use crate::vdev::{TopVdev, VdevTree};

/// A top-level vdev.
pub trait BlockDevice: Send + Sync {
    /// Fills `buf` from `offset`, in the way that is best just now, and says which it was. Mirrors and RAIDZ get around
    /// disks that fail.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// How many ways there are to read.
    fn copies(&self) -> usize;
    /// Fills `buf` from `offset` in the given way.
    fn read_copy(&self, copy: usize, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Writes all of the buffers, one behind the other, to every side.
    fn write(&self, offset: u64, buffers: &[&[u8]]) -> Result<()>;
    /// As `write`, and makes just that durable.
    fn write_durable(&self, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        self.write(offset, buffers)
    }
    /// Writes what is right over what `read_copy` in the given way has read.
    fn repair_copy(&self, copy: usize, offset: u64, data: &[u8]) -> Result<()>;
    /// Counts a checksum error against the disks of the given way.
    fn note_checksum_error(&self, copy: usize);
    /// log2 of the smallest unit that is allocated.
    fn ashift(&self) -> u32;
    /// Bytes that `physical` bytes take here.
    fn allocated_size(&self, physical: u64) -> u64;
    /// Bytes of space. A DVA that ends beyond them is corrupt.
    fn size_bytes(&self) -> u64;
}

/// The vdev tree of a pool.
pub trait BlockDevices: Send + Sync {
    /// The top-level vdev with the given id.
    fn device(&self, vdev: u32) -> Option<Arc<dyn BlockDevice>>;
    /// Makes durable what was written before.
    fn flush(&self) -> Result<()>;
}

impl BlockDevice for TopVdev {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read(offset, buf)
    }

    fn copies(&self) -> usize {
        self.copies()
    }

    fn read_copy(&self, copy: usize, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_copy(copy, offset, buf)
    }

    fn write(&self, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        self.write_vectored(offset, buffers)
    }

    fn write_durable(&self, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        self.write_durable(offset, buffers)
    }

    fn repair_copy(&self, copy: usize, offset: u64, data: &[u8]) -> Result<()> {
        self.repair_copy(copy, offset, data)
    }

    fn note_checksum_error(&self, copy: usize) {
        self.note_checksum_error(copy);
    }

    fn ashift(&self) -> u32 {
        self.ashift()
    }

    fn allocated_size(&self, physical: u64) -> u64 {
        self.allocated_size(physical)
    }

    fn size_bytes(&self) -> u64 {
        self.asize()
    }
}

impl BlockDevices for VdevTree {
    fn device(&self, vdev: u32) -> Option<Arc<dyn BlockDevice>> {
        self.top(vdev.into()).map(|top| top as Arc<dyn BlockDevice>)
    }

    fn flush(&self) -> Result<()> {
        self.flush_all()
    }
}
