//! Scans: every block is read, and what is wrong or missing is written again.

use std::sync::Arc;

use super::sync::writer::GroupWriter;

/// Devices have something to catch up with: a resilver begins, or begins anew, in the next group.
#[allow(dead_code)] // until devices come and go
pub(in crate::pool) fn want_resilver(writer: &Arc<GroupWriter>) {
    let _ = writer;
}
