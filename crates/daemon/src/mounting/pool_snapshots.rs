//! The snapshots of a mounted dataset, for `.zfs/snapshot`.
//!
//! # Theory
//! A call of the kernel must not wait for the turn of an administrative verb: that may be about to unmount, and so to wait for the call. So
//! what is asked for here is done by the pool itself, as `zfs snapshot`, `rename` and `destroy` have it done in the end, for callers to whom the
//! pool grants these verbs. The mounter hears later of the new name of a snapshot that may be mounted by itself.

use std::sync::Arc;

use fuse::{Errno, Timestamp};
use parking_lot::Mutex;
use tarnfs::control::{Caller, DatasetRename, Request, SnapshotsCreate, SnapshotsDestroy, check_request};
use tarnfs::{Error, Pool};

use crate::ops::{OpenSnapshot, SnapshotInfo, Snapshots};

/// Old and new names of snapshots that were renamed without the mounter.
#[derive(Debug, Clone, Default)]
pub(crate) struct RenamedElsewhere(Arc<Mutex<Vec<(String, String)>>>);

impl RenamedElsewhere {
    /// Those that nobody has followed yet.
    pub(crate) fn take(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// The snapshots of one dataset.
pub(crate) struct PoolSnapshots {
    pub(crate) pool: Arc<Pool>,
    /// Its object: the name may change while it is mounted.
    pub(crate) dataset: u64,
    pub(crate) renamed: RenamedElsewhere,
}

impl PoolSnapshots {
    fn head(&self) -> Result<String, Error> {
        self.pool.engine().dsl.dataset(self.dataset)?.name()
    }

    /// Is the caller granted what a request on this dataset needs?
    fn check(&self, caller: &Caller, request: impl FnOnce(&str) -> Request) -> fuse::Result<()> {
        let head = self.head().map_err(crate::errno::of)?;
        check_request(&self.pool, caller, &request(&head)).map_err(|_| Errno::EPERM)
    }

    fn try_list(&self) -> Result<Vec<SnapshotInfo>, Error> {
        let dsl = &self.pool.engine().dsl;
        let names = dsl.dataset(self.dataset)?.phys().snapshot_names.get();
        if names == 0 {
            return Ok(Vec::new());
        }
        let entries = dsl.meta.mos.zap_entries(names)?;
        Ok(entries.into_iter().map(|(name, value)| SnapshotInfo { name, id: value.first() }).collect())
    }

    fn try_open(&self, name: &str) -> Result<OpenSnapshot, Error> {
        let filesystem = self.pool.file_system(&format!("{}@{name}", self.head()?))?;
        let guid = self.pool.engine().dsl.dataset(filesystem.objset().dataset())?.phys().guid.get();
        Ok(OpenSnapshot { filesystem, guid })
    }

    fn try_guid(&self, name: &str) -> Result<u64, Error> {
        let snapshot = self.pool.engine().dsl.open_dataset(&format!("{}@{name}", self.head()?))?;
        Ok(snapshot.phys().guid.get())
    }

    fn try_changed(&self) -> Result<Timestamp, Error> {
        let seconds = self.pool.snapshots_changed(self.dataset)?;
        Ok(Timestamp { seconds: seconds.cast_signed(), nanoseconds: 0 })
    }

    fn try_make(&self, name: &str) -> Result<(), Error> {
        self.pool.take_snapshots(vec![format!("{}@{name}", self.head()?)])
    }

    fn try_destroy(&self, name: &str) -> Result<(), Error> {
        let refusals = self.pool.engine().dsl.snapshot_verbs().destroy_snapshots(vec![format!("{}@{name}", self.head()?)], false)?;
        refusals.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    fn try_rename(&self, from: &str, to: &str) -> Result<(), Error> {
        let head = self.head()?;
        let (old, new) = (format!("{head}@{from}"), format!("{head}@{to}"));
        let renamed = self.pool.engine().dsl.rename_snapshot(&head, from, to, false);
        if self.pool.is_renamed(&old, &renamed) {
            self.renamed.0.lock().push((old, new));
        }
        renamed
    }
}

/// No snapshot of this dataset has such a name.
fn check_name(name: &str) -> fuse::Result<()> {
    if name.contains(['@', '/', '%', '#']) { Err(Errno::ENOENT) } else { Ok(()) }
}

impl Snapshots for PoolSnapshots {
    fn list(&self) -> fuse::Result<Vec<SnapshotInfo>> {
        self.try_list().map_err(crate::errno::of)
    }

    fn changed(&self) -> fuse::Result<Timestamp> {
        self.try_changed().map_err(crate::errno::of)
    }

    fn open(&self, name: &str) -> fuse::Result<OpenSnapshot> {
        check_name(name)?;
        self.try_open(name).map_err(crate::errno::of)
    }

    fn guid(&self, name: &str) -> fuse::Result<u64> {
        check_name(name)?;
        self.try_guid(name).map_err(crate::errno::of)
    }

    fn make(&self, caller: &Caller, name: &str) -> fuse::Result<()> {
        check_name(name)?;
        let create = |head: &str| SnapshotsCreate { names: vec![format!("{head}@{name}")], properties: Vec::new() };
        self.check(caller, |head| Request::SnapshotsCreate(create(head)))?;
        let _acting = caller.act();
        self.try_make(name).map_err(crate::errno::of)
    }

    fn rename(&self, caller: &Caller, from: &str, to: &str) -> fuse::Result<()> {
        check_name(from)?;
        self.check(caller, |head| {
            let (from, to) = (format!("{head}@{from}"), format!("{head}@{to}"));
            Request::DatasetRename(DatasetRename { from, to, parents: false, no_remount: true, force: false, recursive: false })
        })?;
        let _acting = caller.act();
        self.try_rename(from, to).map_err(crate::errno::of)
    }

    fn check_destroy(&self, caller: &Caller, name: &str) -> fuse::Result<()> {
        check_name(name)?;
        let destroy = |head: &str| SnapshotsDestroy { names: vec![format!("{head}@{name}")], defer: false };
        self.check(caller, |head| Request::SnapshotsDestroy(destroy(head)))
    }

    fn destroy(&self, caller: &Caller, name: &str) -> fuse::Result<()> {
        self.check_destroy(caller, name)?;
        let _acting = caller.act();
        self.try_destroy(name).map_err(crate::errno::of)
    }
}
