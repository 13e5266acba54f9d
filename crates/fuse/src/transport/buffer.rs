//! A page-aligned, zeroed, anonymous mapping: pages cost memory only once they are touched.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Page size assumed by the layout of requests; the kernel's may be larger, which costs alignment only.
pub(crate) const PAGE: usize = 4096;

pub(crate) struct Buffer {
    start: NonNull<u8>,
    len: usize,
    /// It is never unmapped.
    kept: bool,
}

// SAFETY: the mapping is owned by this value alone, as a `Box<[u8]>` would be.
unsafe impl Send for Buffer {}

impl Buffer {
    pub(crate) fn new(len: usize) -> std::io::Result<Buffer> {
        let len = len.next_multiple_of(PAGE).max(PAGE);
        // SAFETY: a fresh private anonymous mapping at an address that the kernel chooses touches nothing of ours.
        let address = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE) }?;
        // Else the kernel takes two megabytes for the first byte that is touched, where mappings lie side by side.
        // SAFETY: the pages are those of the new mapping; it changes only how large they are. Where that cannot be said, they are small.
        let _ = unsafe { madvise(address, len, Advice::LinuxNoHugepage) };
        let start = NonNull::new(address.cast::<u8>()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Buffer { start, len, kept: false })
    }

    /// Address for the kernel, which writes there while no reference of ours exists.
    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Gives the memory from `start` on, which is the start of a page, back to the system: it reads as zeros. Nobody else may be using it, not even the kernel.
    pub(crate) fn give_back(&mut self, start: usize) {
        let Some(length) = self.len.checked_sub(start).filter(|length| *length > 0) else { return };
        debug_assert!(start.is_multiple_of(PAGE));
        // SAFETY: these pages are of this mapping, which `&mut self` borrows alone, and any contents of bytes are valid.
        let result = unsafe { madvise(self.start.as_ptr().wrapping_add(start).cast(), length, Advice::LinuxDontNeed) };
        debug_assert!(result.is_ok(), "madvise of a buffer of ours failed: {result:?}");
    }

    /// The mapping stays as long as the process lives: somebody may still write there.
    pub(crate) fn keep_mapped(&mut self) {
        self.kept = true;
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is a live mapping of `len` initialised bytes, and `&self` borrows it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // SAFETY: the mapping was made by `new`, is whole, and no reference outlives `self`.
        let result = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(result.is_ok(), "munmap of a buffer of ours failed: {result:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where each mapping of this process begins.
    fn is_mapped(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc/self/maps");
        maps.lines().filter_map(|line| line.split(' ').next()?.split_once('-')).any(|(start, end)| {
            let number = |text| usize::from_str_radix(text, 16).expect("an address");
            (number(start)..number(end)).contains(&address)
        })
    }

    #[test]
    fn what_is_given_back_reads_as_zeros() {
        let mut buffer = Buffer::new(3 * PAGE).expect("a mapping");
        buffer.fill(7);
        buffer.give_back(PAGE);
        assert!(buffer[..PAGE].iter().all(|byte| *byte == 7) && buffer[PAGE..].iter().all(|byte| *byte == 0));
        buffer.give_back(buffer.len());
    }

    /// An error of io_uring_enter once unmapped an entry that the kernel still had.
    #[test]
    fn what_the_kernel_may_still_have_stays_mapped() {
        // Larger than anything else that is mapped meanwhile, so that nobody is given the place.
        const LEN: usize = 1 << 34;
        let buffer = Buffer::new(LEN).expect("a mapping");
        let address = buffer.as_mut_ptr() as usize + LEN / 2;
        assert!(is_mapped(address));
        drop(buffer);
        assert!(!is_mapped(address));
        let mut buffer = Buffer::new(LEN).expect("a mapping");
        let address = buffer.as_mut_ptr() as usize + LEN / 2;
        buffer.keep_mapped();
        drop(buffer);
        assert!(is_mapped(address));
    }
}
