//! Devices of a pool that hold none of its blocks: hot spares and cache devices.
//!
//! # Theory
//! The tree of vdevs does not have them; the MOS lists them apart. What a cache device holds is the cache's ([`crate::arc`]). A
//! spare that stands in for a device is also in the tree, where it is like any other. Several pools may have the same spare, by the same guid.
//!
//! A device has its label before the list has the device: a crash between the two leaves a label that says of no pool whose device it is.
//!
//! # On disk
//! `spares` and `l2cache` of the MOS's directory: an object each, an nvlist with an array of that name. The label of such a device
//! has its guid and what it is (`state`), and not the pool's.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::DiskRef;
use ondisk::nvlist::NvList;

use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::dsl::{Mos, SpaceCheck};
use crate::error::{Result, Within};
use crate::host::Host;
use crate::pool::config::pool_config::PoolState;
use crate::pool::open::open::{create_packed, read_packed, write_packed};
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::label::{DeviceLabels, init_labels, write_uberblock};
use crate::vdev::{NewLeaf, TopVdev, VdevConfig, VdevKind, key as vdev_key, kind_of};

/// More of one kind than this are taken for damage.
const DEVICES_MAX: usize = 4096;
/// Blocks of the MOS that a change of a list takes, about.
const BLOCKS: u64 = 8;

/// What such a device is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuxiliaryKind {
    /// It stands in for a device that fails.
    Spare,
    /// Blocks that the memory has no room for.
    Cache,
}

impl AuxiliaryKind {
    const ALL: [AuxiliaryKind; 2] = [AuxiliaryKind::Spare, AuxiliaryKind::Cache];

    /// The name of the list, in the MOS's directory and in it.
    fn list(self) -> &'static str {
        match self {
            AuxiliaryKind::Spare => "spares",
            AuxiliaryKind::Cache => "l2cache",
        }
    }

    fn word(self) -> &'static str {
        match self {
            AuxiliaryKind::Spare => "spare",
            AuxiliaryKind::Cache => "l2cache",
        }
    }

    /// What labels say.
    fn state(self) -> PoolState {
        match self {
            AuxiliaryKind::Spare => PoolState::Spare,
            AuxiliaryKind::Cache => PoolState::CacheDevice,
        }
    }

    /// The first version of pools that can have such.
    fn version_min(self) -> u64 {
        match self {
            AuxiliaryKind::Spare => 3,
            AuxiliaryKind::Cache => 10,
        }
    }
}

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

    fn of(&self, kind: AuxiliaryKind) -> &[VdevConfig] {
        match kind {
            AuxiliaryKind::Spare => &self.spares,
            AuxiliaryKind::Cache => &self.caches,
        }
    }

    fn of_mut(&mut self, kind: AuxiliaryKind) -> &mut Vec<VdevConfig> {
        match kind {
            AuxiliaryKind::Spare => &mut self.spares,
            AuxiliaryKind::Cache => &mut self.caches,
        }
    }

    /// The one with this guid, and what it is.
    pub fn find(&self, guid: u64) -> Option<(AuxiliaryKind, &VdevConfig)> {
        let of_kind = |kind: AuxiliaryKind| Some((kind, self.of(kind).iter().find(|device| device.guid == guid)?));
        AuxiliaryKind::ALL.into_iter().find_map(of_kind)
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

fn write_list(mos: &Mos, kind: AuxiliaryKind, devices: &[VdevConfig], tx: &SyncTx<'_>) -> Result<()> {
    let name = kind.list();
    let object = match mos.zap_u64(key::DIRECTORY, name)?.filter(|object| *object != 0) {
        Some(object) => object,
        None => create_packed(mos, name, tx)?,
    };
    let mut list = NvList::new();
    list.push(name, devices.iter().map(VdevConfig::to_auxiliary).collect::<Vec<NvList>>());
    write_packed(mos, object, &list, tx)
}

/// Which of `disks` are hot spares or cache devices, by guid. A spare that stands in for a device, in whatever pool, has the label of that pool.
pub fn find_auxiliary(disks: Vec<DiskRef>) -> BTreeMap<u64, DiskRef> {
    let guid = |disk: &DiskRef| DeviceLabels::read(&**disk).newest_config()?.u64("guid");
    disks.into_iter().filter_map(|disk| Some((guid(&disk)?, disk))).collect()
}

/// A device that becomes a hot spare or a cache device.
pub struct NewAuxiliary {
    /// The device.
    pub leaf: NewLeaf,
    /// What it becomes.
    pub kind: AuxiliaryKind,
    /// log2 of the sector; the device decides if it is not given.
    pub ashift: Option<u32>,
    /// Another pool has it as a spare by this guid: its label is right as it is.
    pub shared: Option<u64>,
}

impl NewAuxiliary {
    /// Its description.
    ///
    /// # Errors
    /// It is too small, or its sectors are too large.
    pub fn describe(&self, host: &dyn Host) -> Result<VdevConfig> {
        let (ashift, _) = self.leaf.measure(self.ashift)?;
        let mut config = VdevConfig::new(kind_of(&self.leaf.disk), 0, self.shared.unwrap_or_else(|| host.random()));
        config.set_string(vdev_key::PATH, self.leaf.path.as_str());
        if self.leaf.disk.kind() == disk::DiskKind::Block {
            config.set(vdev_key::WHOLE_DISK, self.leaf.whole_disk.into());
        }
        if self.kind == AuxiliaryKind::Spare {
            config.set(vdev_key::IS_SPARE, 1);
        }
        config.set(vdev_key::ASHIFT, ashift.into());
        Ok(config)
    }
}

/// What the labels of such a device say.
pub(in crate::pool) fn label(version: u64, kind: AuxiliaryKind, config: &VdevConfig) -> NvList {
    let mut list = NvList::new();
    list.push("version", version);
    list.push("state", kind.state() as u64);
    list.push(vdev_key::GUID, config.guid);
    if kind == AuxiliaryKind::Cache {
        list.push(vdev_key::ASHIFT, config.number(vdev_key::ASHIFT));
    }
    list.push(vdev_key::PATH, config.string(vdev_key::PATH).unwrap_or_default().as_str());
    list
}

/// Adds devices (`zpool add POOL spare`, `cache`), and returns their guids when that is on disk. One call at a time.
///
/// # Errors
/// A device is too small, or the pool has it already or cannot have such; the pool is what it was.
pub(in crate::pool) fn add(writer: &Arc<GroupWriter>, new: &[NewAuxiliary]) -> Result<Vec<u64>> {
    let name = writer.configuration().name();
    add_checked(writer, new).within(|| format!("pool {name}"))
}

/// Whether [`add`] could add devices: it does nothing.
///
/// # Errors
/// As for [`add`].
pub(in crate::pool) fn check(writer: &Arc<GroupWriter>, new: &[NewAuxiliary]) -> Result<()> {
    let name = writer.configuration().name();
    describe_new(writer, new).map(drop).within(|| format!("pool {name}"))
}

/// What the pool is to have, if it may have that.
fn describe_new(writer: &Arc<GroupWriter>, new: &[NewAuxiliary]) -> Result<Vec<(AuxiliaryKind, VdevConfig)>> {
    let layers = writer.layers();
    let (version, host) = (writer.configuration().get().version, layers.context.host.clone());
    if layers.is_read_only() {
        bail!(ReadOnly, "it is read-only");
    }
    let there = Auxiliary::read(layers.mos())?;
    let mut added = Vec::new();
    for device in new {
        if version < device.kind.version_min() {
            bail!(Unsupported, "the pool must be upgraded to have a device in {}", device.kind.list());
        }
        let config = device.describe(&*host)?;
        if there.find(config.guid).is_some() {
            bail!(Busy, "the pool has {} already", device.leaf.path);
        }
        added.push((device.kind, config));
    }
    Ok(added)
}

fn add_checked(writer: &Arc<GroupWriter>, new: &[NewAuxiliary]) -> Result<Vec<u64>> {
    let layers = writer.layers();
    let version = writer.configuration().get().version;
    let added = describe_new(writer, new)?;
    for (device, (kind, config)) in new.iter().zip(&added) {
        if device.shared.is_none() {
            init_labels(&*device.leaf.disk, &label(version, *kind, config))?;
        }
    }
    let known: Vec<(u64, u32)> = added.iter().map(|(_, config)| (config.guid, config.number(vdev_key::ASHIFT) as u32)).collect();
    layers.dsl.run_task(BLOCKS, SpaceCheck::Reserved, |_| Ok(()), move |dsl, tx| {
        let mos = &dsl.meta.mos;
        let mut lists = Auxiliary::read(mos)?;
        for (kind, config) in &added {
            lists.of_mut(*kind).push(config.clone());
        }
        let changed = AuxiliaryKind::ALL.into_iter().filter(|kind| added.iter().any(|(of, _)| of == kind));
        changed.into_iter().try_for_each(|kind| write_list(mos, kind, lists.of(kind), tx))
    })?;
    let uberblock = writer.uberblock();
    for (device, (_, ashift)) in new.iter().zip(&known) {
        if device.shared.is_none()
            && let Err(error) = write_uberblock(&*device.leaf.disk, *ashift, &uberblock)
        {
            tracing::warn!("{}: other programs may not see what it is used for: {error}", device.leaf.path);
        }
    }
    Ok(known.into_iter().map(|(guid, _)| guid).collect())
}

/// Lists the spares whose room new dRAID vdevs keep, in the sync thread: they are as others, with a name instead of a path.
///
/// # Errors
/// The MOS cannot be changed.
#[doc(alias = "vdev_draid_spare_create")]
pub(in crate::pool) fn list_distributed(mos: &Mos, host: &dyn Host, tops: &[Arc<TopVdev>], tx: &SyncTx<'_>) -> Result<()> {
    let new: Vec<VdevConfig> = tops.iter().flat_map(|top| distributed(&top.config(), host)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let mut spares = read_list(mos, AuxiliaryKind::Spare.list())?;
    spares.extend(new);
    write_list(mos, AuxiliaryKind::Spare, &spares, tx)
}

/// The spares of a dRAID vdev: `draid2-0-1` is the second one of the vdev of number 0.
fn distributed(top: &VdevConfig, host: &dyn Host) -> Vec<VdevConfig> {
    if top.kind != VdevKind::Draid {
        return Vec::new();
    }
    let spare = |number: u64| {
        let mut spare = VdevConfig::new(VdevKind::DraidSpare, 0, host.random());
        spare.set_string(vdev_key::PATH, format!("draid{}-{}-{number}", top.number(vdev_key::PARITY), top.id));
        let numbers = [
            (vdev_key::SPARE_TOP, top.guid),
            (vdev_key::SPARE_ID, number),
            (vdev_key::WHOLE_DISK, 1),
            (vdev_key::IS_SPARE, 1),
            (vdev_key::ASHIFT, top.number(vdev_key::ASHIFT)),
            (vdev_key::IS_LOG, 0),
        ];
        numbers.into_iter().for_each(|(name, number)| spare.set(name, number));
        spare
    };
    (0..top.number(vdev_key::DRAID_SPARES)).map(spare).collect()
}

/// Takes a spare from the list that has become a device like any other, in the sync thread.
pub(in crate::pool) fn strike_spare_sync(mos: &Mos, guid: u64, tx: &SyncTx<'_>) -> Result<()> {
    let mut spares = read_list(mos, AuxiliaryKind::Spare.list())?;
    spares.retain(|spare| spare.guid != guid);
    write_list(mos, AuxiliaryKind::Spare, &spares, tx)
}

/// Removes the device with this guid (`zpool remove`), and returns when that is on disk. One call at a time. Its label stays.
///
/// # Errors
/// There is none, or it stands in for a device.
#[doc(alias = "spa_vdev_remove_aux")]
pub(in crate::pool) fn remove(writer: &Arc<GroupWriter>, guid: u64) -> Result<AuxiliaryKind> {
    let layers = writer.layers();
    let pool = writer.configuration().name();
    if layers.is_read_only() {
        bail!(ReadOnly, "pool {pool} is read-only");
    }
    let lists = Auxiliary::read(layers.mos())?;
    let Some((kind, config)) = lists.find(guid) else { bail!(NotFound, "pool {pool} has no spare or cache device with guid {guid}") };
    if layers.vdevs.config().find(guid).is_some() {
        bail!(Busy, "{} stands in for a device", config.display_name());
    }
    if config.kind == VdevKind::DraidSpare {
        bail!(NotSupported, "operation not supported on this type of vdev");
    }
    let removed = format!("{pool} vdev ({}) {}", kind.word(), config.display_name());
    layers.dsl.run_task(BLOCKS, SpaceCheck::Reserved, |_| Ok(()), move |dsl, tx| {
        let mos = &dsl.meta.mos;
        let mut lists = Auxiliary::read(mos)?;
        lists.of_mut(kind).retain(|device| device.guid != guid);
        write_list(mos, kind, lists.of(kind), tx)?;
        dsl.record_event("vdev remove", &removed, tx)
    })?;
    Ok(kind)
}
