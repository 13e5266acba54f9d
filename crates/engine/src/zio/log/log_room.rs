//! How much the intent log may take before its groups are on disk.
//!
//! # Theory
//! Space that the log has taken comes free with its groups: a block of the log when the records in it are on disk, a block that was written early when it was
//! changed again. Until then who syncs the same few bytes again and again takes more and more, and nobody was ever asked for that room. But a group must
//! find a place for everything that was accepted: so the log leaves twice as much as that with its parity (there is metadata around it, in several copies), and half of what the pool
//! keeps back. A commit that finds that there is no more waits for the group; long before that it is asked for.
//!
//! A device for the log alone may be full.

use crate::zio::BlockIo;
use crate::alloc::{ClassKind, slop_bytes};

/// What is left for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRoom {
    /// As much as it wants.
    Enough,
    /// The groups ought to be written.
    Little,
    /// Nothing: groups need it.
    None,
}

impl BlockIo {
    /// What is left for the log where it takes `bytes` more, and so much is `accepted` that is still to be written.
    pub fn log_room(&self, bytes: u64, accepted: u64) -> LogRoom {
        let allocator = self.allocator();
        let normal = allocator.open_space(ClassKind::Normal);
        let left_alone = slop_bytes(normal.space, allocator.embedded_log_bytes()) / 2 + allocator.with_parity(accepted).saturating_mul(2);
        let left = normal.free().saturating_sub(allocator.taken(ClassKind::Normal));
        match left.checked_sub(left_alone.saturating_add(bytes)) {
            None => LogRoom::None,
            Some(left) if left < normal.free().saturating_sub(left_alone) / 2 => LogRoom::Little,
            Some(_) => LogRoom::Enough,
        }
    }
}
