//! `zpool import`: looking, and importing.

use std::path::PathBuf;
use std::sync::Arc;

use engine::error::ErrorKind;
use engine::host::{Host, RealHost};
use engine::pool::import::Candidate;

use super::create::{PoolSettings, When};
use super::pool_properties::store;
use crate::control::auxiliary::find_disks;
use crate::control::pools::{Failure, FailureKind, Imported, Pools, names};
use crate::control::{FoundPool, ImportRewound, PoolImport, PoolScan, scan};
use crate::{ImportOptions, Pool, Rewind, Rewound};

impl Pools {
    /// Pools that are there and not imported.
    fn candidates(&self, paths: &[PathBuf], destroyed: bool) -> Vec<Candidate> {
        let mut found = scan::candidates(paths, destroyed);
        found.retain(|candidate| self.pools.values().all(|imported| imported.pool.engine().guid() != candidate.config.guid));
        found
    }

    pub(in crate::control::pools) fn scan(&self, scan: &PoolScan) -> Vec<FoundPool> {
        self.wait_for_departures();
        self.candidates(&scan.paths, scan.destroyed).iter().map(|candidate| scan::found_pool(candidate, RealHost.host_id())).collect()
    }

    pub(in crate::control::pools) fn import_pool(&mut self, import: &PoolImport) -> Result<Option<ImportRewound>, Failure> {
        names::check_pool(&import.name)?;
        if self.pools.contains_key(&import.name) {
            return Err(Failure::with(FailureKind::PoolExists, "a pool with that name already exists"));
        }
        let mut settings = PoolSettings::of(&import.properties, When::Importing)?;
        let rewind = rewind_of(import);
        let candidates = self.candidates(&import.paths, import.destroyed);
        let Some(candidate) = candidates.iter().find(|candidate| candidate.config.guid == import.guid) else {
            return Err(Failure::with(FailureKind::NoSuchPool, "no such pool available"));
        };
        if candidate.is_in_use_elsewhere(RealHost.host_id()) && !import.force {
            return Err(Failure::new(FailureKind::OtherHost));
        }
        if !import.missing_log && !scan::missing_logs(&scan::found_pool(candidate, RealHost.host_id())).is_empty() {
            return Err(Failure::with(FailureKind::NoReplicas, "one or more devices is currently unavailable"));
        }
        let renamed = import.name != candidate.config.name;
        let options = ImportOptions {
            read_only: settings.read_only,
            force: import.force,
            destroyed: import.destroyed,
            new_name: renamed.then(|| import.name.clone()),
            temporary_name: import.temporary_name,
            forget_log: import.missing_log,
            rewind,
            tunables: Some(self.limits.clone()),
        };
        if import.dry_run {
            return Pool::rewind_dry(candidate, options).map(|rewound| rewound.map(in_words)).map_err(|error| import_failure(&error));
        }
        self.lend_spares(&candidate.devices.iter().map(|device| device.guid).collect::<Vec<_>>());
        let (pool, rewound) = match Pool::import_rewound(candidate, options.clone()) {
            Ok(imported) => imported,
            Err(error) => {
                let cut_off = scan::devices_cut_off(candidate);
                return Err(match rewind {
                    // The error says what could not be read; nobody guesses from that what to do.
                    _ if !cut_off.is_empty() => {
                        Failure::with(FailureKind::NoReplicas, format!("one or more devices is currently unavailable\n\t{}", cut_off.join("\n\t")))
                    }
                    Rewind::ToCheckpoint if error.kind() == ErrorKind::NotFound => Failure::with(FailureKind::PoolNotSupported, "checkpoint does not exist"),
                    Rewind::No => with_advice(import_failure(&error), candidate, options),
                    _ => import_failure(&error),
                });
            }
        };
        let mut imported = Imported::new(pool);
        match imported.pool.engine().auxiliary() {
            Ok(listed) => *imported.auxiliary.get_mut() = self.hold_auxiliary(&imported, &listed, find_disks(candidate, &listed)),
            Err(error) => tracing::warn!(pool = import.name, %error, "its spares and cache devices are not known"),
        }
        imported.altroot = settings.altroot.take();
        *imported.cachefile.get_mut() = settings.cachefile.take();
        let engine = imported.pool.engine().clone();
        if !engine.is_read_only()
            && let Err(error) = engine.record_version_soon("import")
        {
            tracing::warn!(pool = import.name, %error, "the import is missing from the history");
        }
        set_or_give_back(&imported, settings)?;
        self.note_pool_event("pool_import", &imported);
        self.pools.insert(import.name.clone(), Arc::new(imported));
        self.write_cachefile(&import.name);
        Ok(rewound.map(in_words))
    }
}

/// Sets what is asked for of a pool that has been opened. If that cannot be, it is let go of: it is not imported.
fn set_or_give_back(imported: &Imported, settings: PoolSettings) -> Result<(), Failure> {
    let engine = imported.pool.engine();
    let obeyed = engine.obey_failmode().map_err(|error| Failure::about_pool(&error));
    let set = obeyed.and_then(|()| if engine.is_read_only() { Ok(()) } else { store(engine, settings) });
    if set.is_err() {
        if engine.vdevs.gate().failure().is_some() {
            imported.pool.abandon();
        } else if let Err(error) = imported.pool.export() {
            tracing::warn!("pool {}: it could not be exported in order: {error}", imported.pool.name());
            imported.pool.abandon();
        }
    }
    set
}

/// Which state is asked for. As in OpenZFS, `-T` needs no `-F`.
fn rewind_of(import: &PoolImport) -> Rewind {
    match import.txg_max {
        _ if import.rewind_to_checkpoint => Rewind::ToCheckpoint,
        Some(txg) => Rewind::To(txg),
        None if import.rewind => Rewind::ToReadable { extreme: import.extreme },
        None => Rewind::No,
    }
}

fn in_words(rewound: Rewound) -> ImportRewound {
    ImportRewound { txg: rewound.txg, timestamp: rewound.timestamp, lost_seconds: rewound.lost_seconds }
}

/// A pool that cannot be read can perhaps be read with the devices that are missing (the other side of a mirror missed writes), or as it was a moment ago.
fn with_advice(mut failure: Failure, candidate: &Candidate, mut options: ImportOptions) -> Failure {
    if !matches!(failure.kind, FailureKind::Io | FailureKind::Checksum) {
        return failure;
    }
    let missing = scan::devices_missing(candidate);
    if !missing.is_empty() {
        failure.message.push_str(&format!("\n\tWhat is missing may have what cannot be read here: bring it back, and try again:\n\t  {}", missing.join("\n\t  ")));
    }
    options.rewind = Rewind::ToReadable { extreme: false };
    if let Ok(Some(rewound)) = Pool::rewind_dry(candidate, options) {
        failure.message.push_str(&format!(
            "\n\tRecovery is possible, but will result in some data loss: the pool can be returned to its state as of txg {}.\n\tApproximately {} seconds of data must be discarded, irreversibly.\n\tRecovery can be attempted by executing 'zpool import -F {}'; with '-F -n' it only says so.",
            rewound.txg, rewound.lost_seconds, candidate.config.name
        ));
    }
    failure
}

/// Why a pool cannot be imported.
fn import_failure(error: &crate::Error) -> Failure {
    match error.kind() {
        ErrorKind::NoDevice => Failure::with(FailureKind::NoReplicas, error.message()),
        ErrorKind::Busy => Failure::with(FailureKind::PoolBusy, error.message()),
        ErrorKind::Denied if error.message().contains("hostid") => Failure::with(FailureKind::OtherHost, error.message()),
        ErrorKind::Io if error.message().contains("in use") => Failure::with(FailureKind::PoolBusy, error.message()),
        _ => Failure::about_pool(error),
    }
}
