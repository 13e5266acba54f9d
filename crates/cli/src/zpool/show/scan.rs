//! The lines of `zpool status` about scrubs, resilvers and checkpoints.

use tarnfs::control::{CheckpointState, CheckpointStatus, ErrorScrubStatus, ExpansionStatus, PoolStatus, RebuildState, ScanFunction, ScanState, ScanStatus};

use crate::session::{Session, say};
use crate::text::units::{clock_time, duration, nice_bytes, nice_number};

mod rebuild;

/// No end is foretold that is further away.
const ESTIMATE_SECONDS_MAX: u64 = 30 * 24 * 3600;
/// Below this rate no end is foretold.
const RATE_MIN: u64 = 10 << 20;

/// `scan: …`: the last scrub, and the last resilver or rebuild, whichever that was.
pub(in crate::zpool) fn print(session: &mut Session<'_>, status: &PoolStatus) {
    let is_rebuilding = status.rebuilds.iter().any(|rebuild| rebuild.state == RebuildState::Active);
    let rebuilt = status.rebuilds.iter().map(|rebuild| rebuild.end_time).max().unwrap_or(0);
    if let Some(errors) = &status.error_scrub {
        print_errors(session, errors);
    }
    if let Some(scan) = status.scan.as_ref().filter(|scan| scan.function == ScanFunction::Resilver || status.error_scrub.as_ref().is_none_or(|errors| scan.start_time > errors.start_time)) {
        let is_last = scan.state == ScanState::Scanning || !is_rebuilding && scan.end_time >= rebuilt;
        if scan.function != ScanFunction::Resilver || is_last {
            print_scan(session, scan);
        }
    }
    let resilvered = status.scan.as_ref().filter(|scan| scan.function == ScanFunction::Resilver);
    let is_last = resilvered.is_none_or(|scan| scan.state != ScanState::Scanning && rebuilt > scan.end_time);
    if is_rebuilding || is_last {
        rebuild::print(session, status);
    }
    if let Some(scan) = &status.scan {
        print_warning(session, scan, status.checkpoint.as_ref());
    }
}

fn print_scan(session: &mut Session<'_>, scan: &ScanStatus) {
    let zone = session.zone.clone();
    let (noun, verb) = match scan.function {
        ScanFunction::Resilver => ("resilver", "resilvered"),
        ScanFunction::Scrub | ScanFunction::ErrorScrub => ("scrub", "scrub repaired"),
    };
    match scan.state {
        ScanState::Finished => {
            let took = duration(scan.end_time.saturating_sub(scan.start_time));
            let when = clock_time(scan.end_time, &zone);
            say!(session, "  scan: {verb} {} in {took} with {} errors on {when}", nice_bytes(scan.processed), scan.errors);
        }
        ScanState::Canceled => say!(session, "  scan: {noun} canceled on {}", clock_time(scan.end_time, &zone)),
        ScanState::Scanning => print_running(session, scan, noun),
    }
}

fn print_errors(session: &mut Session<'_>, scrub: &ErrorScrubStatus) {
    let zone = session.zone.clone();
    match scrub.state {
        ScanState::Finished => {
            let took = scrub.end_time.saturating_sub(scrub.start_time);
            // Its days are always there.
            let took = format!("{} days {:02}:{:02}:{:02}", took / 86400, took / 3600 % 24, took / 60 % 60, took % 60);
            say!(session, " scrub: scrubbed {} error blocks in {took} on {}", scrub.examined, clock_time(scrub.end_time, &zone));
        }
        ScanState::Canceled => say!(session, " scrub: error scrub canceled on {}", clock_time(scrub.end_time, &zone)),
        ScanState::Scanning => {
            let verb = if scrub.is_paused { "paused" } else { "in progress" };
            say!(session, " scrub: error scrub {verb} since {}", clock_time(scrub.start_time, &zone));
            let percent = 100.0 * scrub.examined as f64 / (scrub.to_examine + scrub.examined).max(1) as f64;
            say!(session, "\t{percent:.2}% done, issued I/O for {} error blocks", scrub.examined);
        }
    }
}

fn print_warning(session: &mut Session<'_>, scan: &ScanStatus, checkpoint: Option<&CheckpointStatus>) {
    if let Some(checkpoint) = checkpoint.filter(|checkpoint| checkpoint.state == CheckpointState::Exists) {
        let running = scan.state == ScanState::Scanning;
        if running || scan.end_time >= checkpoint.start_time {
            let verb = if running { "skipping" } else { "skipped" };
            say!(session, "    scan warning: {verb} blocks that are only referenced by the checkpoint.");
        }
    }
}

fn print_running(session: &mut Session<'_>, scan: &ScanStatus, noun: &str) {
    let zone = session.zone.clone();
    let is_resilver = scan.function == ScanFunction::Resilver;
    let paused = !is_resilver && scan.pause_time != 0;
    let since = clock_time(scan.start_time, &zone);
    if paused {
        say!(session, "  scan: scrub paused since {}", clock_time(scan.pause_time, &zone));
        say!(session, "\tscrub started on {since}");
    } else {
        say!(session, "  scan: {noun} in progress since {since}");
    }
    let elapsed = session.now.saturating_sub(scan.pass_start).saturating_sub(scan.spent_paused).max(1);
    let (found_rate, read_rate) = (scan.pass_examined / elapsed, scan.pass_issued / elapsed);
    let lately = if scan.recent_rate > 0 { scan.recent_rate } else { read_rate };
    let total = scan.to_examine.saturating_sub(scan.skipped);
    let rate = |rate: u64| if !paused && rate > 0 { format!(" at {}/s", nice_bytes(rate)) } else { String::new() };
    say!(
        session,
        "\t{} / {} scanned{}, {} / {} issued{}",
        nice_bytes(scan.examined),
        nice_bytes(scan.to_examine),
        rate(found_rate),
        nice_bytes(scan.issued),
        nice_bytes(total),
        rate(read_rate)
    );
    let percent = 100.0 * scan.issued as f64 / total as f64;
    let verb = if is_resilver { "resilvered" } else { "repaired" };
    let started = if is_resilver { scan.processed > 0 } else { scan.issued > 0 };
    let end = if paused {
        String::new()
    } else if total >= scan.issued && lately >= RATE_MIN && started {
        format!(", {} to go", duration((total - scan.issued) / lately))
    } else {
        ", no estimated completion time".to_owned()
    };
    say!(session, "\t{} {verb}, {percent:.2}% done{end}", nice_bytes(scan.processed));
}

/// What the vdev is called that got a device more.
pub(super) fn expanded_name(status: &PoolStatus, expansion: &ExpansionStatus) -> String {
    top_name(status, expansion.vdev)
}

/// What the top-level vdev of this number is called.
pub(super) fn top_name(status: &PoolStatus, id: u64) -> String {
    let vdev = status.root.children.iter().find(|vdev| vdev.id == id);
    vdev.map_or_else(|| format!("vdev {id}"), |vdev| crate::zpool::spec::vdev_name::Naming::default().name(vdev, ""))
}

/// `expand: …`
pub(super) fn print_expansion(session: &mut Session<'_>, status: &PoolStatus) {
    let Some(expansion) = &status.expansion else { return };
    let (zone, name) = (session.zone.clone(), expanded_name(status, expansion));
    if expansion.state != ScanState::Scanning {
        let took = duration(expansion.end_time.saturating_sub(expansion.start_time));
        let when = clock_time(expansion.end_time, &zone);
        say!(session, "expand: expanded {name} copied {} in {took}, on {when}", nice_number(expansion.moved));
        return;
    }
    say!(session, "expand: expansion of {name} in progress since {}", clock_time(expansion.start_time, &zone));
    let (moved, total) = (expansion.moved.max(1), expansion.to_move);
    let rate = (moved / session.now.saturating_sub(expansion.start_time).max(1)).max(1);
    let percent = 100.0 * moved as f64 / total.max(1) as f64;
    let left = total.saturating_sub(moved) / rate;
    let end = if expansion.waits {
        ", paused for resilver or clear".to_owned()
    } else if left < ESTIMATE_SECONDS_MAX {
        format!(", {} to go", duration(left))
    } else {
        ", (copy is slow, no estimated time)".to_owned()
    };
    say!(session, "\t{} / {} copied at {}/s, {percent:.2}% done{end}", nice_number(moved), nice_number(total), nice_number(rate));
}

/// `checkpoint: …`
pub(super) fn print_checkpoint(session: &mut Session<'_>, checkpoint: Option<&CheckpointStatus>) {
    let Some(checkpoint) = checkpoint else { return };
    let space = nice_number(checkpoint.space);
    match checkpoint.state {
        CheckpointState::Exists => {
            let when = clock_time(checkpoint.start_time, &session.zone.clone());
            say!(session, "checkpoint: created {when}, consumes {space}");
        }
        CheckpointState::Discarding => say!(session, "checkpoint: discarding, {space} remaining."),
    }
}
