//! `zfs mount`
//!
//! # Theory
//!
//! Whether a file system is to be mounted is the command's decision, by its `mountpoint`, `canmount` and key; how, is
//! the daemon's. Named alone, a file system that cannot be mounted is an error; among all, it is passed over.

use tarnfs::control::{DatasetEntry, DatasetKind, DatasetKinds, DatasetMount, Failure, FailureKind, Request, Wanted};

use crate::session::{Outcome, Session, Stop, complain, say, worst};
use crate::text::getopt::{Long, Options};
use crate::text::json;
use crate::zfs::datasets::{self, Query};

const LONG: &[Long] = &[("json", 'j')];
const FILESYSTEM: DatasetKinds = DatasetKinds { filesystem: true, volume: false, snapshot: false, bookmark: false };
/// Numbers of the words of `canmount`.
const CAN_MOUNT_OFF: u64 = 0;
const CAN_MOUNT_NOAUTO: u64 = 2;
/// So many are asked for at once: other commands have their turn in between.
pub(super) const AT_ONCE: usize = 1024;
/// Number of `encryption=off`, and of `keystatus=unavailable`.
const ENCRYPTION_OFF: u64 = 2;
const KEY_UNAVAILABLE: u64 = 1;
pub(crate) const PROPERTIES: &[&str] = &["mountpoint", "canmount", "mounted", "zoned", "encryption", "keystatus", "inconsistent", "receive_resume_token", "redacted"];

#[derive(Default)]
struct Flags {
    all: bool,
    recurse: bool,
    json: bool,
    options: Vec<String>,
    overlay: bool,
    force: bool,
    load_key: bool,
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, ":ajRlvo:Of", LONG);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match (letter, argument) {
            ('a', _) => flags.all = true,
            ('R', _) => flags.recurse = true,
            ('j', _) => flags.json = true,
            ('l', _) => flags.load_key = true,
            ('O', _) => flags.overlay = true,
            ('f', _) => flags.force = true,
            ('o', Some(list)) if list.is_empty() => return Err(session.misuse("empty mount options (-o) specified")),
            ('o', Some(list)) => flags.options.extend(list.split(',').map(str::to_owned)),
            _ => {}
        }
    }
    Ok((flags, options.operands()))
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (flags, operands) = parse(session, words)?;
    if (flags.json || flags.all) && !operands.is_empty() {
        return Err(session.misuse("too many arguments"));
    }
    if flags.recurse && operands.is_empty() {
        return Err(session.misuse("no dataset provided"));
    }
    if flags.all || flags.recurse {
        return mount_many(session, &flags, &operands);
    }
    match operands.as_slice() {
        [] if !flags.options.is_empty() => Err(session.misuse("missing filesystem argument (specify -a for all)")),
        [] => list(session, flags.json),
        [name] => {
            let entry = datasets::open(session, name, FILESYSTEM, PROPERTIES)?;
            mount_one(session, &entry, &flags, true)
        }
        _ => Err(session.misuse("too many arguments")),
    }
}

fn list(session: &mut Session<'_>, as_json: bool) -> Outcome {
    let mounts = session.mounts().map_err(|failure| session.failed("cannot list mounts", &failure))?;
    let mut list = json::Object::new();
    for mount in mounts.iter().filter(|mount| !mount.dataset.contains('@')) {
        if as_json {
            let item = serde_json::json!({ "filesystem": mount.dataset, "mountpoint": mount.mountpoint });
            list.insert(mount.dataset.clone(), item);
        } else {
            say!(session, "{:<30}  {}", mount.dataset, mount.mountpoint);
        }
    }
    if as_json && !list.is_empty() {
        let mut object = json::envelope("zfs mount");
        object.insert("datasets".into(), list.into());
        json::print(session, object);
    }
    Ok(0)
}

fn mount_many(session: &mut Session<'_>, flags: &Flags, operands: &[String]) -> Outcome {
    let wanted = Wanted::Only(PROPERTIES.iter().map(|name| (*name).to_owned()).collect());
    let mut query = Query::new(FILESYSTEM, wanted);
    query.recurse = true;
    let (mut entries, mut code) = datasets::gather(session, operands, &query)?;
    // What is above goes first.
    entries.sort_by(|a, b| mountpoint(a).cmp(mountpoint(b)));
    if flags.options.iter().any(|option| option == "remount") {
        for entry in &entries {
            code = worst(code, mount_one(session, entry, flags, false)?);
        }
        return Ok(code);
    }
    let due: Vec<&DatasetEntry> = entries.iter().filter(|entry| number(entry, "mounted") != Some(1) && obstacle(entry, flags, false).is_none()).collect();
    for some in due.chunks(AT_ONCE) {
        code = worst(code, mount_each(session, some, flags)?);
    }
    Ok(code)
}

/// Mounts several with one request, so that they are made beside one another.
fn mount_each(session: &mut Session<'_>, entries: &[&DatasetEntry], flags: &Flags) -> Outcome {
    let requests = entries.iter().map(|entry| request(entry, flags)).collect();
    let failures = session.mounted(Request::DatasetsMount(requests)).map_err(|failure| session.failed("cannot mount", &failure))?;
    let mut code = 0;
    for (entry, failure) in entries.iter().zip(failures) {
        if let Some(failure) = failure {
            say_not_mounted(session, entry, &failure, false);
            code = 1;
        }
    }
    Ok(code)
}

pub(crate) fn mountpoint(entry: &DatasetEntry) -> &str {
    entry.property("mountpoint").and_then(|value| value.value.text()).unwrap_or("none")
}

pub(in crate::zfs) fn number(entry: &DatasetEntry, name: &str) -> Option<u64> {
    entry.property(name).and_then(|value| value.value.number())
}

/// Why a file system is not to be mounted; empty means it is, quietly.
fn obstacle(entry: &DatasetEntry, flags: &Flags, explicit: bool) -> Option<Vec<String>> {
    let cannot = |words: &str| Some(vec![format!("cannot mount '{}': {words}", entry.name)]);
    if number(entry, "zoned") == Some(1) {
        return cannot("dataset is exported to a local zone");
    }
    match mountpoint(entry) {
        "legacy" => {
            let mut lines = cannot("legacy mountpoint")?;
            lines.push("use mount(8) to mount this filesystem".to_owned());
            return Some(lines);
        }
        "none" => return cannot("no mountpoint set"),
        _ => {}
    }
    match number(entry, "canmount") {
        Some(CAN_MOUNT_OFF) => return cannot("'canmount' property is set to 'off'"),
        Some(CAN_MOUNT_NOAUTO) if !explicit => return Some(Vec::new()),
        _ => {}
    }
    let encrypted = number(entry, "encryption").is_some_and(|cipher| cipher != ENCRYPTION_OFF);
    if !flags.load_key && encrypted && is_locked(entry) {
        return cannot("encryption key not loaded");
    }
    let token = entry.property("receive_resume_token").and_then(|value| value.value.text()).unwrap_or("");
    if number(entry, "inconsistent") == Some(1) && !matches!(token, "" | "-") {
        return cannot("Contains partially-completed state from \"zfs receive -s\", which can be resumed with \"zfs send -t\"");
    }
    if number(entry, "redacted") == Some(1) && !flags.force {
        return cannot("Dataset is not complete, was created by receiving a redacted zfs send stream.");
    }
    None
}

/// It is encrypted, and its key is not there.
pub(super) fn is_locked(entry: &DatasetEntry) -> bool {
    number(entry, "keystatus") == Some(KEY_UNAVAILABLE)
}

fn mount_one(session: &mut Session<'_>, entry: &DatasetEntry, flags: &Flags, explicit: bool) -> Outcome {
    if let Some(lines) = obstacle(entry, flags, explicit) {
        if !explicit {
            return Ok(0);
        }
        for line in lines {
            complain!(session, "{line}");
        }
        return Ok(1);
    }
    let remounting = flags.options.iter().any(|option| option == "remount");
    if number(entry, "mounted") == Some(1) && !remounting {
        if explicit {
            complain!(session, "cannot mount '{}': filesystem already mounted", entry.name);
            return Ok(1);
        }
        return Ok(0);
    }
    match request_mount(session, entry, flags) {
        Ok(()) => Ok(0),
        Err(failure) => {
            say_not_mounted(session, entry, &failure, explicit);
            Ok(1)
        }
    }
}

fn request_mount(session: &mut Session<'_>, entry: &DatasetEntry, flags: &Flags) -> Result<(), Failure> {
    session.perform(Request::DatasetMount(request(entry, flags)))
}

fn request(entry: &DatasetEntry, flags: &Flags) -> DatasetMount {
    DatasetMount {
        name: entry.name.clone(),
        options: flags.options.clone(),
        overlay: flags.overlay,
        force: flags.force,
        load_key: flags.load_key,
        at: None,
    }
}

fn say_not_mounted(session: &mut Session<'_>, entry: &DatasetEntry, failure: &Failure, explicit: bool) {
    // What is in the way is in a directory.
    let what = if failure.message == "directory is not empty" { mountpoint(entry) } else { &entry.name };
    session.failed(format_args!("cannot mount '{what}'"), failure);
    if explicit && failure.message.starts_with("failed to create mountpoint") {
        session.hint(elsewhere(&entry.name));
    }
}

/// Mounts a file system that was just made, if its properties say so. Failure is no failure of its making.
pub(crate) fn mount_after(session: &mut Session<'_>, name: &str) -> Outcome {
    let entry = datasets::open(session, name, FILESYSTEM, PROPERTIES)?;
    if obstacle(&entry, &Flags::default(), false).is_some() {
        return Ok(0);
    }
    match request_mount(session, &entry, &Flags::default()) {
        Ok(()) => Ok(0),
        Err(failure) if failure.kind == FailureKind::Permission => {
            complain!(session, "filesystem successfully created, but it may only be mounted by root");
            Ok(1)
        }
        Err(failure) => {
            say_not_mounted(session, &entry, &failure, false);
            complain!(session, "filesystem successfully created, but not mounted");
            say_how(session, &entry);
            Ok(1)
        }
    }
}

/// Mounts a file system that was received, or was mounted before, if its properties say so.
pub(crate) fn mount_received(session: &mut Session<'_>, name: &str) -> Outcome {
    let entry = datasets::open(session, name, FILESYSTEM, PROPERTIES)?;
    mount_one(session, &entry, &Flags::default(), false)
}

/// How to mount what could not be mounted when it was made.
fn say_how(session: &mut Session<'_>, entry: &DatasetEntry) {
    let (name, place) = (&entry.name, mountpoint(entry));
    complain!(session, "to mount it on {place}, when that can be: tarn zfs mount {name}");
    complain!(session, "{}", elsewhere(name));
}

fn elsewhere(name: &str) -> String {
    format!("to mount it on another directory: tarn zfs set -u mountpoint=DIRECTORY {name} && tarn zfs mount {name}")
}

/// Mounts the root of a pool that was just made; its failure is the command's.
pub(crate) fn mount_root(session: &mut Session<'_>, pool: &str) -> Outcome {
    let entry = datasets::open(session, pool, FILESYSTEM, PROPERTIES)?;
    if obstacle(&entry, &Flags::default(), false).is_some() {
        return Ok(0);
    }
    let code = mount_one(session, &entry, &Flags::default(), false)?;
    if code != 0 {
        complain!(session, "the pool '{pool}' was created and is imported, but its file system is not mounted");
        say_how(session, &entry);
    }
    Ok(code)
}

/// Mounts every file system of a pool that is to be mounted without being named; says whether all could be.
pub(crate) fn mount_pool(session: &mut Session<'_>, pool: &str, options: &[String], load_key: bool) -> Outcome {
    let flags = Flags { options: options.to_vec(), load_key, ..Flags::default() };
    mount_many(session, &flags, &[pool.to_owned()])
}

/// The kind that can be mounted.
pub(super) const KIND: DatasetKind = DatasetKind::Filesystem;
