//! Whether a large durable write costs less in the log or with its transaction group.
//!
//! # Theory
//! Up to [`log_bytes_max`](crate::tunables::Tunables::log_bytes_max) the log is always quicker than a group. Beyond it,
//! the amount that is written before the answer decides: in the log the bytes themselves; with the group, once and for
//! all, every block that one of them is in. A file written from one end to the other has both the same, and the group
//! is the better way. Writes of 8 KiB here and there in records of 128 KiB cost sixteen times as much with the group.

use std::ops::Range;

use crate::zil::Zil;
use crate::zil::commit::fill::LogSource;
use crate::dmu::ObjectId;

/// The log must be so many times less than the blocks.
const WORTH: u64 = 2;

impl Zil {
    /// Is a commit of `object` (`None`: of all files) quicker if it waits for the group?
    pub(in crate::zil) fn is_cheaper_in_place(&self, object: Option<ObjectId>, source: &dyn LogSource) -> bool {
        let synced = self.context.groups.synced_txg();
        let bytes = self.itxs.pending_bytes(object, synced);
        if bytes <= self.context.tunables.log_bytes_max {
            return false;
        }
        let Some(block) = object.and_then(|object| source.block_bytes(object)).filter(|block| *block > 0) else { return true };
        bytes.saturating_mul(WORTH) > touched(self.itxs.pending_spans(object, synced), block)
    }
}

/// How many bytes the blocks have, of `block` bytes each, that are touched.
fn touched(mut spans: Vec<Range<u64>>, block: u64) -> u64 {
    spans.sort_unstable_by_key(|span| span.start);
    let (mut blocks, mut end) = (0, 0);
    for span in spans {
        let first = (span.start / block).max(end);
        let after = span.end.div_ceil(block);
        blocks += after.saturating_sub(first);
        end = end.max(after);
    }
    blocks.saturating_mul(block)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // one range is what is expected
mod tests {
    use super::*;

    #[test]
    fn a_block_counts_once() {
        assert_eq!(touched(vec![], 100), 0);
        assert_eq!(touched(vec![5..6, 0..1, 250..251], 100), 200);
        assert_eq!(touched(vec![0..101, 100..200, 150..199, 199..201], 100), 300);
        assert_eq!(touched(vec![0..100], 100), 100);
    }
}
