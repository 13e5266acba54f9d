//! The health of a pool as data: the vdev tree with its counters, scans, checkpoints, errors.

use serde::{Deserialize, Serialize};

use super::request::{AllocationClass, VdevKind};

/// How a vdev is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum VdevState {
    /// Not opened.
    Closed,
    /// Taken offline.
    Offline,
    /// The device went away.
    Removed,
    /// Cannot be opened.
    CantOpen,
    /// Given up.
    Faulted,
    /// Works with less redundancy.
    Degraded,
    /// Works.
    Healthy,
}

/// Why it is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum VdevAux {
    /// Nothing to add.
    #[default]
    None,
    /// Open failed.
    OpenFailed,
    /// The label or the data make no sense.
    CorruptData,
    /// Too few children work.
    NoReplicas,
    /// A device that the pool should have is not there.
    BadGuidSum,
    /// Smaller than it was.
    TooSmall,
    /// The label belongs to something else.
    BadLabel,
    /// The format is newer.
    VersionNewer,
    /// The format is older.
    VersionOlder,
    /// Needs features that are unknown.
    UnsupportedFeature,
    /// A spare in use.
    Spared,
    /// Too many errors.
    TooManyErrors,
    /// I/O failed.
    IoFailure,
    /// The intent log cannot be read.
    BadLog,
    /// Given up by the administrator.
    External,
    /// Split off into another pool.
    SplitPool,
    /// Sector size cannot be used.
    BadAshift,
    /// Given up by the administrator, for ever.
    ExternalPersist,
    /// In use by another pool.
    Active,
    /// Every child is offline.
    ChildrenOffline,
    /// Sector size too large.
    AshiftTooBig,
}

/// Requests to a device by time and size: bucket `n` has those from 2ⁿ up to 2ⁿ⁺¹ nanoseconds or bytes. What is not there is 0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// By time.
    pub wait: Vec<u64>,
    /// Those of one block, by size.
    pub single: Vec<u64>,
    /// Those of several blocks that lie side by side, by size.
    pub joined: Vec<u64>,
    /// Begun and not done.
    pub active: u64,
}

impl Requests {
    /// Adds another's.
    pub fn add(&mut self, other: &Requests) {
        for (sum, of) in [(&mut self.wait, &other.wait), (&mut self.single, &other.single), (&mut self.joined, &other.joined)] {
            sum.resize(sum.len().max(of.len()), 0);
            sum.iter_mut().zip(of).for_each(|(sum, of)| *sum = sum.saturating_add(*of));
        }
        self.active += other.active;
    }
}

/// Counters of a vdev. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VdevStats {
    /// Allocated.
    pub allocated: u64,
    /// Total capacity.
    pub space: u64,
    /// Capacity after parity.
    pub deflated_space: u64,
    /// Size that a replacement must have.
    pub replacement_size: u64,
    /// Growth possible by `online -e`.
    pub expandable: u64,
    /// Size of the device.
    pub physical_space: u64,
    /// Nanoseconds since the pool was imported; of the root only.
    pub age_ns: u64,
    /// Reads since then.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes.
    pub write_errors: u64,
    /// Blocks that came back wrong.
    pub checksum_errors: u64,
    /// How its reads went.
    pub read_requests: Requests,
    /// How writes of the intent log went.
    pub log_requests: Requests,
    /// How all other writes went.
    pub write_requests: Requests,
    /// How trims went.
    pub trim_requests: Requests,
    /// Requests that took very long.
    pub slow_ios: u64,
    /// Bytes repaired by ordinary reads.
    pub self_healed: u64,
    /// Direct writes whose buffer changed under way.
    pub direct_verify_errors: u64,
    /// Percent; `None` where it makes no sense.
    pub fragmentation: Option<u64>,
    /// Log2 of the sector size in use.
    pub ashift: u64,
    /// Log2 of the sector size that the device prefers.
    pub physical_ashift: u64,
    /// Bytes processed on it by the running scan.
    pub scan_processed: u64,
    /// Bytes written to it by the running rebuild.
    #[serde(default)]
    pub rebuild_processed: u64,
    /// Readers do without it, for it is too slow.
    #[serde(default)]
    pub sits_out: bool,
    /// Waits for the running resilver to end before its own.
    pub resilver_deferred: bool,
    /// Bytes that only the checkpoint keeps.
    pub checkpoint_space: u64,
    /// Being evacuated.
    pub removing: bool,
    /// Takes no new blocks.
    pub not_allocating: bool,
    /// Of a top-level vdev: bytes that the map takes that leads from it to others, or would take if it were removed.
    pub map_bytes: Option<u64>,
    /// How far its initialization is, if there was one.
    pub initialize: Option<LeafWorkStatus>,
    /// How far its trim is, if there was one.
    pub trim: Option<LeafWorkStatus>,
    /// It can be told what is not needed.
    pub can_trim: bool,
}

/// How work on a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeafWorkState {
    /// Under way.
    Active,
    /// Given up.
    Canceled,
    /// It stands still.
    Suspended,
    /// Done.
    Complete,
}

/// Work on the free space of a device. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafWorkStatus {
    /// How it is.
    pub state: LeafWorkState,
    /// When it got so, or began; in seconds since 1970.
    pub time: u64,
    /// What is done.
    pub done: u64,
    /// All that is to be done.
    pub total: u64,
    /// What failed.
    pub errors: u64,
}

/// One vdev and those below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevStatus {
    /// Disk, file, mirror...
    pub kind: VdevKind,
    /// Its number among its siblings (the `0` of `mirror-0`).
    pub id: u64,
    /// Its guid.
    pub guid: u64,
    /// Path of a disk or file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Where it is plugged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_path: Option<String>,
    /// The device's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    /// Is it a whole disk, of which the first partition is used?
    #[serde(default)]
    pub whole_disk: bool,
    /// The device was not there at import; `path` is where it was.
    #[serde(default)]
    pub not_present: bool,
    /// Of a hot spare: the other pool in which it stands in for a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
    /// What it stores.
    pub class: AllocationClass,
    /// How it is.
    pub state: VdevState,
    /// Why.
    pub aux: VdevAux,
    /// Counters.
    pub stats: VdevStats,
    /// Below it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<VdevStatus>,
}

/// State of a pool as its label says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolState {
    /// Imported, or not exported in order.
    Active,
    /// Exported.
    Exported,
    /// Destroyed.
    Destroyed,
    /// Cannot be opened.
    Unavailable,
    /// Another host may be using it now.
    PotentiallyActive,
}

/// What a scan does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScanFunction {
    /// Reads and checks everything.
    Scrub,
    /// Writes what a device missed.
    Resilver,
    /// Reads again what was wrong.
    ErrorScrub,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScanState {
    /// Running, or paused.
    Scanning,
    /// At its end.
    Finished,
    /// Given up.
    Canceled,
}

/// The last scan. Times in seconds since 1970, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanStatus {
    /// What it does.
    pub function: ScanFunction,
    /// How far it is.
    pub state: ScanState,
    /// Begin.
    pub start_time: u64,
    /// End.
    pub end_time: u64,
    /// Bytes in all.
    pub to_examine: u64,
    /// Bytes whose place was found.
    pub examined: u64,
    /// Bytes that need no reading.
    pub skipped: u64,
    /// Bytes repaired.
    pub processed: u64,
    /// Blocks that could not be repaired.
    pub errors: u64,
    /// Bytes read.
    pub issued: u64,
    /// Bytes found since the last import or resume.
    pub pass_examined: u64,
    /// Bytes read since the last import or resume.
    pub pass_issued: u64,
    /// Last import or resume.
    pub pass_start: u64,
    /// When it was paused; 0 when it is not.
    pub pause_time: u64,
    /// Seconds paused in all.
    pub spent_paused: u64,
    /// Bytes read in a second lately; 0: nobody knows.
    pub recent_rate: u64,
}

/// The last error scrub. Times in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorScrubStatus {
    /// How far it is.
    pub state: ScanState,
    /// Begin.
    pub start_time: u64,
    /// End.
    pub end_time: u64,
    /// Blocks that are left.
    pub to_examine: u64,
    /// Blocks that were read again.
    pub examined: u64,
    /// Blocks that could not be read.
    pub errors: u64,
    /// It is paused.
    pub is_paused: bool,
}

/// How a sequential rebuild is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RebuildState {
    /// Under way.
    Active,
    /// Given up.
    Canceled,
    /// Done.
    Complete,
}

/// The last sequential rebuild of a top-level vdev. Times in seconds since 1970, or milliseconds; sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildStatus {
    /// How it is.
    pub state: RebuildState,
    /// The number of the vdev.
    pub vdev: u64,
    /// Begin.
    pub start_time: u64,
    /// End.
    pub end_time: u64,
    /// For how long it was under way.
    pub scan_time_ms: u64,
    /// Bytes that were passed.
    pub scanned: u64,
    /// Bytes where a device needed something.
    pub issued: u64,
    /// Bytes written.
    pub rebuilt: u64,
    /// Bytes in all.
    pub estimate: u64,
    /// What could not be rebuilt.
    pub errors: u64,
    /// For how long it is under way since the last import, or its begin.
    pub pass_time_ms: u64,
    /// Bytes passed since then.
    pub pass_scanned: u64,
    /// Of these, bytes where a device needed something.
    pub pass_issued: u64,
    /// Bytes where none did.
    pub pass_skipped: u64,
}

/// How a checkpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointState {
    /// Kept.
    Exists,
    /// Its space is being freed.
    Discarding,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointStatus {
    /// How it is.
    pub state: CheckpointState,
    /// When it was made.
    pub start_time: u64,
    /// Bytes that only it keeps.
    pub space: u64,
}

/// The last removal of a top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalStatus {
    /// How far it is.
    pub state: ScanState,
    /// The number of the vdev.
    pub vdev: u64,
    /// Begin, in seconds since 1970.
    pub start_time: u64,
    /// End.
    pub end_time: u64,
    /// Bytes to copy.
    pub to_copy: u64,
    /// Bytes copied.
    pub copied: u64,
    /// Bytes of memory for the maps of all removed vdevs.
    pub mapping_memory: u64,
}

/// The last time that RAID-Z got a device more. Times in seconds since 1970, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpansionStatus {
    /// How far it is.
    pub state: ScanState,
    /// The number of the vdev.
    pub vdev: u64,
    /// Begin.
    pub start_time: u64,
    /// End.
    pub end_time: u64,
    /// Bytes to move.
    pub to_move: u64,
    /// Bytes moved.
    pub moved: u64,
    /// It waits until devices are repaired.
    pub waits: bool,
}

/// Deduplication tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DedupStatus {
    /// Entries.
    pub entries: u64,
    /// Bytes on disk.
    pub disk_size: u64,
    /// Bytes in memory if all of them were there.
    pub memory_size: u64,
}

/// The health of an imported pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// As the label says.
    pub state: PoolState,
    /// Last synced transaction group.
    pub txg: u64,
    /// Format version; 5000 is "features".
    pub version: u64,
    /// The tree; its children are the top-level vdevs of every class but cache and spare.
    pub root: VdevStatus,
    /// Cache devices.
    #[serde(default)]
    pub caches: Vec<VdevStatus>,
    /// Hot spares.
    #[serde(default)]
    pub spares: Vec<VdevStatus>,
    /// The last scan, if there was one.
    pub scan: Option<ScanStatus>,
    /// The last error scrub, if no scrub has followed.
    #[serde(default)]
    pub error_scrub: Option<ErrorScrubStatus>,
    /// The last sequential rebuild of each vdev that had one.
    #[serde(default)]
    pub rebuilds: Vec<RebuildStatus>,
    /// The checkpoint, if there is one.
    pub checkpoint: Option<CheckpointStatus>,
    /// The last removal of a top-level vdev, if there was one.
    #[serde(default)]
    pub removal: Option<RemovalStatus>,
    /// The last time that RAID-Z got a device more, if it ever did.
    #[serde(default)]
    pub expansion: Option<ExpansionStatus>,
    /// Deduplication, if it was asked for.
    pub dedup: Option<DedupStatus>,
    /// Known data errors; `None` when they cannot be counted.
    pub error_count: Option<u64>,
    /// Names of what is damaged (`tank/home:/a/b`, `<metadata>:<0x3d>`), if they were asked for.
    #[serde(default)]
    pub errors: Vec<String>,
    /// What its features are to its `compatibility` property.
    #[serde(default)]
    pub compatibility: Compatibility,
    /// Stopped, and how. Daemons of before said only whether.
    #[serde(default, rename = "stopped")]
    pub suspended: Option<Suspension>,
}

/// What the features of a pool are to those that its `compatibility` property names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compatibility {
    /// It has what it may have.
    #[default]
    Fits,
    /// Supported features are off that it may have.
    FeaturesDisabled,
    /// It has features that are not named.
    FeaturesNotNamed,
    /// What it may have cannot be read.
    Unreadable,
}

/// How a pool has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Suspension {
    /// Requests wait for `zpool clear`.
    Waiting,
    /// Requests fail until `zpool clear`.
    Continuing,
    /// For good: no heartbeats could be written, and another host may have the pool.
    Multihost,
    /// For good.
    Ended,
}

/// A feature that this program does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsupportedFeature {
    /// Its guid, `com.example:thing`.
    pub guid: String,
    /// What the label says of it, often empty.
    pub description: String,
}

/// A pool that was found on devices and is not imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundPool {
    /// Name, label state, version and tree; `root.state` and `root.aux` say whether it can be imported.
    pub status: PoolStatus,
    /// The comment property.
    pub comment: Option<String>,
    /// Host that used it last, unless it was exported.
    pub hostname: Option<String>,
    /// Its number.
    pub hostid: u64,
    /// Does that differ from this host's, with the pool not exported?
    pub other_host: bool,
    /// When it was written last, in seconds since 1970.
    pub timestamp: u64,
    /// Features it needs that are unknown here.
    #[serde(default)]
    pub unsupported: Vec<UnsupportedFeature>,
    /// Are they needed only to write?
    pub can_read_only: bool,
}

impl VdevState {
    /// Its number in the format and in the kernel's interface.
    #[must_use]
    pub fn number(self) -> u64 {
        self as u64 + 1
    }

    /// `ONLINE`, `DEGRADED`, ... as pools and vdevs are listed.
    #[must_use]
    pub fn word(self, aux: VdevAux) -> &'static str {
        match (self, aux) {
            (VdevState::Closed | VdevState::Offline, _) => "OFFLINE",
            (VdevState::Removed, _) => "REMOVED",
            (VdevState::CantOpen, VdevAux::CorruptData | VdevAux::BadLog) | (VdevState::Faulted, _) => "FAULTED",
            (VdevState::CantOpen, VdevAux::SplitPool) => "SPLIT",
            (VdevState::CantOpen, _) => "UNAVAIL",
            (VdevState::Degraded, _) => "DEGRADED",
            (VdevState::Healthy, _) => "ONLINE",
        }
    }
}

impl PoolStatus {
    /// The pool's health in one word, as the `health` property has it.
    #[must_use]
    pub fn health(&self) -> &'static str {
        if self.state == PoolState::Unavailable {
            "FAULTED"
        } else if self.suspended.is_some() {
            "SUSPENDED"
        } else {
            self.root.state.word(self.root.aux)
        }
    }
}
