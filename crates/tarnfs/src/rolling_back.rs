//! A rollback in which a program works before anybody sees it.
//!
//! # Theory
//! The program gets a file system of its own that begins as the newest snapshot: all operations are there, and nothing bounds what it does. At the end that takes the
//! place of what it was made for, with all its names and relatives, in one group. Before that nobody sees it, and a crash leaves nothing of it.
//!
//! # Path
//! [`Pool::begin_rollback`]; `engine/dsl/snapshots/rolling_back.rs`

use std::sync::Arc;

use engine::dsl::RollbackBegun;
use engine::error::Result;
use engine::{bail, error};
use ondisk::objset::ObjsetType;

use crate::Pool;
use crate::zpl::FileSystem;

/// A rollback that is not done yet. Dropped, it is given up, and nothing has happened.
pub struct RollingBack {
    pool: Arc<Pool>,
    /// The file system that it is of, by its name when this began.
    name: String,
    files: Option<Arc<FileSystem>>,
    begun: Option<RollbackBegun>,
}

impl Pool {
    /// Begins a rollback of a file system to the snapshot `to` (its name after the `@`), which must be the newest one; without it to the newest, whichever that is.
    /// What is changed in [`RollingBack::file_system`] is on top of the snapshot. Others may use the file system meanwhile; what they change goes.
    ///
    /// # Errors
    /// It is no file system, there is no such snapshot or a newer one (or a newer bookmark); `Busy`: one is begun, or a stream is being received into it.
    pub fn begin_rollback(self: &Arc<Self>, name: &str, to: Option<&str>) -> Result<RollingBack> {
        let dsl = &self.engine().dsl;
        if dsl.objset(&dsl.open_dataset(name)?)?.objset_type() != ObjsetType::FileSystem {
            bail!(Invalid, "{name} is not a file system");
        }
        let begun = dsl.snapshot_verbs().begin_rollback(name, to)?;
        let mut rolling_back = RollingBack { pool: self.clone(), name: name.to_owned(), files: None, begun: None };
        let options = self.mount_options(&begun.dataset.name()?);
        let (objset, of_space) = (dsl.objset(&begun.dataset), begun.dataset.clone());
        // From here on it is given up if something fails.
        rolling_back.begun = Some(begun);
        let space = move || (of_space.referenced().used, of_space.available());
        rolling_back.files = Some(Arc::new(FileSystem::open(objset?, options?, space)?));
        Ok(rolling_back)
    }
}

impl RollingBack {
    /// The file system as it will be: the snapshot, with what was done to it since.
    pub fn file_system(&self) -> &Arc<FileSystem> {
        let Some(files) = &self.files else { unreachable!("it is taken when the rollback ends") };
        files
    }

    /// Does it, all at once, and returns when it is on disk.
    ///
    /// # Errors
    /// A snapshot or bookmark is newer than the one that it began with; `Busy`: somebody has the file system open, as for [`Pool::roll_back`], or what
    /// [`RollingBack::file_system`] gave; `Quota`, `NoSpace`. Nothing has happened, and it is given up.
    pub fn commit(self) -> Result<()> {
        self.end(None)
    }

    /// As [`RollingBack::commit`], with a snapshot of just that (its name after the `@`): both are there, or neither.
    ///
    /// # Errors
    /// Those of [`RollingBack::commit`]; `Exists`: there is a snapshot of that name.
    pub fn commit_with_snapshot(self, snapshot: &str) -> Result<()> {
        self.end(Some(snapshot))
    }

    fn end(mut self, snapshot: Option<&str>) -> Result<()> {
        let files = self.files.take().and_then(Arc::into_inner).ok_or_else(|| error!(Busy, "{}: what is rolled back is in use", self.name))?;
        files.release_all();
        drop(files);
        let Some(begun) = &self.begun else { unreachable!("it is taken when the rollback ends") };
        if let Some(parent) = begun.dataset.dir.parent() {
            self.pool.refuse_if_used(&parent.full_name())?;
        }
        self.pool.engine().dsl.snapshot_verbs().end_rollback(begun, snapshot)?;
        self.begun = None;
        Ok(())
    }
}

impl Drop for RollingBack {
    fn drop(&mut self) {
        self.files = None;
        if let Some(begun) = self.begun.take()
            && let Err(error) = self.pool.engine().dsl.snapshot_verbs().give_up_rollback(begun)
        {
            tracing::warn!("{}: a rollback was given up, and what is left of it goes when the pool is imported: {error}", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::host::RealHost;
    use engine::vdev::{Bias, NewLeaf, NewTop};

    use crate::{CreateOptions, Credentials, Error, ErrorKind, FileSystem, Pool};

    fn pool() -> Arc<Pool> {
        let disk = Arc::new(disk::MemDisk::new("back", 256 << 20));
        let top = NewTop { leaves: vec![NewLeaf { disk, path: "/back".into(), whole_disk: false }], parity: 0, draid: None, ashift: Some(12), bias: Bias::None };
        let pool = Pool::create_on("tank", vec![top], CreateOptions::default(), RealHost::shared()).unwrap();
        pool.create_file_system("tank/a", Vec::new()).unwrap();
        create(&pool.file_system("tank/a").unwrap(), b"before");
        pool.take_snapshots(vec!["tank/a@s".into()]).unwrap();
        create(&pool.file_system("tank/a").unwrap(), b"later");
        pool
    }

    fn create(fs: &FileSystem, name: &[u8]) {
        fs.create(fs.root(), name, 0o100_644, 0, &Credentials::root()).map(drop).unwrap();
    }

    /// Which of the files are there.
    fn files(pool: &Pool) -> [bool; 3] {
        let fs = pool.file_system("tank/a").unwrap();
        [b"before".as_slice(), b"later", b"new"].map(|name| fs.lookup(fs.root(), name).is_ok())
    }

    fn finish(pool: &Pool) {
        assert!(pool.check(true, &|_| ()).unwrap().is_clean());
        pool.export().unwrap();
    }

    #[test]
    fn changes_on_top_of_a_rollback_are_seen_with_it() {
        let pool = pool();
        let rolling_back = pool.begin_rollback("tank/a", Some("s")).unwrap();
        create(rolling_back.file_system(), b"new");
        assert_eq!(files(&pool), [true, true, false], "nobody sees it yet");
        rolling_back.commit_with_snapshot("t").unwrap();
        assert_eq!(files(&pool), [true, false, true]);
        pool.roll_back("tank/a", Some("t")).unwrap();
        assert_eq!(files(&pool), [true, false, true], "the snapshot has just that");
        finish(&pool);
    }

    #[test]
    fn a_rollback_that_is_dropped_never_was() {
        let pool = pool();
        let rolling_back = pool.begin_rollback("tank/a", None).unwrap();
        create(rolling_back.file_system(), b"new");
        drop(rolling_back);
        assert_eq!(files(&pool), [true, true, false]);
        pool.begin_rollback("tank/a", None).unwrap().commit().unwrap();
        assert_eq!(files(&pool), [true, false, false]);
        finish(&pool);
    }

    #[test]
    fn what_is_in_the_way_of_a_rollback_leaves_all_as_it_is() {
        let pool = pool();
        let begin = || pool.begin_rollback("tank/a", None).unwrap();
        let kind = |done: Result<(), Error>| done.unwrap_err().kind();
        let first = begin();
        assert_eq!(pool.begin_rollback("tank/a", None).err().map(|error| error.kind()), Some(ErrorKind::Busy), "one is begun");
        assert_eq!(kind(pool.roll_back("tank/a", None)), ErrorKind::Busy, "one is begun");
        assert_eq!(kind(pool.destroy_file_system("tank/a")), ErrorKind::Busy, "one is begun");
        let open = pool.file_system("tank/a").unwrap();
        assert_eq!(kind(first.commit()), ErrorKind::Busy, "it is open");
        drop(open);
        let second = begin();
        let kept = second.file_system().clone();
        assert_eq!(kind(second.commit()), ErrorKind::Busy, "its own files are open");
        // It was in use when it was given up: what is left of it goes when another begins.
        drop(kept);
        let third = begin();
        pool.take_snapshots(vec!["tank/a@newer".into()]).unwrap();
        assert_eq!(kind(third.commit()), ErrorKind::Exists, "there is a newer snapshot");
        assert_eq!(kind(begin().commit_with_snapshot("s")), ErrorKind::Exists, "there is a snapshot of that name");
        assert_eq!(files(&pool), [true, true, false]);
        finish(&pool);
    }
}
