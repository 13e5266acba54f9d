//! `zfs`: datasets.

mod allow;
mod create;
pub(crate) mod datasets;
mod destroy;
mod get;
mod holds;
mod inherit;
mod list;
pub(crate) mod mount;
mod owner_space;
mod rename;
mod set;
mod unmount;
mod upgrade;
mod usage;

pub(crate) use mount::{mount_after, mount_pool, mount_root};
pub(crate) use usage::PROGRAM;
