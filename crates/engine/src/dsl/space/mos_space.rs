//! The space of the MOS's own blocks.
//!
//! # Theory
//! To count a block changes a record, which is in the MOS. So the MOS's own blocks are summed up here while the MOS is written, and
//! counted in [`MOS_DIR`](crate::dsl::MOS_DIR) in the next pass or txg.

use ondisk::blkptr::BlkPtr;
use parking_lot::Mutex;

use crate::dmu::{Refusal, SpaceOwner, SyncTx};
use crate::dsl::meta::SpaceDelta;
use crate::error::Result;
use crate::txg::Txg;

/// Pays for the MOS's own blocks.
#[derive(Debug, Default)]
pub struct MosSpace {
    delta: Mutex<SpaceDelta>,
}

impl MosSpace {
    fn count(&self, tx: &SyncTx<'_>, bp: &BlkPtr, sign: i64) {
        if bp.is_hole() || bp.is_redacted() {
            return;
        }
        let (used, compressed) = (tx.context.io.deflated_size(bp) as i64, bp.physical_size() as i64);
        self.delta.lock().add(SpaceDelta { used: sign * used, compressed: sign * compressed, uncompressed: sign * compressed });
    }

    /// What has been summed up. The sum starts again from nothing.
    pub(super) fn take(&self) -> SpaceDelta {
        std::mem::take(&mut self.delta.lock())
    }
}

impl SpaceOwner for MosSpace {
    fn reserve(&self, _txg: Txg, _bytes: u64) -> Result<(), Refusal> {
        Ok(())
    }

    fn reserve_to_free(&self, _: u64) -> Result<(), Refusal> {
        Ok(())
    }

    fn settle(&self, _: u64, _: u64, _: u64) {}

    fn born(&self, tx: &SyncTx<'_>, bp: &BlkPtr) -> Result<()> {
        self.count(tx, bp, 1);
        Ok(())
    }

    fn killed(&self, tx: &SyncTx<'_>, bp: &BlkPtr) -> Result<()> {
        self.count(tx, bp, -1);
        tx.free(bp);
        Ok(())
    }
}
