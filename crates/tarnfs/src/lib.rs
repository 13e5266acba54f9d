//! The library: pools, datasets, files.

pub mod control;
pub mod zpl;

pub use engine::error::{Error, ErrorKind};
pub use zpl::{
    AccessTime, Credentials, DirectoryEntry, FileKind, FileSystem, InodeNumber, MountOptions, RenameMode, Seek, SetAttributes, SetTime, Space, Stat, Time, WriteMode, XattrMode,
};
