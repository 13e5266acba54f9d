//! The description of a vdev, as labels and the MOS have it.
//!
//! # Theory
//! Labels and the MOS hold the same nvlist for a vdev, but the MOS also the numbers of the vdevs' ZAPs. OpenZFS makes
//! the list anew whenever it writes it, in a fixed order; so do we, so that what one wrote and the other writes again
//! differs only where something changed. What we do not know is kept.

use super::map::draid::{Draid, Shape};
use super::map::{Layout, Node, Widths};
use crate::error::Result;
use crate::{bail, error};
use ondisk::indirect::{BIRTHS_OBJECT, MAPPING_OBJECT, PREVIOUS_VDEV};
use ondisk::nvlist::{NvList, NvString, Value};
use std::fmt;

/// The names of a vdev's values.
#[allow(missing_docs)]
pub mod key {
    pub const TYPE: &str = "type";
    pub const ID: &str = "id";
    pub const GUID: &str = "guid";
    pub const PATH: &str = "path";
    pub const DEVID: &str = "devid";
    pub const PHYSICAL_PATH: &str = "phys_path";
    pub const WHOLE_DISK: &str = "whole_disk";
    pub const METASLAB_ARRAY: &str = "metaslab_array";
    pub const METASLAB_SHIFT: &str = "metaslab_shift";
    pub const ASHIFT: &str = "ashift";
    pub const ASIZE: &str = "asize";
    pub const MIN_ALLOC: &str = "min_alloc";
    pub const IS_LOG: &str = "is_log";
    pub const IS_SPARE: &str = "is_spare";
    pub const NON_ALLOCATING: &str = "non_allocating";
    pub const REMOVING: &str = "removing";
    pub const DTL: &str = "DTL";
    pub const CREATE_TXG: &str = "create_txg";
    pub const LEAF_ZAP: &str = "com.delphix:vdev_zap_leaf";
    pub const TOP_ZAP: &str = "com.delphix:vdev_zap_top";
    pub const ROOT_ZAP: &str = "com.klarasystems:vdev_zap_root";
    pub const RESILVER_DEFER: &str = "com.datto:resilver_defer";
    pub const CHILDREN: &str = "children";
    pub const OFFLINE: &str = "offline";
    pub const FAULTED: &str = "faulted";
    pub const DEGRADED: &str = "degraded";
    pub const REMOVED: &str = "removed";
    pub const RESILVER_TXG: &str = "resilver_txg";
    pub const REBUILD_TXG: &str = "rebuild_txg";
    pub const IS_HOLE: &str = "is_hole";
    pub const AUX_STATE: &str = "aux_state";
    pub const UNSPARE: &str = "unspare";
    pub const PARITY: &str = "nparity";
    pub const EXPANDING: &str = "raidz_expanding";
    pub const EXPAND_TXGS: &str = "raidz_expand_txgs";
    pub const DRAID_DATA: &str = "draid_ndata";
    pub const DRAID_SPARES: &str = "draid_nspares";
    pub const DRAID_GROUPS: &str = "draid_ngroups";
    pub const SPARE_TOP: &str = "top_guid";
    pub const SPARE_ID: &str = "spareid";
    pub const EXPANSION_TIME: &str = "expansion_time";
}

/// The order in which OpenZFS writes what comes after type, id and guid.
const ORDER: [&str; 44] = [
    key::PATH,
    key::DEVID,
    key::PHYSICAL_PATH,
    "vdev_enc_sysfs_path",
    "fru",
    key::PARITY,
    key::EXPANDING,
    key::EXPAND_TXGS,
    key::DRAID_DATA,
    key::DRAID_SPARES,
    key::DRAID_GROUPS,
    key::SPARE_TOP,
    key::SPARE_ID,
    key::WHOLE_DISK,
    "not_present",
    key::IS_SPARE,
    key::METASLAB_ARRAY,
    key::METASLAB_SHIFT,
    key::ASHIFT,
    key::ASIZE,
    key::MIN_ALLOC,
    key::IS_LOG,
    key::NON_ALLOCATING,
    key::REMOVING,
    key::DTL,
    MAPPING_OBJECT,
    BIRTHS_OBJECT,
    PREVIOUS_VDEV,
    key::CREATE_TXG,
    key::EXPANSION_TIME,
    key::LEAF_ZAP,
    key::TOP_ZAP,
    key::ROOT_ZAP,
    key::RESILVER_DEFER,
    key::OFFLINE,
    key::RESILVER_TXG,
    key::REBUILD_TXG,
    key::FAULTED,
    key::DEGRADED,
    key::REMOVED,
    key::UNSPARE,
    key::IS_HOLE,
    key::AUX_STATE,
    "orig_guid",
];

/// What only the MOS has.
const MOS_ONLY: [&str; 4] = [key::LEAF_ZAP, key::TOP_ZAP, key::ROOT_ZAP, key::RESILVER_DEFER];

/// What belongs to a top-level vdev, whatever it is made of.
const TOP_ONLY: [&str; 13] = [
    key::METASLAB_ARRAY,
    key::METASLAB_SHIFT,
    key::ASHIFT,
    key::ASIZE,
    key::MIN_ALLOC,
    key::IS_LOG,
    key::NON_ALLOCATING,
    key::REMOVING,
    MAPPING_OBJECT,
    BIRTHS_OBJECT,
    PREVIOUS_VDEV,
    key::TOP_ZAP,
    key::EXPANSION_TIME,
];

/// How deep vdevs are nested at most: root, mirror, spare, replacing, leaf.
const DEPTH_MAX: usize = 8;
/// More vdevs than this in one place are taken for damage.
const CHILDREN_MAX: usize = 4096;

/// More children than this no kind of parity makes up for.
pub(super) const RAIDZ_WIDTH_MAX: usize = 255;
/// The most columns of parity.
pub(super) const RAIDZ_PARITY_MAX: usize = 3;

/// What a vdev is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VdevKind {
    /// The tree's root.
    Root,
    /// All children hold the same.
    Mirror,
    /// A mirror of the old and the new device, while the new one is filled.
    Replacing,
    /// A mirror of a broken device and the spare that stands in for it.
    Spare,
    /// Children with columns of blocks and of their parity: `nparity` of a block are parity.
    Raidz,
    /// Children with columns of blocks and of their parity, in groups that are dealt out to all of them, with room for spares.
    Draid,
    /// The room for one spare that the children of a dRAID vdev keep: it has no device of its own.
    DraidSpare,
    /// A regular file.
    File,
    /// A block device.
    Disk,
    /// The place of a top-level vdev that was removed.
    Hole,
    /// The place of a top-level vdev that no label describes.
    Missing,
    /// The place of a top-level vdev that was removed, and whose blocks were moved to others.
    Indirect,
    /// A kind that this program does not know how to read, such as a later one.
    Other(String),
}

impl VdevKind {
    fn parse(name: &str) -> VdevKind {
        match name {
            "root" => VdevKind::Root,
            "mirror" => VdevKind::Mirror,
            "replacing" => VdevKind::Replacing,
            "spare" => VdevKind::Spare,
            "raidz" => VdevKind::Raidz,
            "draid" => VdevKind::Draid,
            "dspare" => VdevKind::DraidSpare,
            "file" => VdevKind::File,
            "disk" => VdevKind::Disk,
            "hole" => VdevKind::Hole,
            "missing" => VdevKind::Missing,
            "indirect" => VdevKind::Indirect,
            other => VdevKind::Other(other.to_owned()),
        }
    }

    /// The name in nvlists.
    pub fn name(&self) -> &str {
        match self {
            VdevKind::Root => "root",
            VdevKind::Mirror => "mirror",
            VdevKind::Replacing => "replacing",
            VdevKind::Spare => "spare",
            VdevKind::Raidz => "raidz",
            VdevKind::Draid => "draid",
            VdevKind::DraidSpare => "dspare",
            VdevKind::File => "file",
            VdevKind::Disk => "disk",
            VdevKind::Hole => "hole",
            VdevKind::Missing => "missing",
            VdevKind::Indirect => "indirect",
            VdevKind::Other(name) => name,
        }
    }

    /// Whether it is a device.
    pub fn is_leaf(&self) -> bool {
        matches!(self, VdevKind::File | VdevKind::Disk)
    }

    /// Whether its children all hold the same.
    pub fn is_replicated(&self) -> bool {
        matches!(self, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare)
    }

    /// Whether it only keeps a number taken: it has no devices.
    pub fn is_placeholder(&self) -> bool {
        matches!(self, VdevKind::Hole | VdevKind::Missing | VdevKind::Indirect)
    }
}

impl fmt::Display for VdevKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The description of a vdev and of those below it.
#[derive(Debug, Clone, PartialEq)]
pub struct VdevConfig {
    /// What it is.
    pub kind: VdevKind,
    /// Its number among its parent's children.
    pub id: u64,
    /// Its guid; 0 for a hole.
    pub guid: u64,
    /// Everything else but the children.
    values: NvList,
    /// Those below.
    pub children: Vec<VdevConfig>,
}

impl VdevConfig {
    /// A description with nothing in it yet.
    pub fn new(kind: VdevKind, id: u64, guid: u64) -> VdevConfig {
        VdevConfig { kind, id, guid, values: NvList::new(), children: Vec::new() }
    }

    /// Reads a description.
    pub fn from_nvlist(list: &NvList) -> Result<VdevConfig> {
        VdevConfig::parse(list, 0)
    }

    fn parse(list: &NvList, depth: usize) -> Result<VdevConfig> {
        if depth > DEPTH_MAX {
            bail!(Corrupt, "vdev tree: nested more than {DEPTH_MAX} deep");
        }
        let kind = VdevKind::parse(list.require_str("type")?);
        let id = list.u64(key::ID).unwrap_or(0);
        let guid = list.u64(key::GUID).unwrap_or(0);
        if guid == 0 && !kind.is_placeholder() {
            bail!(Corrupt, "vdev {kind} {id}: no guid");
        }
        let taken = [key::TYPE, key::ID, key::GUID, key::CHILDREN];
        let values = list.iter().filter(|(name, _)| !taken.iter().any(|t| name == t)).cloned().collect();
        let children = list.nvlist_array(key::CHILDREN).unwrap_or(&[]);
        if children.len() > CHILDREN_MAX {
            bail!(Corrupt, "vdev {kind} {id}: {} children", children.len());
        }
        let children = children.iter().map(|child| VdevConfig::parse(child, depth + 1)).collect::<Result<_>>()?;
        Ok(VdevConfig { kind, id, guid, values, children })
    }

    /// The description for the MOS.
    pub fn to_mos(&self) -> NvList {
        self.to_nvlist(true)
    }

    /// The description for labels.
    pub fn to_label(&self) -> NvList {
        self.to_nvlist(false)
    }

    /// The description of a hot spare or cache device, for the MOS: it has no place in the tree.
    pub fn to_auxiliary(&self) -> NvList {
        let mut list = self.to_nvlist(true);
        list.remove(key::ID);
        list
    }

    fn to_nvlist(&self, mos: bool) -> NvList {
        let mut list = NvList::new();
        list.push(key::TYPE, self.kind.name());
        list.push(key::ID, self.id);
        list.push(key::GUID, self.guid);
        for name in ORDER {
            if let Some(value) = self.values.get(name)
                && (mos || !MOS_ONLY.contains(&name))
            {
                list.push(name, value.clone());
            }
        }
        for (name, value) in &self.values {
            if !ORDER.iter().any(|known| name == known) {
                list.push(name.clone(), value.clone());
            }
        }
        let inner = self.kind == VdevKind::Root || self.kind.is_replicated();
        if inner || !self.children.is_empty() {
            let children: Vec<NvList> = self.children.iter().map(|child| child.to_nvlist(mos)).collect();
            list.push(key::CHILDREN, children);
        }
        list
    }

    /// A number, 0 if it is not there.
    pub fn number(&self, name: &str) -> u64 {
        self.values.u64(name).unwrap_or(0)
    }

    /// A number, if it is there.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.values.u64(name)
    }

    /// Sets a number.
    pub fn set(&mut self, name: &str, value: u64) {
        self.values.replace(name, value);
    }

    /// Sets a string.
    pub fn set_string(&mut self, name: &str, value: impl Into<NvString>) {
        self.values.replace(name, Value::String(value.into()));
    }

    /// Removes a value.
    pub fn remove(&mut self, name: &str) {
        self.values.remove(name);
    }

    /// Gives to another vdev what belongs to the top-level vdev.
    pub(super) fn move_top_values(&mut self, to: &mut VdevConfig) {
        for name in TOP_ONLY {
            if let Some(value) = self.values.get(name).cloned() {
                to.values.replace(name, value);
                self.values.remove(name);
            }
        }
    }

    /// Whether a flag is set.
    pub fn flag(&self, name: &str) -> bool {
        self.values.flag(name)
    }

    /// A string, for people.
    pub fn string(&self, name: &str) -> Option<String> {
        self.values.string(name).map(|s| s.to_string_lossy().into_owned())
    }

    /// What messages call it: the path, or kind and number.
    pub fn display_name(&self) -> String {
        self.string(key::PATH).unwrap_or_else(|| self.group_name())
    }

    /// What a group is called: `mirror-0`, `raidz2-1`, `draid2:4d:8c:1s-0`.
    pub fn group_name(&self) -> String {
        let shape = match self.kind {
            VdevKind::Raidz => self.number(key::PARITY).to_string(),
            VdevKind::Draid => {
                let [parity, data, spares] = [key::PARITY, key::DRAID_DATA, key::DRAID_SPARES].map(|name| self.number(name));
                format!("{parity}:{data}d:{}c:{spares}s", self.children.len())
            }
            _ => String::new(),
        };
        format!("{}{shape}-{}", self.kind, self.id)
    }

    /// The numbers of a dRAID vdev.
    pub fn draid_shape(&self) -> Shape {
        let [data, parity, spares, groups] = [key::DRAID_DATA, key::PARITY, key::DRAID_SPARES, key::DRAID_GROUPS].map(|name| self.number(name));
        Shape { data, parity, spares, children: self.children.len() as u64, groups }
    }

    /// The groups from which on blocks are wider, one for each time that a device came to RAID-Z.
    pub fn expansions(&self) -> &[u64] {
        match self.values.get(key::EXPAND_TXGS) {
            Some(Value::UInt64Array(txgs)) => txgs,
            _ => &[],
        }
    }

    /// Does its resilver wait for the one that is under way?
    pub fn is_deferred(&self) -> bool {
        self.values.get(key::RESILVER_DEFER).is_some()
    }

    /// Says whether its resilver waits for the one that is under way.
    pub fn set_deferred(&mut self, is_deferred: bool) {
        if is_deferred {
            self.values.replace(key::RESILVER_DEFER, Value::Boolean);
        } else {
            self.values.remove(key::RESILVER_DEFER);
        }
    }

    /// Is a device that came to RAID-Z being filled?
    pub fn is_expanding(&self) -> bool {
        self.values.get(key::EXPANDING).is_some()
    }

    /// Says that a device that came to RAID-Z is being filled, or that it is now, and from which group on blocks are wider.
    pub fn set_expanding(&mut self, wider_from: Option<u64>) {
        match wider_from {
            None => self.values.replace(key::EXPANDING, Value::Boolean),
            Some(txg) => {
                let txgs: Vec<u64> = self.expansions().iter().copied().chain([txg]).collect();
                self.values.remove(key::EXPANDING);
                self.values.replace(key::EXPAND_TXGS, Value::UInt64Array(txgs));
            }
        }
    }

    /// The sum of the guids from here down.
    pub fn guid_sum(&self) -> u64 {
        self.children.iter().fold(self.guid, |sum, child| sum.wrapping_add(child.guid_sum()))
    }

    /// The bytes for data that each device below a top-level vdev must have: what lies behind the last whole metaslab nobody uses.
    #[doc(alias = "vdev_get_min_asize")]
    pub fn leaf_bytes(&self) -> u64 {
        let metaslab = 1_u64.checked_shl(u32::try_from(self.number(key::METASLAB_SHIFT)).unwrap_or(u32::MAX)).unwrap_or(1);
        let asize = self.number(key::ASIZE);
        let used = if metaslab > asize { asize } else { asize & !(metaslab - 1) };
        self.layout(&mut || 0).leaf_bytes(used)
    }

    /// The devices from here down, in order.
    pub fn leaves(&self) -> Vec<&VdevConfig> {
        if self.kind.is_leaf() {
            return vec![self];
        }
        self.children.iter().flat_map(VdevConfig::leaves).collect()
    }

    /// The tree for I/O of a top-level vdev; `number` is asked for that of each leaf, in the order of [`VdevConfig::leaves`].
    ///
    /// Only of what [`VdevConfig::check_supported`] has accepted is it more than a guess.
    pub(super) fn layout(&self, number: &mut dyn FnMut() -> u32) -> Layout {
        let (vdev, ashift) = (self.id as u32, u32::try_from(self.number(key::ASHIFT)).unwrap_or(0));
        let mut children = || self.children.iter().map(|child| child.numbered(number)).collect();
        match self.kind {
            VdevKind::Raidz if self.check_raidz().is_ok() => Layout::expanded(vdev, ashift, self.number(key::PARITY), self.widths(), children()),
            VdevKind::Draid if self.draid_shape().is_possible() => Layout::draid(vdev, ashift, Draid::new(self.draid_shape(), ashift), children()),
            _ => Layout::same(vdev, ashift, self.numbered(number)),
        }
    }

    /// The widths that blocks of RAID-Z have.
    fn widths(&self) -> Widths {
        Widths::new(self.children.len() as u64, self.expansions(), self.is_expanding())
    }

    fn numbered(&self, number: &mut dyn FnMut() -> u32) -> Node {
        match self.kind {
            VdevKind::DraidSpare => Node::Distributed { spare: self.number(key::SPARE_ID), is_behind: self.is_filling() },
            _ if self.kind.is_leaf() => Node::Leaf(number()),
            _ => Node::Same(self.children.iter().map(|child| child.numbered(number)).collect()),
        }
    }

    /// Has the vdev a list of what it has missed, or is it being filled?
    pub(crate) fn is_filling(&self) -> bool {
        self.number(key::DTL) != 0 || self.get(key::RESILVER_TXG).or(self.get(key::REBUILD_TXG)).is_some()
    }

    /// The vdev with this guid, from here down.
    pub fn find(&self, guid: u64) -> Option<&VdevConfig> {
        if self.guid == guid {
            return Some(self);
        }
        self.children.iter().find_map(|child| child.find(guid))
    }

    /// The vdev with this guid, from here down, to change it.
    pub fn find_mut(&mut self, guid: u64) -> Option<&mut VdevConfig> {
        if self.guid == guid {
            return Some(self);
        }
        self.children.iter_mut().find_map(|child| child.find_mut(guid))
    }

    /// Refuses what this program cannot read, by name.
    pub fn check_supported(&self) -> Result<()> {
        if let VdevKind::Other(kind) = &self.kind {
            return Err(error!(Unsupported, "vdev {} is of type {kind}, which is not supported", self.display_name()));
        }
        if self.kind.is_replicated() && self.children.is_empty() {
            bail!(Corrupt, "vdev {}: no children", self.display_name());
        }
        match self.kind {
            VdevKind::Raidz => self.check_raidz()?,
            VdevKind::Draid => self.check_draid()?,
            _ => {}
        }
        let below = |child: &&VdevConfig| match child.kind {
            VdevKind::DraidSpare => self.kind.is_replicated() || self.kind == VdevKind::Draid,
            _ => self.kind == VdevKind::Root || child.kind.is_leaf() || child.kind.is_replicated(),
        };
        if let Some(child) = self.children.iter().find(|child| !matches!(child.kind, VdevKind::Other(_)) && !below(child)) {
            bail!(Corrupt, "vdev {}: a {} in a {}", child.display_name(), child.kind, self.kind);
        }
        self.children.iter().try_for_each(VdevConfig::check_supported)
    }

    fn check_raidz(&self) -> Result<()> {
        let (parity, width) = (self.number(key::PARITY), self.children.len());
        if !(1..=RAIDZ_PARITY_MAX as u64).contains(&parity) || width as u64 <= parity || width > RAIDZ_WIDTH_MAX {
            bail!(Corrupt, "vdev {}: {width} children with {parity} columns of parity", self.display_name());
        }
        let (expansions, is_expanding) = (self.expansions(), self.is_expanding());
        if (width as u64) < parity + 1 + expansions.len() as u64 + u64::from(is_expanding) || !expansions.is_sorted_by(|one, next| one < next) {
            bail!(Corrupt, "vdev {}: {width} children, expanded in the groups {expansions:?}", self.display_name());
        }
        Ok(())
    }

    /// Numbers that go together, and spares that are its own.
    fn check_draid(&self) -> Result<()> {
        let shape = self.draid_shape();
        if !shape.is_possible() {
            bail!(Corrupt, "vdev {}: {} groups", self.group_name(), shape.groups);
        }
        let is_odd = |vdev: &VdevConfig| vdev.kind == VdevKind::DraidSpare && vdev.number(key::SPARE_ID) >= shape.spares;
        if self.any(&is_odd) {
            bail!(Corrupt, "vdev {}: a spare that it has not", self.group_name());
        }
        Ok(())
    }

    /// Is there such a vdev from here down?
    fn any(&self, is_it: &dyn Fn(&VdevConfig) -> bool) -> bool {
        is_it(self) || self.children.iter().any(|child| child.any(is_it))
    }
}
