//! Memory as a disk, sparse, with faults on demand: for tests.

use crate::{Disk, DiskKind, check_range};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const CHUNK: usize = 4096;

type Chunks = BTreeMap<u64, Box<[u8; CHUNK]>>;

/// What shall go wrong. All is off at first; everything can be changed at any time.
#[derive(Debug, Default)]
pub struct Faults {
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    failing_read: AtomicU64,
    /// All from this one on; 0: none.
    unreadable_from: AtomicU64,
    failing_write: AtomicU64,
    failing_flush: AtomicU64,
    /// All from this one on; 0: none.
    broken_from: AtomicU64,
    broken_reads: AtomicBool,
    broken_writes: AtomicBool,
}

impl Faults {
    /// The `nth` read from now on fails, once; 1 is the next.
    pub fn fail_read(&self, nth: u64) {
        self.failing_read.store(self.reads() + nth, Ordering::SeqCst);
    }

    /// The `nth` read from now on fails, and all reads after it, until [`Faults::break_reads`] is told otherwise; 1 is the next.
    pub fn fail_reads_from(&self, nth: u64) {
        self.unreadable_from.store(self.reads() + nth, Ordering::SeqCst);
    }

    /// The `nth` write from now on fails, once; 1 is the next.
    pub fn fail_write(&self, nth: u64) {
        self.failing_write.store(self.writes() + nth, Ordering::SeqCst);
    }

    /// The `nth` write from now on fails, and all writes and flushes after it; 1 is the next.
    pub fn fail_writes_from(&self, nth: u64) {
        self.broken_from.store(self.writes() + nth, Ordering::SeqCst);
    }

    /// The `nth` flush from now on fails, once; 1 is the next.
    pub fn fail_flush(&self, nth: u64) {
        self.failing_flush.store(self.flushes() + nth, Ordering::SeqCst);
    }

    /// All reads fail, until told otherwise.
    pub fn break_reads(&self, broken: bool) {
        self.broken_reads.store(broken, Ordering::SeqCst);
        self.unreadable_from.store(0, Ordering::SeqCst);
    }

    /// All writes and flushes fail, until told otherwise.
    pub fn break_writes(&self, broken: bool) {
        self.broken_writes.store(broken, Ordering::SeqCst);
    }

    /// How many reads there were.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// How many writes there were.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// How many flushes there were.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }

    fn read(&self) -> io::Result<()> {
        let nth = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        let from = self.unreadable_from.load(Ordering::SeqCst);
        if self.broken_reads.load(Ordering::SeqCst) || from != 0 && nth >= from || self.failing_read.load(Ordering::SeqCst) == nth {
            return Err(io::Error::other(format!("injected: read {nth}")));
        }
        Ok(())
    }

    fn write(&self) -> io::Result<()> {
        let nth = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        let broken = self.broken_writes.load(Ordering::SeqCst) || self.is_broken_at(nth);
        if broken || self.failing_write.load(Ordering::SeqCst) == nth {
            return Err(io::Error::other(format!("injected: write {nth}")));
        }
        Ok(())
    }

    fn is_broken_at(&self, write: u64) -> bool {
        let from = self.broken_from.load(Ordering::SeqCst);
        from != 0 && write >= from
    }

    fn flush(&self) -> io::Result<()> {
        let nth = self.flushes.fetch_add(1, Ordering::SeqCst) + 1;
        let broken = self.broken_writes.load(Ordering::SeqCst) || self.is_broken_at(self.writes());
        if broken || self.failing_flush.load(Ordering::SeqCst) == nth {
            return Err(io::Error::other(format!("injected: flush {nth}")));
        }
        Ok(())
    }
}

/// A disk in memory. What was never written reads as zeros and takes no memory.
#[derive(Debug)]
pub struct MemDisk {
    name: String,
    size: u64,
    sector: u64,
    chunks: Mutex<Chunks>,
    /// What shall go wrong.
    pub faults: Faults,
}

impl MemDisk {
    /// A disk of zeros with sectors of 512 bytes.
    pub fn new(name: impl Into<String>, size: u64) -> MemDisk {
        MemDisk::with_sector(name, size, 512)
    }

    /// A disk of zeros with sectors of `sector` bytes.
    pub fn with_sector(name: impl Into<String>, size: u64, sector: u64) -> MemDisk {
        MemDisk { name: name.into(), size, sector, chunks: Mutex::default(), faults: Faults::default() }
    }

    /// A copy of the contents as they are, without faults.
    pub fn snapshot(&self) -> MemDisk {
        let copy = MemDisk::with_sector(self.name.clone(), self.size, self.sector);
        copy.chunks().clone_from(&self.chunks());
        copy
    }

    /// Inverts the bytes of a range, past all counters: silent damage.
    pub fn corrupt(&self, offset: u64, length: usize) {
        let mut bytes = vec![0; length];
        self.copy_out(&mut bytes, offset);
        bytes.iter_mut().for_each(|b| *b = !*b);
        self.copy_in(&bytes, offset);
    }

    fn chunks(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copy_out(&self, buf: &mut [u8], offset: u64) {
        let chunks = self.chunks();
        for (chunk, within, piece) in pieces(offset, buf.len()) {
            let target = &mut buf[piece.clone()];
            match chunks.get(&chunk) {
                Some(bytes) => target.copy_from_slice(&bytes[within..within + piece.len()]),
                None => target.fill(0),
            }
        }
    }

    fn copy_in(&self, buf: &[u8], offset: u64) {
        let mut chunks = self.chunks();
        for (chunk, within, piece) in pieces(offset, buf.len()) {
            let bytes = chunks.entry(chunk).or_insert_with(|| Box::new([0; CHUNK]));
            bytes[within..within + piece.len()].copy_from_slice(&buf[piece]);
        }
    }
}

/// Cuts a range at chunk borders: chunk number, place in the chunk, place in the buffer.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % CHUNK as u64) as usize;
        let piece = done..length.min(done + CHUNK - within);
        done = piece.end;
        Some((at / CHUNK as u64, within, piece))
    })
}

impl Disk for MemDisk {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.faults.read()?;
        check_range(offset, buf.len(), self.size)?;
        self.copy_out(buf, offset);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.faults.write()?;
        check_range(offset, buf.len(), self.size)?;
        self.copy_in(buf, offset);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.faults.flush()
    }

    fn can_discard(&self) -> bool {
        true
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let first = offset.div_ceil(CHUNK as u64);
        let end = offset.saturating_add(length).min(self.size) / CHUNK as u64;
        if first < end {
            let mut chunks = self.chunks();
            let mut kept = chunks.split_off(&first);
            chunks.append(&mut kept.split_off(&end));
        }
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn sector_bytes(&self) -> u64 {
        self.sector
    }

    fn kind(&self) -> DiskKind {
        DiskKind::File
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaligned_writes_come_back() {
        let disk = MemDisk::new("m", 1 << 20);
        let data: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8 + 1).collect();
        disk.write_at(&data, 4095).unwrap();
        let mut back = vec![9; 20_002];
        disk.read_at(&mut back, 4094).unwrap();
        assert_eq!(back[0], 0);
        assert_eq!(back[1..=20_000], data);
        assert_eq!(back[20_001], 0);
        assert!(disk.read_at(&mut back, (1 << 20) - 1).is_err());
    }

    #[test]
    fn a_snapshot_stays_and_a_discard_frees() {
        let disk = MemDisk::new("m", 1 << 20);
        disk.write_at(&[1; 3 * CHUNK], 0).unwrap();
        let copy = disk.snapshot();
        disk.discard(1, 2 * CHUNK as u64).unwrap();
        assert_eq!(disk.chunks().len(), 2);
        let mut byte = [9];
        disk.read_at(&mut byte, CHUNK as u64).unwrap();
        assert_eq!(byte, [0]);
        copy.read_at(&mut byte, CHUNK as u64).unwrap();
        assert_eq!(byte, [1]);
        copy.corrupt(CHUNK as u64, 1);
        copy.read_at(&mut byte, CHUNK as u64).unwrap();
        assert_eq!(byte, [254]);
    }

    #[test]
    fn faults_strike_when_told() {
        let disk = MemDisk::new("m", 1 << 20);
        disk.write_at(&[1], 0).unwrap();
        disk.faults.fail_write(2);
        disk.write_at(&[1], 0).unwrap();
        assert!(disk.write_at(&[2], 0).is_err());
        disk.write_at(&[3], 0).unwrap();
        disk.faults.fail_read(1);
        let mut byte = [0];
        assert!(disk.read_at(&mut byte, 0).is_err());
        disk.read_at(&mut byte, 0).unwrap();
        assert_eq!(byte, [3]);
        disk.faults.fail_flush(2);
        disk.flush().unwrap();
        assert!(disk.flush().is_err());
        disk.faults.break_writes(true);
        assert!(disk.flush().is_err() && disk.write_at(&[4], 0).is_err());
        assert_eq!((disk.faults.reads(), disk.faults.writes(), disk.faults.flushes()), (2, 5, 3));
    }
}
