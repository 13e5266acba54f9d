//! The real program as root: pools, mounts and all. What needs root and `/dev/fuse` says so where they are missing.
#![allow(clippy::disallowed_methods)] // real processes, files and clocks are what is tested

mod files;
mod admin;
mod always;
mod contact;
mod devices;
mod directories;
mod kill;
mod laboratory;
mod memory;
mod mounted;
mod posix;
mod rig;
mod transaction;
mod upgrades;
mod vanished;
