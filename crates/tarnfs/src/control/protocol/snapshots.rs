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
