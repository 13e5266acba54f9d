//! Names: directories and their entries, and files that have none any more.

pub(super) mod create;
pub(super) mod directory;
pub(super) mod link;
pub(super) mod rename;
pub(super) mod unlinked_set;
