//! The file systems of a pool that somebody has open; all openers of one share it.
//!
//! # Theory
//! The table is not locked while one is opened: a device that does not answer keeps those waiting who want the same file system, and nobody else.
//!
//! # Invariants
//! 1. No file system is opened by two threads at a time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use engine::error::Result;
use parking_lot::{Condvar, Mutex};

use crate::zpl::FileSystem;

/// See the module.
#[derive(Default)]
pub(crate) struct OpenFileSystems {
    /// By dataset object.
    table: Mutex<HashMap<u64, Entry>>,
    /// One was opened, or could not be.
    opened: Condvar,
}

/// How a file system of a pool is in use.
pub(crate) enum Use {
    /// It is open.
    Open(Arc<FileSystem>),
    /// It is being opened.
    Opening,
}

#[derive(Default)]
struct Entry {
    shared: Weak<FileSystem>,
    is_opening: bool,
}

impl Entry {
    fn is_used(&self) -> bool {
        self.is_opening || self.shared.strong_count() > 0
    }
}

/// A thread that opens a file system. Others that want it wait until this is dropped.
struct Opening<'a> {
    all: &'a OpenFileSystems,
    dataset: u64,
    made: Weak<FileSystem>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let entry = Entry { shared: std::mem::take(&mut self.made), is_opening: false };
        let mut table = self.all.table.lock();
        if entry.is_used() {
            table.insert(self.dataset, entry);
        } else {
            table.remove(&self.dataset);
        }
        drop(table);
        self.all.opened.notify_all();
    }
}

impl OpenFileSystems {
    /// That of a dataset, if it is open and `is_that`; else what `open` makes.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn get_or_open(&self, dataset: u64, is_that: impl Fn(&FileSystem) -> bool, open: impl FnOnce() -> Result<FileSystem>) -> Result<Arc<FileSystem>> {
        let mut table = self.table.lock();
        loop {
            if table.len() == table.capacity() {
                table.retain(|_, entry| entry.is_used());
            }
            let entry = table.entry(dataset).or_default();
            if let Some(shared) = entry.shared.upgrade().filter(|shared| is_that(shared)) {
                return Ok(shared);
            }
            if !entry.is_opening {
                entry.is_opening = true;
                break;
            }
            self.opened.wait(&mut table);
        }
        drop(table);
        let mut opening = Opening { all: self, dataset, made: Weak::new() };
        let made = Arc::new(open()?);
        opening.made = Arc::downgrade(&made);
        Ok(made)
    }

    /// What `act` returns, if nobody has the file system open, nor opens it before `act` has returned.
    pub(crate) fn unless_used<T>(&self, dataset: u64, act: impl FnOnce() -> T) -> Option<T> {
        let table = self.table.lock();
        table.get(&dataset).is_none_or(|entry| !entry.is_used()).then(act)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<FileSystem>> {
        self.table.lock().values().filter_map(|entry| entry.shared.upgrade()).collect()
    }

    /// What is in use, if anything is: one that is open, rather than one that is being opened.
    pub(crate) fn any_use(&self) -> Option<Use> {
        // Looked at together: what is being opened now is open a moment later.
        let table = self.table.lock();
        match table.values().find_map(|entry| entry.shared.upgrade()) {
            Some(open) => Some(Use::Open(open)),
            None => table.values().any(|entry| entry.is_opening).then_some(Use::Opening),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // threads that meet are what is tested
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use engine::error::ErrorKind;
    use engine::host::RealHost;
    use engine::vdev::{NewLeaf, NewTop};

    use super::*;
    use crate::{CreateOptions, Credentials, Pool, WriteMode};

    fn pool() -> Arc<Pool> {
        let disk = Arc::new(disk::MemDisk::new("open", 256 << 20));
        let top = NewTop { leaves: vec![NewLeaf { disk, path: "/open".into(), whole_disk: false }], ashift: Some(12), ..NewTop::default() };
        let pool = Pool::create_on("tank", vec![top], CreateOptions::default(), RealHost::shared()).unwrap();
        pool.create_file_system("tank/a", Vec::new()).unwrap();
        let fs = pool.file_system("tank/a").unwrap();
        let file = fs.create(fs.root(), b"before", 0o100_644, 0, &Credentials::root()).unwrap().inode;
        fs.write(file, WriteMode::At(0), b"what it says", &Credentials::root()).unwrap();
        drop(fs);
        pool.take_snapshots(vec!["tank/a@s".into()]).unwrap();
        pool
    }

    /// The one that was opened, or `None` where something is done to it just now.
    fn opened(pool: &Pool, name: &str, gone_is_right: bool) -> Option<Arc<FileSystem>> {
        match pool.file_system(name) {
            Ok(fs) => Some(fs),
            Err(error) => {
                assert!(error.kind() == ErrorKind::Busy || gone_is_right && error.kind() == ErrorKind::NotFound, "{name}: {error}");
                None
            }
        }
    }

    #[cfg(debug_assertions)]
    fn pauses() -> impl Drop {
        parking_lot::counting::pause(20)
    }

    #[cfg(not(debug_assertions))]
    fn pauses() {}

    /// One that was being opened when it was looked what is open, and was open when it was looked what is being opened, was not in use.
    #[test]
    fn what_is_being_opened_is_in_use_all_the_time() {
        let (pool, all) = (pool(), OpenFileSystems::default());
        let dsl = &pool.engine().dsl;
        let objset = dsl.objset(&dsl.open_dataset("tank/a").unwrap()).unwrap();
        let options = pool.mount_options("tank/a").unwrap();
        assert!(all.any_use().is_none());
        let open = || {
            assert!(matches!(all.any_use(), Some(Use::Opening)));
            FileSystem::open(objset, options, || (0, 0))
        };
        let fs = all.get_or_open(1, |_| true, open).unwrap();
        assert!(matches!(all.any_use(), Some(Use::Open(open)) if Arc::ptr_eq(&open, &fs)));
        drop(fs);
        assert!(all.any_use().is_none());
        pool.export().unwrap();
    }

    /// A thread that opened a file system in the middle of a rollback got the contents that were about to go, or wrote to some that nobody wrote to the disk.
    #[test]
    fn what_is_opened_beside_rollbacks_is_what_there_is() {
        let (pool, over, next) = (pool(), AtomicBool::new(false), AtomicU64::new(0));
        let _pauses = pauses();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let Some(fs) = opened(&pool, "tank/a", false) else { continue };
                        let name = format!("f{}", next.fetch_add(1, Ordering::Relaxed));
                        let made = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &Credentials::root()).unwrap().inode;
                        fs.fsync(made).unwrap();
                        let other = opened(&pool, "tank/a", false).expect("it is open");
                        assert!(other.lookup(other.root(), name.as_bytes()).is_ok(), "{name} is not in what others have open");
                    }
                });
            }
            scope.spawn(|| {
                let dsl = &pool.engine().dsl;
                while !over.load(Ordering::Relaxed) {
                    drop(dsl.objset(&dsl.open_dataset("tank/a").unwrap()).unwrap());
                }
            });
            for _ in 0..20 {
                if let Err(error) = pool.roll_back("tank/a", None) {
                    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(pool.check(true, &|_| ()).unwrap().is_clean());
        pool.export().unwrap();
    }

    /// A snapshot is destroyed while others open it: they have it, or it is gone.
    #[test]
    fn what_is_opened_is_not_destroyed() {
        let (pool, over) = (pool(), AtomicBool::new(false));
        let _pauses = pauses();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let Some(fs) = opened(&pool, "tank/a@t", true) else { continue };
                        let file = fs.lookup(fs.root(), b"before").unwrap().inode;
                        assert_eq!(fs.read(file, 0, 12).unwrap(), b"what it says");
                    }
                });
            }
            for _ in 0..20 {
                match pool.take_snapshots(vec!["tank/a@t".into()]) {
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Exists, "{error}"),
                    Ok(()) => {}
                }
                let refusals = pool.engine().dsl.snapshot_verbs().destroy_snapshots(vec!["tank/a@t".into()], false).unwrap();
                assert!(refusals.iter().all(|(_, error)| error.kind() == ErrorKind::Busy), "{refusals:?}");
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(pool.check(true, &|_| ()).unwrap().is_clean());
        pool.export().unwrap();
    }
}
