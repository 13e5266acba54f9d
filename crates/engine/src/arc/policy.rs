//! Which blocks of which datasets are to be kept.

use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use ondisk::blkptr::BlkPtr;
use parking_lot::RwLock;

/// What of a dataset is kept: the values of `primarycache` and `secondarycache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "zfs_cache_type_t")]
pub enum Kept {
    /// Every block.
    #[default]
    All,
    /// Only what leads to data.
    Metadata,
    /// Nothing.
    None,
}

impl Kept {
    /// The value of a property that has this number.
    pub fn from_number(number: u64) -> Kept {
        match number {
            0 => Kept::None,
            1 => Kept::Metadata,
            _ => Kept::All,
        }
    }

    fn includes(self, bp: &BlkPtr) -> bool {
        match self {
            Kept::All => true,
            Kept::Metadata => bp.is_metadata(),
            Kept::None => false,
        }
    }
}

/// What of one dataset is kept, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CachePolicy {
    /// In memory.
    #[doc(alias = "primarycache")]
    pub primary: Kept,
    /// On cache devices.
    #[doc(alias = "secondarycache")]
    pub secondary: Kept,
}

/// Those of all datasets of a pool.
#[derive(Default)]
pub(super) struct Policies {
    /// Whether the table has any: most pools have none, and their readers take no lock.
    has_some: AtomicBool,
    /// By the dataset's number; what is not here is kept. guarded by its lock, which is a leaf
    table: RwLock<HashMap<u64, CachePolicy>>,
}

impl Policies {
    pub(super) fn set(&self, dataset: u64, policy: CachePolicy) {
        if policy == CachePolicy::default() && !self.has_some.load(Ordering::Acquire) {
            return;
        }
        let mut table = self.table.write();
        if policy == CachePolicy::default() { table.remove(&dataset) } else { table.insert(dataset, policy) };
        self.has_some.store(!table.is_empty(), Ordering::Release);
    }

    fn of(&self, dataset: u64) -> CachePolicy {
        if !self.has_some.load(Ordering::Acquire) {
            return CachePolicy::default();
        }
        self.table.read().get(&dataset).copied().unwrap_or_default()
    }

    /// Whether a block of a dataset stays in memory after its use.
    pub(super) fn keeps(&self, dataset: u64, bp: &BlkPtr) -> bool {
        self.of(dataset).primary.includes(bp)
    }

    /// Whether it may be written to a cache device.
    pub(super) fn stores(&self, dataset: u64, bp: &BlkPtr) -> bool {
        self.of(dataset).secondary.includes(bp)
    }
}
