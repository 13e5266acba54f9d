//! A disk of which each request is seen before it is made, for tests: to count, to delay, to refuse.

use crate::{Disk, DiskKind, DiskRef};
use std::io;
use std::ops::Range;

/// What a disk is asked for: ranges of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Read(Range<u64>),
    Write(Range<u64>),
    Flush,
    Discard(Range<u64>),
}

/// A witness of requests.
pub trait Watch: Send + Sync {
    /// Called before each request; an error is the answer to it.
    fn before(&self, request: Request) -> io::Result<()>;
}

impl<F: Fn(Request) -> io::Result<()> + Send + Sync> Watch for F {
    fn before(&self, request: Request) -> io::Result<()> {
        self(request)
    }
}

/// Another disk, and a witness of what it is asked for. A durable write is a write and a flush.
pub struct WatchedDisk<W> {
    /// The witness.
    pub watch: W,
    inner: DiskRef,
    kind: DiskKind,
}

impl<W: Watch> WatchedDisk<W> {
    /// `inner`, and a witness of what it is asked for.
    pub fn new(inner: DiskRef, watch: W) -> WatchedDisk<W> {
        WatchedDisk { watch, kind: inner.kind(), inner }
    }

    /// It says that it is a block device.
    #[must_use]
    pub fn as_block_device(self) -> WatchedDisk<W> {
        WatchedDisk { kind: DiskKind::Block, ..self }
    }
}

fn range(offset: u64, lengths: impl Iterator<Item = usize>) -> Range<u64> {
    offset..lengths.fold(offset, |end, length| end.saturating_add(length as u64))
}

impl<W: Watch> Disk for WatchedDisk<W> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_vectored_at(&mut [buf], offset)
    }

    fn read_vectored_at(&self, bufs: &mut [&mut [u8]], offset: u64) -> io::Result<()> {
        self.watch.before(Request::Read(range(offset, bufs.iter().map(|buf| buf.len()))))?;
        self.inner.read_vectored_at(bufs, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_vectored_at(&[buf], offset)
    }

    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        self.watch.before(Request::Write(range(offset, bufs.iter().map(|buf| buf.len()))))?;
        self.inner.write_vectored_at(bufs, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.watch.before(Request::Flush)?;
        self.inner.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.watch.before(Request::Discard(offset..offset.saturating_add(length)))?;
        self.inner.discard(offset, length)
    }

    fn can_discard(&self) -> bool {
        self.inner.can_discard()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn sector_bytes(&self) -> u64 {
        self.inner.sector_bytes()
    }

    fn kind(&self) -> DiskKind {
        self.kind
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDisk;
    use std::sync::{Arc, Mutex};

    #[test]
    fn requests_are_seen_and_may_be_refused() {
        let seen = Mutex::new(Vec::new());
        let memory = Arc::new(MemDisk::new("m", 1 << 20));
        let seen_by = |request: Request| {
            seen.lock().expect("nobody panicked").push(request.clone());
            if request == Request::Write(9..12) { Err(io::Error::other("not there")) } else { Ok(()) }
        };
        let disk = WatchedDisk::new(memory.clone(), &seen_by).as_block_device();
        disk.write_durable_at(&[&[1, 2], &[3]], 5).unwrap();
        assert!(disk.write_at(&[4; 3], 9).is_err());
        let mut back = [9; 8];
        disk.read_at(&mut back, 4).unwrap();
        disk.discard(1, 2).unwrap();
        assert_eq!((back, disk.kind(), disk.name(), disk.size_bytes()), ([0, 1, 2, 3, 0, 0, 0, 0], DiskKind::Block, "m", 1 << 20));
        let expected = [Request::Write(5..8), Request::Flush, Request::Write(9..12), Request::Read(4..12), Request::Discard(1..3)];
        assert_eq!(*seen.lock().unwrap(), expected);
        assert_eq!((memory.faults.writes(), memory.faults.flushes()), (2, 1));
    }
}
