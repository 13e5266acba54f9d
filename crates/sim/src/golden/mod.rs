//! Golden pools: made by the real OpenZFS, with a manifest of everything in them.
//!
//! # Theory
//! A golden pool is the images of its vdevs in an archive, and a [`Manifest`] that the real kernel module was asked
//! for: every dataset, every file, every attribute, a checksum of every content. Whatever can read a pool is a
//! [`GoldenPool`]: the library, or a directory under which the pool is mounted ([`MountedPool`], so that the mount is
//! judged by the same comparison). [`compare`] walks the subject, describes each file in the manifest's own terms and
//! reports every difference; [`describe`] writes such a manifest of our own, for "the same before and after".
//!
//! # Path
//! [`unpack`] → open the images → [`Manifest::read`] → [`compare`] → [`Report`].

mod archive;
mod compare;
mod describe;
mod library;
#[cfg(test)]
mod dsl_tests;
mod manifest;
mod mounted;
pub mod replayed;
mod subject;
#[cfg(test)]
mod tests;

pub use archive::{Golden, elsewhere, unpack};
pub use compare::{Compare, Report, compare};
pub use describe::{describe, describe_file};
pub use library::{findings, open_checkpoint, open_images};
pub use manifest::{BigDirectory, DatasetRecord, FileRecord, FileType, ImageRecord, Manifest, Volume};
pub use mounted::MountedPool;
pub use subject::{Attributes, DatasetEntry, DatasetType, GoldenFiles, GoldenPool, GoldenVolume, Seek};
