//! The configuration of a pool: what labels and the MOS say beside the vdevs.
//!
//! # On disk
//! One nvlist, in two editions. The label of a device has the description of its own top-level vdev only, and its own
//! guid; the MOS has the whole tree, with the numbers of the vdevs' ZAPs.

use crate::bail;
use crate::error::Result;
use crate::vdev::{Leaf, TopVdev, VdevTree};
use ondisk::feature::{Feature, Support};
use ondisk::nvlist::{NvList, NvString, Value};

/// What a pool's labels say it is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "pool_state_t")]
pub enum PoolState {
    /// In use, or was when its host stopped.
    Active = 0,
    /// Handed back.
    Exported = 1,
    /// Gone, unless somebody wants it back.
    Destroyed = 2,
    /// Not a pool: a hot spare.
    Spare = 3,
    /// Not a pool: a cache device.
    CacheDevice = 4,
}

impl PoolState {
    /// The state with this number.
    pub fn from_number(number: u64) -> Option<PoolState> {
        Some(match number {
            0 => PoolState::Active,
            1 => PoolState::Exported,
            2 => PoolState::Destroyed,
            3 => PoolState::Spare,
            4 => PoolState::CacheDevice,
            _ => return None,
        })
    }
}

/// The version of pools with feature flags.
pub const VERSION_FEATURES: u64 = 5000;
/// The last version before feature flags.
pub const VERSION_BEFORE_FEATURES: u64 = 28;

/// A pool's configuration, without its vdevs.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// 1 to 28, or 5000.
    pub version: u64,
    /// The pool's name.
    pub name: String,
    /// The name that it goes by until it is exported, if another. Not on disk.
    pub temporary_name: Option<String>,
    /// What it is doing.
    pub state: PoolState,
    /// The pool's guid.
    pub guid: u64,
    /// The txg in which this was last written.
    pub txg: u64,
    /// A known mistake of the program that wrote it.
    pub errata: u64,
    /// The user's words.
    pub comment: Option<NvString>,
    /// Which set of features the pool is kept to.
    pub compatibility: Option<NvString>,
    /// The host that has or had it; 0 if unknown.
    pub host_id: u64,
    /// The name of that host.
    pub host_name: NvString,
    /// The guids of the features without which the MOS cannot be read, each a bare name.
    pub features_for_read: NvList,
    /// The MOS has a ZAP for each vdev; pools from before they were thought of have none, and must not say so.
    pub has_vdev_zaps: bool,
    /// What we do not know, and keep.
    pub other: NvList,
}

/// In the MOS's edition only.
const HAS_VDEV_ZAPS: &str = "com.delphix:has_per_vdev_zaps";

/// The values that have a field or are made from the tree.
const KNOWN: [&str; 22] = [
    "version",
    "name",
    "state",
    "txg",
    "pool_guid",
    "errata",
    "min_alloc",
    "max_alloc",
    "comment",
    "compatibility",
    "hostid",
    "hostname",
    "top_guid",
    "guid",
    "is_spare",
    "is_log",
    "hole_array",
    "vdev_children",
    "vdev_tree",
    "features_for_read",
    "create_txg",
    HAS_VDEV_ZAPS,
];

impl PoolConfig {
    /// The configuration of a new pool.
    pub fn new(name: &str, guid: u64, version: u64) -> PoolConfig {
        PoolConfig {
            version,
            name: name.to_owned(),
            temporary_name: None,
            state: PoolState::Active,
            guid,
            txg: 0,
            errata: 0,
            comment: None,
            compatibility: None,
            host_id: 0,
            host_name: NvString::default(),
            features_for_read: NvList::new(),
            has_vdev_zaps: true,
            other: NvList::new(),
        }
    }

    /// Reads a label's or the MOS's edition.
    pub fn from_nvlist(list: &NvList) -> Result<PoolConfig> {
        let state = list.u64("state").unwrap_or(0);
        let Some(state) = PoolState::from_number(state) else { bail!(Corrupt, "pool: bad state ({state})") };
        let other = list.iter().filter(|(name, _)| !KNOWN.iter().any(|known| name == known)).cloned().collect();
        Ok(PoolConfig {
            version: list.require_u64("version")?,
            name: list.require_str("name")?.to_owned(),
            temporary_name: None,
            state,
            guid: list.require_u64("pool_guid")?,
            txg: list.u64("txg").unwrap_or(0),
            errata: list.u64("errata").unwrap_or(0),
            comment: list.string("comment").cloned(),
            compatibility: list.string("compatibility").cloned(),
            host_id: list.u64("hostid").unwrap_or(0),
            host_name: list.string("hostname").cloned().unwrap_or_default(),
            features_for_read: list.nvlist("features_for_read").cloned().unwrap_or_default(),
            has_vdev_zaps: list.contains(HAS_VDEV_ZAPS),
            other,
        })
    }

    /// Whether the pool has feature flags.
    pub fn has_features(&self) -> bool {
        self.version >= VERSION_FEATURES
    }

    /// Refuses a pool whose MOS cannot be read, and says for want of which feature. Those that are only needed for more
    /// than the MOS are listed there.
    pub fn check_features_for_read(&self) -> Result<()> {
        let readable = |name: &NvString| {
            let feature = name.to_str().and_then(Feature::from_guid);
            feature.is_some_and(|feature| feature.info().support >= Support::Read)
        };
        let missing: Vec<String> =
            self.features_for_read.iter().filter(|(name, _)| !readable(name)).map(|(name, _)| name.to_string()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        bail!(Unsupported, "pool {}: uses unsupported features: {}", self.name, missing.join(", "));
    }

    /// Adds or removes a feature that is needed to read the MOS; whether that changed anything.
    pub fn set_feature_for_read(&mut self, guid: &str, active: bool) -> bool {
        let was = self.features_for_read.contains(guid);
        match (was, active) {
            (false, true) => self.features_for_read.set_flag(guid),
            (true, false) => {
                self.features_for_read.remove(guid);
            }
            _ => {}
        }
        was != active
    }

    /// What both editions begin with.
    fn head(&self, tree: &VdevTree, txg: u64) -> NvList {
        let (unit_min, unit_max) = tree.allocation_units();
        let mut list = NvList::new();
        list.push("version", self.version);
        list.push("name", self.name.as_str());
        list.push("state", self.state as u64);
        list.push("txg", txg);
        list.push("pool_guid", self.guid);
        list.push("errata", self.errata);
        list.push("min_alloc", unit_min);
        list.push("max_alloc", unit_max);
        for (name, value) in [("comment", &self.comment), ("compatibility", &self.compatibility)] {
            if let Some(value) = value {
                list.push(name, value.clone());
            }
        }
        if self.host_id != 0 {
            list.push("hostid", self.host_id);
        }
        list.push("hostname", self.host_name.clone());
        list
    }

    /// What both editions end with, around the vdevs.
    fn tail(&self, list: &mut NvList, tree: &VdevTree, vdev_tree: NvList) {
        let holes = tree.holes();
        if !holes.is_empty() {
            list.push("hole_array", holes);
        }
        list.push("vdev_children", tree.tops().len() as u64);
        for (name, value) in &self.other {
            list.push(name.clone(), value.clone());
        }
        list.push("vdev_tree", vdev_tree);
        list.push("features_for_read", self.features_for_read.clone());
    }

    /// The edition for the label of one device.
    #[doc(alias = "spa_config_generate")]
    pub fn label(&self, tree: &VdevTree, top: &TopVdev, leaf: &Leaf, txg: u64) -> NvList {
        let mut list = self.head(tree, txg);
        list.push("top_guid", top.guid());
        list.push("guid", leaf.guid());
        if top.config().find(leaf.guid()).is_some_and(|config| config.flag("is_spare")) {
            list.push("is_spare", 1);
        }
        if top.is_log() && top.kind() != crate::vdev::VdevKind::Mirror {
            list.push("is_log", 1);
        }
        self.tail(&mut list, tree, top.config().to_label());
        list
    }

    /// The first label of a new device: not part of a pool yet, so its txg is 0.
    pub fn first_label(&self, tree: &VdevTree, top: &TopVdev, leaf: &Leaf, create_txg: u64) -> NvList {
        let mut list = self.label(tree, top, leaf, 0);
        list.push("create_txg", create_txg);
        list
    }

    /// The edition for the MOS.
    pub fn mos(&self, tree: &VdevTree, txg: u64) -> NvList {
        let mut list = self.head(tree, txg);
        if self.has_vdev_zaps {
            list.push(HAS_VDEV_ZAPS, Value::Boolean);
        }
        self.tail(&mut list, tree, tree.config().to_mos());
        list
    }
}
