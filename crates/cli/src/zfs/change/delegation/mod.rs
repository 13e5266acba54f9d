//! Which users may do what.

pub(in crate::zfs) mod allow;
pub(in crate::zfs) mod help;
