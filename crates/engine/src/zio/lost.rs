//! The blocks of which no copy was right when they were needed or scanned, until the pool's own log of damaged blocks has them.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::Bookmark;

/// More are counted (`BlockCounters::lost_blocks`), not remembered.
const LOST_MAX: usize = 10_000;

/// Blocks of which no copy was right, each with its physical birth: what was written over since is another block.
#[derive(Debug, Default)]
pub struct LostBlocks {
    /// guarded by its lock, which is a leaf: lost, and not in the log yet
    blocks: Mutex<BTreeSet<(Bookmark, u64)>>,
    /// guarded by its lock, which is a leaf: right again, and perhaps in the log
    corrected: Mutex<BTreeSet<(Bookmark, u64)>>,
}

impl LostBlocks {
    pub(super) fn note(&self, at: &Bookmark, birth: u64) {
        let mut blocks = self.blocks.lock();
        if blocks.len() < LOST_MAX {
            blocks.insert((*at, birth));
        }
    }

    /// One of them is right again.
    pub fn corrected(&self, at: &Bookmark, birth: u64) {
        self.blocks.lock().retain(|(other, _)| other != at);
        let mut corrected = self.corrected.lock();
        if corrected.len() < LOST_MAX {
            corrected.insert((*at, birth));
        }
    }

    /// Those that the log does not have yet.
    pub fn all(&self) -> Vec<(Bookmark, u64)> {
        self.blocks.lock().iter().copied().collect()
    }

    /// Has [`LostBlocks::take`] something?
    pub fn has_any(&self) -> bool {
        !self.blocks.lock().is_empty() || !self.corrected.lock().is_empty()
    }

    /// What the log is to have, and what it is not to have any more.
    pub fn take(&self) -> (BTreeSet<(Bookmark, u64)>, BTreeSet<(Bookmark, u64)>) {
        (std::mem::take(&mut *self.blocks.lock()), std::mem::take(&mut *self.corrected.lock()))
    }

    /// What was taken could not be written down.
    pub fn put_back(&self, lost: BTreeSet<(Bookmark, u64)>, corrected: BTreeSet<(Bookmark, u64)>) {
        self.blocks.lock().extend(lost);
        self.corrected.lock().extend(corrected);
    }
}
