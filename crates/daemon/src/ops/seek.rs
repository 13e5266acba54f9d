//! Where the data and the holes of a file are.
//!
//! # Theory
//! What a program has written to memory that it has mapped is in the kernel's pages, and nobody has asked us for room: here there is a hole where
//! data are, and who copies a file would leave them out. So before a hole of a file that may be mapped is believed in, the kernel is asked for
//! what it has there; as in [`super::collected`], which has all of a file fetched where writes are collected. Asked for is a hole, of which the kernel
//! has few pages, so that it loses little that it has cached; and of data the first block, which may be zeros by now: who looks for data in a file
//! that somebody is writing learns of them as with OpenZFS. To call zeros data is right, too, and so they are in the other blocks.

use fuse::{Errno, Result};
use tarnfs::{Seek, Stat};

use super::Ops;
use super::node::Node;

/// So many ranges are looked into; a hole that is behind more than these, which were none, is not believed in.
const LOOKS: usize = 16;
/// To the end of the file.
const TO_END: i64 = 0;

impl Ops {
    /// The next data or hole at or behind `offset`.
    pub(super) fn seek_in(&self, number: u64, offset: u64, whence: u32) -> Result<u64> {
        let wanted = match whence.cast_signed() {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::EINVAL),
        };
        let mut found = self.find(number, offset, wanted)?;
        if self.collects_writes() || !self.collected.may_have_more(number) {
            return found.ok_or(Errno::ENXIO);
        }
        for _ in 0..LOOKS {
            let Some((from, to)) = self.doubted(number, offset, wanted, found)? else { return found.ok_or(Errno::ENXIO) };
            if !self.fetch_range(number, from, to) {
                break;
            }
            let again = self.find(number, offset, wanted)?;
            if again == found {
                return again.ok_or(Errno::ENXIO);
            }
            found = again;
        }
        // All is data: that is never wrong.
        let size = self.stat_to_seek(number)?.size;
        let everything = if wanted == Seek::Data { offset } else { size };
        if offset < size { Ok(everything) } else { Err(Errno::ENXIO) }
    }

    fn find(&self, number: u64, offset: u64, wanted: Seek) -> Result<Option<u64>> {
        let (located, inode) = self.locate(Node::of(number))?;
        located.filesystem().seek(inode, offset, wanted).map_err(crate::errno::of)
    }

    fn stat_to_seek(&self, number: u64) -> Result<Stat> {
        let (located, inode) = self.locate(Node::of(number))?;
        located.filesystem().getattr(inode).map_err(crate::errno::of)
    }

    /// The range that an answer depends on: from where to where, `None` to the end. `None`: on none.
    fn doubted(&self, number: u64, offset: u64, wanted: Seek, found: Option<u64>) -> Result<Option<(u64, Option<u64>)>> {
        let stat = self.stat_to_seek(number)?;
        let (from, to) = match (wanted, found) {
            (Seek::Data, found) => (offset, found.map(|data| data.saturating_add(1).next_multiple_of(stat.block_size.max(1)))),
            (Seek::Hole, Some(hole)) => (hole, self.find(number, hole, Seek::Data)?),
            (Seek::Hole, None) => return Ok(None),
        };
        Ok((from < to.unwrap_or(stat.size)).then_some((from, to)))
    }

    /// Has the kernel hand over what it has in a range. `false`: not now.
    fn fetch_range(&self, number: u64, from: u64, to: Option<u64>) -> bool {
        let Some(notifier) = self.notifier.lock().clone() else { return true };
        let Some(_fetching) = self.collected.fetching() else { return false };
        fuse::before_blocking();
        let length = to.map_or(TO_END, |to| (to - from).cast_signed());
        if let Err(error) = notifier.inval_inode(number, from.cast_signed(), length) {
            tracing::warn!(number, %error, "the kernel may know of more contents");
        }
        true
    }
}
