//! `zfs upgrade`: versions of file systems, shown and raised.

use engine::dsl::prop_table;
use tarnfs::control::{DatasetEntry, DatasetKinds, DatasetSet, PoolSelect, Request, Setting, Wanted};

use crate::session::{Outcome, Session, Stop, say};
use crate::text::getopt::Options;
use crate::text::names;
use crate::zfs::change::mount::number;
use crate::zfs::datasets::{self, Query};

const FILESYSTEM: DatasetKinds = DatasetKinds { filesystem: true, volume: false, snapshot: false, bookmark: false };
/// What each version of a file system brought, and which version of pools it needs.
const VERSIONS: [(&str, u64); 5] = [
    ("Initial ZFS filesystem version", 1),
    ("Enhanced directory entries", 1),
    ("Case insensitive and filesystem user identifier (FUID)", 9),
    ("userquota, groupquota properties", 15),
    ("System attributes", 24),
];
const NEWEST: u64 = VERSIONS.len() as u64;

#[derive(Default)]
struct Flags {
    recurse: bool,
    all: bool,
    shows: bool,
    /// `-V`
    version: Option<u64>,
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "rvV:a", &[]);
    let mut flags = Flags::default();
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match letter {
            'r' => flags.recurse = true,
            'v' => flags.shows = true,
            'V' => {
                let word = argument.unwrap_or_default();
                let number = prop_table::find("version").and_then(|property| property.word_to_number(&word));
                flags.version = Some(number.ok_or_else(|| session.misuse(format_args!("invalid version {word}")))?);
            }
            _ => flags.all = true,
        }
    }
    let operands = options.operands();
    let changes = flags.all || !operands.is_empty();
    let of_changes = flags.recurse || flags.version.is_some();
    if (of_changes && !changes) || (flags.shows && (of_changes || changes)) || (flags.all && !operands.is_empty()) {
        return Err(Stop::Usage);
    }
    match (flags.shows, changes) {
        (true, _) => Ok(versions(session)),
        (false, true) => upgrade(session, &flags, &operands),
        (false, false) => list(session),
    }
}

/// What became of the file systems.
#[derive(Default)]
struct Counts {
    upgraded: u64,
    same: u64,
    failed: u64,
}

fn upgrade(session: &mut Session<'_>, flags: &Flags, operands: &[String]) -> Outcome {
    let wanted = flags.version.unwrap_or(NEWEST);
    let mut query = Query::new(FILESYSTEM, Wanted::Only(vec!["version".to_owned()]));
    query.recurse = flags.recurse || flags.all;
    query.paths = true;
    let (entries, code) = datasets::gather(session, operands, &query)?;
    let mut counts = Counts::default();
    for entry in entries {
        upgrade_one(session, &entry, wanted, &mut counts);
    }
    say!(session, "{} filesystems upgraded", counts.upgraded);
    if counts.same > 0 {
        say!(session, "{} filesystems already at this version", counts.same);
    }
    Ok(if counts.failed > 0 { 1 } else { code })
}

fn upgrade_one(session: &mut Session<'_>, entry: &DatasetEntry, wanted: u64, counts: &mut Counts) {
    let (name, version) = (&entry.name, number(entry, "version").unwrap_or(0));
    let needed = usize::try_from(wanted).ok().and_then(|wanted| VERSIONS.get(wanted.checked_sub(1)?)).map_or(0, |(_, pool)| *pool);
    if pool_version(session, name) < needed {
        say!(session, "{name}: can not be upgraded; the pool version needs to first be upgraded\nto version {needed}\n");
        counts.failed += 1;
    } else if version > wanted {
        say!(session, "{name}: can not be downgraded; it is already at version {version}");
        counts.failed += 1;
    } else if version == wanted {
        counts.same += 1;
    } else {
        let set = DatasetSet { name: name.clone(), settings: vec![Setting::new("version", wanted)], no_remount: false, received: false };
        match session.perform(Request::DatasetSet(set)) {
            Ok(()) => counts.upgraded += 1,
            Err(failure) => {
                session.failed(format_args!("cannot set property for '{name}'"), &failure);
                counts.failed += 1;
            }
        }
    }
}

fn pool_version(session: &mut Session<'_>, dataset: &str) -> u64 {
    let select = PoolSelect { name: Some(names::pool_of(dataset).to_owned()), properties: Wanted::Only(Vec::new()) };
    session.status(Request::PoolStatus(select)).ok().and_then(|pools| pools.first().map(|pool| pool.version)).unwrap_or(0)
}

fn versions(session: &mut Session<'_>) -> u8 {
    say!(session, "The following filesystem versions are supported:\n");
    say!(session, "VER  DESCRIPTION");
    say!(session, "---  --------------------------------------------------------");
    for (at, (words, _)) in VERSIONS.iter().enumerate() {
        say!(session, "{:>2}   {words}", at + 1);
    }
    say!(session, "\nFor more information on a particular version, including supported releases,");
    say!(session, "see the ZFS Administration Guide.\n");
    0
}

fn list(session: &mut Session<'_>) -> Outcome {
    let (entries, code) = datasets::gather(session, &[], &Query::new(FILESYSTEM, Wanted::Only(vec!["version".to_owned()])))?;
    let old: Vec<_> = entries
        .iter()
        .filter_map(|entry| Some((number(entry, "version").filter(|version| *version < NEWEST)?, &entry.name)))
        .collect();
    say!(session, "This system is currently running ZFS filesystem version {NEWEST}.\n");
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
