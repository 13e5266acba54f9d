//! Verbs that look after a pool: its history, its events, who uses its space, what it is called.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::property::Setting;
use super::request::VdevSpec;

/// A command as it was typed, and the user who typed it: what a pool's history records.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CommandLine {
    /// `zpool create tank /dev/sdb`
    pub words: String,
    /// The user's number.
    pub user: u32,
}

/// Puts a command into a pool's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// The pool.
    pub pool: String,
    /// The command.
    pub command: CommandLine,
}

/// One record of a pool's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// In seconds since 1970.
    pub time: Option<u64>,
    /// How long it took, in nanoseconds (calls of other programs).
    pub elapsed_ns: Option<i64>,
    /// What it is about.
    pub what: HistoryWhat,
    /// The user's number.
    pub user: Option<u64>,
    /// The host's name.
    pub host: Option<String>,
    /// The zone's name (other systems).
    pub zone: Option<String>,
}

/// What a record of a history is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HistoryWhat {
    /// A command line.
    Command(String),
    /// Something that the pool did.
    Event {
        /// The transaction group.
        txg: u64,
        /// `create`, `set`...
        name: String,
        /// The dataset's name and object.
        dataset: Option<(String, u64)>,
        /// More words.
        details: String,
    },
    /// As above, from the time when events had numbers.
    OldEvent {
        /// The transaction group.
        txg: u64,
        /// The event's number.
        number: u64,
        /// More words.
        details: String,
    },
    /// A call of another program into the kernel.
    Call {
        /// Its name.
        name: String,
        /// The record: a packed list, with what went in and came out.
        record: Vec<u8>,
    },
    /// None of these: the record.
    Unknown(Vec<u8>),
}

/// A pool's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolHistory {
    /// The pool.
    pub name: String,
    /// Oldest first.
    pub records: Vec<HistoryRecord>,
}

/// What an import had to give up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportRewound {
    /// The txg that was opened.
    pub txg: u64,
    /// When that was, in seconds since 1970.
    pub timestamp: u64,
    /// Seconds of changes that are lost.
    pub lost_seconds: u64,
}

/// `zpool reguid`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolReguid {
    /// The pool.
    pub name: String,
    /// The new guid; `None`: any.
    pub guid: Option<u64>,
}

/// `zpool clear`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolClear {
    /// The pool.
    pub name: String,
    /// One device, by its name, path or guid, or all of a group.
    pub device: Option<String>,
}

/// What is to be done about scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrubCommand {
    /// A scrub of everything, or one that is paused goes on.
    Begin,
    /// A scrub of what is younger than the last one.
    BeginFromLast,
    /// A scrub of what was written between two times, in seconds since 1970; 0: from the beginning, or up to now.
    BeginBetween(u64, u64),
    /// What is known to be damaged is read again.
    BeginErrors,
    /// A scrub is paused.
    Pause,
    /// A scrub is given up.
    Stop,
    /// What devices have missed is written, from the start.
    Resilver,
}

/// `zpool scrub`, `zpool resilver`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolScrub {
    /// The pool.
    pub name: String,
    /// What to do.
    pub command: ScrubCommand,
}

/// `zpool add`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolAdd {
    /// The pool.
    pub name: String,
    /// Top-level vdevs, in order.
    pub vdevs: Vec<VdevSpec>,
    /// Use devices although they look used.
    pub force: bool,
    /// Although their sectors are of another size than the others'.
    pub any_ashift: bool,
    /// log2 of the sectors; `None`: what the pool's property says, or the devices.
    pub ashift: Option<u32>,
}

/// `zpool remove`, one vdev
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRemove {
    /// The pool.
    pub name: String,
    /// A top-level vdev by its path, last name, guid, or as `mirror-1`; `None`: the removal that is under way is given up.
    pub device: Option<String>,
}

/// `zpool upgrade`, one pool: features are enabled with `PoolSet`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUpgrade {
    /// The pool.
    pub name: String,
    /// The version to go to.
    pub version: u64,
}

/// `zpool events`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolEvents {
    /// Only those after this one.
    pub after: u64,
    /// Forget all.
    pub clear: bool,
}

/// Something that happened to a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolEvent {
    /// Its number.
    pub id: u64,
    /// Seconds and nanoseconds since 1970.
    pub time: (u64, u32),
    /// `sysevent.fs.zfs.pool_import`...
    pub class: String,
    /// The pool's name.
    pub pool: String,
    /// Its guid.
    pub guid: u64,
    /// More, as names and values.
    pub details: Vec<(String, EventValue)>,
}

/// A value of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventValue {
    /// A number, shown in hexadecimal digits.
    Number(u64),
    /// Words, shown in quotes.
    Text(String),
}

/// `zfs rename`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetRename {
    /// `pool/a/b`, or `pool/a@snapshot`.
    pub from: String,
    /// The new full name.
    pub to: String,
    /// Make the ancestors that are missing (`-p`).
    pub parents: bool,
    /// The snapshots of that name below, too (`-r`).
    pub recursive: bool,
    /// Leave it mounted where it is (`-u`).
    pub no_remount: bool,
    /// Unmount although in use (`-f`).
    pub force: bool,
}

/// `zfs userspace` and its like
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerSpace {
    /// A file system, or a snapshot of one.
    pub name: String,
    /// Whose space.
    pub kind: OwnerKind,
}

/// Kinds of owners of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OwnerKind {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

/// What one owner has in a file system. `None`: nothing is written down.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OwnerUse {
    /// The owner's number, or what the dictionary has instead (an identity of Windows: `S-1-5-…-1000`).
    pub owner: String,
    /// Bytes.
    pub used: Option<u64>,
    /// Most bytes.
    pub quota: Option<u64>,
    /// Files.
    pub objects: Option<u64>,
    /// Most files.
    pub object_quota: Option<u64>,
}

/// `zfs wait -t deleteq`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteQueue {
    /// The file system.
    pub name: String,
}

/// A verb on a device of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDevice {
    /// The pool.
    pub name: String,
    /// What is to be done. Devices of the pool are called by path, last name or guid.
    pub verb: DeviceVerb,
}

/// What can be done with a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceVerb {
    /// `zpool attach`, `zpool replace`
    Attach(DeviceAttach),
    /// `zpool detach`
    Detach {
        /// The device.
        device: String,
    },
    /// `zpool offline`
    Offline {
        /// The device.
        device: String,
        /// It counts as broken (`-f`).
        fault: bool,
        /// Until the pool is exported (`-t`).
        temporary: bool,
    },
    /// `zpool online`; the answer says how it is.
    Online {
        /// The device.
        device: String,
        /// Use all of it, if it is larger than it was (`-e`).
        expand: bool,
    },
    /// `zpool reopen`
    Reopen,
    /// `zpool split`: the new pool is left exported.
    Split(PoolSplit),
    /// `zpool initialize`, `zpool trim`; the answer says of which devices it was refused.
    LeafWork(LeafWork),
    /// `zpool set`, of a vdev
    SetProperty {
        /// Its guid.
        guid: u64,
        /// The property.
        setting: Setting,
    },
    /// `zpool checkpoint`, of the whole pool
    Checkpoint {
        /// Give it up (`-d`).
        discard: bool,
    },
}

/// Work on the free space of devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafWork {
    /// The devices; none: all of the pool.
    pub devices: Vec<String>,
    /// What is done.
    pub kind: LeafWorkKind,
    /// What is to be done about it.
    pub command: LeafWorkCommand,
}

/// What is done with free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeafWorkKind {
    /// It is written.
    Initialize,
    /// The device is told that it is not needed.
    Trim,
}

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeafWorkCommand {
    /// It begins, or goes on.
    Start {
        /// Bytes in a second, at the most; 0: no matter.
        rate: u64,
    },
    /// It is given up (`-c`).
    Cancel,
    /// It stands still (`-s`).
    Suspend,
    /// That it was ever done is forgotten (`-u`).
    Forget,
}

impl DeviceVerb {
    /// The device of the pool that it is about, if it is one.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        match self {
            DeviceVerb::Attach(attach) => Some(&attach.device),
            DeviceVerb::Detach { device } | DeviceVerb::Offline { device, .. } | DeviceVerb::Online { device, .. } => Some(device),
            DeviceVerb::Reopen | DeviceVerb::Split(_) | DeviceVerb::LeafWork(_) | DeviceVerb::Checkpoint { .. } | DeviceVerb::SetProperty { .. } => None,
        }
    }
}

/// `zpool split`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSplit {
    /// The name of the new pool.
    pub new_name: String,
    /// The guids of its devices: one side of each mirror.
    pub devices: Vec<u64>,
    /// Its properties.
    pub properties: Vec<Setting>,
}

/// `zpool attach`, `zpool replace`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAttach {
    /// The device that is there.
    pub device: String,
    /// The path of the new one.
    pub new: PathBuf,
    /// The new one takes the place of the other.
    pub replace: bool,
    /// Use it although it looks used (`-f`).
    pub force: bool,
    /// Copy one end to the other, without looking at checksums (`-s`).
    pub sequential: bool,
    /// log2 of the sectors; `None`: what the pool's property says, or the device.
    pub ashift: Option<u32>,
}
