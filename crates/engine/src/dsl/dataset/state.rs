//! What a dataset in memory knows, under its lock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::DatasetPhys;
use ondisk::feature::Feature;

use super::Dataset;
use super::livelist_sync::OpenLivelist;
use crate::dsl::dead::deadlist::Deadlist;
use crate::dsl::snapshots::bookmarks_sync::CountingBookmark;
use crate::sync::Publish;

/// See the module.
pub(in crate::dsl) struct DatasetState {
    pub(super) phys: DatasetPhys,
    /// The record in the MOS is older than this one.
    dirty: bool,
    /// The snapshot before (of a head).
    pub(super) prev: Option<Arc<Dataset>>,
    pub(super) deadlist: Arc<Deadlist>,
    /// Blocks that go on the deadlist when the object set has been written.
    pub(super) pending_dead: Vec<BlkPtr>,
    /// The list of its own blocks, of a head that is a clone.
    pub(super) livelist: Option<OpenLivelist>,
    /// Bookmarks that count what is freed, while the object set is being written.
    pub(super) bookmarks: Vec<CountingBookmark>,
    /// Features that its ZAP names.
    pub(super) features: BTreeSet<Feature>,
    /// Features that blocks written in this txg use.
    pub(super) new_features: BTreeSet<Feature>,
    /// The property `refreservation` (of a head).
    pub(super) reserved: u64,
    /// The property `refquota` (of a head).
    pub(super) quota: u64,
}

impl DatasetState {
    /// As read from the MOS, without the limits that are properties.
    pub(super) fn new(phys: DatasetPhys, prev: Option<Arc<Dataset>>, deadlist: Arc<Deadlist>, features: BTreeSet<Feature>) -> Self {
        DatasetState {
            phys,
            dirty: false,
            prev,
            deadlist,
            pending_dead: Vec::new(),
            livelist: None,
            bookmarks: Vec::new(),
            features,
            new_features: BTreeSet::new(),
            reserved: 0,
            quota: 0,
        }
    }

    /// The record, to change it.
    pub(in crate::dsl) fn phys_mut(&mut self) -> &mut DatasetPhys {
        &mut self.phys
    }

    /// The property `refreservation`.
    pub(in crate::dsl) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Another snapshot is before it.
    pub(in crate::dsl) fn set_prev(&mut self, prev: Option<Arc<Dataset>>) {
        self.prev = prev;
    }

    /// It begins a new deadlist.
    pub(in crate::dsl) fn set_deadlist(&mut self, deadlist: Arc<Deadlist>) {
        self.phys.deadlist = deadlist.object.into();
        self.deadlist = deadlist;
    }

    /// The record is to be written; whether this is the first change since [`DatasetState::take_record`].
    pub(super) fn note_change(&mut self) -> bool {
        !std::mem::replace(&mut self.dirty, true)
    }

    /// The record, which is written into the MOS now.
    pub(super) fn take_record(&mut self) -> DatasetPhys {
        self.dirty = false;
        self.phys
    }
}

/// Those numbers that a promise of space is measured by.
#[derive(Debug, Default)]
pub(in crate::dsl) struct DatasetLimits {
    unique: AtomicU64,
    referenced: AtomicU64,
    reserved: AtomicU64,
    quota: AtomicU64,
}

impl DatasetLimits {
    /// Space that only it refers to.
    pub(in crate::dsl) fn unique(&self) -> u64 {
        self.unique.load(Ordering::Acquire)
    }

    /// Space that it refers to.
    pub(in crate::dsl) fn referenced(&self) -> u64 {
        self.referenced.load(Ordering::Acquire)
    }

    /// The property `refreservation`.
    pub(in crate::dsl) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// The property `refquota`; 0: none.
    pub(in crate::dsl) fn quota(&self) -> u64 {
        self.quota.load(Ordering::Acquire)
    }
}

impl Publish for DatasetState {
    type Published = DatasetLimits;

    fn publish(&self, limits: &DatasetLimits) {
        limits.unique.store(self.phys.unique_bytes.get(), Ordering::Release);
        limits.referenced.store(self.phys.referenced_bytes.get(), Ordering::Release);
        limits.reserved.store(self.reserved, Ordering::Release);
        limits.quota.store(self.quota, Ordering::Release);
    }
}

