//! `zpool`: pools.

pub(crate) mod cachefile;
mod create;
mod destroy;
mod device_contents;
mod devices;
mod events;
mod export;
mod found;
mod get;
mod history;
mod import;
mod iostat;
mod iostat_requests;
mod labelclear;
mod list;
mod pools;
mod reason;
mod removal;
mod scan;
mod set;
mod status;
mod status_json;
mod sync;
mod upgrade;
mod upkeep;
mod usage;
mod vdev_name;
mod vdev_spec;

pub(crate) use usage::PROGRAM;
