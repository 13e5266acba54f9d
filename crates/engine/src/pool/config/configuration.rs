//! The configuration of an open pool: what labels and the MOS are to say of it.
//!
//! # Theory
//! It may be changed at any time; what is changed is written with the next group, into the MOS and, if anything was, onto the labels.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::PoolConfig;
use crate::dmu::SyncTx;
use crate::dsl::Meta;
use crate::error::Result;
use crate::pool::open::open::write_packed;
use crate::pool::space_maps::SpaceMaps;
use crate::vdev::{VdevTree, key};

/// See the module.
pub(in crate::pool) struct Configuration {
    vdevs: Arc<VdevTree>,
    /// guards: what labels and the MOS say of the pool
    config: Mutex<PoolConfig>,
    /// The MOS object that has it.
    object: u64,
    dirty: AtomicBool,
    /// The group that is being written has a new configuration: labels say it, too.
    labels_due: AtomicBool,
}

impl Configuration {
    /// That of a pool whose MOS has it in `object`; `dirty`: something else, or nothing yet.
    pub(in crate::pool) fn new(vdevs: Arc<VdevTree>, config: PoolConfig, object: u64, dirty: bool) -> Self {
        Configuration { vdevs, config: Mutex::new(config), object, dirty: AtomicBool::new(dirty), labels_due: AtomicBool::new(false) }
    }

    /// The pool's name.
    pub(in crate::pool) fn name(&self) -> String {
        let config = self.config.lock();
        config.temporary_name.as_ref().unwrap_or(&config.name).clone()
    }

    /// What it is, without the vdevs.
    pub(in crate::pool) fn get(&self) -> PoolConfig {
        self.config.lock().clone()
    }

    /// Changes it; it is written with the next group.
    pub(in crate::pool) fn change(&self, change: impl FnOnce(&mut PoolConfig)) {
        change(&mut self.config.lock());
        self.set_dirty();
    }

    /// As [`Configuration::change`], and all labels are written.
    pub(in crate::pool) fn change_on_labels(&self, change: impl FnOnce(&mut PoolConfig)) {
        self.change(change);
        self.write_labels();
    }

    /// All labels are written with the next group.
    pub(in crate::pool) fn write_labels(&self) {
        for top in self.vdevs.tops() {
            top.set_config_dirty();
        }
    }

    /// It, or the description of a vdev, has changed.
    pub(in crate::pool) fn set_dirty(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    /// The configuration, or the description of a vdev, is not as it is in the MOS.
    pub(in crate::pool) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire) || self.vdevs.tops().iter().any(|top| top.is_config_dirty())
    }

    /// Whether it was; the caller writes it now. What changes from here on is for the next time.
    fn take_dirty(&self) -> bool {
        let changed = self.dirty.swap(false, Ordering::AcqRel);
        self.vdevs.tops().iter().fold(changed, |changed, top| top.take_config_dirty() || changed)
    }

    /// Whether the labels are to be written with the group; the caller does so.
    pub(in crate::pool) fn take_labels_due(&self) -> bool {
        self.labels_due.swap(false, Ordering::AcqRel)
    }

    /// The description of a new vdev gets the number of its array of space maps.
    pub(in crate::pool) fn note_metaslab_arrays(&self, maps: &SpaceMaps) {
        for top in self.vdevs.data_tops().into_iter().filter(|top| top.metaslab_array() == 0) {
            let array = maps.metaslab_array(top.id() as u32);
            if array != 0 {
                top.update_config(|config| config.set(key::METASLAB_ARRAY, array));
                self.set_dirty();
            }
        }
    }

    /// Writes the configuration if it changed (`spa_sync_config_object`); then the labels are written with the group, too. What is
    /// changed after that stays to be written with the next group: only the MOS has all of it.
    pub(in crate::pool) fn sync(&self, meta: &Meta, tx: &SyncTx<'_>) -> Result<()> {
        if meta.features.take_label_is_stale() {
            let active = meta.features.for_label();
            self.change(|config| {
                config.features_for_read = ondisk::nvlist::NvList::new();
                for guid in active {
                    config.set_feature_for_read(guid, true);
                }
            });
        }
        if !self.take_dirty() {
            return Ok(());
        }
        self.labels_due.store(true, Ordering::Release);
        write_packed(&meta.mos, self.object, &self.get().mos(&self.vdevs, tx.txg()), tx)
    }
}
