//! `zfs`: datasets.

pub(crate) mod change;
pub(crate) mod datasets;
mod send;
mod show;
mod usage;

pub(crate) use change::mount::{mount_after, mount_pool, mount_root};
pub(crate) use usage::PROGRAM;
