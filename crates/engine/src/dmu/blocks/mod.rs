//! What is done with the contents of an object in open context, and the blocks that it leaves behind.

mod clone;
mod direct;
pub(super) mod dirty_block;
pub(super) mod early;
mod free;
pub(super) mod patch;
pub(super) mod raw;
mod read;
mod seek;
mod write;
