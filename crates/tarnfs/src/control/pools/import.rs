//! `zpool import`: looking, and importing.

use std::path::PathBuf;

use engine::error::ErrorKind;
use engine::host::{Host, RealHost};
use engine::pool::examine::examine;
use engine::pool::import::Candidate;

use super::create::{PoolSettings, When};
use super::{Failure, FailureKind, Imported, Pools, names, not_yet};
use crate::control::{FoundPool, PoolImport, PoolScan, scan};
use crate::{ImportOptions, Pool};

impl Pools {
    /// Pools that are there and not imported.
    fn candidates(&self, paths: &[PathBuf], destroyed: bool) -> Vec<Candidate> {
        let mut found = scan::candidates(paths, destroyed);
        found.retain(|candidate| self.pools.values().all(|imported| imported.pool.engine().guid() != candidate.config.guid));
        found
    }

    pub(super) fn scan(&self, scan: &PoolScan) -> Vec<FoundPool> {
        self.candidates(&scan.paths, scan.destroyed).iter().map(|candidate| scan::found_pool(candidate, RealHost.host_id())).collect()
    }

    pub(super) fn import_pool(&mut self, import: &PoolImport) -> Result<(), Failure> {
        names::check_pool(&import.name)?;
        if self.pools.contains_key(&import.name) {
            return Err(Failure::with(FailureKind::PoolExists, "a pool with that name already exists"));
        }
        if import.txg_max.is_some() || import.rewind_to_checkpoint {
            return Err(not_yet("going back to an earlier state is"));
        }
        let settings = PoolSettings::of(&import.properties, When::Importing)?;
        let candidates = self.candidates(&import.paths, import.destroyed);
        let Some(candidate) = candidates.iter().find(|candidate| candidate.config.guid == import.guid) else {
            return Err(Failure::with(FailureKind::NoSuchPool, "no such pool available"));
        };
        if candidate.is_in_use_elsewhere(RealHost.host_id()) && !import.force {
            return Err(Failure::new(FailureKind::OtherHost));
        }
        if import.dry_run {
            return examine(candidate, RealHost::shared()).map(|_| ()).map_err(|error| import_failure(&error));
        }
        let renamed = import.name != candidate.config.name;
        let options = ImportOptions {
            read_only: settings.read_only,
            force: import.force,
            destroyed: import.destroyed,
            new_name: renamed.then(|| import.name.clone()),
            temporary_name: import.temporary_name,
            forget_log: import.missing_log,
            tunables: None,
        };
        let pool = Pool::import_found(candidate, options).map_err(|error| import_failure(&error))?;
        let mut imported = Imported::new(pool);
        imported.altroot = settings.altroot;
        imported.cachefile = settings.cachefile;
        let engine = imported.pool.engine().clone();
        self.pools.insert(import.name.clone(), imported);
        let mut values = settings.stored;
        let comment = settings.comment.map(|text| ("comment".to_owned(), engine::dsl::PropertyValue::Text(text)));
        values.extend(comment);
        if !values.is_empty() && !engine.is_read_only() {
            engine.set_properties(values).map_err(|error| Failure::about_pool(&error))?;
        }
        Ok(())
    }
}

/// Why a pool cannot be imported.
fn import_failure(error: &crate::Error) -> Failure {
    match error.kind() {
        ErrorKind::NoDevice => Failure::with(FailureKind::NoReplicas, error.message()),
        ErrorKind::Busy => Failure::with(FailureKind::PoolBusy, error.message()),
        ErrorKind::Io if error.message().contains("in use") => Failure::with(FailureKind::PoolBusy, error.message()),
        _ => Failure::about_pool(error),
    }
}
