//! What all object sets of a pool share.

use std::sync::Arc;

use crate::arc::BlockCache;
use crate::host::HostRef;
use crate::tunables::Tunables;
use crate::txg::{DirtyBytes, Txg, TxgGroups};
use crate::zio::BlockIo;

/// The layers below, and the transaction groups. One per pool.
pub struct DmuContext {
    /// Blocks in memory; the way to all reads.
    pub cache: Arc<BlockCache>,
    /// The way to all writes.
    pub io: Arc<BlockIo>,
    /// Open, quiescing, syncing.
    pub groups: Arc<TxgGroups>,
    /// Bytes that wait to be written.
    pub dirty: DirtyBytes,
    /// Time and randomness.
    pub host: HostRef,
    /// Limits.
    pub tunables: Tunables,
    /// Nothing may be changed.
    pub read_only: bool,
}

impl DmuContext {
    /// A change of `txg` weighs `bytes` until it is on disk; the cache leaves room for it.
    pub(super) fn note_dirty(&self, txg: Txg, bytes: u64) {
        self.dirty.add(txg, bytes);
        self.cache.make_room(self.dirty.total());
    }
}
