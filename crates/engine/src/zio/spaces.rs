//! Which space a block takes: for the checker.

use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer};
use ondisk::dva::Dva;

use super::read::Intent;
use super::{BlockIo, Bookmark};
use crate::bail;
use crate::error::Result;

/// Most places that one block can take, pieces of gang blocks included.
const SPACES_MAX: usize = 1 << 18;

impl BlockIo {
    /// Every place that a block takes: its copies, and the headers and pieces of gang blocks.
    ///
    /// # Errors
    /// A gang header cannot be read.
    pub fn spaces_of(&self, bp: &BlkPtr, at: &Bookmark) -> Result<Vec<Dva>> {
        let mut spaces = Vec::new();
        if let BlockPointer::Data(data) = bp.decode()? {
            self.collect_spaces(&data, at, 0, &mut spaces)?;
        }
        Ok(spaces)
    }

    /// May the block be known by another address too, in a snapshot? So it is where it was moved from a removed vdev, and OpenZFS has since put
    /// the new address into a pointer.
    pub fn may_have_other_address(&self, bp: &BlkPtr) -> bool {
        bp.dvas().any(|dva| self.devices().was_moved_to(dva))
    }

    fn collect_spaces(&self, data: &DataPointer, at: &Bookmark, depth: usize, spaces: &mut Vec<Dva>) -> Result<()> {
        if depth > 8 || spaces.len() > SPACES_MAX {
            bail!(Corrupt, "block {at}: gang block of too many pieces");
        }
        for dva in data.dvas() {
            spaces.extend(self.devices().resolve(self.own_space(*dva)?)?);
        }
        if data.is_gang() {
            for piece in self.gang_pieces(data, at, Intent::Needed)? {
                self.collect_spaces(&piece, at, depth + 1, spaces)?;
            }
        }
        Ok(())
    }
}
