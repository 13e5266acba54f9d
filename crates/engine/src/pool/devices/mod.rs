//! The devices of a pool: adding and removing them, what is known of those that were removed, and what each missed.

pub(in crate::pool) mod add;
pub mod auxiliary;
pub(in crate::pool) mod dirty_time_log;
pub(in crate::pool) mod remove_log;
pub(in crate::pool) mod removed;
pub(in crate::pool) mod vdev_zaps;
