//! Requests past the kernel's page cache.
//!
//! # Theory
//! What the pool keeps in memory the kernel need not keep too; and in the page cache writes of a log wait for each other that have nothing
//! to do with each other: those of one page while it is written back, all of one file while one of them copies its bytes, and all while the
//! kernel holds writers back, or writes out at once what a group has left in the cache. A durable write beside a group did a tenth of what it does alone. So
//! devices, and files where the file system says how (`statx`), are used `O_DIRECT`, all of their I/O: a page that is dirty through the cache beside a
//! direct write would make the kernel doubt the device (`EIO` at the next flush).
//!
//! The kernel then takes only whole sectors, in memory that is aligned. A request that is neither goes through a buffer of ours:
//! its outer sectors are read first if it covers them in part only. The engine's requests are whole sectors, mostly in memory
//! that is aligned for devices but not always; the copy costs little beside the device.
//!
//! # Invariants
//! 1. Bytes outside of a request stay what they are: two requests that write parts of one sector take turns.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};
use rustix::io::{Errno, ReadWriteFlags, preadv, pwritev2};

use crate::file::VECTORS_MAX;

/// What goes through a buffer at a time; a multiple of every sector.
const PIECE: usize = 1 << 20;
/// Buffers that are kept for the next request.
const SPARE_MAX: usize = 16;
/// Where the kernel does not say what memory it takes: a page suits every device.
const MEMORY_ALIGN: usize = 4096;

/// What a device asks of requests, and buffers for those that are otherwise.
#[derive(Debug)]
pub(crate) struct Direct {
    sector: usize,
    memory: usize,
    /// guards: buffers of `PIECE` and some bytes that nobody uses
    spare: Mutex<Vec<Vec<u8>>>,
    /// Held from the reading of a sector to its writing (invariant 1).
    partial: Mutex<()>,
}

/// Goes through the bytes of several buffers.
struct Gather<'a> {
    left: &'a [&'a [u8]],
    /// Bytes of the first of them that are gone.
    gone: usize,
}

impl Gather<'_> {
    fn take(&mut self, mut out: &mut [u8]) {
        while let Some((first, rest)) = self.left.split_first().filter(|_| !out.is_empty()) {
            let part = &first[self.gone..];
            let count = part.len().min(out.len());
            let (now, later) = out.split_at_mut(count);
            now.copy_from_slice(&part[..count]);
            out = later;
            self.gone += count;
            if self.gone == first.len() {
                (self.left, self.gone) = (rest, 0);
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the kernel says of memory and offsets of direct requests, if it does.
fn alignment(file: &File) -> Option<(usize, usize)> {
    let told = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let told = told.filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && stat.stx_dio_offset_align != 0);
    told.map(|stat| (stat.stx_dio_mem_align as usize, stat.stx_dio_offset_align as usize))
}

impl Direct {
    /// For a regular file whose requests are to go past the cache from now on. `None`: its file system does not say how, or wants larger units
    /// than `sector`, which would be read before they are written.
    pub(crate) fn of_file(file: &File, sector: u64) -> Option<Direct> {
        let (_, offset) = alignment(file)?;
        if offset as u64 > sector {
            return None;
        }
        let flags = fcntl_getfl(file).ok()?;
        fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
        Some(Direct::new(file, sector))
    }

    /// For a device that was opened `O_DIRECT`.
    pub(crate) fn new(file: &File, sector: u64) -> Direct {
        let (memory, offset) = alignment(file).unwrap_or((0, 0));
        let sound = |align: usize| Some(align).filter(|align| align.is_power_of_two() && *align <= PIECE);
        Direct {
            sector: (sector as usize).max(sound(offset).unwrap_or(512)),
            memory: sound(memory).unwrap_or(MEMORY_ALIGN),
            spare: Mutex::default(),
            partial: Mutex::default(),
        }
    }

    /// The unit of offsets and lengths.
    pub(crate) fn sector(&self) -> u64 {
        self.sector as u64
    }

    /// Does the kernel take it as it is?
    fn takes(&self, buf: &[u8], offset: u64) -> bool {
        offset.is_multiple_of(self.sector()) && buf.len().is_multiple_of(self.sector) && buf.as_ptr().addr().is_multiple_of(self.memory)
    }

    /// Does it take a write of these buffers as it is?
    pub(crate) fn takes_all(&self, bufs: &[&[u8]], offset: u64) -> bool {
        bufs.len() <= VECTORS_MAX && bufs.iter().all(|buf| self.takes(buf, offset))
    }

    /// Runs `work` with a buffer of `length` bytes, `PIECE` at most, whose address suits the device.
    fn with_buffer<T>(&self, length: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let spare = locked(&self.spare).pop();
        let mut memory = spare.unwrap_or_else(|| vec![0; PIECE + self.memory]);
        let skip = memory.as_ptr().addr().next_multiple_of(self.memory) - memory.as_ptr().addr();
        let result = work(&mut memory[skip..skip + length]);
        let mut spare = locked(&self.spare);
        if spare.len() < SPARE_MAX {
            spare.push(memory);
        }
        result
    }

    /// Fills `buf` from `offset`.
    pub(crate) fn read(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if self.takes(buf, offset) {
            return file.read_exact_at(buf, offset);
        }
        let mut at = offset;
        let mut left = buf;
        while !left.is_empty() {
            let head = (at % self.sector()) as usize;
            let count = left.len().min(PIECE - head);
            let (now, later) = left.split_at_mut(count);
            self.with_buffer((head + count).next_multiple_of(self.sector), |buffer| {
                file.read_exact_at(buffer, at - head as u64)?;
                now.copy_from_slice(&buffer[head..head + count]);
                io::Result::Ok(())
            })?;
            at += count as u64;
            left = later;
        }
        Ok(())
    }

    /// Fills the buffers one behind the other from `offset`.
    pub(crate) fn read_vectored(&self, file: &File, bufs: &mut [&mut [u8]], offset: u64) -> io::Result<()> {
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        if bufs.len() <= VECTORS_MAX && bufs.iter().all(|buf| self.takes(buf, offset)) {
            let mut slices: Vec<IoSliceMut<'_>> = bufs.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
            match preadv(file, &mut slices, offset) {
                Ok(read) if read == length => return Ok(()),
                // All of it again, piece by piece.
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        } else if length <= PIECE - self.sector {
            return self.with_buffer(length, |buffer| {
                self.read(file, buffer, offset)?;
                let mut rest = &*buffer;
                for buf in bufs {
                    let (now, later) = rest.split_at(buf.len());
                    buf.copy_from_slice(now);
                    rest = later;
                }
                Ok(())
            });
        }
        let mut at = offset;
        for buf in bufs {
            self.read(file, buf, at)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes the buffers one behind the other at `offset`; with `flags` that the kernel does not know it fails.
    pub(crate) fn write(&self, file: &File, bufs: &[&[u8]], offset: u64, flags: ReadWriteFlags) -> io::Result<()> {
        let mut left: usize = bufs.iter().map(|buf| buf.len()).sum();
        if self.takes_all(bufs, offset) {
            let slices: Vec<IoSlice<'_>> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
            match pwritev2(file, &slices, offset, flags) {
                Ok(written) if written == left => return Ok(()),
                // All of it again, piece by piece.
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let mut bytes = Gather { left: bufs, gone: 0 };
        let mut at = offset;
        while left > 0 {
            let head = (at % self.sector()) as usize;
            let count = left.min(PIECE - head);
            self.write_piece(file, &mut bytes, at, count, flags)?;
            at += count as u64;
            left -= count;
        }
        Ok(())
    }

    /// Writes the next `count` bytes, which fit into one buffer with the rest of their outer sectors.
    fn write_piece(&self, file: &File, bytes: &mut Gather<'_>, at: u64, count: usize, flags: ReadWriteFlags) -> io::Result<()> {
        let (head, sector) = ((at % self.sector()) as usize, self.sector);
        let (start, end) = (at - head as u64, (head + count).next_multiple_of(sector));
        let is_cut = |edge: usize| !edge.is_multiple_of(sector);
        self.with_buffer(end, |buffer| {
            let _turn = (is_cut(head) || is_cut(head + count)).then(|| locked(&self.partial));
            if is_cut(head) {
                file.read_exact_at(&mut buffer[..sector], start)?;
            }
            let last = end - sector;
            if is_cut(head + count) && (last > 0 || !is_cut(head)) {
                file.read_exact_at(&mut buffer[last..], start + last as u64)?;
            }
            bytes.take(&mut buffer[head..head + count]);
            write_all(file, buffer, start, flags)
        })
    }
}

fn write_all(file: &File, mut buf: &[u8], mut offset: u64, flags: ReadWriteFlags) -> io::Result<()> {
    while !buf.is_empty() {
        match pwritev2(file, &[IoSlice::new(buf)], offset, flags) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                buf = &buf[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
