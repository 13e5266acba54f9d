//! Contents of files.

pub(super) mod clone;
pub(super) mod file;
