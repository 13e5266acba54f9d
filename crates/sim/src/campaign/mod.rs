//! Damage campaigns: disks that fail, lie and forget, under a pool that is written, scrubbed, resilvered and rebuilt at the same time.
//!
//! # Theory
//! A [`Round`] is a pool of a random layout on disks in memory ([`Device`]), and files whose contents are known ([`Files`]). Each step writes,
//! reads, or does harm: sectors are changed, cannot be read, or read with a bit turned; writes are torn or go elsewhere; devices fall out and
//! come back with what they had, or hang for a while; the power goes; devices are replaced, attached, detached, split off, by resilvers and by rebuilds; distributed spares stand in for
//! them; RAID-Z becomes wider, mirrors come and are removed, checkpoints are taken, given up and gone back to. In half of the rounds all that does a little in each group only, and
//! the rest of the harm comes in its middle. At no time more devices of a top-level vdev are
//! *suspect* (may give what is wrong, or nothing) than it has redundancy: then every read must give what was written, and after a
//! scrub nothing may be left to repair.
//!
//! What copies without looking at checksums carries what is wrong on: a rebuild to the new device, an expansion to all. That counts, too.
//!
//! # Path
//! `Round::new` → `Round::run` → the court: `Round::judge`; beyond the redundancy: `Round::judge_beyond`.

mod checkpoints;
mod device;
mod files;
mod harm;
mod judge;
mod members;
mod reshape;
mod round;
mod shape;
mod spares;

pub use device::Device;
pub use files::Files;
pub use round::{Round, Tally};
