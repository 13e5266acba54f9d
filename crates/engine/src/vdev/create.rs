//! New vdevs.
//!
//! What a new top-level vdev is made of is said by its devices and how many columns of parity they have: one device, a mirror, RAID-Z, dRAID.

use super::config::{RAIDZ_PARITY_MAX, RAIDZ_WIDTH_MAX};
use super::map::draid::Shape;
use super::size::shift_of;
use super::{ASHIFT_MAX, ASHIFT_MIN, Bias, Devices, TopVdev, VdevConfig, VdevKind, VdevTree, default_ashift, key, metaslab_shift};
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
    /// log2 of the sectors to use, where `ashift` is asked for, and the bytes for data.
    ///
    /// # Errors
    /// It is too small, or its sectors are too large.
    pub fn measure(&self, ashift: Option<u32>) -> Result<(u32, u64)> {
        let (name, sector) = (&self.path, self.disk.sector_bytes());
        let least = shift_of(sector);
        if least > ASHIFT_MAX {
            bail!(Invalid, "{name}: sectors of {sector} bytes are too large");
        }
        let ashift = ashift.unwrap_or_else(|| default_ashift(&*self.disk)).max(least);
        if !(ASHIFT_MIN..=ASHIFT_MAX).contains(&ashift) {
            bail!(Invalid, "ashift {ashift} is not between {ASHIFT_MIN} and {ASHIFT_MAX}");
        }
        let Some(room) = label::data_bytes(self.disk.size_bytes()) else {
            bail!(Invalid, "{name}: {} bytes are less than the minimum of 64M", self.disk.size_bytes());
        };
        Ok((ashift, room))
    }
}

/// What makes columns with parity dRAID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraidColumns {
    /// Columns of data in a group.
    pub data: u64,
    /// Spares whose room is kept free.
    pub spares: u64,
}

/// A new top-level vdev: one device, a mirror of several, RAID-Z, or dRAID.
#[derive(Default)]
pub struct NewTop {
    /// The devices.
    pub leaves: Vec<NewLeaf>,
    /// Columns of parity; 0: all devices hold the same.
    pub parity: u8,
    /// It is dRAID, not RAID-Z.
    pub draid: Option<DraidColumns>,
    /// log2 of the sector; the devices decide if it is not given.
    pub ashift: Option<u32>,
    /// What it is for.
    pub bias: Bias,
}

impl VdevTree {
    /// The tree of a new pool, with new guids. Nothing is written yet: see [`super::label::init_labels`].
    pub fn create(host: &dyn Host, tops: Vec<NewTop>, create_txg: u64) -> Result<VdevTree> {
        if tops.iter().all(|top| top.bias != Bias::None) {
            bail!(Invalid, "a pool needs a vdev that is for all kinds of blocks");
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
        check_width(&new)?;
        let (ashift, leaf_bytes) = check_leaves(&new)?;
        let (parity, bias, draid) = (new.parity, new.bias, draid_shape(&new));
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
                let kind = match draid {
                    _ if parity == 0 => VdevKind::Mirror,
                    None => VdevKind::Raidz,
                    Some(_) => VdevKind::Draid,
                };
                let mut group = VdevConfig::new(kind, id, host.random());
                group.children = children.into_iter().chain(last).collect();
                group
            }
        };
        if parity != 0 {
            config.set(key::PARITY, parity.into());
        }
        if let Some(shape) = draid {
            let numbers = [(key::DRAID_DATA, shape.data), (key::DRAID_SPARES, shape.spares), (key::DRAID_GROUPS, shape.groups)];
            numbers.into_iter().for_each(|(name, number)| config.set(name, number));
        }
        config.set(key::ASHIFT, u64::from(ashift));
        let layout = config.layout(&mut || 0);
        let asize = layout.asize_of(leaf_bytes);
        if asize == 0 {
            bail!(Invalid, "{}: the devices are too small", config.group_name());
        }
        config.set(key::METASLAB_ARRAY, 0);
        config.set(key::METASLAB_SHIFT, u64::from(metaslab_shift(asize)));
        config.set(key::ASIZE, asize);
        config.set(key::MIN_ALLOC, layout.least_data());
        config.set(key::IS_LOG, u64::from(bias == Bias::Log));
        config.set(key::CREATE_TXG, create_txg);
        config.check_supported()?;
        let top = self.make_top(config, leaves);
        top.set_bias(bias);
        Ok(top)
    }
}

/// What a device is in a description.
pub(crate) fn kind_of(disk: &DiskRef) -> VdevKind {
    match disk.kind() {
        DiskKind::File => VdevKind::File,
        DiskKind::Block => VdevKind::Disk,
    }
}

/// The numbers of a new dRAID vdev.
fn draid_shape(new: &NewTop) -> Option<Shape> {
    let DraidColumns { data, spares } = new.draid?;
    Some(Shape { data, parity: new.parity.into(), spares, children: new.leaves.len() as u64, groups: 0 }.with_fewest_groups())
}

/// Refuses parity that the devices cannot have. The log has no use for it: each of its blocks is small, and is waited for.
fn check_width(new: &NewTop) -> Result<()> {
    let (parity, width) = (usize::from(new.parity), new.leaves.len());
    if width == 0 {
        bail!(Invalid, "a vdev needs a device");
    }
    if parity != 0 && (parity > RAIDZ_PARITY_MAX || width <= parity || width > RAIDZ_WIDTH_MAX) {
        bail!(Invalid, "raidz of {width} devices cannot have {parity} columns of parity");
    }
    if let Some(shape) = draid_shape(new).filter(|shape| !shape.is_possible()) {
        bail!(Invalid, "draid of {width} devices cannot have {parity} columns of parity, {} of data and {} spares", shape.data, shape.spares);
    }
    if parity != 0 && new.bias == Bias::Log {
        bail!(Invalid, "a log on raidz");
    }
    Ok(())
}

/// The sector and the room that the devices of a new vdev have in common.
fn check_leaves(new: &NewTop) -> Result<(u32, u64)> {
    let (mut ashift, mut room) = (ASHIFT_MIN, u64::MAX);
    for leaf in &new.leaves {
        let (of_leaf, bytes) = leaf.measure(new.ashift)?;
        (ashift, room) = (ashift.max(of_leaf), room.min(bytes));
    }
    Ok((ashift, room))
}
