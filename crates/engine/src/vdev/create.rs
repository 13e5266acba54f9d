//! New vdevs.

use super::size::shift_of;
use super::{ASHIFT_MAX, ASHIFT_MIN, Devices, TopVdev, VdevConfig, VdevKind, VdevTree, default_ashift, key, metaslab_shift};
use crate::bail;
use crate::error::Result;
use crate::host::Host;
use disk::{DiskKind, DiskRef};
use ondisk::label;
use std::sync::Arc;

/// A device for a new vdev.
pub struct NewLeaf {
    /// The device.
    pub disk: DiskRef,
    /// The path that labels get.
    pub path: String,
    /// For block devices: the whole disk is ours, partition table and all.
    pub whole_disk: bool,
}

impl NewLeaf {
    /// log2 of the smallest sector with which it can be used: `wanted`, or what it does best, but not less than it can.
    pub fn needed_ashift(&self, wanted: Option<u32>) -> u32 {
        let least = shift_of(self.disk.sector_bytes());
        least.max(wanted.unwrap_or_else(|| default_ashift(&*self.disk)))
    }
}

/// A new top-level vdev: one device, or a mirror of several.
pub struct NewTop {
    /// The devices.
    pub leaves: Vec<NewLeaf>,
    /// log2 of the sector; the devices decide if it is not given.
    pub ashift: Option<u32>,
    /// For the intent log alone.
    pub is_log: bool,
}

impl VdevTree {
    /// The tree of a new pool, with new guids. Nothing is written yet: see [`super::label::init_labels`].
    pub fn create(host: &dyn Host, tops: Vec<NewTop>, create_txg: u64) -> Result<VdevTree> {
        if tops.iter().all(|top| top.is_log) {
            bail!(Invalid, "a pool needs a vdev that is not a log");
        }
        let mut root = VdevConfig::new(VdevKind::Root, 0, host.random());
        root.set(key::CREATE_TXG, create_txg);
        let tree = VdevTree::from_config(root, &Devices::new())?;
        for top in tops {
            tree.add_top(host, top, create_txg)?;
        }
        Ok(tree)
    }

    /// Adds a top-level vdev with new guids. Nothing is written yet.
    pub fn add_top(&self, host: &dyn Host, new: NewTop, create_txg: u64) -> Result<Arc<TopVdev>> {
        let top = self.prepare_top(host, new, self.tops().len() as u64, create_txg)?;
        self.attach(&top);
        Ok(top)
    }

    /// A new top-level vdev with new guids and number `id`, which is not part of the tree yet (see [`VdevTree::attach`]).
    ///
    /// # Errors
    /// A device is too small, or has sectors that are too large.
    pub fn prepare_top(&self, host: &dyn Host, new: NewTop, id: u64, create_txg: u64) -> Result<Arc<TopVdev>> {
        let (ashift, asize) = check_leaves(&new)?;
        let kinds: Vec<VdevKind> = new.leaves.iter().map(|leaf| kind_of(&leaf.disk)).collect();
        let mut children = Vec::new();
        let mut leaves = Vec::new();
        let single = new.leaves.len() == 1;
        for (index, (leaf, kind)) in new.leaves.into_iter().zip(kinds).enumerate() {
            let mut config = VdevConfig::new(kind.clone(), if single { id } else { index as u64 }, host.random());
            config.set_string(key::PATH, leaf.path.as_str());
            if kind == VdevKind::Disk {
                config.set(key::WHOLE_DISK, u64::from(leaf.whole_disk));
            }
            config.set(key::CREATE_TXG, create_txg);
            leaves.push((config.guid, leaf.path, leaf.disk));
            children.push(config);
        }
        let mut config = match children.pop() {
            Some(only) if single => only,
            last => {
                let mut mirror = VdevConfig::new(VdevKind::Mirror, id, host.random());
                mirror.children = children.into_iter().chain(last).collect();
                mirror
            }
        };
        config.set(key::METASLAB_ARRAY, 0);
        config.set(key::METASLAB_SHIFT, u64::from(metaslab_shift(asize)));
        config.set(key::ASHIFT, u64::from(ashift));
        config.set(key::ASIZE, asize);
        config.set(key::MIN_ALLOC, 1 << ashift);
        config.set(key::IS_LOG, u64::from(new.is_log));
        config.set(key::CREATE_TXG, create_txg);
        Ok(self.make_top(config, leaves))
    }
}

pub(super) fn kind_of(disk: &DiskRef) -> VdevKind {
    match disk.kind() {
        DiskKind::File => VdevKind::File,
        DiskKind::Block => VdevKind::Disk,
    }
}

/// The sector and the room that the devices of a new vdev have in common.
fn check_leaves(new: &NewTop) -> Result<(u32, u64)> {
    if new.leaves.is_empty() {
        bail!(Invalid, "a vdev needs a device");
    }
    let mut ashift = new.ashift.unwrap_or(ASHIFT_MIN);
    if !(ASHIFT_MIN..=ASHIFT_MAX).contains(&ashift) {
        bail!(Invalid, "ashift {ashift} is not between {ASHIFT_MIN} and {ASHIFT_MAX}");
    }
    let mut asize = u64::MAX;
    for leaf in &new.leaves {
        let least = shift_of(leaf.disk.sector_bytes());
        if least > ASHIFT_MAX {
            bail!(Invalid, "{}: sectors of {} bytes are too large", leaf.path, leaf.disk.sector_bytes());
        }
        ashift = ashift.max(if new.ashift.is_some() { least } else { leaf.needed_ashift(None) });
        let Some(room) = label::data_bytes(leaf.disk.size_bytes()) else {
            bail!(Invalid, "{}: {} bytes are less than the minimum of 64M", leaf.path, leaf.disk.size_bytes());
        };
        asize = asize.min(room);
    }
    Ok((ashift, asize))
}
