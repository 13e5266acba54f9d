//! Memory that begins with a page, for calls that read and write.
//!
//! # Theory
//!
//! Direct I/O takes no other. For the rest it is a question of speed: the kernel copies into a buffer that begins 16 bytes behind a
//! page, where the allocator puts what is large, a third slower than into one that begins with it (256 MB in calls of 1 MB, cached, read
//! twice: 5.3 against 7.7 GB/s), and out of one that begins anywhere an eighth slower (64 MB written once, read twice: 0.89 of what a
//! program in C does that writes from where its allocator puts it; 0.98 since). Figures would be those of the allocator.

use std::ops::{Deref, DerefMut};

const PAGE: usize = 4096;

/// So many bytes, from a page on.
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// `length` zeros.
    pub fn new(length: usize) -> Aligned {
        let memory = vec![0; length + PAGE];
        // It may not be known; then it begins where it begins.
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        Aligned { memory, start, length }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_a_page_and_is_as_long_as_it_was_asked_for() {
        for length in [0, 1, 2048, 32 << 10, 1 << 20] {
            let mut buffer = Aligned::new(length);
            buffer.fill(7);
            assert_eq!((buffer.as_ptr().addr() % PAGE, buffer.len()), (0, length));
        }
    }
}
