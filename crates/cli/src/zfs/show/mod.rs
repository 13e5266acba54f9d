//! The verbs of `zfs` that only show.

pub(super) mod allow;
pub(super) mod diff;
pub(super) mod get;
pub(super) mod holds;
pub(super) mod list;
pub(super) mod owner_space;
pub(super) mod wait;
