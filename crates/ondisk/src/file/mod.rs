//! Attributes of files.

pub mod acl;
pub mod sa;
pub mod znode;
