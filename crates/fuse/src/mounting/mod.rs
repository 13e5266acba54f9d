//! Making mounts, ending them, and finding where they are.

pub(crate) mod backing;
pub mod errand;
pub mod mount;
pub mod mount_table;
pub(crate) mod partition;
pub(crate) mod standing;
pub(crate) mod users;
pub mod witness;
