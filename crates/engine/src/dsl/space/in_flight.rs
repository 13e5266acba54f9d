//! Bytes that groups which are not on disk yet will take, or give back.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::txg::{TXG_SIZE, Txg, slot};

/// A sum for each group that may be alive.
#[derive(Debug, Default)]
pub(in crate::dsl) struct InFlight([AtomicU64; TXG_SIZE]);

impl InFlight {
    /// `bytes` more in `txg`.
    pub(in crate::dsl) fn add(&self, txg: Txg, bytes: u64) {
        self.0[slot(txg)].fetch_add(bytes, Ordering::Relaxed);
    }

    /// `bytes` less in `txg`.
    pub(in crate::dsl) fn take_back(&self, txg: Txg, bytes: u64) {
        let less = |sum: u64| Some(sum.saturating_sub(bytes));
        let _ = self.0[slot(txg)].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// `txg` is on disk.
    pub(in crate::dsl) fn clear(&self, txg: Txg) {
        self.0[slot(txg)].store(0, Ordering::Relaxed);
    }

    /// Those of one group.
    pub(in crate::dsl) fn of(&self, txg: Txg) -> u64 {
        self.0[slot(txg)].load(Ordering::Relaxed)
    }

    /// Those of all groups.
    pub(in crate::dsl) fn total(&self) -> u64 {
        self.0.iter().map(|bytes| bytes.load(Ordering::Relaxed)).fold(0, u64::saturating_add)
    }
}
