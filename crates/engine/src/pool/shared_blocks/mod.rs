//! Blocks that several pointers lead to: the tables that count the references.
//!
//! # Theory
//! A block has one pointer to it, or is counted in one of two tables. The deduplication table (`ddt.rs`) knows blocks by their
//! contents and counts all references; the clone table (`brt.rs`) knows them by their address and counts those beyond the
//! first. Before a block is freed the tables are asked ([`BlockTables::release`]): while references are left the space stays.
//!
//! What a pass of the sync thread changes is kept in memory and written at the end of the pass ([`SharedBlocks::sync_pass`]); the
//! space of blocks that have lost their last reference is given back then.
//!
//! New blocks are written without deduplication; clones are made (`dmu/blocks/clone.rs`).
//!
//! # Invariants
//! 1. References are added before those of the same group are taken: a clone made while its source is removed is counted. (They
//!    are added while objects are written, and what these free is collected and released afterwards.)
//! 2. A table without entries is not there.
//!
//! # Locks
//! One for each table; while it is held the MOS is read, nothing else is locked. One for what was cloned lately, and nothing below it.

mod brt;
mod ddt;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ondisk::blkptr::{BlkPtr, BlockPointer};
use parking_lot::Mutex;

use crate::dmu::SyncTx;
use crate::dsl::Meta;
use crate::error::Result;
use crate::txg::Txg;
use crate::vdev::VdevTree;
use crate::zio::BlockTables;

pub use brt::CloneSpace;
pub use ddt::DedupSpace;

use brt::CloneTable;
use ddt::DedupTables;

/// How many pointers lead to blocks, by vdev and offset of the first copy.
pub(in crate::pool) type References = BTreeMap<(u32, u64), u64>;

/// What the tables on disk say of every block that is in one: to any other leads one pointer. They are opened for this alone.
///
/// # Errors
/// A table cannot be read or makes no sense.
pub(in crate::pool) fn recorded_references(meta: &Meta) -> Result<References> {
    let mut recorded = References::new();
    DedupTables::open(&meta.mos)?.each(&meta.mos, &mut |place, references| {
        recorded.insert((place.vdev, place.offset), references);
    })?;
    CloneTable::open(&meta.mos)?.each(&meta.mos, &mut |vdev, offset, count| {
        // The first one is counted here only if the block is in no deduplication table.
        let references = recorded.entry((vdev, offset)).or_insert(1);
        *references = references.saturating_add(count);
    })?;
    Ok(recorded)
}

/// All tables of a pool.
pub struct SharedBlocks {
    meta: Arc<Meta>,
    vdevs: Arc<VdevTree>,
    dedup: Mutex<DedupTables>,
    clones: Mutex<CloneTable>,
    cloned: Mutex<Cloned>,
    /// Something may have been cloned since the scan began that goes on.
    cloned_amid_scan: AtomicBool,
}

/// Datasets that got pointers to blocks on disk, with the oldest and the newest group in which such a block was written.
pub(in crate::pool) type Cloned = BTreeMap<u64, (Txg, Txg)>;

impl SharedBlocks {
    /// Opens what there is.
    ///
    /// # Errors
    /// A table cannot be read or makes no sense.
    pub fn open(meta: &Arc<Meta>, vdevs: &Arc<VdevTree>) -> Result<Arc<SharedBlocks>> {
        Ok(Arc::new(SharedBlocks {
            dedup: Mutex::new(DedupTables::open(&meta.mos)?),
            clones: Mutex::new(CloneTable::open(&meta.mos)?),
            cloned: Mutex::default(),
            // A scan may go on that began before.
            cloned_amid_scan: AtomicBool::new(true),
            meta: meta.clone(),
            vdevs: vdevs.clone(),
        }))
    }

    /// Whether something waits for [`SharedBlocks::sync_pass`].
    pub fn has_changes(&self) -> bool {
        self.dedup.lock().is_dirty() || self.clones.lock().is_dirty()
    }

    /// Space that would be needed besides if nothing were shared: what files use, all together, may be so much more than there is.
    pub fn saved_bytes(&self) -> u64 {
        let dedup = self.dedup_space();
        dedup.referenced.saturating_sub(dedup.allocated).saturating_add(self.clone_space().saved)
    }

    /// What deduplication does for the pool.
    pub fn dedup_space(&self) -> DedupSpace {
        self.dedup.lock().space(&self.meta)
    }

    /// What cloning does for the pool.
    pub fn clone_space(&self) -> CloneSpace {
        self.clones.lock().space()
    }

    /// A scan begins.
    pub(in crate::pool) fn begin_scan(&self) {
        self.cloned_amid_scan.store(false, Relaxed);
    }

    /// May a dataset have got blocks, since the scan began that goes on, that are older than that?
    pub(in crate::pool) fn may_be_cloned_amid_scan(&self) -> bool {
        self.cloned_amid_scan.load(Relaxed)
    }

    /// What was cloned since this was last asked.
    pub(in crate::pool) fn take_cloned(&self) -> Cloned {
        std::mem::take(&mut *self.cloned.lock())
    }

    /// Writes what has changed, and gives back the space of what nobody refers to any more.
    ///
    /// # Errors
    /// The MOS cannot be read or written.
    pub fn sync_pass(&self, tx: &SyncTx<'_>) -> Result<()> {
        let mut freed = Vec::new();
        self.dedup.lock().sync(&self.meta, tx, &mut freed)?;
        for block in freed {
            // A block that was cloned after it had left the table is counted there.
            if !self.clones.lock().take(&self.meta, &block.encode())? {
                self.meta.context.io.free_place(&block, tx.txg())?;
            }
        }
        self.clones.lock().sync(&self.meta, tx)
    }
}

impl BlockTables for SharedBlocks {
    fn release(&self, bp: &BlkPtr, _txg: Txg) -> Result<bool> {
        let BlockPointer::Data(block) = bp.decode()? else { return Ok(false) };
        if block.dedup && self.dedup.lock().release(&self.meta.mos, &block)? {
            return Ok(true);
        }
        self.clones.lock().take(&self.meta, bp)
    }

    fn add_reference(&self, bp: &BlkPtr, dataset: u64) -> Result<()> {
        let (meta, birth) = (&self.meta, bp.physical_birth());
        self.cloned_amid_scan.store(true, Relaxed);
        self.cloned.lock().entry(dataset).and_modify(|(oldest, newest)| (*oldest, *newest) = (birth.min(*oldest), birth.max(*newest))).or_insert((birth, birth));
        // A block that the deduplication table knows is counted there.
        if bp.is_dedup() && self.dedup.lock().add(&meta.mos, bp)? {
            return Ok(());
        }
        self.clones.lock().add(meta, &self.vdevs, bp, 1)
    }
}
