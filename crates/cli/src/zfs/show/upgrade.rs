//! `zfs upgrade`, as far as it shows versions.

use tarnfs::control::{DatasetKinds, Wanted};

use crate::session::{Outcome, Session, complain, say};
use crate::text::getopt::Options;
use crate::zfs::change::mount::number;
use crate::zfs::datasets::{self, Query};

const FILESYSTEM: DatasetKinds = DatasetKinds { filesystem: true, volume: false, snapshot: false, bookmark: false };
/// What each version of a file system brought.
const VERSIONS: [&str; 5] = [
    "Initial ZFS filesystem version",
    "Enhanced directory entries",
    "Case insensitive and filesystem user identifier (FUID)",
    "userquota, groupquota properties",
    "System attributes",
];

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "rvV:a", &[]);
    let (mut shows, mut changes) = (false, false);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'v' => shows = true,
            _ => changes = true,
        }
    }
    let operands = options.operands();
    match (shows, changes || !operands.is_empty()) {
        (true, true) => Err(session.misuse("-v cannot be used with other options or a filesystem")),
        (true, false) => Ok(versions(session)),
        (false, true) => {
            complain!(session, "zfs upgrade: not yet supported by this version of tarn, except to show versions");
            Ok(1)
        }
        (false, false) => list(session),
    }
}

fn versions(session: &mut Session<'_>) -> u8 {
    say!(session, "The following filesystem versions are supported:\n");
    say!(session, "VER  DESCRIPTION");
    say!(session, "---  --------------------------------------------------------");
    for (at, words) in VERSIONS.iter().enumerate() {
        say!(session, "{:>2}   {words}", at + 1);
    }
    say!(session, "\nFor more information on a particular version, including supported releases,");
    say!(session, "see the ZFS Administration Guide.\n");
    0
}

fn list(session: &mut Session<'_>) -> Outcome {
    let newest = VERSIONS.len() as u64;
    let (entries, code) = datasets::gather(session, &[], &Query::new(FILESYSTEM, Wanted::Only(vec!["version".to_owned()])))?;
    let old: Vec<_> = entries
        .iter()
        .filter_map(|entry| Some((number(entry, "version").filter(|version| *version < newest)?, &entry.name)))
        .collect();
    say!(session, "This system is currently running ZFS filesystem version {newest}.\n");
    if old.is_empty() {
        say!(session, "All filesystems are formatted with the current version.");
        return Ok(code);
    }
    say!(session, "The following filesystems are out of date, and can be upgraded.  After being");
    say!(session, "upgraded, these filesystems (and any 'zfs send' streams generated from");
    say!(session, "subsequent snapshots) will no longer be accessible by older software versions.\n");
    say!(session, "\nVER  FILESYSTEM");
    say!(session, "---  ------------");
    for (version, name) in old {
        say!(session, "{version:>2}   {name}");
    }
    Ok(code)
}
