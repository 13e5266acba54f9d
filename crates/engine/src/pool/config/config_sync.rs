//! Writing the pool's configuration into the MOS.

use std::sync::atomic::Ordering;

use crate::pool::Pool;
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::vdev::key;

impl Pool {
    /// The description of a new vdev gets the number of its array of space maps.
    pub(in crate::pool) fn note_metaslab_arrays(&self) {
        let Some(maps) = &self.space_maps else { return };
        for top in self.vdevs.data_tops().into_iter().filter(|top| top.metaslab_array() == 0) {
            let array = maps.metaslab_array(top.id() as u32);
            if array != 0 {
                top.update_config(|config| config.set(key::METASLAB_ARRAY, array));
                self.set_config_dirty();
            }
        }
    }

    /// The configuration, or the description of a vdev, is not as it is in the MOS.
    pub(in crate::pool) fn is_config_dirty(&self) -> bool {
        self.config_dirty.load(Ordering::Acquire) || self.vdevs.tops().iter().any(|top| top.is_config_dirty())
    }

    /// Whether it was; who asks writes it now. What changes from here on is for the next time.
    fn take_config_dirty(&self) -> bool {
        let changed = self.config_dirty.swap(false, Ordering::AcqRel);
        self.vdevs.tops().iter().fold(changed, |changed, top| top.take_config_dirty() || changed)
    }

    /// Writes the configuration if it changed (`spa_sync_config_object`); then the labels are written with the group, too. What is
    /// changed after that stays to be written with the next group: only the MOS has all of it.
    pub(in crate::pool) fn sync_config(&self, tx: &SyncTx<'_>) -> Result<()> {
        let features = &self.dsl.meta.features;
        if features.take_label_is_stale() {
            let active = features.for_label();
            self.change_config(|config| {
                config.features_for_read = ondisk::nvlist::NvList::new();
                for guid in active {
                    config.set_feature_for_read(guid, true);
                }
            });
        }
        if !self.take_config_dirty() {
            return Ok(());
        }
        self.labels_due.store(true, Ordering::Release);
        let packed = self.config().mos(&self.vdevs, tx.txg()).encode_xdr();
        let mos = &self.dsl.meta.mos;
        mos.write(self.config_object, 0, &packed, tx)?;
        mos.set_bonus(self.config_object, &(packed.len() as u64).to_le_bytes(), tx)
    }
}
