//! Finds the data and the holes of a file.
//!
//! # Theory
//! Data that a program has written to mapped memory is in the kernel's pages, and no room for it has been asked of us.
//! Here there is a hole where data are, and a copy of the file would leave them out. So before a hole of a file that
//! may be mapped is reported, the kernel is asked to write back what it has there; [`crate::ops::cache::writeback`] fetches all of
//! a file with a write-back cache. It is asked for the hole, of which it has few pages, so that it loses little that it
//! has cached; and for the first block of data, which may be zeros by now, so that a search for data in a file that is
//! being written sees them as with OpenZFS. Calling zeros data is right too, and that is how they count in the other
//! blocks.

use fuse::{Errno, Result};
use tarnfs::{Seek, Stat};

use crate::ops::Ops;
use crate::ops::nodes::node::Node;

/// The most ranges that are fetched; a hole behind more ranges than this is not reported.
const LOOKS: usize = 16;
/// To the end of the file.
const TO_END: i64 = 0;

impl Ops {
    /// The next data or hole at or behind `offset`.
    pub(in crate::ops) fn seek_in(&self, number: u64, offset: u64, whence: u32) -> Result<u64> {
        let wanted = match whence.cast_signed() {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::EINVAL),
        };
        let mut found = self.find(number, offset, wanted)?;
        if self.has_writeback_cache() || !self.writeback.may_have_more(number) {
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
        // To call everything data is never wrong.
        let size = self.stat_to_seek(number)?.size;
        let everything = if wanted == Seek::Data { offset } else { size };
        if offset < size { Ok(everything) } else { Err(Errno::ENXIO) }
    }

    fn find(&self, number: u64, offset: u64, wanted: Seek) -> Result<Option<u64>> {
        let _inside = self.enter(number);
        let (located, inode) = self.locate(Node::of(number))?;
        located.filesystem().seek(inode, offset, wanted).map_err(crate::errno::of)
    }

    fn stat_to_seek(&self, number: u64) -> Result<Stat> {
        let _inside = self.enter(number);
        let (located, inode) = self.locate(Node::of(number))?;
        located.filesystem().getattr(inode).map_err(crate::errno::of)
    }

    /// The range that an answer depends on: its start and its end, `None` for the end of the file. `None`: the answer
    /// depends on none.
    fn doubted(&self, number: u64, offset: u64, wanted: Seek, found: Option<u64>) -> Result<Option<(u64, Option<u64>)>> {
        let stat = self.stat_to_seek(number)?;
        let (from, to) = match (wanted, found) {
            (Seek::Data, found) => (offset, found.map(|data| data.saturating_add(1).next_multiple_of(stat.block_size.max(1)))),
            (Seek::Hole, Some(hole)) => (hole, self.find(number, hole, Seek::Data)?),
            (Seek::Hole, None) => return Ok(None),
        };
        Ok((from < to.unwrap_or(stat.size)).then_some((from, to)))
    }

    /// Has the kernel write back a range. `false`: not now. Never inside the gate: the kernel waits for requests that are under way in that range.
    fn fetch_range(&self, number: u64, from: u64, to: Option<u64>) -> bool {
        let Some(notifier) = self.notifier.lock().clone() else { return true };
        let Some(_fetching) = self.writeback.fetching() else { return false };
        fuse::before_blocking();
        let length = to.map_or(TO_END, |to| (to - from).cast_signed());
        if let Err(error) = notifier.inval_inode(number, from.cast_signed(), length) {
            tracing::warn!(number, %error, "data in the kernel's cache could not be written back");
        }
        true
    }
}
