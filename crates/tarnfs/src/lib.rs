//! The library: pools, datasets, files.

pub mod control;
mod open_file_systems;
pub mod past;
mod pool;
mod rewind;
mod rolling_back;
pub mod zpl;

pub use pool::{CreateOptions, ImportOptions, Pool, VdevPaths, find_pools};
pub use rewind::{Rewind, Rewound};
pub use rolling_back::RollingBack;
pub use engine::dmu::Direct;
pub use engine::dsl::{PropertyChange, PropertyValue};
pub use engine::error::{Error, ErrorKind};
pub use engine::host::set_cpu_claim;
pub use engine::vdev::Bias;
pub use engine::tunables::{MemoryPressure, Parameter, Parameters, Tunables};
pub use zpl::{
    AccessTime, AclKind, AclRules, AclType, Changed, CloneRange, Credentials, DirectoryEntry, FileKind, FileSystem, InodeNumber, KnownName, MountOptions, MountUse, OwnerKind, QuotaOf, RenameMode, Seek, Told,
    Durability, Listed, NodeId, ReadManner, SetAttributes, SetTime, Space, Stat, Time, Transaction, WriteManner, WriteMarks, WriteMode, XattrMode,
};
