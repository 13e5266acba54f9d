//! The health of an imported pool.

use engine::error::Result;
use engine::pool::{NO_HEARTBEAT, RebuildProgress, Removal};
use engine::pool::expansion::ExpansionProgress;
use engine::pool::checkpoint::Checkpoint;
use ondisk::indirect::{REMOVAL_ACTIVE, REMOVAL_FINISHED};
use ondisk::rebuild::RebuildState as Rebuilding;

use super::devices::shown;
use super::error_log;
use super::maintenance::scrub;
use crate::Pool;
use crate::control::pools::Imported;
use crate::control::scan;
use crate::control::{
    CheckpointState, CheckpointStatus, ExpansionStatus, PoolState, PoolStatus, RebuildState, RebuildStatus, RemovalStatus, ScanState, Suspension, VdevStatus,
};

/// What `zpool status` shows. What cannot be read is left out: a damaged pool is shown, and got rid of, like any other.
pub(in crate::control::pools) fn status(name: &str, imported: &Imported) -> PoolStatus {
    let pool = &imported.pool;
    let mut status = status_of(name, pool);
    imported.auxiliary.lock().status.show_in(&mut status);
    shown::show_caches(pool, &mut status.caches);
    status.root.stats.age_ns = pool.engine().context.host.now_ns().saturating_sub(imported.since_ns);
    status
}

/// What was read, if it could be.
pub(super) fn readable<T: Default>(pool: &Pool, what: &str, read: Result<T>) -> T {
    read.unwrap_or_else(|error| {
        // Commands that wait ask several times in a second.
        tracing::debug!("pool {}: {what} cannot be read, and is not shown: {error}", pool.name());
        T::default()
    })
}

fn status_of(name: &str, pool: &Pool) -> PoolStatus {
    let engine = pool.engine();
    let config = engine.config();
    let suspension = suspension(engine);
    let suspended = suspension.is_some();
    let root = shown::pool_status(pool);
    PoolStatus {
        name: name.to_owned(),
        guid: config.guid,
        state: PoolState::Active,
        txg: engine.uberblock().txg,
        version: config.version,
        caches: Vec::new(),
        spares: Vec::new(),
        // A pool that has stopped may have lost what these are read from.
        scan: if suspended { None } else { readable(pool, "the last scan", scrub::last_scan(pool)) },
        error_scrub: scrub::last_error_scrub(pool),
        rebuilds: engine.rebuild_progress().into_iter().filter_map(rebuild).collect(),
        checkpoint: if suspended { None } else { readable(pool, "the checkpoint", checkpoint(pool, &root)) },
        removal: if suspended { None } else { readable(pool, "the last removal", engine.last_removal()).map(removal) },
        expansion: engine.expansion_progress().map(expansion),
        root,
        dedup: None,
        error_count: if suspended { None } else { Some(error_log::count(pool)) },
        errors: Vec::new(),
        compatibility: scan::compatibility_of(config.compatibility.as_ref(), &|feature| engine.dsl.meta.features.is_enabled(feature)),
        suspended: suspension,
    }
}

/// How the pool has stopped, if it has. What stopped it for good comes first: `zpool clear` is of no use then.
fn suspension(engine: &engine::pool::Pool) -> Option<Suspension> {
    let gate = engine.vdevs.gate();
    match engine.context.groups.failure() {
        Some(failure) if failure.message().contains(NO_HEARTBEAT) => Some(Suspension::Multihost),
        Some(_) => Some(Suspension::Ended),
        None if gate.failure().is_none() => None,
        None if gate.refusal().is_some() => Some(Suspension::Continuing),
        None => Some(Suspension::Waiting),
    }
}

fn checkpoint(pool: &Pool, root: &VdevStatus) -> Result<Option<CheckpointStatus>> {
    let space = root.children.iter().map(|top| top.stats.checkpoint_space).sum();
    let state = |discarding| if discarding { CheckpointState::Discarding } else { CheckpointState::Exists };
    let status = |checkpoint: Checkpoint| CheckpointStatus { state: state(checkpoint.discarding), start_time: checkpoint.time, space };
    Ok(pool.engine().checkpoint()?.map(status))
}

fn rebuild(progress: RebuildProgress) -> Option<RebuildStatus> {
    let RebuildProgress { vdev, record, pass_time_ms, pass_scanned, pass_issued, pass_skipped } = progress;
    let state = match record.state {
        Rebuilding::None => return None,
        Rebuilding::Active => RebuildState::Active,
        Rebuilding::Canceled => RebuildState::Canceled,
        Rebuilding::Complete => RebuildState::Complete,
    };
    Some(RebuildStatus {
        state,
        vdev,
        start_time: record.start_time,
        end_time: record.end_time,
        scan_time_ms: record.scan_time_ms,
        scanned: record.scanned,
        issued: record.issued,
        rebuilt: record.rebuilt,
        estimate: record.estimate,
        errors: record.errors,
        pass_time_ms,
        pass_scanned,
        pass_issued,
        pass_skipped,
    })
}

fn expansion(progress: ExpansionProgress) -> ExpansionStatus {
    let ExpansionProgress { vdev, is_done, start_time, end_time, to_move, moved, waits } = progress;
    let state = if is_done { ScanState::Finished } else { ScanState::Scanning };
    ExpansionStatus { state, vdev, start_time, end_time, to_move, moved, waits }
}

fn removal(removal: Removal) -> RemovalStatus {
    let Removal { phys, map_bytes } = removal;
    let state = match phys.state {
        REMOVAL_ACTIVE => ScanState::Scanning,
        REMOVAL_FINISHED => ScanState::Finished,
        _ => ScanState::Canceled,
    };
    RemovalStatus {
        state,
        vdev: phys.vdev,
        start_time: phys.start_time,
        end_time: phys.end_time,
        to_copy: phys.to_copy,
        copied: phys.copied,
        mapping_memory: map_bytes,
    }
}
