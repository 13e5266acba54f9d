//! Adding top-level vdevs to a pool that is in use.
//!
//! # Theory
//! Devices get labels without a txg first: a crash before the rest leaves devices that belong to no pool. Then one group changes
//! the tree, the configuration in the MOS, the space maps and the labels together, so that a crash leaves the old pool or the new
//! one. Only when that group is on disk is anything allocated on the new vdevs: a log block is written and pointed to at once, and a
//! pool whose configuration does not have its vdev could not follow the pointer.

use std::sync::Arc;

use ondisk::feature::Feature;

use crate::pool::open::open::vdev_space;
use crate::pool::Pool;
use crate::pool::devices::vdev_zaps;
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::SpaceCheck;
use crate::error::{Result, Within};
use crate::vdev::label::init_labels;
use crate::vdev::{NewTop, TopVdev, VdevConfig, key};

/// Pool version that has devices for the log alone.
const VERSION_LOGS: u64 = 7;
/// Blocks of the MOS that a new vdev changes, about.
const BLOCKS_PER_VDEV: u64 = 8;

impl Pool {
    /// Adds top-level vdevs (`zpool add`), and returns when they are in use. `any_ashift`: although their sectors are of another size
    /// than those of the pool's other vdevs, which makes it impossible to remove one of these later.
    ///
    /// # Errors
    /// A device cannot be used, or the pool cannot have such a vdev; the pool is what it was.
    #[doc(alias = "spa_vdev_add")]
    pub fn add_vdevs(self: &Arc<Self>, new: Vec<NewTop>, any_ashift: bool) -> Result<()> {
        let name = self.name();
        self.add_prepared(new, any_ashift).within(|| format!("pool {name}"))
    }

    fn add_prepared(self: &Arc<Self>, new: Vec<NewTop>, any_ashift: bool) -> Result<()> {
        let _one_at_a_time = self.vdev_changes.lock();
        self.check_addable(&new)?;
        let (next, txg) = (self.vdevs.tops().len() as u64, self.context.groups.open_txg());
        let host = self.context.host.clone();
        let prepare = |(id, top)| self.vdevs.prepare_top(&*host, top, id, txg);
        let tops = (next..).zip(new).map(prepare).collect::<Result<Vec<_>>>()?;
        if !any_ashift {
            self.check_sectors(&tops)?;
        }
        let config = self.config();
        for top in &tops {
            for leaf in top.leaves() {
                if let Some(disk) = leaf.disk() {
                    init_labels(&*disk, &config.first_label(&self.vdevs, top, leaf, txg))?;
                }
            }
        }
        let (pool, added) = (self.clone(), tops.clone());
        let blocks = BLOCKS_PER_VDEV * tops.len() as u64;
        self.dsl.run_task(blocks, SpaceCheck::Reserved, |_| Ok(()), move |_, tx| pool.attach_vdevs(&added, tx))?;
        for top in &tops {
            self.context.io.allocator().group(top.id() as u32)?.set_usable(true);
        }
        // The group that added them was done when they were no room yet.
        self.refresh_space();
        Ok(())
    }

    fn check_addable(&self, new: &[NewTop]) -> Result<()> {
        let config = self.config();
        if self.is_read_only() || self.space_maps.is_none() {
            bail!(ReadOnly, "it is read-only");
        }
        if new.iter().any(|top| top.is_log) && config.version < VERSION_LOGS {
            bail!(Unsupported, "pools of version {} have no log devices", config.version);
        }
        if !config.has_vdev_zaps && self.dsl.meta.features.is_enabled(Feature::LogSpacemap) {
            bail!(Unsupported, "its vdevs have no ZAPs: let OpenZFS import it once");
        }
        Ok(())
    }

    /// Refuses sectors of another size, if those of the pool are of one size.
    fn check_sectors(&self, tops: &[Arc<TopVdev>]) -> Result<()> {
        let (least, most) = self.vdevs.allocation_units();
        match tops.iter().map(|top| 1u64 << top.ashift()).find(|unit| least == most && *unit != most) {
            Some(unit) => bail!(Invalid, "the new vdev has sectors of {unit} bytes, the others of {most}"),
            None => Ok(()),
        }
    }

    /// Makes new vdevs part of the pool, in the sync thread.
    fn attach_vdevs(&self, tops: &[Arc<TopVdev>], tx: &SyncTx<'_>) -> Result<()> {
        let Some(maps) = &self.space_maps else { bail!(ReadOnly, "the space maps are not open") };
        let mos = &self.dsl.meta.mos;
        for top in tops {
            top.update_config(|config| set_create_txg(config, tx.txg()));
            if self.config().has_vdev_zaps {
                vdev_zaps::create(mos, top, tx)?;
            }
            self.vdevs.attach(top);
            maps.add_vdev(vdev_space(top, mos)?)?;
        }
        maps.make_arrays(tx)?;
        self.note_metaslab_arrays();
        self.set_config_dirty();
        Ok(())
    }
}

fn set_create_txg(config: &mut VdevConfig, txg: u64) {
    config.set(key::CREATE_TXG, txg);
    config.children.iter_mut().for_each(|child| set_create_txg(child, txg));
}
