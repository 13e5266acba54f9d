//! Snapshots: verbs on several at once.

use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::property::Setting;

/// `zfs snapshot`: all of them at the same moment, or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotsCreate {
    /// Full names, of one pool.
    pub names: Vec<String>,
    /// Properties of users to set on each of them.
    pub properties: Vec<Setting>,
}

/// `zfs destroy` of snapshots: all of them, or none. Those that are not there are passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotsDestroy {
    /// Full names, of one pool.
    pub names: Vec<String>,
    /// Those that are held or cloned are destroyed later (`-d`).
    pub defer: bool,
}

/// `zfs destroy -nv`: what would come free?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotsSpace {
    /// From one snapshot to another of the same dataset, with all between.
    pub ranges: Vec<(String, String)>,
}

/// `zfs hold` and `zfs release`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotsTag {
    /// Full names, of one pool.
    pub names: Vec<String>,
    /// What the hold is called.
    pub tag: String,
}

/// `zfs bookmark`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookmarksCreate {
    /// Each new bookmark, and the snapshot or bookmark that it is made of; of one pool.
    pub pairs: Vec<(String, String)>,
}

/// `zfs redact`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRedact {
    /// What is to be sent.
    pub snapshot: String,
    /// The bookmark that is made, without the dataset's name.
    pub bookmark: String,
    /// What all of these have changed is not to be sent.
    pub others: Vec<String>,
}

/// Why one of several things that were asked for cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Its name.
    pub name: String,
    /// Why.
    pub failure: Failure,
}

/// What is left to be done of a verb on several things, without the others waiting for it. If anything is refused, nothing was done.
pub type RefusalsJob = Box<dyn FnOnce() -> Result<Vec<Refusal>, Failure> + Send>;
