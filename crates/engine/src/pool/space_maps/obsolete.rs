//! The space map of a removed vdev: which parts of its map nothing needs any more.
//!
//! # On disk
//! The removed vdev's ZAP has its number. One map for the whole vdev, in bytes rather than sectors; it only ever has
//! allocations, and is there while it has any. Each counts as one use of the feature.

use ondisk::feature::Feature;
use ondisk::indirect::OBSOLETE_MAP;
use ondisk::space_map::Area;

use super::map::SpaceMap;
use super::sync::SpaceMaps;
use super::vdev_maps::block_bytes;
use crate::alloc::RangeTree;
use crate::bail;
use crate::dmu::{ObjectId, SyncTx};
use crate::error::Result;
use crate::zap::Zap;

impl SpaceMaps {
    /// Appends ranges (offset and length) of a removed vdev of `bytes`, whose ZAP is `top_zap`.
    ///
    /// # Errors
    /// The map cannot be read, or has one of the ranges already.
    pub fn append_obsolete(&self, tx: &SyncTx<'_>, top_zap: ObjectId, bytes: u64, ranges: &[(u64, u64)]) -> Result<()> {
        if top_zap == 0 {
            bail!(Corrupt, "it has no ZAP");
        }
        let area = Area { start: 0, size: bytes, shift: 0 };
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
}
