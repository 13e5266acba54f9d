//! The blocks that were needed since the pool was opened, and of which no copy was right: `zpool status -v` names their files.
//!
//! They are not written to the pool's own log of damaged blocks; an import of the pool finds them when they are read again.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::Bookmark;

/// More are counted (`BlockCounters::lost_blocks`), not remembered.
const LOST_MAX: usize = 10_000;

/// Blocks of which no copy was right, each with its physical birth: what was written over since is another block.
#[derive(Debug, Default)]
pub struct LostBlocks {
    /// guarded by its lock, which is a leaf
    blocks: Mutex<BTreeSet<(Bookmark, u64)>>,
}

impl LostBlocks {
    pub(super) fn note(&self, at: &Bookmark, birth: u64) {
        let mut blocks = self.blocks.lock();
        if blocks.len() < LOST_MAX {
            blocks.insert((*at, birth));
        }
    }

    /// One of them is right again.
    pub(super) fn corrected(&self, at: &Bookmark) {
        self.blocks.lock().retain(|(other, _)| other != at);
    }

    /// Forgets them: what is still wrong is found again.
    pub fn forget(&self) {
        self.blocks.lock().clear();
    }

    /// All of them.
    pub fn all(&self) -> Vec<(Bookmark, u64)> {
        self.blocks.lock().iter().copied().collect()
    }
}
