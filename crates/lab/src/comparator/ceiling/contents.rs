//! What a file holds, in memory: chunks that are used again when a file has gone.
//!
//! # Theory
//!
//! A file is a row of chunks, of which the last ones may be absent or short: what is not there is read as zeros. A small file has as
//! much of its one chunk as it needs, so that thousands of them fit; a chunk that is full is one of a size, and goes back into stock
//! when its file does. There is a stock from the beginning on: to touch memory for the first time takes several times as long as to fill
//! it. So a write asks the allocator for nothing, and costs the copy.

use std::sync::atomic::{AtomicU64, Ordering};

use fuse::{Errno, Result};
use parking_lot::Mutex;

/// Bytes of a whole chunk.
pub(super) const CHUNK: usize = 128 << 10;
/// A chunk that needs more than this becomes a whole one.
const SMALL: usize = CHUNK / 4;
/// The smallest piece that a chunk grows to.
const PAGE: usize = 4 << 10;
/// Chunks in stock at the most, 512 MB: memory that other file systems of the same run cannot have.
const STOCK_MAX: usize = 4096;
/// No write goes beyond this: a file's row of chunks has an entry for each chunk before it.
const LARGEST: u64 = 256 << 30;

/// The memory of one file system.
pub(super) struct Memory {
    pub(super) limit: u64,
    used: AtomicU64,
    /// guards: whole chunks that no file has, empty
    stock: Mutex<Vec<Vec<u8>>>,
}

/// The bytes of one file.
#[derive(Default)]
pub(super) struct Contents {
    len: u64,
    /// Bytes of memory that the chunks take.
    held: u64,
    chunks: Vec<Vec<u8>>,
}

impl Memory {
    /// Files together may take up to `limit` bytes, so many of which are touched now.
    pub(super) fn new(limit: u64, touched: u64) -> Memory {
        let chunks = (touched / CHUNK as u64).min(STOCK_MAX as u64);
        let touch = |_| {
            let mut chunk = vec![1; CHUNK];
            chunk.clear();
            chunk
        };
        Memory { limit, used: AtomicU64::new(0), stock: Mutex::new((0..chunks).map(touch).collect()) }
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Gives a chunk room for `end` bytes. Returns how many bytes more it takes.
    fn grow(&self, chunk: &mut Vec<u8>, end: usize) -> Result<u64> {
        let before = chunk.capacity();
        if end <= before {
            return Ok(0);
        }
        if self.used() + (end - before) as u64 > self.limit {
            return Err(Errno::ENOSPC);
        }
        if end > SMALL {
            let mut whole = self.stock.lock().pop().unwrap_or_else(|| Vec::with_capacity(CHUNK));
            whole.extend_from_slice(chunk);
            *chunk = whole;
        } else {
            chunk.reserve_exact(end.next_power_of_two().max(PAGE) - chunk.len());
        }
        let more = (chunk.capacity() - before) as u64;
        self.used.fetch_add(more, Ordering::Relaxed);
        Ok(more)
    }

    /// Takes a chunk back. Returns how many bytes it took.
    fn take_back(&self, mut chunk: Vec<u8>) -> u64 {
        let bytes = chunk.capacity() as u64;
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if chunk.capacity() == CHUNK {
            chunk.clear();
            let mut stock = self.stock.lock();
            if stock.len() < STOCK_MAX {
                stock.push(chunk);
            }
        }
        bytes
    }
}

/// Calls `each` with every chunk that so many bytes from `offset` on touch: its number, where in it they begin, and how many they are.
fn pieces(offset: u64, len: usize, mut each: impl FnMut(usize, usize, std::ops::Range<usize>) -> Result<()>) -> Result<()> {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let (number, start) = ((at / CHUNK as u64) as usize, (at % CHUNK as u64) as usize);
        let count = (CHUNK - start).min(len - done);
        each(number, start, done..done + count)?;
        done += count;
    }
    Ok(())
}

impl Contents {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Space used, in units of 512 bytes.
    pub(super) fn blocks(&self) -> u64 {
        self.held.div_ceil(512)
    }

    /// Returns how many bytes there were to be read.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let len = self.len.saturating_sub(offset).min(out.len() as u64) as usize;
        let copied = pieces(offset, len, |number, start, place| {
            let chunk = self.chunks.get(number).map_or(&[][..], |chunk| chunk);
            let there = chunk.get(start..).unwrap_or(&[]);
            let there = &there[..there.len().min(place.len())];
            let (head, tail) = out[place].split_at_mut(there.len());
            head.copy_from_slice(there);
            tail.fill(0);
            Ok(())
        });
        if copied.is_ok() { len } else { 0 }
    }

    pub(super) fn write(&mut self, memory: &Memory, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= LARGEST).ok_or(Errno::EFBIG)?;
        let written = pieces(offset, data.len(), |number, start, place| {
            if self.chunks.len() <= number {
                self.chunks.resize_with(number + 1, Vec::new);
            }
            let (chunk, piece) = (&mut self.chunks[number], &data[place]);
            self.held += memory.grow(chunk, start + piece.len())?;
            if chunk.len() < start {
                chunk.resize(start, 0);
            }
            let over = (chunk.len() - start).min(piece.len());
            chunk[start..start + over].copy_from_slice(&piece[..over]);
            chunk.extend_from_slice(&piece[over..]);
            Ok(())
        });
        self.len = if written.is_ok() { self.len.max(end) } else { self.len };
        if written.is_err() {
            // What did fit beyond the end is not to be read one day.
            self.set_len(memory, self.len);
        }
        written
    }

    /// Cuts it off, or makes it longer by a hole.
    pub(super) fn set_len(&mut self, memory: &Memory, len: u64) {
        let (whole, rest) = ((len / CHUNK as u64) as usize, (len % CHUNK as u64) as usize);
        let kept = whole + usize::from(rest > 0);
        for chunk in self.chunks.drain(kept.min(self.chunks.len())..) {
            self.held -= memory.take_back(chunk);
        }
        if let Some(last) = self.chunks.get_mut(whole) {
            last.truncate(rest);
        }
        self.len = len;
    }
}
