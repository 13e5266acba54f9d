//! `zpool scrub`, `zpool resilver`, and what `zpool status` says of the last scan.

use engine::dsl::meta::key;
use engine::error::{Error, ErrorKind, Result};
use engine::pool::{ScanPace, ScanProgress, ScrubOf};
use ondisk::error_scrub::{ErrorScrubRecord, ErrorScrubState};
use ondisk::scan::{ScanFunction as Function, ScanRecord, ScanState as State};

use crate::Pool;
use crate::control::pools::beside::Table;
use crate::control::pools::{Failure, FailureKind};
use crate::control::{ErrorScrubStatus, PoolScrub, ScanFunction, ScanState, ScanStatus, ScrubCommand};

/// Begins, pauses or ends a scan.
pub(in crate::control::pools) fn scrub(table: &Table, scrub: &PoolScrub) -> std::result::Result<(), Failure> {
    let Some(imported) = table.get(&scrub.name) else { return Err(Failure::new(FailureKind::NoSuchPool)) };
    let engine = imported.pool.engine();
    if engine.is_read_only() {
        return Err(Failure::new(FailureKind::PoolReadOnly));
    }
    let done = match scrub.command {
        ScrubCommand::Begin => engine.scrub(false),
        ScrubCommand::BeginFromLast => engine.scrub(true),
        ScrubCommand::BeginBetween(start, end) => engine.scrub_of(ScrubOf::Between(start, end)),
        ScrubCommand::BeginErrors => engine.scrub_errors(),
        ScrubCommand::Pause => engine.pause_scrub(),
        ScrubCommand::Stop => engine.stop_scrub(),
        ScrubCommand::Resilver => engine.resilver(),
    };
    done.map_err(|error| refusal(&error))
}

/// What stands in the way, in the words for it.
fn refusal(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Busy => Failure::with(FailureKind::PoolBusy, error.message()),
        ErrorKind::NotFound | ErrorKind::NotSupported => Failure::with(FailureKind::PoolNotSupported, error.message()),
        _ => Failure::about_pool(error),
    }
}

/// The last scan: as it is now, or in a pool that may only be read as it was when somebody last wrote of it.
pub(in crate::control::pools) fn last_scan(pool: &Pool) -> Result<Option<ScanStatus>> {
    if let Some(progress) = pool.engine().scan_progress() {
        let mut status = status(&progress);
        // One resilver after the other is one, to those who wait for it.
        if status.function == ScanFunction::Resilver && status.state == ScanState::Finished && pool.engine().is_resilver_due() {
            status.state = ScanState::Scanning;
        }
        return Ok(Some(status));
    }
    let Some(value) = pool.engine().dsl.meta.mos.zap_get(key::DIRECTORY, key::SCAN)? else { return Ok(None) };
    Ok(ScanRecord::from_words(&value.to_u64s()).map(|record| {
        status(&ScanProgress {
            issued: if record.state == State::Finished { record.examined.saturating_sub(record.skipped) } else { 0 },
            pass_examined: 0,
            pass_issued: 0,
            pass_start: record.start_time,
            pause_time: if record.is_paused() { record.start_time } else { 0 },
            spent_paused: 0,
            pace: ScanPace::default(),
            cut: 0,
            record,
        })
    }))
}

/// The last error scrub.
pub(in crate::control::pools) fn last_error_scrub(pool: &Pool) -> Option<ErrorScrubStatus> {
    let ErrorScrubRecord { state, start_time, end_time, to_examine, examined, errors, is_paused, .. } = pool.engine().error_scrub()?;
    let state = match state {
        ErrorScrubState::Running => ScanState::Scanning,
        ErrorScrubState::Finished => ScanState::Finished,
        ErrorScrubState::Canceled => ScanState::Canceled,
    };
    Some(ErrorScrubStatus { state, start_time, end_time, to_examine, examined, errors, is_paused })
}

fn status(progress: &ScanProgress) -> ScanStatus {
    let record = &progress.record;
    ScanStatus {
        function: match record.function {
            Function::Scrub => ScanFunction::Scrub,
            Function::Resilver => ScanFunction::Resilver,
        },
        state: match record.state {
            State::Scanning => ScanState::Scanning,
            State::Finished => ScanState::Finished,
            State::Canceled => ScanState::Canceled,
        },
        start_time: record.start_time,
        end_time: record.end_time,
        to_examine: record.to_examine,
        examined: record.examined,
        skipped: record.skipped,
        processed: record.processed,
        errors: record.errors,
        issued: progress.issued,
        pass_examined: progress.pass_examined,
        pass_issued: progress.pass_issued,
        pass_start: progress.pass_start,
        pause_time: progress.pause_time,
        spent_paused: progress.spent_paused,
        recent_rate: progress.pace.rate(),
    }
}
