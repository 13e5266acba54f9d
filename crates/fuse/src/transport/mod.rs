//! How requests reach the server's threads: over `/dev/fuse`, or through io_uring queues.

pub(crate) mod buffer;
pub(crate) mod courtesy;
pub(crate) mod crew;
pub mod devfuse;
pub(crate) mod entry;
pub(crate) mod heat;
pub(crate) mod listener;
pub(crate) mod porter;
pub mod uring;
