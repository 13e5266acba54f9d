//! The health of an imported pool.

use engine::dsl::meta::key;
use engine::error::Result;
use engine::pool::Removal;
use engine::pool::checkpoint::Checkpoint;
use ondisk::indirect::{REMOVAL_ACTIVE, REMOVAL_FINISHED};

use super::devices::shown;
use super::error_log;
use crate::Pool;
use crate::control::pools::{Failure, Imported};
use crate::control::scan;
use crate::control::{
    CheckpointState, CheckpointStatus, PoolState, PoolStatus, RemovalStatus, ScanFunction, ScanState, ScanStatus, VdevStatus,
};

/// Key of the MOS directory.
const SCAN: &str = "scan";
/// A scan is paused.
const SCAN_FLAG_PAUSED: u64 = 2;
/// The words of a scan's record: up to the flags.
const SCAN_WORDS: usize = 24;

/// What `zpool status` shows.
pub(in crate::control::pools) fn status(name: &str, imported: &Imported) -> Result<PoolStatus, Failure> {
    let pool = &imported.pool;
    let mut status = status_of(name, pool).map_err(|error| Failure::about_pool(&error))?;
    imported.auxiliary.lock().status.show_in(&mut status);
    status.root.stats.age_ns = pool.engine().context.host.now_ns().saturating_sub(imported.since_ns);
    Ok(status)
}

fn status_of(name: &str, pool: &Pool) -> Result<PoolStatus> {
    let engine = pool.engine();
    let config = engine.config();
    let waits = engine.vdevs.gate().failure().is_some();
    let suspended = waits || engine.context.groups.failure().is_some();
    let root = shown::pool_status(pool);
    Ok(PoolStatus {
        name: name.to_owned(),
        guid: config.guid,
        state: PoolState::Active,
        txg: engine.uberblock().txg,
        version: config.version,
        caches: Vec::new(),
        spares: Vec::new(),
        // A pool that has stopped may have lost what these are read from.
        scan: if suspended { None } else { last_scan(pool)? },
        checkpoint: if suspended { None } else { checkpoint(pool, &root)? },
        removal: if suspended { None } else { engine.last_removal()?.map(removal) },
        root,
        dedup: None,
        error_count: if suspended { None } else { Some(error_log::count(pool)?) },
        errors: Vec::new(),
        features_disabled: scan::lacks_features(config.compatibility.as_ref(), &|feature| engine.dsl.meta.features.is_enabled(feature)),
        suspended: suspended.then_some(u64::from(engine.vdevs.gate().refusal().is_some())),
    })
}

fn checkpoint(pool: &Pool, root: &VdevStatus) -> Result<Option<CheckpointStatus>> {
    let space = root.children.iter().map(|top| top.stats.checkpoint_space).sum();
    let state = |discarding| if discarding { CheckpointState::Discarding } else { CheckpointState::Exists };
    let status = |checkpoint: Checkpoint| CheckpointStatus { state: state(checkpoint.discarding), start_time: checkpoint.time, space };
    Ok(pool.engine().checkpoint()?.map(status))
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

/// The last scan, as it was when somebody last wrote of it: this program does none yet.
fn last_scan(pool: &Pool) -> Result<Option<ScanStatus>> {
    let Some(value) = pool.engine().dsl.meta.mos.zap_get(key::DIRECTORY, SCAN)? else { return Ok(None) };
    let words = value.to_u64s();
    if words.len() < SCAN_WORDS {
        return Ok(None);
    }
    let function = match words[0] {
        1 => ScanFunction::Scrub,
        2 => ScanFunction::Resilver,
        3 => ScanFunction::ErrorScrub,
        _ => return Ok(None),
    };
    let state = match words[1] {
        1 => ScanState::Scanning,
        2 => ScanState::Finished,
        3 => ScanState::Canceled,
        _ => return Ok(None),
    };
    let paused = words[SCAN_WORDS - 1] & SCAN_FLAG_PAUSED != 0;
    Ok(Some(ScanStatus {
        function,
        state,
        start_time: words[7],
        end_time: words[8],
        to_examine: words[9],
        examined: words[10],
        skipped: words[11],
        processed: words[12],
        errors: words[13],
        issued: if state == ScanState::Finished { words[10].saturating_sub(words[11]) } else { 0 },
        pass_examined: 0,
        pass_issued: 0,
        pass_start: words[7],
        pause_time: if paused { words[7] } else { 0 },
        spent_paused: 0,
    }))
}
