//! Space maps that hold any ranges of numbers, not space.

use ondisk::space_map::{Action, Area};

use super::map::SpaceMap;
use super::sync::SpaceMaps;
use crate::alloc::RangeTree;
use crate::bail;
use crate::dmu::{ObjectId, Objset, SyncTx};
use crate::error::Result;

/// All numbers.
const NUMBERS: Area = Area { start: 0, size: u64::MAX, shift: 0 };
/// Block size of such a map.
const BLOCK_BYTES: u32 = 4096;

/// The half-open ranges in the space map `object`.
///
/// # Errors
/// It cannot be read or makes no sense.
pub fn read_ranges(mos: &Objset, object: ObjectId) -> Result<Vec<(u64, u64)>> {
    let map = SpaceMap::open(mos, object, NUMBERS)?;
    let mut ranges = RangeTree::new();
    map.replay(map.length(), |entry| {
        match entry.action {
            Action::Allocate => ranges.add(entry.offset, entry.size)?,
            Action::Free => ranges.remove(entry.offset, entry.size)?,
        }
        Ok(())
    })?;
    Ok(ranges.segments().map(|(offset, size)| (offset, offset + size)).collect())
}

/// What the frees in the space map `object` name, of a vdev of `bytes` whose sectors are of `1 << ashift` bytes.
///
/// # Errors
/// It cannot be read, makes no sense, or has the same space twice.
pub fn read_frees(mos: &Objset, object: ObjectId, bytes: u64, ashift: u8) -> Result<RangeTree> {
    let map = SpaceMap::open(mos, object, Area { start: 0, size: bytes, shift: ashift })?;
    let mut ranges = RangeTree::new();
    map.replay(map.length(), |entry| match entry.action {
        Action::Free => Ok(ranges.add(entry.offset, entry.size)?),
        Action::Allocate => bail!(Corrupt, "space map {object}: an allocation among frees"),
    })?;
    Ok(ranges)
}

impl SpaceMaps {
    /// Makes half-open `ranges` all that is in a space map: in `object`, or (0) in a new one. Returns the object.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn write_ranges(&self, tx: &SyncTx<'_>, object: ObjectId, ranges: &[(u64, u64)]) -> Result<ObjectId> {
        let features = self.features.as_ref();
        let mut map = match object {
            0 => SpaceMap::create(&self.mos, tx, features, NUMBERS, BLOCK_BYTES)?,
            object => SpaceMap::open(&self.mos, object, NUMBERS)?,
        };
        let mut all = RangeTree::new();
        for (start, end) in ranges {
            all.add(*start, end - start)?;
        }
        map.restart();
        map.append(tx, features, None, &all, &RangeTree::new())?;
        map.store_header(tx);
        Ok(map.object())
    }
    /// Frees such a map.
    ///
    /// # Errors
    /// It is none, or cannot be freed.
    pub fn free_ranges(&self, tx: &SyncTx<'_>, object: ObjectId) -> Result<()> {
        SpaceMap::open(&self.mos, object, NUMBERS)?.destroy(&self.mos, tx, self.features.as_ref())
    }
}
