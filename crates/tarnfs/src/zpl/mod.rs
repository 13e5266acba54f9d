//! The POSIX layer: files and directories made of objects.
//!
//! # Theory
//! Object 1 of a file system's set is the *master node*, a ZAP that names the root directory, the set of removed files that
//! are still open, the tables of attributes, and what was decided when the file system was made (case, normalisation).
//! A file is an object whose data are its contents and whose bonus is its attributes; a directory is a ZAP from names to
//! object numbers, with the type of each in the upper four bits. The inode number is the object number.
//!
//! A [`FileSystem`] is one mounted dataset. Its methods take inode numbers, as a kernel hands them, and keep count of how often
//! the kernel was told of each ([`FileSystem::forget`] takes that back): a removed file lives until that count is zero.
//!
//! Each room below has a part with private state: [`names`], [`inodes`], [`log`], the quotas in [`attributes`]; [`contents`] has none but sees no more
//! of the file system than [`contents::Contents`] says, and entries of directories no more than [`names::entries::Entries`]. What needs several parts is the
//! file system's own, in the room of its noun, or a function that is given them.
//!
//! # On disk
//! [`ondisk::znode`], [`ondisk::sa`], [`ondisk::acl`].
//!
//! # Invariants
//! 1. A file with no links is in the delete queue until its object is freed.
//! 2. A directory's size is the number of its entries and two; its link count two and the number of its subdirectories.
//! 3. An object is freed only when nobody has a reference to its inode.
//!
//! # Locks
//! In this order: the lock of the tree (renames, directory removal); the names of a directory; the extended attributes of a
//! file; ranges of its contents; then the transaction is joined; then, for moments, attributes of inodes, one at a time; ZAPs.
//! Nothing that is held while a transaction is joined may be waited for inside one.
//!
//! # Path
//! called by the daemon, one call per request of the kernel; calls `engine::{dmu, zap}`.

mod attributes;
mod contents;
mod file_system;
mod inodes;
mod log;
mod names;
mod options;
mod transaction;

pub use contents::clone::CloneRange;
pub use contents::direct::{ReadManner, WriteManner};
pub use names::create::{NewFileSystem, initialize};
pub(crate) use names::upgrade::raise_version;
pub use names::directory::DirectoryEntry;
pub use names::known::KnownName;
pub use contents::file::{Seek, WriteMarks, WriteMode};
pub(crate) use names::CASE_INSENSITIVE;
pub use file_system::{FileSystem, Space};
pub use options::{AccessTime, AclRules, AclType, Credentials, MountOptions};
pub use attributes::xattr::RawXattrs;
pub use attributes::posix_acl::AclKind;
pub use attributes::quota::{OwnerKind, QuotaOf, own_quota_of, space_used_by};
pub use names::paths::{Paths, Place};
pub use names::rename::RenameMode;
pub use log::replay::FileReplay;
pub use log::source::FileSource;
pub use attributes::setattr::{SetAttributes, SetTime};
pub use transaction::{Changed, Durability, Listed, NodeId, Transaction};
pub use attributes::stat::{FileKind, Stat, Time, file_owner};
pub use inodes::inode::Told;
pub use inodes::users::MountUse;
pub use attributes::xattr::XattrMode;

/// An inode number: the object number of the file.
pub type InodeNumber = u64;

#[cfg(test)]
mod tests;
