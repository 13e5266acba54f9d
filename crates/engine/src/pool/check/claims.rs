//! Which space is claimed by blocks.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use ondisk::blkptr::BlkPtr;
use ondisk::dva::Dva;

use super::{CheckReport, Finding};
use crate::alloc::RangeTree;
use crate::pool::shared_blocks::References;
use crate::zio::Bookmark;

/// The claims on each top-level vdev.
#[derive(Debug, Default)]
pub struct Claims {
    by_vdev: BTreeMap<u32, RangeTree>,
    /// Blocks that may be referred to more than once (dedup, clones), by vdev and offset.
    shared: BTreeMap<u32, HashMap<u64, Shared>>,
    /// The pool clones blocks: two references to exactly one block are no mistake.
    pub clones: bool,
}

/// A block that may be referred to more than once.
#[derive(Debug)]
struct Shared {
    /// What all references to it agree in.
    identity: Identity,
    /// How many there are.
    references: u32,
}

/// What tells a block from another one at the same address, in as few bytes as will do: there may be one for each block of a pool.
#[derive(Debug, Clone, Copy)]
struct Identity {
    /// Of the physical birth and the sizes.
    shape: u32,
    /// Of the checksum; 0: it is not known, as pointers on lists do not have it.
    checksum: u32,
}

impl Identity {
    fn of(bp: &BlkPtr) -> Identity {
        // A dedup table that adds copies to a block gives it a new birth; its references keep the one that they have.
        let birth = if bp.is_dedup() { 0 } else { bp.physical_birth() };
        let checksum = bp.checksum_words();
        Identity {
            shape: mixed(&[birth, bp.logical_size(), bp.physical_size()]),
            checksum: if checksum == [0; 4] { 0 } else { mixed(&checksum).max(1) },
        }
    }

    /// Whether the other one is of the same block, as far as is known.
    fn agrees(&mut self, other: Identity) -> bool {
        if self.checksum == 0 {
            self.checksum = other.checksum;
        }
        self.shape == other.shape && (other.checksum == 0 || self.checksum == other.checksum)
    }
}

/// One number of several, all bits of which count.
fn mixed(words: &[u64]) -> u32 {
    let sum = words.iter().fold(0_u64, |sum, word| {
        let product = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ (product >> 32)
    });
    sum as u32
}

impl Claims {
    /// Claims the space of a block; `false` if it was claimed before, by dedup, by cloning, or by mistake: what is below it has
    /// been walked then, and pointers that meet again at each of several levels would make the walk exponential.
    pub fn claim(&mut self, bp: &BlkPtr, spaces: &[Dva], at: &Bookmark, report: &mut CheckReport) -> bool {
        // Metadata and logs are neither deduplicated nor cloned.
        let may_share = (bp.is_dedup() || self.clones) && !bp.is_metadata();
        if may_share && let Some(first) = bp.first_dva() {
            match self.shared.entry(first.vdev).or_default().entry(first.offset) {
                Entry::Vacant(place) => {
                    place.insert(Shared { identity: Identity::of(bp), references: 1 });
                }
                Entry::Occupied(known) => {
                    let known = known.into_mut();
                    known.references = known.references.saturating_add(1);
                    if !known.identity.agrees(Identity::of(bp)) {
                        report.find(Finding::DoubleAllocation { vdev: first.vdev, offset: first.offset, length: first.allocated, block: at.to_string() });
                    }
                    return false;
                }
            }
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

    /// Compares how often blocks were claimed with what the tables that count references say. Where they count fewer, the space will be freed while
    /// something is there. `is_complete`: everything was walked, so that claims which are missing say something, too.
    pub(super) fn compare_references(&self, mut recorded: References, is_complete: bool, report: &mut CheckReport) {
        let mut wrong = Vec::new();
        for (&vdev, blocks) in &self.shared {
            for (&offset, block) in blocks {
                let (recorded, found) = (recorded.remove(&(vdev, offset)).unwrap_or(1), u64::from(block.references));
                if found != recorded {
                    wrong.push((vdev, offset, recorded, found));
                }
            }
        }
        // A newer dedup table keeps a block without references until it is moved out of the log.
        let unclaimed = recorded.into_iter().filter(|(_, references)| *references > 0);
        wrong.extend(unclaimed.map(|((vdev, offset), references)| (vdev, offset, references, 0)));
        wrong.sort_unstable();
        for (vdev, offset, recorded, found) in wrong {
            if is_complete || found > recorded {
                report.find(Finding::Accounting { what: format!("pointers to the block at vdev {vdev}, offset {offset:#x}"), recorded, found });
            }
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
    use ondisk::blkptr::DataPointer;
    use ondisk::object_type::ObjectType;

    use super::*;

    /// A pointer to a block of a file, which is always at the same address, with something changed.
    fn block(change: impl FnOnce(&mut DataPointer)) -> BlkPtr {
        let mut pointer = DataPointer::new(&[Dva::new(0, 0x1000, 0x1000)], ObjectType::PLAIN_FILE_CONTENTS, 0, 10);
        pointer.physical_size = 0x1000;
        pointer.checksum = [1, 2, 3, 4];
        change(&mut pointer);
        pointer.encode()
    }

    /// Whether two pointers are taken for references to one block.
    fn may_meet(clones: bool, one: &BlkPtr, other: &BlkPtr) -> bool {
        let (mut report, mut claims) = (CheckReport::default(), Claims { clones, ..Claims::default() });
        let space = [Dva::new(0, 0x1000, 0x1000)];
        assert!(claims.claim(one, &space, &Bookmark::default(), &mut report));
        assert!(report.is_clean());
        assert!(!claims.claim(other, &space, &Bookmark::default(), &mut report));
        report.is_clean()
    }

    /// Since anything had been cloned in a pool, every block of data that was used twice was taken for a clone.
    #[test]
    fn only_references_to_one_block_may_meet() {
        let plain = block(|_| ());
        assert!(may_meet(true, &plain, &plain));
        assert!(may_meet(true, &plain, &plain.reborn(20)));
        assert!(!may_meet(false, &plain, &plain));
        let listed = block(|pointer| pointer.checksum = [0; 4]);
        assert!(may_meet(true, &plain, &listed));
        assert!(may_meet(true, &listed, &plain));
        let others = [
            block(|pointer| (pointer.logical_birth, pointer.physical_birth) = (11, 11)),
            block(|pointer| pointer.physical_birth = 9),
            block(|pointer| pointer.checksum = [1, 2, 3, 5]),
            block(|pointer| pointer.logical_size = 0x2000),
            block(|pointer| pointer.physical_size = 0x800),
            block(|pointer| pointer.dedup = true),
        ];
        for other in others {
            assert!(!may_meet(true, &plain, &other), "{other:?}");
        }
    }

    /// What is said of a block to which `found` pointers lead where the tables say `recorded`; `None`: it is in none.
    fn counted(found: u32, recorded: Option<u64>, is_complete: bool) -> Option<(u64, u64)> {
        let (mut report, mut claims) = (CheckReport::default(), Claims { clones: true, ..Claims::default() });
        for _ in 0..found {
            claims.claim(&block(|_| ()), &[Dva::new(0, 0x1000, 0x1000)], &Bookmark::default(), &mut report);
        }
        assert!(report.is_clean());
        let recorded = recorded.map(|references| ((0, 0x1000), references)).into_iter().collect();
        claims.compare_references(recorded, is_complete, &mut report);
        match report.findings.as_slice() {
            [] => None,
            [Finding::Accounting { recorded, found, .. }] => Some((*recorded, *found)),
            other => panic!("{other:?}"),
        }
    }

    /// Any two pointers to one block were fine, whatever the tables said: the next free would have given away what the other pointer led to.
    #[test]
    fn as_many_pointers_meet_as_are_counted() {
        for (found, recorded) in [(1, None), (1, Some(1)), (3, Some(3)), (0, Some(0)), (0, None)] {
            assert_eq!(counted(found, recorded, true), None, "{found}, {recorded:?}");
        }
        assert_eq!(counted(2, None, true), Some((1, 2)));
        assert_eq!(counted(3, Some(2), true), Some((2, 3)));
        assert_eq!(counted(2, Some(3), true), Some((3, 2)));
        assert_eq!(counted(0, Some(2), true), Some((2, 0)));
        assert_eq!(counted(3, Some(2), false), Some((2, 3)));
        assert_eq!(counted(2, Some(3), false), None, "the third may be where nothing could be read");
    }

    #[test]
    fn metadata_and_logs_have_one_reference() {
        for (object_type, level) in [(ObjectType::PLAIN_FILE_CONTENTS, 1), (ObjectType::DNODE, 0), (ObjectType::SA, 0), (ObjectType::INTENT_LOG, 0)] {
            let metadata = block(|pointer| (pointer.object_type, pointer.level) = (object_type, level));
            assert!(!may_meet(true, &metadata, &metadata), "{object_type}, level {level}");
        }
    }

    #[test]
    fn deduplicated_blocks_are_told_by_their_contents() {
        let one = block(|pointer| pointer.dedup = true);
        let later = block(|pointer| (pointer.dedup, pointer.logical_birth, pointer.physical_birth) = (true, 30, 20));
        assert!(may_meet(false, &one, &later));
        let other = block(|pointer| (pointer.dedup, pointer.checksum) = (true, [1, 2, 3, 5]));
        assert!(!may_meet(false, &one, &other));
    }

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
