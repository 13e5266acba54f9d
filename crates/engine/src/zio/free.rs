//! Giving back the space of a block.

use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer};
use ondisk::dva::Dva;

use super::block_io::BlockIo;
use super::gang::HEADER_BYTES;
use crate::bail;
use crate::error::{Result, Within};

/// The tables that count references to blocks: deduplication and clones.
pub trait BlockTables: Send + Sync {
    /// Takes one reference from the block. `true`: there is another, so the space must stay.
    fn release(&self, bp: &BlkPtr, txg: u64) -> Result<bool>;
    /// Adds one reference to the block, which is on disk: one of this dataset's.
    fn add_reference(&self, bp: &BlkPtr, dataset: u64) -> Result<()>;
}

impl BlockIo {
    /// Returns the space of every copy, and of the pieces of gang blocks. Syncing context only.
    ///
    /// # Errors
    /// `Corrupt` when the pointer makes no sense or its space is free already; `Unsupported` for a deduplicated block when
    /// no table is open.
    pub fn free(&self, bp: &BlkPtr, txg: u64) -> Result<()> {
        let BlockPointer::Data(data) = bp.decode()? else { return Ok(()) };
        match self.tables() {
            Some(tables) if tables.release(bp, txg)? => return Ok(()),
            None if data.dedup => bail!(Unsupported, "freeing the deduplicated block {bp}"),
            Some(_) | None => {}
        }
        self.free_data(&data, txg, 0, &mut 0).within(|| format!("freeing {bp}"))
    }

    /// One pointer more, of this dataset, leads to a block that is on disk. Syncing context only, before anything of the group is freed.
    ///
    /// # Errors
    /// Those of the tables; `NotSupported` when there are none.
    pub fn add_reference(&self, bp: &BlkPtr, dataset: u64) -> Result<()> {
        match self.tables() {
            _ if bp.is_embedded() || bp.is_hole() => Ok(()),
            Some(tables) => tables.add_reference(bp, dataset),
            None => bail!(NotSupported, "sharing the block {bp}"),
        }
    }

    /// As [`BlockIo::free`], of a block of which the tables are known to have no reference left.
    ///
    /// # Errors
    /// As for [`BlockIo::free`].
    pub fn free_place(&self, data: &DataPointer, txg: u64) -> Result<()> {
        self.free_data(data, txg, 0, &mut 0)
    }

    pub(super) fn free_data(&self, data: &DataPointer, txg: u64, depth: usize, pieces: &mut usize) -> Result<()> {
        if data.is_gang() {
            self.free_gang(data, txg, depth, pieces)?;
        }
        let checkpoint = self.checkpoint_txg();
        let is_kept = checkpoint != 0 && data.physical_birth <= checkpoint;
        for dva in data.dvas() {
            for place in self.devices().resolve_to_free(self.own_space(*dva)?)? {
                if is_kept { self.allocator().free_and_keep(place, txg)? } else { self.allocator().free(place, txg)? }
            }
        }
        Ok(())
    }

    /// What lies at the address itself: of a gang block the header only, whose DVA counts all pieces.
    pub(super) fn own_space(&self, dva: Dva) -> Result<Dva> {
        if !dva.gang {
            return Ok(dva);
        }
        let allocated = self.device(dva)?.allocated_size(HEADER_BYTES as u64);
        Ok(Dva { allocated, gang: false, ..dva })
    }
}
