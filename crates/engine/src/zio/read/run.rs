//! Reading several blocks that lie one behind the other, as one.
//!
//! # Theory
//! A reader of many blocks in the order in which they were written, as a stream is, finds them beside each other, and a device that is asked for
//! a megabyte gives it sooner than sixteen times a part of it. Each block is verified by itself. One that is not right is read again alone, and all
//! are if the I/O fails: that finds out which device is to blame, and heals it.
//!
//! # Path
//! Called by `arc` for readers that read each block once.

use std::sync::Arc;

use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer};

use super::checksum_stage;
use crate::error::Result;
use crate::zio::Bookmark;
use crate::zio::block_io::BlockIo;
use crate::zio::leaf_io::read_range_ahead;
use crate::zio::write::lies_as_it_is;

/// Most bytes that are read as one.
#[doc(alias = "zfs_vdev_aggregation_limit")]
const RUN_BYTES_MAX: u64 = 1 << 20;
/// Most bytes between two blocks that are read along and thrown away.
#[doc(alias = "zfs_vdev_read_gap_limit")]
const GAP_BYTES_MAX: u64 = 32 << 10;

/// Blocks that can be read as one, as far as their pointers say.
#[derive(Debug, Default)]
pub struct Run {
    blocks: Vec<(BlkPtr, Bookmark)>,
    /// The vdev, and the bytes there from the first block to the end of the last; none: the only block is read alone.
    place: Option<(u32, u64, u64)>,
}

impl Run {
    /// Is there no block yet?
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The blocks, in the order in which they were added.
    pub fn blocks(&self) -> &[(BlkPtr, Bookmark)] {
        &self.blocks
    }

    /// Adds a block that can be read along with those that are there. `false`: it cannot be.
    pub fn add(&mut self, pointer: &BlkPtr, at: &Bookmark) -> bool {
        let place = place_of(pointer);
        let joined = match (self.place, place) {
            _ if self.blocks.is_empty() => place,
            (Some((vdev, start, end)), Some((other, from, to))) => {
                let is_near = vdev == other && from.checked_sub(end).is_some_and(|gap| gap <= GAP_BYTES_MAX) && to - start <= RUN_BYTES_MAX;
                if !is_near {
                    return false;
                }
                Some((vdev, start, to))
            }
            _ => return false,
        };
        self.place = joined;
        self.blocks.push((*pointer, *at));
        true
    }
}

/// Where the bytes of a block lie as they are. One without a checksum is read alone: only what is known of a device says whether it has it.
fn place_of(pointer: &BlkPtr) -> Option<(u32, u64, u64)> {
    let Ok(BlockPointer::Data(data)) = pointer.decode() else { return None };
    let dva = data.dvas().first().filter(|dva| data.has_checksum() && !data.is_gang() && lies_as_it_is(dva, data.physical_size))?;
    Some((dva.vdev, dva.offset, dva.offset.checked_add(data.physical_size)?))
}

impl BlockIo {
    /// What could be read of a run as one, of each block as [`BlockIo::read_physical`] has it; `None`: it is to be read alone.
    pub fn read_run(&self, run: &Run) -> Vec<Option<Vec<u8>>> {
        let place = run.place.filter(|_| run.blocks.len() > 1);
        let Some((whole, start)) = place.and_then(|(_, start, end)| Some((self.read_whole(run, start, end).ok()?, start))) else {
            return vec![None; run.blocks.len()];
        };
        run.blocks.iter().map(|(pointer, _)| self.part(pointer, &whole, start)).collect()
    }

    /// The contents of a block, from its part of a run: as [`BlockIo::read`] has them.
    ///
    /// # Errors
    /// As [`BlockIo::open`].
    pub fn read_part(pointer: &BlkPtr, part: Vec<u8>, at: &Bookmark) -> Result<Arc<Vec<u8>>> {
        Self::opened(&data_of(pointer)?, part, at).map(Arc::new)
    }

    fn read_whole(&self, run: &Run, start: u64, end: u64) -> Result<Vec<u8>> {
        let first = data_of(&run.blocks[0].0)?;
        let mut bytes = vec![0; (end - start) as usize];
        read_range_ahead(&self.device(first.dvas()[0])?, start, &mut bytes, first.physical_birth)?;
        Ok(bytes)
    }

    /// A block's part of what was read, if it is right.
    fn part(&self, pointer: &BlkPtr, whole: &[u8], start: u64) -> Option<Vec<u8>> {
        let data = data_of(pointer).ok()?;
        let from = usize::try_from(data.dvas().first()?.offset.checked_sub(start)?).ok()?;
        let part = whole.get(from..from.checked_add(data.physical_size as usize)?)?;
        let is_right = checksum_stage::verify(&data, part, &self.salt()).unwrap_or(false);
        is_right.then(|| {
            self.count_read(&data);
            part.to_vec()
        })
    }
}

fn data_of(pointer: &BlkPtr) -> Result<DataPointer> {
    match pointer.decode()? {
        BlockPointer::Data(data) => Ok(data),
        _ => crate::bail!(Invalid, "a pointer to no place"),
    }
}
