//! Devices beside others: `zpool attach`, `zpool replace`, and spares that stand in.
//!
//! # Theory
//! The new device gets labels without a txg first, so that a crash leaves a device that belongs to no pool. One group then changes the
//! description of the top-level vdev, and what it consists of: from there on each write goes to the new device, too. It is behind:
//! it has missed every group up to the ones that are open when it comes in, whose writes may have begun without it. A resilver
//! brings it what it missed, or a rebuild, if that is wanted, and ends a replacement ([`crate::pool::devices::caught_up`]).

use std::sync::Arc;

use crate::dmu::SyncTx;
use crate::error::{Result, Within};
use crate::pool::{checkpoint, rebuild};
use crate::pool::devices::auxiliary::Auxiliary;
use crate::pool::devices::{in_one_group, vdev_zaps};
use crate::pool::layers::Layers;
use crate::pool::scan::{self, begin_resilver, want_resilver};
use crate::pool::sync::writer::GroupWriter;
use crate::txg::TXG_INITIAL;
use crate::vdev::label::init_labels;
use crate::vdev::{Leaf, NewLeaf, TopVdev, VdevConfig, VdevKind, key};
use crate::{bail, error};
use ondisk::feature::Feature;
use ondisk::label;

/// Groups that are under way at the same time: of these a write may have begun before the device came in.
#[doc(alias = "TXG_CONCURRENT_STATES")]
pub(in crate::pool) const GROUPS_UNDER_WAY: u64 = 3;
/// Pool version from which a device that is being replaced can be replaced again.
const VERSION_MULTI_REPLACE: u64 = 20;
/// Why nothing comes beside a device that has something beside it.
const IN_GROUP: &str = "already in replacing/spare config; wait for completion or use 'zpool detach'";

/// How a device comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// It stays beside the other: a mirror.
    Mirror,
    /// It takes the place of the other, when it has everything.
    Replacement,
    /// It stands in for the other: the hot spare of this guid.
    Spare(u64),
}

impl Beside {
    fn kind(self) -> VdevKind {
        match self {
            Beside::Mirror => VdevKind::Mirror,
            Beside::Replacement => VdevKind::Replacing,
            Beside::Spare(_) => VdevKind::Spare,
        }
    }

    fn event(self, new: &str, old: &str) -> String {
        match self {
            Beside::Mirror => format!("attach vdev={new} to vdev={old}"),
            Beside::Replacement => format!("replace vdev={new} for vdev={old}"),
            Beside::Spare(_) => format!("spare in vdev={new} for vdev={old}"),
        }
    }
}

/// How a device that comes in gets what it has missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// By a resilver, which knows of each block whether it is right.
    Healing,
    /// By a rebuild, which goes through the devices from the beginning to the end; a scrub follows.
    Sequential,
}

impl Fill {
    /// What the description says of the device meanwhile: the group in which it came in.
    pub(in crate::pool) fn key(self) -> &'static str {
        match self {
            Fill::Healing => key::RESILVER_TXG,
            Fill::Sequential => key::REBUILD_TXG,
        }
    }
}

/// Refuses what cannot be done to a vdev now, or never. `replaces`: the device takes the place of another.
///
/// # Errors
/// `Busy`: devices are being filled in another way. `Unsupported`: the vdev, or the pool, has no rebuilds.
pub(in crate::pool) fn check_fill(writer: &GroupWriter, top: &TopVdev, fill: Fill, replaces: bool) -> Result<()> {
    if fill == Fill::Healing {
        if writer.rebuilds().is_active() {
            bail!(Busy, "currently sequentially resilvering");
        }
        return Ok(());
    }
    let is_enabled = writer.layers().meta().features.is_enabled(Feature::DeviceRebuild);
    if is_enabled && scan::is_resilvering(writer) {
        bail!(Busy, "currently resilvering");
    }
    let has_rebuilds = top.kind().is_leaf() || matches!(top.kind(), VdevKind::Mirror | VdevKind::Draid);
    match (is_enabled && top.zap() != 0 && has_rebuilds, replaces) {
        (true, _) => Ok(()),
        (false, true) => bail!(Unsupported, "only mirror and dRAID vdevs support sequential reconstruction"),
        (false, false) if !is_enabled => bail!(Unsupported, "device_rebuild feature must be enabled in order to use sequential reconstruction"),
        (false, false) => bail!(Unsupported, "can only attach to mirrors and top-level disks"),
    }
}

/// Puts a device beside that of guid `old`, and returns when it is written to; what it missed it gets later. One call at a time.
///
/// # Errors
/// `Unsupported`: nothing can be put there. `Invalid`: it is too small, or its sectors are too large. The pool is what it was.
#[doc(alias = "spa_vdev_attach")]
pub(in crate::pool) fn attach(writer: &Arc<GroupWriter>, old: u64, new: NewLeaf, (how, fill): (Beside, Fill), ashift: Option<u32>) -> Result<()> {
    let name = writer.configuration().name();
    let attached = attach_device(writer, old, new, (how, fill), ashift).within(|| format!("pool {name}"));
    begin_to_fill(writer, attached, fill)
}

/// A device has come in, or comes in when the pool goes on: then it gets what it has missed.
///
/// # Errors
/// That with which it did not come in; or what stopped the pool.
pub(in crate::pool) fn begin_to_fill(writer: &Arc<GroupWriter>, attached: Result<()>, fill: Fill) -> Result<()> {
    match attached {
        Ok(()) if fill == Fill::Healing => begin_resilver(writer),
        Err(error) if fill == Fill::Healing && error.goes_on() => {
            want_resilver(writer);
            Err(error)
        }
        attached => attached,
    }
}

fn attach_device(writer: &Arc<GroupWriter>, old: u64, new: NewLeaf, (how, fill): (Beside, Fill), ashift: Option<u32>) -> Result<()> {
    let (layers, configuration) = (writer.layers(), writer.configuration());
    if layers.is_read_only() || layers.space_maps.is_none() {
        bail!(ReadOnly, "it is read-only");
    }
    checkpoint::refuse_change(layers)?;
    if writer.removals().is_active() {
        bail!(Busy, "device removal in progress");
    }
    let Some((top, _)) = layers.vdevs.find_described(old) else { bail!(NotFound, "no device has guid {old}") };
    check_fill(writer, &top, fill, how != Beside::Mirror)?;
    check_place(&top.config(), old, how, configuration.get().version)?;
    if let Beside::Spare(guid) = how {
        check_spare(layers, &top, guid, &new)?;
    }
    check_device(&top, &new, ashift)?;
    let host = &layers.context.host;
    let (random, group) = (host.random(), host.random());
    let guid = if let Beside::Spare(guid) = how { guid } else { random };
    let (shown, disk) = (new.path.clone(), new.disk.clone());
    let (leaf, mut described) = layers.vdevs.prepare_leaf(&top, guid, new);
    if matches!(how, Beside::Spare(_)) {
        described.set(key::IS_SPARE, 1);
    }
    let txg = layers.context.groups.open_txg();
    init_labels(&*disk, &configuration.get().first_label(&layers.vdevs, &top, &leaf, txg))?;
    in_one_group(writer, move |writer, tx| {
        let joining = Joining { top, leaf, described, group, old, how, fill, shown };
        joining.join(writer, tx)
    })
}

/// A device on its way in.
struct Joining {
    top: Arc<TopVdev>,
    leaf: Arc<Leaf>,
    described: VdevConfig,
    /// The guid of the group, if one is made.
    group: u64,
    old: u64,
    how: Beside,
    fill: Fill,
    /// Its path.
    shown: String,
}

impl Joining {
    /// Makes it part of the pool, in the sync thread.
    fn join(mut self, writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<Result<()>> {
        let (layers, configuration) = (writer.layers(), writer.configuration());
        let before = self.top.config();
        let Some(replaced) = before.find(self.old).map(VdevConfig::display_name) else {
            return Ok(Err(error!(NotFound, "no device has guid {}", self.old)));
        };
        self.described.set(self.fill.key(), tx.txg());
        // Before it is seen: readers are not to take it for one that has everything.
        self.leaf.note_missed(TXG_INITIAL, tx.txg() + GROUPS_UNDER_WAY);
        if let Err(refused) = self.top.attach_leaf(self.old, &self.leaf, self.described, self.how.kind(), self.group) {
            return Ok(Err(refused));
        }
        if configuration.get().has_vdev_zaps {
            vdev_zaps::create_of_leaf(layers.mos(), &self.top, self.leaf.guid(), tx)?;
        }
        configuration.set_dirty();
        if self.fill == Fill::Sequential {
            rebuild::begin(writer, &self.top, tx)?;
        }
        layers.dsl.record_event("vdev attach", &self.how.event(&self.shown, &replaced), tx)?;
        Ok(Ok(()))
    }
}

/// Refuses places where no device can be put.
///
/// # Errors
/// `Unsupported`: why not.
pub(in crate::pool) fn check_place(top: &VdevConfig, old: u64, how: Beside, version: u64) -> Result<()> {
    let group = top.parent_of(old);
    let is_spare = top.find(old).is_some_and(|old| old.flag(key::IS_SPARE));
    let in_spare = group.and_then(|group| top.parent_of(group.guid)).is_some_and(|outer| outer.kind == VdevKind::Spare);
    match (how, group.map(|group| &group.kind)) {
        (Beside::Mirror, None | Some(VdevKind::Mirror)) | (Beside::Replacement | Beside::Spare(_), None) => Ok(()),
        (Beside::Mirror, _) => bail!(Unsupported, "can only attach to mirrors and top-level disks"),
        (_, Some(VdevKind::Replacing)) if version < VERSION_MULTI_REPLACE => bail!(Unsupported, "cannot replace a replacing device"),
        // A spare replaces a spare, another device what spares stand in for.
        (_, Some(VdevKind::Spare)) if is_spare != matches!(how, Beside::Spare(_)) => bail!(Unsupported, "{IN_GROUP}"),
        (Beside::Spare(_), Some(VdevKind::Replacing)) if in_spare => bail!(Unsupported, "{IN_GROUP}"),
        (Beside::Replacement | Beside::Spare(_), Some(_)) => Ok(()),
    }
}

/// Refuses what is no spare of the pool, and spares for logs.
fn check_spare(layers: &Layers, top: &TopVdev, guid: u64, new: &NewLeaf) -> Result<()> {
    if !Auxiliary::read(layers.mos())?.spares.iter().any(|spare| spare.guid == guid) {
        bail!(NotFound, "no spare has guid {guid}");
    }
    if layers.vdevs.find_leaf(guid).is_some() {
        bail!(Busy, "{} is busy", new.path);
    }
    if top.is_log() {
        bail!(Unsupported, "cannot replace a log with a spare");
    }
    Ok(())
}

/// Refuses devices that are too small, or have sectors that are too large.
fn check_device(top: &TopVdev, new: &NewLeaf, ashift: Option<u32>) -> Result<()> {
    let wanted = top.config().leaf_bytes();
    if label::data_bytes(new.disk.size_bytes()).is_none_or(|room| room < wanted) {
        bail!(Invalid, "device is too small");
    }
    if new.measure(ashift)?.0 > top.ashift() {
        bail!(Invalid, "The new device cannot have a higher alignment requirement than the top-level vdev.");
    }
    Ok(())
}
