//! The real program as root: pools, mounts and all. What needs root and `/dev/fuse` says so where they are missing.
#![allow(clippy::disallowed_methods)] // real processes, files and clocks are what is tested

mod files;
mod admin;
mod always;
mod as_openzfs;
mod branch;
mod callers;
mod contact;
mod devices;
mod directories;
mod dirty_holes;
mod durable;
mod foreign_mounts;
mod kill;
mod killed_verbs;
mod laboratory;
mod many_mounts;
mod memory;
mod mounted;
mod past;
mod places;
mod pool_verbs;
mod posix;
mod receive;
mod rig;
mod send;
mod snapshot_mounts;
mod snapshots;
mod storm;
mod stream;
mod transaction;
mod two_users;
mod upgrades;
mod verbs;
mod vanished;
mod zdb;
