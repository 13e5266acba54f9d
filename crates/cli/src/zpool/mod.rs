//! `zpool`: pools.

mod create;
mod destroy;
mod export;
mod found;
mod get;
mod import;
mod list;
mod pools;
mod reason;
mod scan;
mod set;
mod status;
mod status_json;
mod sync;
mod usage;
mod vdev_name;
mod vdev_spec;

pub(crate) use usage::PROGRAM;
