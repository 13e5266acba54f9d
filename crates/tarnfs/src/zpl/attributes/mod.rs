//! Attributes: where they are stored, what they say, how they are changed.

pub(super) mod acl;
pub(super) mod posix_acl;
pub(super) mod quota;
pub(super) mod sa_tables;
pub(super) mod setattr;
pub(super) mod stat;
pub(super) mod values;
pub(super) mod xattr;
pub(super) mod xattr_directory;
