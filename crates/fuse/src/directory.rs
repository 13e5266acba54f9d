//! Directory listings, in the two forms that the kernel reads: names only, or names with attributes.

use zerocopy::IntoBytes;

use crate::dispatch::entry_out;
use crate::protocol::{DirEntryHead, EntryOut};
use crate::{Attr, Entry};

/// Type of a directory entry, as in `d_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryKind(pub u8);

impl EntryKind {
    /// From the type bits of a mode.
    pub const fn from_mode(mode: u32) -> EntryKind {
        EntryKind(((mode & libc::S_IFMT) >> 12) as u8)
    }
}

/// Takes entries until there is no more room.
#[derive(Debug)]
pub struct DirectoryWriter<'a> {
    out: &'a mut [u8],
    len: usize,
}

/// As [`DirectoryWriter`], with attributes.
#[derive(Debug)]
pub struct DirectoryPlusWriter<'a> {
    inner: DirectoryWriter<'a>,
}

impl<'a> DirectoryWriter<'a> {
    /// An empty list that fills `out`.
    pub fn new(out: &'a mut [u8]) -> DirectoryWriter<'a> {
        DirectoryWriter { out, len: 0 }
    }

    /// Bytes used.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No entry was accepted.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry; `next` is the cookie from which the listing goes on after it. False: no room, stop here.
    #[must_use]
    pub fn push(&mut self, inode: u64, next: u64, kind: EntryKind, name: &[u8]) -> bool {
        self.push_with(&[], inode, next, kind, name)
    }

    fn push_with(&mut self, prefix: &[u8], inode: u64, next: u64, kind: EntryKind, name: &[u8]) -> bool {
        let Ok(name_len) = u32::try_from(name.len()) else { return false };
        let head = DirEntryHead { ino: inode, offset: next, name_len, kind: u32::from(kind.0) };
        let used = prefix.len() + size_of::<DirEntryHead>() + name.len();
        let total = used.next_multiple_of(8);
        let Some(slot) = self.out.get_mut(self.len..).and_then(|rest| rest.get_mut(..total)) else { return false };
        let mut at = 0;
        for part in [prefix, head.as_bytes(), name] {
            slot[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        slot[at..].fill(0);
        self.len += total;
        true
    }
}

impl<'a> DirectoryPlusWriter<'a> {
    /// An empty list that fills `out`.
    pub fn new(out: &'a mut [u8]) -> DirectoryPlusWriter<'a> {
        DirectoryPlusWriter { inner: DirectoryWriter::new(out) }
    }

    /// Bytes used.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// No entry was accepted.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// Is there room for an entry with a name of this length? Ask before fetching its attributes.
    pub fn has_room(&self, name_len: usize) -> bool {
        self.inner.out.len() - self.inner.len >= (size_of::<EntryOut>() + size_of::<DirEntryHead>() + name_len).next_multiple_of(8)
    }

    /// Adds an entry with attributes. True: the kernel now has a reference to `entry.node`.
    #[must_use]
    pub fn push(&mut self, next: u64, name: &[u8], entry: &Entry) -> bool {
        self.inner.push_with(entry_out(entry).as_bytes(), entry.attr.inode, next, EntryKind::from_mode(entry.attr.mode), name)
    }

    /// Adds an entry without attributes and without a reference, as for "." and "..".
    #[must_use]
    pub fn push_bare(&mut self, inode: u64, next: u64, kind: EntryKind, name: &[u8]) -> bool {
        let attr = Attr { inode, mode: u32::from(kind.0) << 12, ..Attr::default() };
        let entry = Entry { attr, ..Entry::negative(std::time::Duration::ZERO) };
        self.inner.push_with(entry_out(&entry).as_bytes(), inode, next, kind, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_padded_and_stop_when_full() {
        let mut space = [0xffu8; 80];
        let mut list = DirectoryWriter::new(&mut space);
        assert!(list.push(7, 1, EntryKind(8), b"a"));
        assert_eq!(list.len(), 32);
        assert!(list.push(8, 2, EntryKind(4), b"12345678"));
        assert_eq!(list.len(), 64);
        assert!(!list.push(9, 3, EntryKind(4), b""));
        assert_eq!(list.len(), 64);
        assert_eq!(&space[24..32], b"a\0\0\0\0\0\0\0");
    }

    #[test]
    fn plus_room_is_exact() {
        let mut space = [0u8; 160];
        let mut list = DirectoryPlusWriter::new(&mut space);
        assert!(list.has_room(8));
        assert!(!list.has_room(9));
        assert!(list.push_bare(1, 1, EntryKind(4), b".."));
        assert!(!list.has_room(1));
    }
}
