//! Devices of a pool that hold none of its blocks: hot spares and cache devices.
//!
//! # Theory
//! The tree of vdevs does not have them; the MOS lists them apart. They are OpenZFS's to use: here they are known, shown, and left
//! alone. A spare that stands in for a device is also in the tree, where it is like any other.
//!
//! # On disk
//! `spares` and `l2cache` of the MOS's directory: an object each, an nvlist with an array of that name. The label of such a device
//! has its guid and what it is (`state`), and not the pool's.

use std::collections::BTreeMap;

use disk::DiskRef;

use crate::dsl::Mos;
use crate::dsl::meta::key;
use crate::error::{Result, Within};
use crate::pool::config::pool_config::PoolState;
use crate::pool::open::open::read_packed;
use crate::vdev::VdevConfig;
use crate::vdev::label::DeviceLabels;

/// More of one kind than this are taken for damage.
const DEVICES_MAX: usize = 4096;

/// Hot spares and cache devices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Auxiliary {
    /// Hot spares.
    pub spares: Vec<VdevConfig>,
    /// Cache devices.
    pub caches: Vec<VdevConfig>,
}

impl Auxiliary {
    /// Those of the pool with this MOS.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn read(mos: &Mos) -> Result<Auxiliary> {
        Ok(Auxiliary { spares: read_list(mos, "spares")?, caches: read_list(mos, "l2cache")? })
    }

    /// Has the pool none?
    pub fn is_empty(&self) -> bool {
        self.spares.is_empty() && self.caches.is_empty()
    }
}

fn read_list(mos: &Mos, name: &str) -> Result<Vec<VdevConfig>> {
    let object = mos.zap_u64(key::DIRECTORY, name)?.unwrap_or(0);
    if object == 0 {
        return Ok(Vec::new());
    }
    let list = read_packed(mos, object).within(|| format!("the list of {name}"))?;
    list.nvlist_array(name).unwrap_or(&[]).iter().take(DEVICES_MAX).map(VdevConfig::from_nvlist).collect()
}

/// Which of `disks` are hot spares or cache devices, by guid.
pub fn find_auxiliary(disks: Vec<DiskRef>) -> BTreeMap<u64, DiskRef> {
    let kinds = [PoolState::Spare as u64, PoolState::CacheDevice as u64];
    let guid = |disk: &DiskRef| {
        let labels = DeviceLabels::read(&**disk);
        let config = labels.newest_config()?;
        config.u64("guid").filter(|_| config.u64("state").is_some_and(|state| kinds.contains(&state)))
    };
    disks.into_iter().filter_map(|disk| Some((guid(&disk)?, disk))).collect()
}
