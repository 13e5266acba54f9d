//! `zfs receive` as requests.

use serde::{Deserialize, Serialize};

use super::property::Setting;

/// `zfs receive` of one stream of one snapshot. The command has read the stream's first record, and what is behind it comes through the descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamReceive {
    /// The file system or volume.
    pub dataset: String,
    /// The name of the snapshot, without the `@`.
    pub snapshot: String,
    /// The snapshot that a new dataset is a clone of.
    #[serde(default)]
    pub origin: Option<String>,
    /// The stream's first record, as it is.
    pub begin: Vec<u8>,
    /// `-F`
    #[serde(default)]
    pub force: bool,
    /// `-s`
    #[serde(default)]
    pub resumable: bool,
    /// Properties that came with the stream.
    #[serde(default)]
    pub received: Vec<Setting>,
    /// `-o`
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// `-x`
    #[serde(default)]
    pub inherited: Vec<String>,
}

/// `zfs receive -A`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReceiveAbort {
    /// The file system or volume.
    pub dataset: String,
}
