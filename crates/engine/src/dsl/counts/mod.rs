//! How many file systems and snapshots a tree has, and may have.
//!
//! # Path
//! What makes, moves and destroys file systems and snapshots counts them here, after it has asked whether there may be more.

mod counts_sync;
mod limits;

pub(in crate::dsl) use counts_sync::{adjust_count, begin_counts, counts_of, move_counts, note_snapshots_changed};
pub(in crate::dsl) use limits::{Limited, check_limits, common_ancestor};
