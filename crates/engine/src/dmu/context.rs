//! What all object sets of a pool share.

use std::sync::Arc;

use crate::arc::BlockCache;
use crate::host::HostRef;
use crate::tunables::Tunables;
use crate::txg::{DirtyBytes, Txg, TxgGroups};
use crate::zio::{BlockIo, LogRoom};

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

/// So many bytes may be dirty, however many pools share the cache.
const DIRTY_BYTES_MIN: u64 = 16 << 20;

impl DmuContext {
    /// Most bytes of changes that are not on disk yet: of what the tunables say, the part that the cache has of what they say, when several
    /// pools share it.
    pub(super) fn dirty_bytes_max(&self) -> u64 {
        let all = self.tunables.cache_bytes_max;
        let max = self.tunables.dirty_bytes_max();
        let limit = self.cache.limit();
        if limit >= all {
            return max;
        }
        let part = u128::from(max) * u128::from(limit) / u128::from(all);
        (part as u64).max(DIRTY_BYTES_MIN).min(max)
    }

    /// Writing groups is as urgent now as much is dirty. Returns how many bytes may be.
    pub(crate) fn note_pressure(&self) -> u64 {
        let max = self.dirty_bytes_max();
        self.groups.note_pressure(self.dirty.pressure_percent(max, &self.tunables));
        max
    }

    /// Whether the log may take `bytes` more in `txg`. Where that is soon all that it may have, the group is asked for.
    pub(crate) fn has_log_room(&self, txg: Txg, bytes: u64) -> bool {
        match self.io.log_room(bytes, self.dirty.total()) {
            LogRoom::Enough => true,
            LogRoom::Little => {
                self.groups.kick(txg);
                true
            }
            LogRoom::None => false,
        }
    }

    /// A change of `txg` weighs `bytes` until it is on disk; the cache leaves room for it.
    pub(super) fn note_dirty(&self, txg: Txg, bytes: u64) {
        self.dirty.add(txg, bytes);
        self.cache.make_room(self.dirty.total());
    }
}
