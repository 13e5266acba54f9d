//! Lines of versions: clones, promotion, rollback.

use serde::{Deserialize, Serialize};

use super::property::Setting;

/// `zfs clone`. Does not mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetClone {
    /// `pool/a@b`
    pub snapshot: String,
    /// The new dataset.
    pub name: String,
    /// Properties to set.
    pub properties: Vec<Setting>,
    /// Make the ancestors that are missing (`-p`).
    pub parents: bool,
}

/// `zfs promote`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetPromote {
    /// The clone.
    pub name: String,
}

/// `zfs rollback`, when nothing is newer than the snapshot. What is mounted stays mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetRollback {
    /// `pool/a@b`
    pub snapshot: String,
    /// Do nothing: could it be done, if nothing were newer?
    #[serde(default)]
    pub dry_run: bool,
}
