//! Reading blocks for a scrub or a resilver.
//!
//! # Theory
//! A scrub reads every copy of a block, on every side, with its parity; a resilver reads as much as is needed to write what devices have missed. Both
//! write over what is wrong, and note what they did in a [`ScanTally`]. A block of an intent log may never have been written: of what cannot be read of
//! it nothing is said.
//!
//! # Path
//! Called by the scans of `pool`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::blkptr::DataPointer;
use parking_lot::Mutex;

use super::Intent;
use crate::vdev::LeafId;
use crate::zio::Bookmark;
use crate::zio::block_io::BlockIo;

/// Groups whose blocks could not be repaired are remembered up to so many.
const GROUPS_MAX: usize = 10_000;
/// The level of blocks of an intent log.
const LOG_LEVEL: i8 = -2;

/// What a scan did with blocks.
#[derive(Debug, Default)]
pub struct ScanTally {
    reads_all: bool,
    repaired: AtomicU64,
    lost: AtomicU64,
    /// guards: what is not right now
    wrong: Mutex<NotRight>,
}

/// What a scan had done at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tallied {
    repaired: u64,
    lost: u64,
}

/// The groups of blocks of which not all is right after a scan.
#[derive(Debug, Clone, Default)]
pub struct NotRight {
    /// Nobody has these.
    pub lost: BTreeSet<u64>,
    /// These could not be written to a leaf: the others have them.
    pub refused: BTreeSet<(LeafId, u64)>,
}

impl NotRight {
    fn len(&self) -> usize {
        self.lost.len() + self.refused.len()
    }

    /// The groups of blocks that a leaf refused.
    pub fn refused_by(&self, leaf: LeafId) -> impl Iterator<Item = u64> + use<'_> {
        self.refused.range((leaf, 0)..=(leaf, u64::MAX)).map(|(_, txg)| *txg)
    }
}

impl ScanTally {
    /// Nothing was done yet. `reads_all`: every copy is to be read.
    pub fn new(reads_all: bool) -> Self {
        ScanTally { reads_all, ..ScanTally::default() }
    }

    pub(super) fn reads_all(&self) -> bool {
        self.reads_all
    }

    /// Nothing right was found of a block.
    fn note_lost(&self, birth: u64) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        let mut wrong = self.wrong.lock();
        if wrong.len() < GROUPS_MAX {
            wrong.lost.insert(birth);
        }
    }

    /// So many bytes were written over on a leaf; `None`: that failed.
    pub(in crate::zio) fn note_repair(&self, leaf: LeafId, birth: u64, bytes: Option<u64>) {
        if let Some(bytes) = bytes {
            self.repaired.fetch_add(bytes, Ordering::Relaxed);
            return;
        }
        let mut wrong = self.wrong.lock();
        if wrong.len() < GROUPS_MAX {
            wrong.refused.insert((leaf, birth));
        }
    }

    /// Bytes that were repaired.
    pub fn repaired(&self) -> u64 {
        self.repaired.load(Ordering::Relaxed)
    }

    /// Blocks that were lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// What was done until now.
    pub fn now(&self) -> Tallied {
        Tallied { repaired: self.repaired(), lost: self.lost() }
    }

    /// Blocks that were looked at since are looked at again: what nobody has is found once more, and devices are once more given what they missed. What a scrub has repaired
    /// stays so.
    pub fn go_back(&self, before: Tallied) {
        self.lost.store(before.lost, Ordering::Relaxed);
        if !self.reads_all {
            self.repaired.store(before.repaired, Ordering::Relaxed);
        }
    }

    /// What is not right now; `None`: too much.
    pub fn wrong(&self) -> Option<NotRight> {
        Some(self.wrong.lock().clone()).filter(|wrong| wrong.len() < GROUPS_MAX)
    }
}

/// Does a block belong to an intent log? It may never have been written.
pub(super) fn is_log_block(at: &Bookmark) -> bool {
    at.level == LOG_LEVEL
}

impl BlockIo {
    /// Reads a block as the tally says, and makes right what is wrong.
    pub fn scan(&self, data: &DataPointer, at: &Bookmark, tally: &ScanTally) {
        if let Err(error) = self.read_data(data, at, Intent::Scan(tally))
            && !is_log_block(at)
        {
            tracing::warn!(%error, "a scan could not read block {at}");
            tally.note_lost(data.physical_birth);
            self.counters.lost_blocks.add(1);
            self.lost.note(at, data.physical_birth);
        }
    }

    /// Has a device that can be written missed a part of a block?
    #[doc(alias = "dsl_scan_need_resilver")]
    pub fn is_behind(&self, data: &DataPointer) -> bool {
        // Of a gang block only its header says where it is.
        data.is_gang() || data.dvas().iter().any(|dva| {
            let Ok(device) = self.device(*dva) else { return true };
            if self.has_stale_copies(*dva) {
                return true;
            }
            let Ok(map) = device.io_map(dva.offset, data.physical_size as usize, data.physical_birth) else { return true };
            map.sides().any(|(_, _, side)| {
                let view = device.view(side.leaf, data.physical_birth);
                (view.missed || side.is_stale) && view.readable
            })
        })
    }
}
