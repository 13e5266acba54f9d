//! The space map of what only a checkpoint keeps of a vdev.
//!
//! # On disk
//! The vdev's ZAP has its number. One map for the whole vdev; it only ever has frees, and is there while it has any. What it names
//! is allocated in the maps of the metaslabs until it is given back, from the end of the map on.

use ondisk::space_map::{Action, Area, BLOCK_BYTES_LOGGED};

use super::map::SpaceMap;
use super::sync::SpaceMaps;
use super::vdev_maps::VdevMaps;
use crate::alloc::RangeTree;
use crate::bail;
use crate::dmu::{ObjectId, Objset, SyncTx};
use crate::error::Result;
use crate::zap::Zap;
use ondisk::dva::Dva;

/// In a top-level vdev's ZAP: frees since the checkpoint.
#[doc(alias = "VDEV_TOP_ZAP_POOL_CHECKPOINT_SM")]
pub(in crate::pool) const CHECKPOINT_MAP: &str = "com.delphix:pool_checkpoint_sm";

/// The vdev may grow: what the map names is looked at when it is given back.
const fn area(shift: u8) -> Area {
    Area { start: 0, size: u64::MAX, shift }
}

/// The map of the vdev whose ZAP is `top_zap`, if it has one.
pub(super) fn open_kept(mos: &Objset, top_zap: ObjectId, shift: u8) -> Result<Option<SpaceMap>> {
    let object = if top_zap == 0 { None } else { Zap::open(mos, top_zap)?.lookup_u64(CHECKPOINT_MAP)? };
    object.map(|object| SpaceMap::open(mos, object, area(shift))).transpose()
}

impl SpaceMaps {
    /// Notes what was freed and a checkpoint has.
    pub(super) fn keep(&self, tx: &SyncTx<'_>, maps: &VdevMaps, kept: &RangeTree) -> Result<()> {
        if kept.is_empty() {
            return Ok(());
        }
        if maps.top_zap == 0 {
            bail!(Corrupt, "vdev {} has no ZAP, and a checkpoint has space of it", maps.vdev());
        }
        let features = self.features.as_ref();
        let mut slot = maps.kept.lock();
        let map = match slot.take() {
            Some(map) => slot.insert(map),
            None => {
                let map = SpaceMap::create(&self.mos, tx, features, area(maps.group.config().ashift), BLOCK_BYTES_LOGGED)?;
                Zap::open(&self.mos, maps.top_zap)?.add_u64(tx, CHECKPOINT_MAP, map.object())?;
                slot.insert(map)
            }
        };
        map.append(tx, features, None, &RangeTree::new(), kept)?;
        map.store_header(tx);
        Ok(())
    }

    /// Frees what a checkpoint has kept, `most` ranges at the most; `true`: nothing is left.
    ///
    /// # Errors
    /// A map cannot be read, or names what is not in use.
    pub(in crate::pool) fn give_back_kept(&self, tx: &SyncTx<'_>, most: usize) -> Result<bool> {
        let mut left = most;
        for maps in self.all_vdevs() {
            let mut slot = maps.kept.lock();
            while let Some(mut map) = slot.take() {
                if left == 0 {
                    *slot = Some(map);
                    return Ok(false);
                }
                for (action, offset, size) in map.take_last(tx, left)? {
                    if action == Action::Allocate {
                        bail!(Corrupt, "space map {}: an allocation among frees", map.object());
                    }
                    self.allocator.free(Dva::new(maps.vdev(), offset, size), tx.txg())?;
                    left = left.saturating_sub(1);
                }
                if map.length() == 0 {
                    map.destroy(&self.mos, tx, self.features.as_ref())?;
                    Zap::open(&self.mos, maps.top_zap)?.remove(tx, CHECKPOINT_MAP)?;
                } else {
                    *slot = Some(map);
                }
            }
        }
        Ok(true)
    }
}
