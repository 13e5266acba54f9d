//! What the files of one file system share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::dmu::Objset;

use crate::zpl::attributes::sa_tables::SaTables;

/// The set whose objects the files are, the numbers that attributes have in it, and the clock of its changes.
pub(in crate::zpl) struct FileSet {
    objset: Arc<Objset>,
    tables: SaTables,
    /// How many changes there have been: what was changed later has a larger number.
    clock: AtomicU64,
}

impl std::fmt::Debug for FileSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileSet({})", self.objset.name())
    }
}

impl FileSet {
    pub(in crate::zpl) fn new(objset: Arc<Objset>, tables: SaTables) -> Arc<Self> {
        Arc::new(FileSet { objset, tables, clock: AtomicU64::new(1) })
    }

    /// The object set.
    pub(in crate::zpl) fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// The numbers of the attributes.
    pub(in crate::zpl) fn tables(&self) -> &SaTables {
        &self.tables
    }

    /// The time of a change.
    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The time of the last change.
    pub(in crate::zpl) fn now(&self) -> u64 {
        self.clock.load(Ordering::Acquire)
    }
}
