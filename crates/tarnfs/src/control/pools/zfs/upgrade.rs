//! `zfs upgrade`, and `zfs wait -t deleteq`: how many files without a name are left.

use engine::error::ErrorKind;

use crate::control::pools::{Failure, FailureKind, Pools};
use crate::control::{DeleteQueue, Setting};

impl Pools {
    /// Raises the version of a file system, if that is among what is to be set. It can only grow.
    pub(in crate::control::pools) fn set_version(&mut self, name: &str, settings: &[Setting]) -> Result<(), Failure> {
        let Some(version) = settings.iter().find(|setting| setting.name == "version").and_then(|setting| setting.value.number()) else { return Ok(()) };
        let pool = self.pool_of(name)?.pool.clone();
        let failed = |error: crate::Error| Failure::about_dataset(&error);
        let current = pool.engine().dsl.open_dataset(name).and_then(|dataset| dataset.any_property("version")).map_err(failed)?;
        let current = current.map_or(0, |(value, _)| value.number());
        if version < current {
            return Err(Failure::with(FailureKind::BadProperty, format!("Can not downgrade; already at version {current}")));
        }
        if version == current {
            return Ok(());
        }
        let mut change = || {
            pool.upgrade_file_system(name, version).map_err(|error| match error.kind() {
                ErrorKind::NotSupported => Failure::with(FailureKind::PoolNotSupported, error.message()),
                _ => Failure::about_dataset(&error),
            })
        };
        self.replace_contents(&pool, name, &mut change)
    }

    /// Of a file system that is not mounted nothing is being freed.
    pub(in crate::control::pools) fn files_without_name(&mut self, wanted: &DeleteQueue) -> Result<u64, Failure> {
        let pool = self.pool_of(&wanted.name)?.pool.clone();
        let failed = |error: crate::Error| Failure::about_dataset(&error);
        pool.engine().dsl.open_dataset(&wanted.name).map_err(failed)?;
        if !self.mounter.is_mounted(&wanted.name) {
            return Ok(0);
        }
        // Or nobody frees them.
        self.mounter.open(&wanted.name);
        let file_system = pool.file_system(&wanted.name).map_err(failed)?;
        if file_system.is_read_only() {
            return Ok(0);
        }
        file_system.left_behind().map(|left| left.len() as u64).map_err(failed)
    }
}
