//! Which space is claimed by blocks.

use std::collections::{BTreeMap, HashSet};

use ondisk::blkptr::BlkPtr;
use ondisk::dva::Dva;

use super::{CheckReport, Finding};
use crate::alloc::RangeTree;
use crate::zio::Bookmark;

/// The claims on each top-level vdev.
#[derive(Debug, Default)]
pub struct Claims {
    by_vdev: BTreeMap<u32, RangeTree>,
    /// Blocks that may be referred to more than once (dedup, clones), by vdev and offset.
    shared: HashSet<(u32, u64)>,
    /// The pool clones blocks: two references to exactly one block are no mistake.
    pub clones: bool,
}

impl Claims {
    /// Claims the space of a block; `false` if it was claimed before, by dedup, by cloning, or by mistake: what is below it has
    /// been walked then, and pointers that meet again at each of several levels would make the walk exponential.
    pub fn claim(&mut self, bp: &BlkPtr, spaces: &[Dva], at: &Bookmark, report: &mut CheckReport) -> bool {
        let may_share = bp.is_dedup() || (self.clones && bp.level() == 0);
        if may_share && let Some(first) = bp.first_dva() && !self.shared.insert((first.vdev, first.offset)) {
            return false;
        }
        let is_new = spaces.first().is_none_or(|dva| !self.is_claimed(dva.vdev, dva.offset, dva.allocated));
        for dva in spaces {
            self.claim_range(dva.vdev, dva.offset, dva.allocated, &format!("{at}"), report);
        }
        is_new
    }

    fn is_claimed(&self, vdev: u32, offset: u64, length: u64) -> bool {
        self.by_vdev.get(&vdev).is_some_and(|tree| tree.overlaps(offset, length))
    }

    /// Claims a range.
    pub fn claim_range(&mut self, vdev: u32, offset: u64, length: u64, who: &str, report: &mut CheckReport) {
        if length == 0 {
            return;
        }
        report.claimed_bytes += length;
        let tree = self.by_vdev.entry(vdev).or_default();
        if tree.overlaps(offset, length) || offset.checked_add(length).is_none() {
            report.find(Finding::DoubleAllocation { vdev, offset, length, block: who.to_owned() });
            tree.remove_present(offset, length);
        }
        if tree.add(offset, length).is_err() {
            report.find(Finding::DoubleAllocation { vdev, offset, length, block: who.to_owned() });
        }
    }

    /// Compares the claims on one vdev with what its space maps say.
    pub fn compare(&mut self, vdev: u32, allocated: &RangeTree, report: &mut CheckReport) {
        let mut claimed = self.by_vdev.remove(&vdev).unwrap_or_default();
        report.allocated_bytes += allocated.bytes();
        for (offset, size) in allocated.segments() {
            let mut at = offset;
            let mut present = claimed.remove_present(offset, size);
            present.sort_unstable();
            for (from, length) in present {
                if from > at {
                    report.find(Finding::Leak { vdev, offset: at, length: from - at });
                }
                at = from + length;
            }
            if at < offset + size {
                report.find(Finding::Leak { vdev, offset: at, length: offset + size - at });
            }
        }
        for (offset, length) in claimed.segments() {
            report.find(Finding::NotAllocated { vdev, offset, length });
        }
    }

    /// Claims on vdevs that were never compared: there are no such vdevs.
    pub fn finish(self, report: &mut CheckReport) {
        for (vdev, tree) in self.by_vdev {
            for (offset, length) in tree.segments() {
                report.find(Finding::NotAllocated { vdev, offset, length });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the fuzzer: a file of six levels whose indirect blocks all point at one block was walked as if it were 2^60 blocks.
    #[test]
    fn a_block_is_walked_once() {
        let (mut report, mut claims) = (CheckReport::default(), Claims::default());
        let (at, dva) = (Bookmark::default(), Dva::new(0, 0x1000, 0x1000));
        assert!(claims.claim(&BlkPtr::ZERO, &[dva], &at, &mut report));
        assert!(report.is_clean());
        assert!(!claims.claim(&BlkPtr::ZERO, &[dva], &at, &mut report));
        assert!(!claims.claim(&BlkPtr::ZERO, &[Dva::new(0, 0x1e00, 0x200)], &at, &mut report));
        assert_eq!(report.findings.len(), 2);
    }

    #[test]
    fn leaks_and_double_allocations_are_found() {
        let mut report = CheckReport::default();
        let mut claims = Claims::default();
        claims.claim_range(0, 0x1000, 0x1000, "a", &mut report);
        claims.claim_range(0, 0x4000, 0x1000, "b", &mut report);
        assert!(report.is_clean());
        let mut allocated = RangeTree::new();
        allocated.add(0x1000, 0x3000).unwrap();
        claims.compare(0, &allocated, &mut report);
        assert_eq!(
            report.findings,
            [
                Finding::Leak { vdev: 0, offset: 0x2000, length: 0x2000 },
                Finding::NotAllocated { vdev: 0, offset: 0x4000, length: 0x1000 }
            ]
        );
        let mut claims = Claims::default();
        let mut report = CheckReport::default();
        claims.claim_range(0, 0x1000, 0x1000, "a", &mut report);
        claims.claim_range(0, 0x1800, 0x1000, "b", &mut report);
        assert!(matches!(report.findings[..], [Finding::DoubleAllocation { offset: 0x1800, .. }]));
    }
}
