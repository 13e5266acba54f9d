//! One object whose changes are in the intent log: what is below the contents of a file and below a volume.
//!
//! # Theory
//! A [`LoggedObject`] is an object, its range lock and what reads of it foresee (`foresight`). It knows how contents are read, written, freed, logged, handed to
//! a commit of the log and done again, and nothing of names, attributes or owners. What its user must say, it asks for: how long the contents are
//! is a number that is handed in, read under the lock of the range; what else has to change in a transaction with the contents (a file's size and
//! times, the record of the log) is a closure that is called inside the transaction.
//!
//! ```text
//!  lock a range -> ask for room, join a group -> change blocks -> `done`: attributes, record -> leave the group
//! ```
//!
//! Users are `tarnfs::zpl` (an inode has one) and [`Volume`].
//!
//! # Locks
//! A range, then membership of a group. Contents are fetched for the log under the range; see [`crate::zil`].
//!
//! # Path
//! called by tarnfs::zpl; calls dmu and zil.

mod foresight;
mod free;
mod object;
mod replay;
mod source;
mod volume;


pub use object::{LoggedObject, NewBytes, WriteLock};
pub use replay::{Cloned, Written, clone_blocks};
pub use volume::{Volume, VolumeReplay, create_volume_objects};

/// Worst case of the metadata that a change of contents writes.
pub const METADATA_BYTES: u64 = 128 << 10;
/// Worst case of the metadata that sharing the blocks of a step or a record writes: indirect blocks, mostly. What is shared takes no room.
pub const CLONE_METADATA_BYTES: u64 = 512 << 10;
