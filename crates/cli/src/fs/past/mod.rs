//! `tarn fs history`, `undelete`, `at`, `diff`: what files were before.
//!
//! # Theory
//! Everything is read from the devices themselves, beside the system that has the pool imported, and nothing is written; see [`tarnfs::past`]. So
//! the newest that is seen is what is on disk: a change of the last seconds is seen when its group is written, or after `zpool sync`.

pub(super) mod at;
pub(super) mod changes;
pub(super) mod history;
mod moment;
mod place;
pub(super) mod undelete;

use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use tarnfs::control::{PoolSelect, Request, VdevStatus, Wanted};
use tarnfs::past::{Holder, Past};

use super::tree::{Result, shown};
use crate::session::{Session, Stop, complain};
use crate::text::getopt::Options;

/// The options of these verbs.
#[derive(Debug, Default)]
struct Flags {
    pool_paths: Vec<PathBuf>,
    json: bool,
    scripted: bool,
    classify: bool,
    timestamp: bool,
    plain: bool,
}

impl Flags {
    /// Where the devices are, as it was given, for a command that is shown.
    fn shown_paths(&self) -> String {
        self.pool_paths.iter().map(|path| format!(" -d '{}'", shown(path.as_os_str().as_bytes()))).collect()
    }
}

/// The options, and the places and moments after them.
fn parse(session: &mut Session<'_>, given: &[OsString], letters: &'static str) -> std::result::Result<(Flags, Vec<OsString>), Stop> {
    let words = crate::texts(given);
    let mut flags = Flags::default();
    let mut options = Options::new(&words, letters, &[]);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match letter {
            'd' => flags.pool_paths.push(argument.unwrap_or_default().into()),
            'j' => flags.json = true,
            'F' => flags.classify = true,
            't' => flags.timestamp = true,
            'h' => flags.plain = true,
            _ => flags.scripted = true,
        }
    }
    Ok((flags, options.places().into_iter().map(|place| given[place].clone()).collect()))
}

/// The devices of a pool that the daemon has. `None`: it has no such pool.
fn devices(session: &mut Session<'_>, pool: &str) -> Option<Vec<PathBuf>> {
    fn leaves(vdev: &VdevStatus, paths: &mut Vec<PathBuf>) {
        if vdev.children.is_empty() && !vdev.not_present {
            paths.extend(vdev.path.as_ref().map(PathBuf::from));
        }
        vdev.children.iter().for_each(|child| leaves(child, paths));
    }
    let select = PoolSelect { name: Some(pool.to_owned()), properties: Wanted::Only(Vec::new()) };
    let status = session.status(Request::PoolStatus(select)).ok()?.pop()?;
    let mut paths = Vec::new();
    leaves(&status.root, &mut paths);
    Some(paths)
}

/// The past of a pool, which is looked for on the devices of the daemon's pool of that name, or where one is told.
pub(crate) fn open(session: &mut Session<'_>, pool: &str, given: &[PathBuf]) -> Result<Past> {
    let imported = if given.is_empty() { devices(session, pool) } else { None };
    let advice = if given.is_empty() && imported.is_none() { "; -d DIR says where its devices are" } else { "" };
    let paths = imported.unwrap_or_else(|| if given.is_empty() { vec![PathBuf::from("/dev")] } else { given.to_vec() });
    let found = Past::find(&paths, pool);
    found.map_err(|error| match unreadable(&paths) {
        Some(words) => format!("cannot look at pool '{pool}': {words}"),
        None => format!("cannot look at pool '{pool}': {}{advice}", error.message()),
    })
}

/// What is said of the first place, if none can be read.
fn unreadable(paths: &[PathBuf]) -> Option<String> {
    let refused = |path: &PathBuf| File::open(path).err().map(|error| format!("{}: {}", shown(path.as_os_str().as_bytes()), reason(&error)));
    let refusals: Vec<String> = paths.iter().map_while(refused).collect();
    if refusals.len() == paths.len() { refusals.into_iter().next() } else { None }
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => "what was is read from the pool's devices, and this user may not read them".to_owned(),
        _ => error.to_string(),
    }
}

/// Says that the newest group is damaged, if one after the state that is looked at is.
fn say_damage(session: &mut Session<'_>, verb: &str, past: &Past, lost: Option<u64>) {
    if let Some(txg) = lost {
        complain!(session, "tarn fs {verb}: pool '{}' is damaged: txg {txg}, its newest, cannot be read; an older one is looked at", past.name());
    }
}

/// As above, of the newest state that can be opened.
fn say_behind(session: &mut Session<'_>, verb: &str, past: &Past) {
    let lost = past.newest().ok().and_then(|newest| past.groups_after(newest.state).next());
    say_damage(session, verb, past, lost);
}

/// Says what went wrong, in the name of a verb.
fn failed(session: &mut Session<'_>, verb: &str, words: &str) -> Stop {
    complain!(session, "tarn fs {verb}: {words}");
    Stop::Code(1)
}

/// A time as these verbs show it, and read it.
fn shown_time(session: &Session<'_>, seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds).map(|time| time.to_zoned(session.zone.clone()));
    time.map_or_else(|_| seconds.to_string(), |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// What holds a version, in words: snapshots by name, groups by the first and last of each run.
fn shown_holders(holders: &[Holder]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut groups: Vec<u64> = Vec::new();
    for holder in holders {
        match holder {
            Holder::Now => words.push("now".to_owned()),
            Holder::Snapshot(name) => words.push(format!("@{name}")),
            Holder::Group(txg) => groups.push(*txg),
        }
    }
    // What something keeps is to be had without hurry.
    if words.is_empty()
        && let (Some(newest), Some(oldest)) = (groups.iter().max(), groups.iter().min())
    {
        words.push(if newest == oldest { format!("txg {newest}") } else { format!("txg {oldest}-{newest}") });
    }
    words.join(", ")
}

/// The same, to be read by a program.
fn holders_json(holders: &[Holder]) -> serde_json::Value {
    let each = holders.iter().map(|holder| match holder {
        Holder::Now => serde_json::json!({ "kind": "now" }),
        Holder::Snapshot(name) => serde_json::json!({ "kind": "snapshot", "name": name }),
        Holder::Group(txg) => serde_json::json!({ "kind": "txg", "txg": txg }),
    });
    each.collect()
}

/// What to give to `tarn fs at` for what is held.
fn moment_of(holders: &[Holder]) -> String {
    let kept = holders.iter().find(|holder| !matches!(holder, Holder::Group(_))).or(holders.first());
    match kept {
        Some(Holder::Snapshot(name)) => format!("@{name}"),
        Some(Holder::Group(txg)) => txg.to_string(),
        Some(Holder::Now) | None => "now".to_owned(),
    }
}
