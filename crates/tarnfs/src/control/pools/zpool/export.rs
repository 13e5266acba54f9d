//! `zpool export`, `zpool destroy`, and the end of the program.

use std::sync::Arc;

use engine::error::ErrorKind;

use crate::control::pools::{Failure, FailureKind, Imported, Pools};
use crate::control::{PoolDestroy, PoolExport};

/// How a pool is let go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Export,
    /// The program ends: the cache file still says where the pool is, for the next one.
    Quit,
    /// Without changing anything more on disk.
    HardExport,
    Destroy,
}

/// The pool waits for somebody to repair it.
pub(in crate::control::pools) fn suspended() -> Failure {
    Failure::with(
        FailureKind::PoolUnavailable,
        "pool I/O is currently suspended: repair its devices and 'zpool clear' it, or give up what is not written yet with 'zpool export -F'",
    )
}

/// The pool waits for its devices, or has stopped: those who use it cannot let go of it in order.
pub(in crate::control::pools) fn is_stopped(engine: &engine::pool::Pool) -> bool {
    engine.vdevs.gate().failure().is_some() || engine.context.groups.failure().is_some()
}

/// Requests that wait for a suspended pool wait no more (`zpool export -F`).
pub(in crate::control::pools) fn give_up(engine: &engine::pool::Pool) {
    let gate = engine.vdevs.gate();
    if gate.failure().is_some() {
        gate.give_up();
    }
}

/// Tries again while the pool is busy, for a moment: a mount that was just ended lets go of its file system when its last request is done.
fn patiently<T>(attempt: impl Fn() -> engine::error::Result<T>) -> engine::error::Result<T> {
    let mut tries = 0;
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::Busy && tries < 100 => tries += 1,
            result => return result,
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A request that looks at the pool beside this is done in a moment; then its devices are free for the next import.
fn let_go(mut gone: Arc<Imported>) {
    for _ in 0..100 {
        gone = match Arc::try_unwrap(gone) {
            Ok(_) => return,
            Err(shared) => shared,
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

impl Pools {
    /// A pool that is sent from, or received into, is neither exported nor destroyed, by force either, as long as it works.
    ///
    /// # Errors
    /// Such a stream is under way.
    pub(in crate::control::pools) fn check_no_stream(&self, name: &str) -> Result<(), Failure> {
        let is_busy = Arc::strong_count(&self.find(name)?.streams) > 1;
        if is_busy { Err(Failure::new(FailureKind::PoolBusy)) } else { Ok(()) }
    }

    pub(in crate::control::pools) fn export_pool(&mut self, export: &PoolExport) -> Result<(), Failure> {
        self.export_as(export, if export.hard_force { Ending::HardExport } else { Ending::Export })
    }

    fn export_as(&mut self, export: &PoolExport, how: Ending) -> Result<(), Failure> {
        let engine = self.find(&export.name)?.pool.engine().clone();
        if engine.vdevs.gate().failure().is_some() {
            if !export.hard_force {
                return Err(suspended());
            }
            // Or the mounts could not end.
            give_up(&engine);
        }
        if !export.force && !export.hard_force && self.uses_shared_spare(self.find(&export.name)?) {
            let name = &export.name;
            let words = format!("use '-f' to override the following errors:\n'{name}' has an active shared spare which could be used by other pools once '{name}' is exported.");
            return Err(Failure::with(FailureKind::PoolBusy, words));
        }
        // In a pool that works, `-F` alone takes nothing from those who use it.
        let force = export.force || (export.hard_force && is_stopped(&engine));
        self.unmount_pool(&export.name, force).map_err(|failure| match failure.kind {
            FailureKind::DatasetBusy => Failure { kind: FailureKind::PoolBusy, ..failure },
            _ => failure,
        })?;
        self.note_named_event("pool_export", &export.name);
        self.end(&export.name, how)
    }

    pub(in crate::control::pools) fn destroy_pool(&mut self, destroy: &PoolDestroy) -> Result<(), Failure> {
        let imported = self.find(&destroy.name)?;
        // Nothing is written to it: it stays what it is, and goes.
        let how = if imported.pool.engine().is_read_only() { Ending::Export } else { Ending::Destroy };
        if imported.pool.engine().vdevs.gate().failure().is_some() {
            return Err(suspended());
        }
        self.unmount_pool(&destroy.name, destroy.force).map_err(|failure| Failure::with(FailureKind::UnmountFailed, failure.message))?;
        self.note_named_event("pool_destroy", &destroy.name);
        self.end(&destroy.name, how)
    }

    /// Unmounts what is mounted of a pool, and removes the directories that it was mounted on. If that is not possible, all stays as it was.
    fn unmount_pool(&mut self, name: &str, force: bool) -> Result<(), Failure> {
        let directories = self.own_mount_directories(name);
        let before = self.in_sight();
        if let Err(failure) = self.mounter.unmount_tree(name, force) {
            let gone = self.taken_along(before, &|_| false);
            self.bring_back(&gone);
            return Err(failure);
        }
        for directory in directories.into_iter().rev() {
            crate::control::pools::zfs::mounting::remove_directory(&directory);
        }
        Ok(())
    }

    fn end(&mut self, name: &str, how: Ending) -> Result<(), Failure> {
        let pool = self.find(name)?.pool.clone();
        let result = match how {
            Ending::Export | Ending::Quit => patiently(|| pool.export()),
            Ending::Destroy => patiently(|| pool.destroy()),
            Ending::HardExport => {
                pool.abandon();
                Ok(())
            }
        };
        match result {
            // Somebody has a file system open: nothing was done yet.
            Err(error) if error.kind() == ErrorKind::Busy => Err(Failure::new(FailureKind::PoolBusy)),
            Err(_) if how != Ending::HardExport && pool.engine().vdevs.gate().failure().is_some() => Err(suspended()),
            result => {
                if let Some(gone) = self.pools.remove(name) {
                    self.beside.show(&self.pools);
                    // What was given up is as after a crash: the file still says where it is.
                    if matches!(how, Ending::Export | Ending::Destroy) {
                        self.forget_in_cachefile(gone.cachefile.lock().as_deref());
                    }
                    gone.auxiliary.lock().held.clear();
                    let_go(gone);
                }
                result.map_err(|error| Failure::about_pool(&error))
            }
        }
    }

    /// Exports every pool at the end of the program, whatever is in use; the first failure is reported when all have been tried. Cache files stay: the
    /// pools were not exported by a user, and `zpool import -c` finds them at the next start.
    pub(in crate::control::pools) fn export_all(&mut self) -> Result<(), Failure> {
        let names: Vec<String> = self.pools.keys().cloned().collect();
        let mut first = Ok(());
        for name in names {
            let hard_force = self.pools.get(&name).is_some_and(|imported| imported.pool.engine().vdevs.gate().failure().is_some());
            let export = PoolExport { name, force: true, hard_force };
            let done = self.export_as(&export, if hard_force { Ending::HardExport } else { Ending::Quit });
            if let Err(failure) = &done {
                tracing::error!(pool = export.name, %failure, "the pool could not be exported in order");
            }
            if first.is_ok() {
                first = done;
            }
        }
        first
    }
}
