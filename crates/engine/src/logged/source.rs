//! What a commit of the log fetches.

use std::ops::Range;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;

use super::LoggedObject;
use crate::dmu::{Objset, Tx};
use crate::error::Result;
use crate::txg::Txg;
use crate::zil::{PlacedBlock, Placing, WantedWrite};

impl LoggedObject {
    /// Has whole blocks of a range written that `tx` and others of its group have changed, by another thread: a commit is expected to ask for them
    /// ([`crate::zil::Zil::log_write`]).
    pub fn place_soon(&self, objset: &Arc<Objset>, tx: &Tx, range: &Range<u64>) {
        let block = self.dnode.block_bytes();
        let (first, last) = (range.start.div_ceil(block), range.end / block);
        if first < last {
            objset.write_soon(&self.dnode, first..last, tx.txg());
        }
    }

    /// Appends the bytes of a write to `out`, fewer at the end of the contents. `size` is asked under the lock.
    ///
    /// # Errors
    /// Those of `size`; a block cannot be read.
    pub fn fetch(&self, write: &WantedWrite, size: impl FnOnce() -> Result<u64>, out: &mut Vec<u8>) -> Result<()> {
        let _guard = self.ranges.read(write.offset..write.offset + write.length as u64);
        let left = size()?.saturating_sub(write.offset);
        let count = write.length.min(usize::try_from(left).unwrap_or(usize::MAX));
        let start = out.len();
        out.resize(start + count, 0);
        self.dnode.read(write.offset, &mut out[start..])
    }

    /// Writes blocks of a write to their own place: see [`crate::zil::LogSource::place`].
    ///
    /// # Errors
    /// Those of `size`.
    pub fn place(&self, objset: &Objset, write: &WantedWrite, size: impl FnOnce() -> Result<u64>, txg: Txg, which: Placing) -> Result<Vec<PlacedBlock>> {
        let block = self.dnode.block_bytes();
        let end = write.offset + write.length as u64;
        let whole = write.offset / block * block..end.next_multiple_of(block);
        let _guard = self.ranges.read(whole);
        let size = size()?;
        let end = end.min(size);
        if self.dnode.block_bytes() != block || write.offset >= end {
            return Ok(Vec::new());
        }
        // Not a block that reaches beyond the end of the contents: OpenZFS, when it replays such a record, makes the file as long as the
        // block (seen: a file of 13 blocks to the byte, where 12 and a part had been written).
        let (first, last) = match which {
            Placing::Touched => (write.offset / block, end.div_ceil(block).min(size / block)),
            Placing::Covered | Placing::Placed => (write.offset.div_ceil(block), end / block),
        };
        // A group that is closed already is being written: what it has is copied.
        let hold = objset.context().groups.hold();
        if first >= last || hold.txg() != txg {
            return Ok(Vec::new());
        }
        let placed = match which {
            Placing::Placed => self.dnode.placed(first..last, txg),
            Placing::Covered | Placing::Touched => objset.write_early(&self.dnode, first..last, txg),
        };
        let part = |(number, pointer): (u64, BlkPtr)| {
            let offset = (number * block).max(write.offset);
            PlacedBlock { offset, length: ((number + 1) * block).min(end) - offset, pointer }
        };
        Ok(placed.into_iter().map(part).collect())
    }
}
