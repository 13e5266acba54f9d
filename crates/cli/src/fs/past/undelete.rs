//! `tarn fs undelete`: lists what was deleted and can still be had, or copies it out.

use std::ffi::OsString;
use std::path::PathBuf;

use tarnfs::past::{self, Deleted, Holder, Moment, Past};
use tarnfs::FileKind;

use super::at::{copy_to, target_name};
use super::place::{FilePlace, directory_place};
use super::{Flags, failed, holders_json, moment_of, open, parse, say_behind, shown_holders, shown_time};
use crate::fs::tree::{Result, shown};
use crate::session::{Outcome, Session, complain, say};
use crate::text::{json, names, units};

pub(in crate::fs) fn run(session: &mut Session<'_>, words: &[OsString]) -> Outcome {
    let (flags, operands) = parse(session, words, "d:Hj")?;
    let (directory, target) = match operands.as_slice() {
        [directory] => (directory, None),
        [directory, target] => (directory, Some(PathBuf::from(target))),
        [] => return Err(session.misuse("missing file or directory")),
        _ => return Err(session.misuse("too many arguments")),
    };
    let found = directory_place(session, directory).and_then(|place| look(session, &flags, place));
    let (past, place, deleted) = found.map_err(|words| failed(session, "undelete", &words))?;
    match target {
        Some(target) => copy(session, &past, &place, &deleted, &target),
        None => {
            list(session, &flags, &place, &deleted);
            Ok(0)
        }
    }
}

fn look(session: &mut Session<'_>, flags: &Flags, place: FilePlace) -> Result<(Past, FilePlace, Vec<Deleted>)> {
    let past = open(session, names::pool_of(&place.dataset), &flags.pool_paths)?;
    let directory = [b"/".as_slice(), place.path.as_slice()].concat();
    let deleted = past::deleted(&past, &place.dataset, &directory).map_err(|error| format!("{}: {}", place.shown(), error.message()))?;
    say_behind(session, "undelete", &past);
    Ok((past, place, deleted))
}

fn list(session: &mut Session<'_>, flags: &Flags, place: &FilePlace, deleted: &[Deleted]) {
    if flags.json {
        let each = deleted.iter().map(|deleted| {
            serde_json::json!({
                "path": shown(&deleted.path),
                "size": deleted.stat.size,
                "mode": deleted.stat.mode,
                "modified": deleted.stat.modification_time.seconds,
                "inode": deleted.stat.inode,
                "held_by": holders_json(&deleted.holders),
            })
        });
        let mut object = json::envelope("tarn fs undelete");
        object.insert("dataset".into(), place.dataset.as_str().into());
        object.insert("deleted".into(), each.collect());
        json::print(session, object);
        return;
    }
    if !flags.scripted {
        match deleted {
            [] => say!(session, "{}: nothing that was deleted can still be had", place.shown()),
            _ => say!(session, "{:<19}  {:>6}  {:<20}  PATH", "MODIFIED", "SIZE", "HELD BY"),
        }
    }
    for Deleted { path, stat, holders } in deleted {
        let slash = if stat.kind() == FileKind::Directory { "/" } else { "" };
        if flags.scripted {
            say!(session, "{}\t{}\t{}\t{}{slash}", stat.modification_time.seconds, stat.size, moment_of(holders), shown(path));
        } else {
            let time = shown_time(session, stat.modification_time.seconds);
            say!(session, "{time:<19}  {:>6}  {:<20}  {}{slash}", units::nice_bytes(stat.size), shown_holders(holders), shown(path));
        }
    }
    if !flags.scripted && !deleted.is_empty() {
        say!(session, "To copy all of it out: tarn fs undelete{} '{}' DIRECTORY", flags.shown_paths(), place.shown());
    }
}

/// Copies all of it to below a directory, under the paths that it had below the one that was named.
fn copy(session: &mut Session<'_>, past: &Past, place: &FilePlace, deleted: &[Deleted], target: &std::path::Path) -> Outcome {
    let mut failures = Vec::new();
    let mut copied = 0;
    // A directory brings what is below it; what is below it and gone since is not brought again.
    let mut done: Vec<&[u8]> = Vec::new();
    for Deleted { path, holders, .. } in deleted {
        let is_done = |directory: &&[u8]| path.strip_prefix(*directory).is_some_and(|rest| rest.starts_with(b"/"));
        if done.iter().any(is_done) {
            continue;
        }
        match bring(past, place, path, holders, target) {
            Ok(mut words) => {
                failures.append(&mut words);
                done.push(path);
                copied += 1;
            }
            Err(words) => failures.push(words),
        }
    }
    for words in &failures {
        complain!(session, "tarn fs undelete: {words}");
    }
    say!(session, "{copied} copied to {}", target_name(target));
    Ok(u8::from(!failures.is_empty()))
}

fn bring(past: &Past, place: &FilePlace, path: &[u8], holders: &[Holder], target: &std::path::Path) -> Result<Vec<String>> {
    use std::os::unix::ffi::OsStrExt;
    let moment = match holders.iter().find(|holder| !matches!(holder, Holder::Group(_))).or(holders.first()) {
        Some(Holder::Snapshot(name)) => Moment::Snapshot(name.clone()),
        Some(Holder::Group(txg)) => Moment::Group(*txg),
        Some(Holder::Now) | None => Moment::Now,
    };
    let (pool, name) = past.open_at(&place.dataset, &moment).map_err(|error| format!("{}: {}", shown(path), error.message()))?;
    let inner = path.strip_prefix(b"/").unwrap_or(path);
    let below = inner.strip_prefix(place.path.as_slice()).unwrap_or(inner);
    let below = below.strip_prefix(b"/").unwrap_or(below);
    let mut to = target.to_owned();
    let names: Vec<&[u8]> = if below.is_empty() { inner.rsplit(|byte| *byte == b'/').take(1).collect() } else { below.split(|byte| *byte == b'/').collect() };
    names.iter().for_each(|name| to.push(std::ffi::OsStr::from_bytes(name)));
    if let Some(above) = to.parent() {
        std::fs::create_dir_all(above).map_err(|error| format!("{}: {error}", target_name(above)))?;
    }
    let file = FilePlace { dataset: place.dataset.clone(), path: inner.to_vec(), host: None };
    if to.is_dir() && let Some(above) = to.parent() {
        // It is copied into the one that is there.
        return copy_to(&pool, &name, &file, above.to_owned());
    }
    copy_to(&pool, &name, &file, to)
}
