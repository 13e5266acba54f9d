//! The only code that talks to the operating system about block I/O.
//!
//! # Theory
//! A [`Disk`] is an array of bytes that can be read, written, flushed and told what is no longer needed; everything
//! above works on `Arc<dyn Disk>`, so that a simulated disk can stand in for a real one. Calls block and may come from
//! any number of threads. What a write has stored is safe only after a `flush` that was begun after the write ended.
//!
//! [`FileDisk`] is a regular file or a block device, [`MemDisk`] is memory with faults on demand, for tests,
//! [`SliceDisk`] is a part of another disk, [`WatchedDisk`] another one whose requests are seen, for tests.
//!
//! # Invariants
//! 1. A read returns all bytes asked for or an error: past the end it is `UnexpectedEof`.
//! 2. A user that opens a disk for writing has it alone among those that open it through this crate, whatever names they have for it.

use std::fmt;
use std::io;
use std::sync::Arc;

mod behind;
mod claim;
mod direct;
mod file;
mod find;
mod gpt;
mod loan;
mod mem;
mod room;
mod slice;
mod watched;

pub use behind::Footprint;
pub use file::{Access, FileDisk};
pub use find::{find, footprint, open};
pub use gpt::partitions;
pub use loan::{Borrowed, Loan, lend, lend_mut};
pub use mem::{Faults, MemDisk};
pub use slice::SliceDisk;
pub use watched::{Request, Watch, WatchedDisk};

/// What a disk is made of; labels say so too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskKind {
    /// A regular file.
    File,
    /// A block device.
    Block,
}

/// A shared disk.
pub type DiskRef = Arc<dyn Disk>;

/// An array of bytes that outlives the program.
pub trait Disk: Send + Sync {
    /// Fills `buf` from `offset`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Fills the buffers one behind the other from `offset`.
    fn read_vectored_at(&self, bufs: &mut [&mut [u8]], mut offset: u64) -> io::Result<()> {
        for buf in bufs {
            self.read_at(buf, offset)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes all of `buf` at `offset`.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Writes the buffers one behind the other at `offset`.
    fn write_vectored_at(&self, bufs: &[&[u8]], mut offset: u64) -> io::Result<()> {
        for buf in bufs {
            self.write_at(buf, offset)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes the buffers one behind the other at `offset`, and makes just that durable. An error may be that of what somebody else has written
    /// before ([`is_failed_flush`]).
    fn write_durable_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        self.write_vectored_at(bufs, offset)?;
        self.flush().map_err(failed_flush)
    }

    /// Makes durable what was written before.
    fn flush(&self) -> io::Result<()>;

    /// Is what was written perhaps not durable before a flush? Where nothing is known: yes.
    fn has_write_cache(&self) -> bool {
        true
    }

    /// It may have become larger: from now on all of it is used.
    fn look_at_size(&self) {}

    /// Does the first durable write to a place take longer than the next, so that it is worth while to prepare places?
    fn gains_by_preparing(&self) -> bool {
        false
    }

    /// Makes durable writes to a range, of which nothing is needed, as fast as they can be; it may be zeros afterwards.
    fn prepare(&self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        Ok(())
    }

    /// Does [`Disk::discard`] do anything?
    fn can_discard(&self) -> bool {
        false
    }

    /// Says that a range is no longer needed. Best effort: afterwards it reads as anything.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;

    /// The size.
    fn size_bytes(&self) -> u64;

    /// The smallest unit that can be written.
    fn sector_bytes(&self) -> u64;

    /// The smallest unit that is written without reading first; at least [`Disk::sector_bytes`].
    fn physical_sector_bytes(&self) -> u64 {
        self.sector_bytes()
    }

    /// The drive that does the work, by a number; others with the same number share it. None: it shares nothing.
    fn drive(&self) -> Option<u64> {
        None
    }

    /// File or block device.
    fn kind(&self) -> DiskKind;

    /// The name for messages: a path, mostly.
    fn name(&self) -> &str;
}

impl fmt::Debug for dyn Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({}, {} bytes)", self.name(), self.size_bytes())
    }
}

/// What was written could not be made durable.
#[derive(Debug)]
struct FailedFlush(io::Error);

impl fmt::Display for FailedFlush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not durable: {}", self.0)
    }
}

impl std::error::Error for FailedFlush {}

/// The error of a write that was made, and could not be made durable.
pub(crate) fn failed_flush(cause: io::Error) -> io::Error {
    io::Error::new(cause.kind(), FailedFlush(cause))
}

/// Does the error of a durable write say that a flush failed? The system reports once, to any caller, what it could not write, and drops it: so that may
/// be whatever was written since the flush before.
pub fn is_failed_flush(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<FailedFlush>())
}

/// Refuses a range that is not inside a disk of `size` bytes (invariant 1).
fn check_range(offset: u64, length: usize, size: u64) -> io::Result<()> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{length} bytes at {offset} of {size}"))),
    }
}
