//! The space map of a removed vdev: which parts of its map nothing needs any more.
//!
//! # On disk
//! The removed vdev's ZAP has its number. One map for the whole vdev, in bytes rather than sectors; it only ever has
//! allocations, and is there while it has any. Each counts as one use of the feature. While the map of the vdev is being made shorter,
//! what was obsolete when that began is set aside, and the ZAP may have another one.

use ondisk::feature::Feature;
use ondisk::indirect::OBSOLETE_MAP;
use ondisk::space_map::{Action, Area};

use super::map::SpaceMap;
use super::sync::SpaceMaps;
use super::vdev_maps::block_bytes;
use crate::alloc::RangeTree;
use crate::bail;
use crate::dmu::{ObjectId, SyncTx};
use crate::error::Result;
use crate::zap::Zap;

const fn area(bytes: u64) -> Area {
    Area { start: 0, size: bytes, shift: 0 }
}

impl SpaceMaps {
    /// Appends ranges (offset and length) of a removed vdev of `bytes`, whose ZAP is `top_zap`.
    ///
    /// # Errors
    /// The map cannot be read, or has one of the ranges already.
    pub fn append_obsolete(&self, tx: &SyncTx<'_>, top_zap: ObjectId, bytes: u64, ranges: &[(u64, u64)]) -> Result<()> {
        if top_zap == 0 {
            bail!(Corrupt, "it has no ZAP");
        }
        let area = area(bytes);
        let features = self.features.as_ref();
        let zap = Zap::open(&self.mos, top_zap)?;
        let mut map = match zap.lookup_u64(OBSOLETE_MAP)? {
            Some(object) => SpaceMap::open(&self.mos, object, area)?,
            None => {
                let map = SpaceMap::create(&self.mos, tx, features, area, block_bytes(true))?;
                zap.add_u64(tx, OBSOLETE_MAP, map.object())?;
                features.add(tx, Feature::ObsoleteCounts, 1)?;
                map
            }
        };
        let mut freed = RangeTree::new();
        for (offset, length) in ranges {
            freed.add(*offset, *length)?;
        }
        map.append(tx, features, None, &freed, &RangeTree::new())?;
        map.store_header(tx);
        Ok(())
    }

    /// The bytes of a removed vdev's map that are obsolete by its space map, and the length of that; `None`: it has none.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn obsolete_size(&self, top_zap: ObjectId, bytes: u64) -> Result<Option<(u64, u64)>> {
        let Some(object) = Zap::open(&self.mos, top_zap)?.lookup_u64(OBSOLETE_MAP)? else { return Ok(None) };
        let map = SpaceMap::open(&self.mos, object, area(bytes))?;
        Ok(Some((map.header.allocated.max(0).cast_unsigned(), map.length())))
    }

    /// What such a space map says.
    ///
    /// # Errors
    /// It cannot be read, or makes no sense.
    pub fn obsolete_ranges(&self, object: ObjectId, bytes: u64) -> Result<RangeTree> {
        let map = SpaceMap::open(&self.mos, object, area(bytes))?;
        let mut ranges = RangeTree::new();
        map.replay(map.length(), |entry| match entry.action {
            Action::Allocate => Ok(ranges.add(entry.offset, entry.size)?),
            Action::Free => bail!(Corrupt, "space map {object}: something obsolete is needed again"),
        })?;
        Ok(ranges)
    }

    /// Takes its space map from a removed vdev; it still counts as a use of the feature.
    ///
    /// # Errors
    /// It has none.
    pub fn set_obsolete_aside(&self, tx: &SyncTx<'_>, top_zap: ObjectId) -> Result<ObjectId> {
        let zap = Zap::open(&self.mos, top_zap)?;
        let Some(object) = zap.lookup_u64(OBSOLETE_MAP)? else { bail!(Corrupt, "nothing of it is obsolete") };
        zap.remove(tx, OBSOLETE_MAP)?;
        Ok(object)
    }

    /// Frees such a space map.
    ///
    /// # Errors
    /// It is none, or cannot be freed.
    pub fn free_obsolete_map(&self, tx: &SyncTx<'_>, object: ObjectId) -> Result<()> {
        SpaceMap::open(&self.mos, object, area(u64::MAX))?.destroy(&self.mos, tx, self.features.as_ref())
    }

    /// Frees the space map of a vdev that is not removed after all, if it has one.
    ///
    /// # Errors
    /// It cannot be freed.
    pub fn free_obsolete(&self, tx: &SyncTx<'_>, top_zap: ObjectId) -> Result<()> {
        if Zap::open(&self.mos, top_zap)?.contains(OBSOLETE_MAP)? {
            let object = self.set_obsolete_aside(tx, top_zap)?;
            self.free_obsolete_map(tx, object)?;
            self.features.add(tx, Feature::ObsoleteCounts, -1)?;
        }
        Ok(())
    }
}
