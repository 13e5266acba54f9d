//! The lines of `zpool status` about the removal of a vdev.

use tarnfs::control::{PoolStatus, RemovalStatus, ScanState};

use crate::session::{Session, say};
use crate::text::units::{clock_time, nice_number};
use crate::zpool::spec::vdev_name::{Naming, type_word};

/// After this many hours no end is foretold.
const HOURS_MAX: u64 = 30 * 24;

/// The name of the vdev that is or was removed: as OpenZFS has it without its number.
pub(in crate::zpool) fn name(status: &PoolStatus, removal: &RemovalStatus) -> String {
    match status.root.children.iter().find(|vdev| vdev.id == removal.vdev) {
        Some(vdev) if vdev.path.is_none() => type_word(vdev.kind).to_owned(),
        Some(vdev) => Naming { path: true, ..Naming::default() }.name(vdev, &status.name),
        None => removal.vdev.to_string(),
    }
}

/// `remove: …`
pub(in crate::zpool) fn print(session: &mut Session<'_>, status: &PoolStatus) {
    let Some(removal) = &status.removal else { return };
    let zone = session.zone.clone();
    match removal.state {
        ScanState::Finished => {
            let minutes = removal.end_time.saturating_sub(removal.start_time) / 60;
            let (copied, when) = (nice_number(removal.copied), clock_time(removal.end_time, &zone));
            let (vdev, hours, minutes) = (removal.vdev, minutes / 60, minutes % 60);
            say!(session, "remove: Removal of vdev {vdev} copied {copied} in {hours}h{minutes}m, completed on {when}");
        }
        ScanState::Canceled => {
            say!(session, "remove: Removal of {} canceled on {}", name(status, removal), clock_time(removal.end_time, &zone));
        }
        ScanState::Scanning => print_running(session, status, removal),
    }
    if removal.mapping_memory > 0 {
        say!(session, "\t{} memory used for removed device mappings", nice_number(removal.mapping_memory));
    }
}

fn print_running(session: &mut Session<'_>, status: &PoolStatus, removal: &RemovalStatus) {
    let since = clock_time(removal.start_time, &session.zone.clone());
    say!(session, "remove: Evacuation of {} in progress since {since}", name(status, removal));
    let (copied, total) = (removal.copied.max(1), removal.to_copy);
    let rate = (copied / session.now.saturating_sub(removal.start_time).max(1)).max(1);
    let minutes = total.saturating_sub(copied) / rate / 60;
    let percent = 100.0 * copied as f64 / total.max(1) as f64;
    let end = match minutes / 60 {
        hours if hours < HOURS_MAX => format!("{hours}h{}m to go", minutes % 60),
        _ => "(copy is slow, no estimated time)".to_owned(),
    };
    let [copied, total, rate] = [copied, total, rate].map(nice_number);
    say!(session, "\t{copied} copied out of {total} at {rate}/s, {percent:.2}% done, {end}");
}
