//! The lines of `zpool status` about sequential rebuilds.

use tarnfs::control::{PoolStatus, RebuildState, RebuildStatus};

use super::top_name;
use crate::session::{Session, say};
use crate::text::units::{clock_time, duration, nice_bytes};

/// Below this rate no end is foretold.
const RATE_MIN: u64 = 10 << 20;

/// `scan: …` of each vdev that was rebuilt.
pub(super) fn print(session: &mut Session<'_>, status: &PoolStatus) {
    for rebuild in &status.rebuilds {
        let name = top_name(status, rebuild.vdev);
        let (zone, end) = (session.zone.clone(), rebuild.end_time);
        match rebuild.state {
            RebuildState::Complete => {
                let (took, when) = (duration(rebuild.scan_time_ms / 1000), clock_time(end, &zone));
                say!(session, "  scan: resilvered ({name}) {} in {took} with {} errors on {when}", nice_bytes(rebuild.rebuilt), rebuild.errors);
            }
            RebuildState::Canceled => say!(session, "  scan: resilver ({name}) canceled on {}", clock_time(end, &zone)),
            RebuildState::Active => print_running(session, rebuild, &name),
        }
    }
}

fn print_running(session: &mut Session<'_>, rebuild: &RebuildStatus, name: &str) {
    say!(session, "  scan: resilver ({name}) in progress since {}", clock_time(rebuild.start_time, &session.zone.clone()));
    let rate = |bytes: u64| bytes / (rebuild.pass_time_ms + 1) * 1000;
    let shown = |rate: u64| if rate > 0 { format!(" at {}/s", nice_bytes(rate)) } else { String::new() };
    let (scan_rate, issue_rate) = (rate(rebuild.pass_scanned), rate(rebuild.pass_issued));
    let to_issue = rebuild.estimate.saturating_sub(rebuild.pass_skipped);
    say!(
        session,
        "\t{} / {} scanned{}, {} / {} issued{}",
        nice_bytes(rebuild.scanned),
        nice_bytes(rebuild.estimate),
        shown(scan_rate),
        nice_bytes(rebuild.issued),
        nice_bytes(to_issue),
        shown(issue_rate)
    );
    let percent = (rebuild.scanned as f64 * 100.0 / (rebuild.estimate + 1) as f64).min(100.0);
    let end = if rebuild.estimate >= rebuild.scanned && scan_rate >= RATE_MIN {
        format!(", {} to go", duration((rebuild.estimate - rebuild.scanned) / scan_rate))
    } else {
        ", no estimated completion time".to_owned()
    };
    say!(session, "\t{} resilvered, {percent:.2}% done{end}", nice_bytes(rebuild.rebuilt));
}
