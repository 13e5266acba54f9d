//! Sectors are copied from their old places to their new ones.

use crate::bail;
use crate::error::Result;
use crate::vdev::{Class, Leaf, TopVdev, VdevConfig};
use std::ops::Range;
use std::sync::Arc;

/// So much is held in memory at a time, of each device.
const CHUNK_BYTES: u64 = 1 << 20;

/// The children of a vdev that is being expanded, in their order.
pub(super) struct Children {
    pub(super) leaves: Vec<Arc<Leaf>>,
    pub(super) ashift: u32,
    /// Of so many children sectors that cannot be read may be left out.
    pub(super) left_out_max: usize,
}

impl Children {
    /// `None`: one of them cannot be read, misses something, or is being replaced.
    pub(super) fn whole(top: &TopVdev) -> Option<Children> {
        let (leaves, config) = (top.leaves(), top.config());
        let is_whole = |leaf: &Arc<Leaf>| leaf.is_open() && !leaf.is_behind() && leaf.missing_txgs().is_empty();
        let are_leaves = config.children.iter().map(|child| &child.kind).all(crate::vdev::VdevKind::is_leaf);
        (are_leaves && leaves.iter().all(is_whole)).then(|| Children { leaves, ashift: top.ashift(), left_out_max: 0 })
    }

    /// Those that are there, of a description whose children are devices.
    pub(super) fn all(top: &TopVdev) -> Result<Children> {
        let config: VdevConfig = top.config();
        if !config.children.iter().all(|child| child.kind.is_leaf()) {
            bail!(Unsupported, "vdev {}: a device is being replaced while the scratch area is used", top.id());
        }
        Ok(Children { leaves: top.leaves(), ashift: top.ashift(), left_out_max: 0 })
    }

    fn old(&self) -> u64 {
        self.leaves.len() as u64 - 1
    }

    fn widened(&self) -> u64 {
        self.leaves.len() as u64
    }

    /// The first sector whose place must not be written over yet, where so many are known to be moved: one row before sectors would meet.
    pub(super) fn limit(&self, synced: u64) -> u64 {
        (synced + synced / self.old()).saturating_sub(self.old())
    }

    /// How many sectors are copied at a time.
    pub(super) fn chunk(&self) -> u64 {
        (CHUNK_BYTES >> self.ashift) * self.old()
    }

    /// Reads sectors from the children that had them before, of which there are `width`.
    pub(super) fn read(&self, sectors: Range<u64>, width: u64) -> Result<Vec<u8>> {
        let size = 1_usize << self.ashift;
        let count = (sectors.end - sectors.start) as usize;
        let mut all = vec![0; count * size];
        let mut may_leave_out = self.left_out_max;
        for first in 0..count.min(width as usize) {
            let sector = sectors.start + first as u64;
            let mut own = vec![0; (count - first).div_ceil(width as usize) * size];
            let (leaf, offset) = (&self.leaves[(sector % width) as usize], (sector / width) << self.ashift);
            if let Err(error) = leaf.read(Class::Scrub, offset, &mut own) {
                may_leave_out = may_leave_out.checked_sub(1).ok_or(error)?;
                self.read_what_there_is(leaf, offset, &mut own);
            }
            for (line, bytes) in own.chunks(size).enumerate() {
                all[(first + line * width as usize) * size..][..size].copy_from_slice(bytes);
            }
        }
        Ok(all)
    }

    /// Sector by sector; of those that cannot be read zeros.
    fn read_what_there_is(&self, leaf: &Leaf, offset: u64, own: &mut [u8]) {
        let size = 1_usize << self.ashift;
        for (line, bytes) in own.chunks_mut(size).enumerate() {
            let at = offset + (line * size) as u64;
            if let Err(error) = leaf.read(Class::Scrub, at, bytes) {
                tracing::warn!(%error, "{}: a sector at {at} that no block has is left out", leaf.name());
                bytes.fill(0);
            }
        }
    }

    /// What each child is to have of sectors that begin with `first`: the child, the place on it, and the bytes.
    pub(super) fn parts<'a>(&self, first: u64, bytes: &'a [u8]) -> Vec<(usize, u64, Vec<&'a [u8]>)> {
        let sectors: Vec<&[u8]> = bytes.chunks(1 << self.ashift).collect();
        let width = self.widened();
        let part = |start: usize| {
            let sector = first + start as u64;
            ((sector % width) as usize, (sector / width) << self.ashift, sectors.iter().skip(start).step_by(width as usize).copied().collect())
        };
        (0..sectors.len().min(width as usize)).map(part).collect()
    }

    /// Moves sectors.
    ///
    /// # Errors
    /// Those of the devices: where they were they still are.
    pub(super) fn copy(&self, sectors: Range<u64>) -> Result<()> {
        let bytes = self.read(sectors.clone(), self.old())?;
        for (child, offset, parts) in self.parts(sectors.start, &bytes) {
            self.leaves[child].write(Class::AsyncWrite, offset, &parts)?;
        }
        Ok(())
    }
}
