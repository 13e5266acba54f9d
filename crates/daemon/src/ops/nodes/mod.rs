//! Nodes: of the dataset, of its snapshots, and of `.zfs`.

pub(crate) mod control_directory;
pub(crate) mod node;
pub(crate) mod slots;
