//! Removing a device that is for the intent log alone.
//!
//! # Theory
//! Nothing stays on such a device for long. So nothing is allocated on it any more, every dataset begins its log anew elsewhere, and when
//! the groups that hold the records are on disk, the device is empty. What is known of it goes in one group: a hole keeps its
//! number, since DVAs name vdevs by number. At last its labels are cleared; a crash before that leaves a label that is older
//! than the pool's configuration, which does not have the device.
//!
//! A device that is missing can be removed in the same way.

use std::sync::Arc;

use crate::pool::Pool;
use crate::pool::devices::vdev_zaps;
use crate::alloc::Group;
use crate::bail;
use crate::dmu::{Objset, SyncTx};
use crate::dsl::SpaceCheck;
use crate::error::{Result, Within};
use crate::vdev::label::clear_labels;
use crate::vdev::{TopVdev, key};
use crate::zil::Zil;

/// Groups that must pass before what was allocated on the device is surely counted: those that are open, closing and syncing.
const GROUPS_MIN: usize = 3;
/// Groups after which the device ought to be empty: freed space waits for two more.
const GROUPS_MAX: usize = 12;
/// Blocks of the MOS that change, about.
const BLOCKS: u64 = 8;
/// Pool version that can have holes among its vdevs.
const VERSION_HOLES: u64 = 26;

impl Pool {
    /// Removes the log device, or mirror of log devices, with this guid (`zpool remove`), and returns when that is on disk.
    ///
    /// # Errors
    /// It is no such device, or a log that nobody could replay is on it.
    #[doc(alias = "spa_vdev_remove_log")]
    pub fn remove_log(self: &Arc<Self>, guid: u64) -> Result<()> {
        let name = self.name();
        self.remove_log_vdev(guid).within(|| format!("pool {name}"))
    }

    fn remove_log_vdev(self: &Arc<Self>, guid: u64) -> Result<()> {
        let _one_at_a_time = self.vdev_changes.lock();
        let Some(top) = self.vdevs.data_tops().into_iter().find(|top| top.config().find(guid).is_some()) else {
            bail!(NotFound, "no vdev has guid {guid}");
        };
        let shown = top.config().display_name();
        if !top.is_log() {
            bail!(Unsupported, "{shown} holds data: only log devices can be removed");
        }
        if top.guid() != guid {
            bail!(Invalid, "the device is part of {shown}: remove that, whole");
        }
        if self.is_read_only() || self.config().version < VERSION_HOLES {
            bail!(ReadOnly, "it is read-only, or of a version that cannot do without a vdev");
        }
        let group = self.context.io.allocator().group(top.id() as u32)?;
        group.set_usable(false);
        self.context.io.give_up_log_device(top.id() as u32);
        let removed = self.empty_log(&group).and_then(|()| {
            let (pool, gone, empty) = (self.clone(), top.clone(), group.clone());
            let check = move |_: &Arc<crate::dsl::Dsl>| check_empty(&empty);
            self.dsl.run_task(BLOCKS, SpaceCheck::Reserved, check, move |_, tx| pool.forget_vdev(&gone, tx))
        });
        if let Err(error) = removed {
            group.set_usable(top.state().is_readable());
            return Err(error).within(|| format!("cannot remove {shown}"));
        }
        for leaf in top.leaves() {
            if let Some(Err(error)) = leaf.disk().map(|disk| clear_labels(&*disk)) {
                tracing::warn!("{}: it was removed, but its labels cannot be cleared: {error}", leaf.name());
            }
            leaf.close();
        }
        Ok(())
    }

    /// Waits until nothing is on a device that is not used any more.
    fn empty_log(&self, group: &Group) -> Result<()> {
        // They stay open until their headers are written.
        let mut logs: Vec<Arc<Objset>> = Vec::new();
        self.each_head(|objset| {
            if !objset.pointer().uses_encryption() {
                Zil::of(objset).begin_anew()?;
                logs.push(objset.clone());
            }
            Ok(())
        })?;
        for passed in 1..=GROUPS_MAX {
            self.sync_all()?;
            if passed >= GROUPS_MIN && check_empty(group).is_ok() {
                return Ok(());
            }
        }
        check_empty(group)
    }

    /// Takes an empty vdev out of the pool, in the sync thread.
    fn forget_vdev(&self, top: &TopVdev, tx: &SyncTx<'_>) -> Result<()> {
        let Some(maps) = &self.space_maps else { bail!(ReadOnly, "the space maps are not open") };
        let config = top.config();
        for missed in config.leaves().iter().filter_map(|leaf| leaf.get(key::DTL)).filter(|log| *log != 0) {
            maps.free_ranges(tx, missed)?;
        }
        maps.remove_vdev(tx, top.id() as u32)?;
        vdev_zaps::free(&self.dsl.meta.mos, top, tx)?;
        self.vdevs.detach(top.id());
        self.set_config_dirty();
        self.dsl.record_event("vdev remove", &format!("{} vdev (log) {}", self.name(), config.display_name()), tx)
    }
}

fn check_empty(group: &Group) -> Result<()> {
    let used = group.space_use();
    if used.allocated + used.deferred != 0 {
        bail!(Busy, "{} bytes of intent logs are still there: datasets whose log was not replayed keep it", used.allocated + used.deferred);
    }
    Ok(())
}
