//! What the files of one file system share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use engine::bail;
use engine::dmu::Objset;
use engine::error::Result;
use ondisk::objset::ObjsetSize;
use ondisk::znode;

use crate::zpl::attributes::sa_tables::SaTables;
use crate::zpl::attributes::stat::Time;
use crate::zpl::options::MountOptions;

/// The set whose objects the files are, what was decided when it was made, how it is mounted, and the clock of its changes.
pub(in crate::zpl) struct FileSet {
    objset: Arc<Objset>,
    version: u64,
    tables: SaTables,
    options: ArcSwap<MountOptions>,
    /// How many changes there have been: what was changed later has a larger number.
    changes: AtomicU64,
}

impl std::fmt::Debug for FileSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileSet({})", self.objset.name())
    }
}

impl FileSet {
    pub(in crate::zpl) fn new(objset: Arc<Objset>, version: u64, tables: SaTables, options: MountOptions) -> Arc<Self> {
        Arc::new(FileSet { objset, version, tables, options: ArcSwap::from_pointee(options), changes: AtomicU64::new(1) })
    }

    /// The object set.
    pub(in crate::zpl) fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// The file system's version.
    pub(in crate::zpl) fn version(&self) -> u64 {
        self.version
    }

    /// New files have system attributes, not an old znode.
    pub(in crate::zpl) fn uses_attributes(&self) -> bool {
        self.version >= znode::VERSION_SA
    }

    /// The numbers of the attributes.
    pub(in crate::zpl) fn tables(&self) -> &SaTables {
        &self.tables
    }

    /// How it is mounted. To be given back soon.
    pub(in crate::zpl) fn options(&self) -> Guard<Arc<MountOptions>> {
        self.options.load()
    }

    pub(in crate::zpl) fn set_options(&self, options: MountOptions) {
        self.options.store(Arc::new(options));
    }

    /// The number of a change.
    pub(super) fn count_change(&self) -> u64 {
        self.changes.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the last change.
    pub(in crate::zpl) fn last_change(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The present.
    pub(in crate::zpl) fn now(&self) -> Time {
        let (seconds, nanoseconds) = self.objset.context().host.wall_clock();
        Time { seconds: seconds.cast_signed(), nanoseconds }
    }

    /// Nothing may be changed.
    pub(in crate::zpl) fn is_read_only(&self) -> bool {
        self.options.load().read_only || self.never_writes()
    }

    /// Nothing could be changed since it was opened. Where the property `readonly` was set meanwhile, there may be what was written before.
    pub(in crate::zpl) fn never_writes(&self) -> bool {
        self.objset.is_snapshot() || self.objset.context().read_only
    }

    pub(in crate::zpl) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            bail!(ReadOnly, "{} is read-only", self.objset.name());
        }
        Ok(())
    }

    /// As [`FileSet::check_writable`], for what was written while the property `readonly` was off, wherever it was held up since.
    pub(in crate::zpl) fn check_not_frozen(&self) -> Result<()> {
        if self.never_writes() {
            bail!(ReadOnly, "{} is read-only", self.objset.name());
        }
        Ok(())
    }

    /// Whether new files say which project they belong to.
    pub(in crate::zpl) fn gives_project_ids(&self) -> bool {
        self.uses_attributes() && self.options.load().project_ids && self.objset.phys_size() == ObjsetSize::V3
    }

    /// The flag word of a file after its contents (`modified`) or only its attributes changed.
    pub(in crate::zpl) fn touched_flags(&self, flags: u64, modified: bool) -> u64 {
        match (self.version >= znode::VERSION_FUID, modified) {
            (false, _) => flags,
            (true, false) => flags | znode::FLAG_ARCHIVE,
            (true, true) => flags | znode::FLAG_ARCHIVE | znode::FLAG_AV_MODIFIED,
        }
    }
}
