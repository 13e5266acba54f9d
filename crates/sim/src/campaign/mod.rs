//! Damage campaigns: disks that fail, lie and forget, under a pool that is written, scrubbed, resilvered and rebuilt at the same time.
//!
//! # Theory
//! A [`Round`] is a pool of a random layout on disks in memory ([`Device`]), and files whose contents are known ([`Files`]). Each step writes,
//! reads, or does harm: sectors are changed, cannot be read, or read with a bit turned; writes are torn or go elsewhere; devices fall out and
//! come back with what they had; the power goes; devices are replaced, attached, detached, split off. At no time more devices of a top-level vdev are
//! *suspect* (may give what is wrong, or nothing) than it has redundancy: then every read must give what was written, and after a
//! scrub nothing may be left to repair.
//!
//! # Path
//! `Round::new` → `Round::run` → the court: `Round::judge`; beyond the redundancy: `Round::judge_beyond`.

mod device;
mod files;
mod harm;
mod judge;
mod members;
mod round;

pub use device::Device;
pub use files::Files;
pub use round::{Round, Tally};
