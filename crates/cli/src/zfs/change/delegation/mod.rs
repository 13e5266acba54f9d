//! Who may do what.

pub(in crate::zfs) mod allow;
mod help;
