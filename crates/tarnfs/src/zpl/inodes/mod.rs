//! Files in memory, and who is at work with them.

pub(super) mod gate;
pub(super) mod inode;
pub(super) mod inode_table;
pub(super) mod users;
