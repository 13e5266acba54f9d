//! What the checker found.

use super::SameBlocks;
use std::collections::BTreeMap;
use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Allocated, and nothing refers to it.
    Leak {
        /// Top-level vdev.
        vdev: u32,
        /// Bytes from its start.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Two blocks claim the same space.
    DoubleAllocation {
        /// Top-level vdev.
        vdev: u32,
        /// Bytes from its start.
        offset: u64,
        /// Bytes.
        length: u64,
        /// The second one that claims it.
        block: String,
    },
    /// A block is where the space maps say that nothing is.
    NotAllocated {
        /// Top-level vdev.
        vdev: u32,
        /// Bytes from its start.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// A block cannot be read, or has another checksum, or makes no sense.
    Unreadable {
        /// Which block.
        block: String,
        /// Why.
        reason: String,
    },
    /// A block can be read, but one of its copies is wrong.
    WrongCopy {
        /// Which block.
        block: String,
        /// The device, and where on its vdev.
        place: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A number that is kept does not fit what is there.
    Accounting {
        /// Whose.
        what: String,
        /// The number on disk.
        recorded: u64,
        /// The number that the walk gave.
        found: u64,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Leak { vdev, offset, length } => write!(f, "leaked space: vdev {vdev}, offset {offset:#x}, size {length}"),
            Finding::DoubleAllocation { vdev, offset, length, block } => {
                write!(f, "double allocation: vdev {vdev}, offset {offset:#x}, size {length}, by {block}")
            }
            Finding::NotAllocated { vdev, offset, length } => {
                write!(f, "in use but marked free: vdev {vdev}, offset {offset:#x}, size {length}")
            }
            Finding::Unreadable { block, reason } => write!(f, "{block}: {reason}"),
            Finding::WrongCopy { block, place, reason } => write!(f, "{block}: one copy is wrong: {place}: {reason}"),
            Finding::Accounting { what, recorded, found } => write!(f, "{what}: recorded {recorded}, found {found}"),
        }
    }
}

/// Totals of one object type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TypeTotals {
    /// Blocks.
    pub blocks: u64,
    /// Bytes before compression.
    pub logical: u64,
    /// Bytes after compression.
    pub physical: u64,
    /// Bytes on disk, all copies.
    pub allocated: u64,
}

/// What the checker found, and how much it looked at.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// What is wrong; empty for a healthy pool. At most [`CheckReport::FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// How many more findings there were.
    pub findings_left_out: u64,
    /// By object type (name as zdb prints it) and level.
    pub totals: BTreeMap<(String, u8), TypeTotals>,
    /// The data blocks by what is in them, if that was asked for.
    pub same_blocks: SameBlocks,
    /// Blocks walked.
    pub blocks: u64,
    /// Blocks whose contents were read and verified.
    pub verified: u64,
    /// Datasets and snapshots walked.
    pub datasets: u64,
    /// Bytes claimed by blocks.
    pub claimed_bytes: u64,
    /// Bytes that the space maps call allocated.
    pub allocated_bytes: u64,
}

impl CheckReport {
    /// Most findings that are kept.
    pub const FINDINGS_MAX: usize = 1000;

    /// Nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Adds a finding.
    pub fn find(&mut self, finding: Finding) {
        if self.findings.len() < Self::FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.findings_left_out += 1;
        }
    }
}
