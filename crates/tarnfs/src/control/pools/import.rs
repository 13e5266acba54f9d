//! `zpool import`: looking, and importing.

use std::path::PathBuf;

use engine::dsl::feature::Unsupported;
use engine::error::ErrorKind;
use engine::host::{Host, RealHost};
use engine::pool::config;
use engine::pool::examine::{Examined, examine};
use engine::pool::import::Candidate;
use ondisk::feature::{Feature, Support};

use super::create::{PoolSettings, When};
use super::{Failure, FailureKind, Imported, Pools, inspect, names, not_yet, vdevs};
use crate::control::{FoundPool, PoolImport, PoolScan, PoolState, PoolStatus, UnsupportedFeature, VdevAux, VdevState, VdevStatus};
use crate::{ImportOptions, Pool, find_pools};

/// Where pools are looked for when nobody says where.
const USUAL_PLACES: [&str; 9] = [
    "/dev/disk/by-vdev",
    "/dev/mapper",
    "/dev/disk/by-partlabel",
    "/dev/disk/by-partuuid",
    "/dev/disk/by-label",
    "/dev/disk/by-uuid",
    "/dev/disk/by-id",
    "/dev/disk/by-path",
    "/dev",
];

fn places(paths: &[PathBuf]) -> Vec<PathBuf> {
    if paths.is_empty() { USUAL_PLACES.iter().map(PathBuf::from).collect() } else { paths.to_vec() }
}

impl Pools {
    /// Pools that are there and not imported.
    fn candidates(&self, paths: &[PathBuf], destroyed: bool) -> Vec<Candidate> {
        let mut found = find_pools(&places(paths));
        found.retain(|candidate| {
            let is_imported = self.pools.values().any(|imported| imported.pool.engine().guid() == candidate.config.guid);
            !is_imported && (candidate.config.state == config::PoolState::Destroyed) == destroyed
        });
        found
    }

    pub(super) fn scan(&self, scan: &PoolScan) -> Vec<FoundPool> {
        self.candidates(&scan.paths, scan.destroyed).iter().map(describe).collect()
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

fn state_of(state: config::PoolState) -> PoolState {
    match state {
        config::PoolState::Active => PoolState::Active,
        config::PoolState::Exported => PoolState::Exported,
        config::PoolState::Destroyed => PoolState::Destroyed,
        config::PoolState::Spare | config::PoolState::CacheDevice => PoolState::Unavailable,
    }
}

/// What was found out about a pool.
struct Findings {
    root: VdevStatus,
    unsupported: Vec<UnsupportedFeature>,
    can_read_only: bool,
    features_disabled: bool,
}

impl Findings {
    fn cannot_open(mut root: VdevStatus, aux: VdevAux) -> Findings {
        root.state = VdevState::CantOpen;
        root.aux = aux;
        Findings { root, unsupported: Vec::new(), can_read_only: false, features_disabled: false }
    }
}

fn describe(candidate: &Candidate) -> FoundPool {
    let config = &candidate.config;
    let findings = match examine(candidate, RealHost::shared()) {
        Ok(examined) => of_readable(&examined),
        Err(error) => of_unreadable(candidate, &error),
    };
    let uberblock = candidate.uberblock();
    let status = PoolStatus {
        name: config.name.clone(),
        guid: config.guid,
        state: state_of(config.state),
        txg: uberblock.txg,
        version: config.version,
        root: findings.root,
        caches: Vec::new(),
        spares: Vec::new(),
        scan: None,
        checkpoint: None,
        dedup: None,
        error_count: None,
        errors: Vec::new(),
        features_disabled: findings.features_disabled && config.compatibility.is_none(),
        suspended: None,
    };
    FoundPool {
        status,
        comment: config.comment.as_ref().map(ToString::to_string),
        hostname: Some(config.host_name.to_string()).filter(|name| !name.is_empty()),
        hostid: config.host_id,
        other_host: candidate.is_in_use_elsewhere(RealHost.host_id()),
        timestamp: uberblock.timestamp,
        unsupported: findings.unsupported,
        can_read_only: findings.can_read_only,
    }
}

fn of_readable(examined: &Examined) -> Findings {
    let root = vdevs::tree_status(&examined.vdevs, None);
    if !examined.unsupported.is_empty() {
        let named = |feature: &Unsupported| UnsupportedFeature { guid: feature.guid.clone(), description: feature.description.clone() };
        let unsupported = examined.unsupported.iter().map(named).collect();
        let can_read_only = examined.unsupported.iter().all(|feature| feature.readable);
        return Findings { unsupported, can_read_only, ..Findings::cannot_open(root, VdevAux::UnsupportedFeature) };
    }
    if examined.vdevs.check_complete().is_err() {
        let aux = if root.aux == VdevAux::None { VdevAux::NoReplicas } else { root.aux };
        return Findings::cannot_open(root, aux);
    }
    let features_disabled = inspect::lacks_features(&|feature| examined.features.is_enabled(feature));
    Findings { root, unsupported: Vec::new(), can_read_only: false, features_disabled }
}

fn of_unreadable(candidate: &Candidate, error: &crate::Error) -> Findings {
    let has = |guid: u64| candidate.devices.iter().any(|device| device.guid == guid);
    let root = vdevs::config_status(&candidate.vdev_tree, &has);
    tracing::debug!(pool = candidate.config.name, %error, "cannot be imported");
    if error.kind() == ErrorKind::Unsupported {
        let mut unsupported = Vec::new();
        for (guid, _) in &candidate.config.features_for_read {
            let known = guid.to_str().and_then(Feature::from_guid).is_some_and(|feature| feature.info().support >= Support::Read);
            if !known {
                unsupported.push(UnsupportedFeature { guid: guid.to_string(), description: String::new() });
            }
        }
        if unsupported.is_empty() {
            // A kind of vdev, or a version: the engine's sentence says which.
            unsupported.push(UnsupportedFeature { guid: error.message().to_owned(), description: String::new() });
        }
        return Findings { unsupported, ..Findings::cannot_open(root, VdevAux::UnsupportedFeature) };
    }
    let missing = !candidate.missing_tops.is_empty();
    let aux = match error.kind() {
        ErrorKind::NoDevice if missing => VdevAux::BadGuidSum,
        _ if missing => VdevAux::BadGuidSum,
        ErrorKind::NoDevice => VdevAux::NoReplicas,
        _ if root.children.iter().any(|top| top.state != VdevState::Healthy) => VdevAux::NoReplicas,
        _ => VdevAux::CorruptData,
    };
    Findings::cannot_open(root, aux)
}
