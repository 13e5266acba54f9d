//! Snapshots, and what begins with one.

pub(in crate::zfs) mod clone;
pub(in crate::zfs) mod promote;
pub(in crate::zfs) mod redact;
pub(in crate::zfs) mod rollback;
pub(in crate::zfs) mod snapshot;
