//! Holds of snapshots, and delegated permissions.

use serde::{Deserialize, Serialize};

/// `zfs holds`, of one snapshot
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHolds {
    /// The snapshot.
    pub name: String,
}

/// Something that keeps a snapshot from being destroyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// What it was called.
    pub tag: String,
    /// Since when, in seconds since 1970.
    pub since: u64,
}

/// `zfs allow`, looking
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetGrants {
    /// The dataset. What its ancestors grant concerns it too.
    pub name: String,
}

/// To whom, or under which name, something is granted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Grantee {
    /// A set of that name, which begins with `@`.
    Set(String),
    /// The creator of a dataset, on that.
    Creator,
    /// A user, by number.
    User(u64),
    /// A group, by number.
    Group(u64),
    /// All.
    Everyone,
}

/// Where what is granted is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reach {
    /// On this dataset.
    Local,
    /// On those below it.
    Descendent,
    /// It is not said: of sets, and of creators.
    Unsaid,
}

/// What a dataset grants to somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The dataset that says so.
    pub dataset: String,
    /// To whom.
    pub to: Grantee,
    /// Where.
    pub reach: Reach,
    /// What: permissions, and sets of them.
    pub permissions: Vec<String>,
}

/// `zfs allow` and `zfs unallow`, of one dataset
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetAllow {
    /// A file system or volume.
    pub name: String,
    /// Take it away.
    pub taken: bool,
    /// What to grant or to take.
    pub changes: Vec<GrantEdit>,
}

/// What is granted to somebody, or taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantEdit {
    /// To whom.
    pub to: Grantee,
    /// Where.
    pub reach: Reach,
    /// Permissions, and sets of them. To be taken away: none means all.
    pub permissions: Vec<String>,
}
