//! What can be asked.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::branch::{DatasetClone, DatasetPromote, DatasetRollback};
use super::rights::{DatasetAllow, DatasetGrants, SnapshotHolds};
use super::maintenance::{CommandLine, DeleteQueue, DatasetRename, OwnerSpace, PoolAdd, PoolClear, PoolDevice, PoolEvents, PoolRecord, PoolReguid, PoolRemove, PoolScrub, PoolUpgrade};
use super::property::{Setting, Wanted};
use super::reply::DatasetKinds;
use super::snapshots::{BookmarksCreate, SnapshotRedact, SnapshotsCreate, SnapshotsDestroy, SnapshotsSpace, SnapshotsTag};
use super::stream::{DatasetDiff, PackageAsk, ReceiveAbort, StreamReceive, StreamSend};
use super::transaction::{TransactionBegin, TransactionEnd};
use crate::control::descriptor::Way;

/// One administrative verb with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Is anybody there?
    Ping,
    /// Which build answers?
    Version,
    /// Export every pool and end.
    Quit,

    /// `zpool create`
    PoolCreate(PoolCreate),
    /// `zpool destroy`
    PoolDestroy(PoolDestroy),
    /// `zpool import` without a pool: what could be imported?
    PoolScan(PoolScan),
    /// `zpool import POOL`
    PoolImport(PoolImport),
    /// `zpool export`
    PoolExport(PoolExport),
    /// `zpool list`: properties and vdev tree
    PoolList(PoolSelect),
    /// `zpool get`: properties
    PoolGet(PoolSelect),
    /// `zpool get`, of vdevs: what users have set of them
    VdevGet(PoolSelect),
    /// `tarn arcstat`: what the cache has and has done
    PoolCache(PoolSelect),
    /// `zpool status`: vdev tree, scan, errors
    PoolStatus(PoolSelect),
    /// `zpool set`
    PoolSet(PoolSet),
    /// `zpool sync`: returns when everything dirty is on disk
    PoolSync(PoolSelect),
    /// `zpool history`
    PoolHistory(PoolSelect),
    /// A command that changed a pool, for its history
    PoolRecord(PoolRecord),
    /// `zpool reguid`
    PoolReguid(PoolReguid),
    /// `zpool clear`
    PoolClear(PoolClear),
    /// `zpool scrub`, `zpool resilver`
    PoolScrub(PoolScrub),
    /// `zpool add`
    PoolAdd(PoolAdd),
    /// `zpool remove`, one vdev
    PoolRemove(PoolRemove),
    /// `zpool attach`, `detach`, `replace`, `offline`, `online`, `reopen`
    PoolDevice(PoolDevice),
    /// `zpool upgrade`: the version
    PoolUpgrade(PoolUpgrade),
    /// `zpool events`
    PoolEvents(PoolEvents),

    /// `zfs create`
    DatasetCreate(DatasetCreate),
    /// `zfs snapshot`
    SnapshotsCreate(SnapshotsCreate),
    /// `zfs destroy`, snapshots
    SnapshotsDestroy(SnapshotsDestroy),
    /// `zfs destroy -nv`, snapshots
    SnapshotsSpace(SnapshotsSpace),
    /// `zfs hold`
    SnapshotsHold(SnapshotsTag),
    /// `zfs release`
    SnapshotsRelease(SnapshotsTag),
    /// `zfs bookmark`
    BookmarksCreate(BookmarksCreate),
    /// `zfs redact`
    SnapshotRedact(SnapshotRedact),
    /// `zfs destroy`, one level
    DatasetDestroy(DatasetDestroy),
    /// `zfs rename`
    DatasetRename(DatasetRename),
    /// `zfs clone`
    DatasetClone(DatasetClone),
    /// `zfs promote`
    DatasetPromote(DatasetPromote),
    /// `zfs rollback`, the last step
    DatasetRollback(DatasetRollback),
    /// `zfs userspace`, `groupspace`, `projectspace`
    OwnerSpace(OwnerSpace),
    /// `zfs holds`
    SnapshotHolds(SnapshotHolds),
    /// `zfs allow`, looking
    DatasetGrants(DatasetGrants),
    /// `zfs allow`, `zfs unallow`, one dataset
    DatasetAllow(DatasetAllow),
    /// `zfs list`
    DatasetList(DatasetList),
    /// `zfs get`
    DatasetGet(DatasetList),
    /// `zfs set`
    DatasetSet(DatasetSet),
    /// `zfs inherit`, one dataset
    DatasetInherit(DatasetInherit),
    /// `zfs mount`, one dataset
    DatasetMount(DatasetMount),
    /// `zfs mount -a`, `zpool import`: several, parents before children; each for itself.
    DatasetsMount(Vec<DatasetMount>),
    /// `zfs unmount`, one dataset and what is mounted below it
    DatasetUnmount(DatasetUnmount),
    /// `zfs unmount -a`: several, children before parents; each for itself.
    DatasetsUnmount(Vec<DatasetUnmount>),
    /// `zfs wait`: how many files without a name are left?
    DeleteQueue(DeleteQueue),
    /// `zfs mount` without a dataset: what is mounted?
    MountList,

    /// `zfs send`, one snapshot; its descriptor is written to.
    StreamSend(StreamSend),
    /// `zfs diff`; its descriptor is written to.
    DatasetDiff(DatasetDiff),
    /// `zfs send -n`: about how many bytes there would be
    StreamSize(StreamSend),
    /// `zfs send -R`, `-p`: what a package says of its datasets
    StreamPackage(PackageAsk),
    /// `zfs receive`, one stream; its descriptor is read from.
    StreamReceive(StreamReceive),
    /// `zfs receive -A`
    ReceiveAbort(ReceiveAbort),

    /// `tarn transaction begin`
    TransactionBegin(TransactionBegin),
    /// `tarn transaction commit`, `tarn transaction abort`
    TransactionEnd(TransactionEnd),
}

impl Request {
    /// Which way the stream goes through the descriptor that comes with it; `None`: there is none.
    #[must_use]
    pub fn stream_way(&self) -> Option<Way> {
        match self {
            Request::StreamSend(_) | Request::DatasetDiff(_) => Some(Way::Out),
            Request::StreamReceive(_) => Some(Way::In),
            _ => None,
        }
    }
}

/// Where blocks of a top-level vdev are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum AllocationClass {
    /// Data and metadata.
    #[default]
    Normal,
    /// The intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Deduplication tables.
    Dedup,
    /// Second-level cache.
    Cache,
    /// Hot spare.
    Spare,
}

/// What a vdev is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VdevKind {
    /// The root of the tree; never in a specification.
    Root,
    /// A whole block device.
    Disk,
    /// A regular file.
    File,
    /// Copies on every child.
    Mirror,
    /// Single to triple parity.
    Raidz {
        /// 1 to 3.
        parity: u8,
    },
    /// Parity with distributed spares.
    Draid {
        /// 1 to 3.
        parity: u8,
        /// Data disks in a group.
        data: u64,
        /// All disks.
        children: u64,
        /// Distributed spares.
        spares: u64,
    },
    /// A child being replaced by its sibling.
    Replacing,
    /// A child taken over by a spare.
    Spare,
    /// A distributed spare.
    DraidSpare,
    /// A removed log.
    Hole,
    /// A removed vdev whose blocks were copied elsewhere.
    Indirect,
    /// A vdev without a description.
    Missing,
}

/// A vdev to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevSpec {
    /// Disk, file, mirror...
    pub kind: VdevKind,
    /// Absolute path of a disk or file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Of top-level vdevs only.
    #[serde(default)]
    pub class: AllocationClass,
    /// Of mirrors and the like.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<VdevSpec>,
}

/// Which features a new pool has, by their names without `feature@`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FeatureChoice {
    /// Those that are not named here, too.
    pub all_others: bool,
    /// Enable these.
    pub enabled: Vec<String>,
    /// Do not enable these.
    pub disabled: Vec<String>,
}

impl FeatureChoice {
    /// Is the feature of that name to be enabled?
    #[must_use]
    pub fn enables(&self, name: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|known| known == name);
        named(&self.enabled) || (self.all_others && !named(&self.disabled))
    }
}

/// `zpool create`. Does not mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolCreate {
    /// The pool's name.
    pub name: String,
    /// Name while imported, if another (`-t`).
    pub temporary_name: Option<String>,
    /// Top-level vdevs, in order.
    pub vdevs: Vec<VdevSpec>,
    /// `-f`: use devices although they look used.
    pub force: bool,
    /// Pool properties, `altroot` and `ashift` included. Features are not among them.
    pub properties: Vec<Setting>,
    /// Which features to enable.
    pub features: FeatureChoice,
    /// Properties of the root dataset.
    pub dataset_properties: Vec<Setting>,
    /// For the pool's history.
    #[serde(default)]
    pub command: CommandLine,
}

/// `zpool destroy`. Unmounts first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDestroy {
    /// The pool.
    pub name: String,
    /// Unmount although in use.
    pub force: bool,
}

/// `zpool import`, looking only. Answered without opening any pool for writing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolScan {
    /// Directories to search, or devices and files to look at; empty means the usual places.
    pub paths: Vec<PathBuf>,
    /// Destroyed pools instead of living ones.
    pub destroyed: bool,
}

/// `zpool import POOL`. Does not mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolImport {
    /// The pool, by guid: names may be ambiguous, and the command has looked.
    pub guid: u64,
    /// Name to import it by.
    pub name: String,
    /// Is that name for this import only (`-t`)?
    pub temporary_name: bool,
    /// As in [`PoolScan`].
    pub paths: Vec<PathBuf>,
    /// Pool properties to set (`readonly`, `altroot`, `cachefile`, ...).
    pub properties: Vec<Setting>,
    /// Although another host used it last.
    pub force: bool,
    /// Although it was destroyed.
    pub destroyed: bool,
    /// Although a log device is missing (`-m`).
    pub missing_log: bool,
    /// Discard the last transactions if that makes it importable (`-F`).
    pub rewind: bool,
    /// Discard as many as it takes (`-X`).
    #[serde(default)]
    pub extreme: bool,
    /// With `rewind`: only say whether it would.
    pub dry_run: bool,
    /// Highest transaction group to use (`-T`).
    pub txg_max: Option<u64>,
    /// Go back to the checkpoint.
    pub rewind_to_checkpoint: bool,
    /// Do not load keys, nor mount, whatever the properties say (`-N`).
    pub no_mount: bool,
}

impl PoolImport {
    /// As `zpool import -N`: nothing is forced, nothing is given up, nothing is mounted.
    pub fn new(guid: u64, name: impl Into<String>, paths: Vec<PathBuf>) -> Self {
        PoolImport {
            guid,
            name: name.into(),
            temporary_name: false,
            paths,
            properties: Vec::new(),
            force: false,
            destroyed: false,
            missing_log: false,
            rewind: false,
            extreme: false,
            dry_run: false,
            txg_max: None,
            rewind_to_checkpoint: false,
            no_mount: true,
        }
    }
}

/// `zpool export`. Unmounts first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolExport {
    /// The pool.
    pub name: String,
    /// Unmount although in use.
    pub force: bool,
    /// Leave the on-disk state as it is (`-F`).
    pub hard_force: bool,
}

/// What a [`PoolSelect`] of a status has among its properties if the names of damaged files are wanted: to find them takes long.
pub const DAMAGED_FILES: &str = "damaged files";

/// What a [`PoolSelect`] of a status has among its properties if deduplication is to be told of: the tables may have to be read.
pub const DEDUP_TABLES: &str = "dedup tables";

/// Which pools, and which of their properties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSelect {
    /// One pool, or all of them.
    pub name: Option<String>,
    /// Which properties to answer with.
    pub properties: Wanted,
}

/// `zpool set`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSet {
    /// The pool.
    pub name: String,
    /// What to set; `feature@x` with the text `enabled` enables a feature.
    pub settings: Vec<Setting>,
}

/// `zfs create`. Does not mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetCreate {
    /// The dataset.
    pub name: String,
    /// Size of a volume; `None` makes a file system.
    pub volume_size: Option<u64>,
    /// Properties to set.
    pub properties: Vec<Setting>,
    /// Make the ancestors that are missing (`-p`).
    pub parents: bool,
}

/// `zfs destroy`, without children: one file system or volume, or one bookmark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetDestroy {
    /// Full names.
    pub names: Vec<String>,
    /// Destroy held or cloned snapshots later (`-d`).
    pub defer: bool,
    /// Unmount although in use.
    pub force: bool,
}

/// `zfs list` and `zfs get`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetList {
    /// Start here; `None` means every pool's root.
    pub root: Option<String>,
    /// How many levels below the start: 0 is the start alone, `None` is all.
    pub depth: Option<u64>,
    /// What to answer with. Snapshots and bookmarks of a dataset count as one level below it.
    pub kinds: DatasetKinds,
    /// Snapshots too, in pools whose `listsnapshots` is on.
    pub snapshots_where_listed: bool,
    /// Which properties to answer with.
    pub properties: Wanted,
    /// The received values too.
    pub received: bool,
}

/// `zfs set`: all or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetSet {
    /// The dataset or snapshot.
    pub name: String,
    /// What to set.
    pub settings: Vec<Setting>,
    /// Do not remount when the mount point changes (`-u`).
    pub no_remount: bool,
    /// The values came with a stream: what is set on the dataset counts more.
    #[serde(default)]
    pub received: bool,
}

/// `zfs inherit`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetInherit {
    /// The dataset or snapshot.
    pub name: String,
    /// The property.
    pub property: String,
    /// Go back to the received value, if there is one (`-S`).
    pub received: bool,
}

/// `zfs mount`. The command has looked at `canmount` and `mountpoint`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetMount {
    /// The file system or snapshot.
    pub name: String,
    /// Options for this mount only (`ro`, `noatime`, ...).
    pub options: Vec<String>,
    /// Over a directory that is not empty (`-O`).
    pub overlay: bool,
    /// `-f`
    pub force: bool,
    /// Load its key first (`-l`).
    pub load_key: bool,
    /// There, whatever its `mountpoint` says: for `mount(8)`, which says where.
    #[serde(default)]
    pub at: Option<String>,
}

/// `zfs unmount`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetUnmount {
    /// The file system.
    pub name: String,
    /// From this place alone.
    #[serde(default)]
    pub at: Option<String>,
    /// And all below it, wherever that is mounted.
    #[serde(default)]
    pub tree: bool,
    /// Although transactions are under way on it, or its pool is suspended. Of any other pool, what is in use stays mounted.
    pub force: bool,
    /// Unload its key after (`-u`).
    pub unload_key: bool,
}
