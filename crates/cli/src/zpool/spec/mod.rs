//! What a command is about: pools by name, vdevs as they are given, found and called.

pub(crate) mod cachefile;
pub(super) mod device_contents;
pub(super) mod draid_spec;
pub(crate) mod pools;
mod replication;
pub(super) mod vdev_name;
pub(super) mod vdev_spec;
