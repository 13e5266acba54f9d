//! What is answered.

use serde::{Deserialize, Serialize};

use super::rights::{Grant, Hold};
use super::snapshots::Refusal;
use super::failure::Failure;
use super::maintenance::{ImportRewound, OwnerUse, PoolEvent, PoolHistory};
use super::property::PropertyValue;
use super::status::{FoundPool, PoolStatus, VdevState};
use super::stream::{Package, Received, StreamProgress};
use super::transaction::TransactionPlace;

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done; there is nothing to say.
    Done,
    /// Not done.
    Failed(Failure),
    /// To `Version`.
    Version(BuildVersion),
    /// To `PoolScan`.
    Found(Vec<FoundPool>),
    /// To `PoolList` and `PoolGet`, by name.
    Pools(Vec<PoolEntry>),
    /// To `VdevGet`.
    VdevProperties(Vec<VdevProperties>),
    /// To `PoolCache`: counters by their names, of each pool.
    Counters(Vec<(String, Vec<(String, u64)>)>),
    /// To `PoolStatus`, by name.
    Status(Vec<PoolStatus>),
    /// To `SnapshotsCreate`: what is in the way. Nothing, if it is done.
    Refused(Vec<Refusal>),
    /// To `SnapshotsSpace`, in bytes.
    Space(u64),
    /// To `DeleteQueue`: how many.
    Count(u64),
    /// To `DatasetList` and `DatasetGet`.
    Datasets(Datasets),
    /// To `PoolImport`: what it had to give up, if it went back in time.
    Imported(Option<ImportRewound>),
    /// To `PoolDevice`, of a device that is to be used: how it is.
    Device(VdevState),
    /// To `PoolHistory`, by name.
    History(Vec<PoolHistory>),
    /// To `PoolEvents`, oldest first.
    Events(Vec<PoolEvent>),
    /// To `OwnerSpace`, in no order.
    Owners(Vec<OwnerUse>),
    /// To `SnapshotHolds`.
    Holds(Vec<Hold>),
    /// To `DatasetGrants`: those of the dataset first, then of its ancestors.
    Grants(Vec<Grant>),
    /// To `MountList`, in the order in which they were mounted.
    Mounts(Vec<Mount>),
    /// To `DatasetsMount`: for each of them, in its order, why it is not mounted.
    Mounted(Vec<Option<Failure>>),
    /// To `DatasetsUnmount`: for each of them, in its order, why it is still mounted.
    Unmounted(Vec<Option<Failure>>),
    /// How far a stream is: every second, before the answer.
    Progress(StreamProgress),
    /// To `StreamSize`, in bytes.
    StreamSize(u64),
    /// To `StreamPackage`.
    StreamPackage(Package),
    /// To `StreamReceive`.
    Received(Received),
    /// To `TransactionBegin`.
    Transaction(TransactionPlace),
}

/// The version of the program that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildVersion {
    /// Of the program, `0.1.0`.
    pub version: String,
    /// Of this protocol; another number means another protocol.
    pub protocol: u32,
}

impl BuildVersion {
    /// The protocol spoken here.
    pub const PROTOCOL: u32 = 1;

    /// This build.
    #[must_use]
    pub fn current() -> BuildVersion {
        BuildVersion { version: env!("CARGO_PKG_VERSION").to_owned(), protocol: BuildVersion::PROTOCOL }
    }
}

/// A pool in `zpool list` and `zpool get`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolEntry {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// The properties asked for that it has.
    pub properties: Vec<PropertyValue>,
    /// Its state and vdevs.
    pub status: PoolStatus,
}

/// What users have set of a vdev.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VdevProperties {
    /// The vdev's guid.
    pub guid: u64,
    /// Raw values.
    pub properties: Vec<PropertyValue>,
}

/// Type of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DatasetKind {
    /// Files.
    Filesystem,
    /// A block device.
    Volume,
    /// Either of them, as it was.
    Snapshot,
    /// What is left of a snapshot for incremental sends.
    Bookmark,
}

impl DatasetKind {
    /// `filesystem`, `volume`, `snapshot`, `bookmark`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            DatasetKind::Filesystem => "filesystem",
            DatasetKind::Volume => "volume",
            DatasetKind::Snapshot => "snapshot",
            DatasetKind::Bookmark => "bookmark",
        }
    }
}

/// A set of [`DatasetKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DatasetKinds {
    /// File systems.
    pub filesystem: bool,
    /// Volumes.
    pub volume: bool,
    /// Snapshots.
    pub snapshot: bool,
    /// Bookmarks.
    pub bookmark: bool,
}

impl DatasetKinds {
    /// Nothing.
    pub const NONE: DatasetKinds = DatasetKinds { filesystem: false, volume: false, snapshot: false, bookmark: false };
    /// File systems and volumes.
    pub const HEADS: DatasetKinds = DatasetKinds { filesystem: true, volume: true, snapshot: false, bookmark: false };
    /// File systems, volumes and snapshots.
    pub const DATASETS: DatasetKinds = DatasetKinds { filesystem: true, volume: true, snapshot: true, bookmark: false };
    /// Everything.
    pub const ALL: DatasetKinds = DatasetKinds { filesystem: true, volume: true, snapshot: true, bookmark: true };

    /// Is `kind` in the set?
    #[must_use]
    pub fn has(self, kind: DatasetKind) -> bool {
        match kind {
            DatasetKind::Filesystem => self.filesystem,
            DatasetKind::Volume => self.volume,
            DatasetKind::Snapshot => self.snapshot,
            DatasetKind::Bookmark => self.bookmark,
        }
    }

    /// The set with `kind` in it.
    #[must_use]
    pub fn with(mut self, kind: DatasetKind) -> DatasetKinds {
        match kind {
            DatasetKind::Filesystem => self.filesystem = true,
            DatasetKind::Volume => self.volume = true,
            DatasetKind::Snapshot => self.snapshot = true,
            DatasetKind::Bookmark => self.bookmark = true,
        }
        self
    }
}

/// One dataset of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetEntry {
    /// Its full name.
    pub name: String,
    /// Its type.
    pub kind: DatasetKind,
    /// The transaction group that made it; snapshots are listed in this order.
    pub creation_txg: u64,
    /// The properties asked for that it has.
    pub properties: Vec<PropertyValue>,
}

impl DatasetEntry {
    /// One of its properties.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&PropertyValue> {
        self.properties.iter().find(|property| property.name == name)
    }
}

/// To `DatasetList` and `DatasetGet`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datasets {
    /// Type of the dataset that the request starts at, even when it is not among the entries.
    pub root_kind: Option<DatasetKind>,
    /// The datasets, in any order.
    pub entries: Vec<DatasetEntry>,
}

/// A mounted dataset.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mount {
    /// Its name.
    pub dataset: String,
    /// Where.
    pub mountpoint: String,
}
