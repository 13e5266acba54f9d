//! `tarn fs undelete`: lists what was deleted and can still be had, or copies it out.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tarnfs::past::{self, Deleted, Holder, Moment, Past, PastPool};
use tarnfs::FileKind;

use super::at::target_name;
use super::place::{FilePlace, directory_place};
use super::{Flags, failed, holders_json, moment_of, open, parse, say_behind, shown_holders, shown_time};
use crate::fs::copy::copy_out;
use crate::fs::host::HostTree;
use crate::fs::pool::PoolTree;
use crate::fs::tree::{Kind, Result, Tree, ancestors, components, join, shown};
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

/// Copies all of it to below a directory, under the paths that it had below the one that was named; if that is gone itself, under its name.
fn copy(session: &mut Session<'_>, past: &Past, place: &FilePlace, deleted: &[Deleted], target: &Path) -> Outcome {
    let mut failures = Vec::new();
    let mut copied = 0;
    let is_gone = deleted.iter().any(|deleted| within(&deleted.path) == place.path);
    let above = if is_gone { place.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0) } else { place.path.len() };
    // A directory brings what was below it when it was there last. What was gone by then is brought for itself.
    let mut directories: HashSet<&[u8]> = HashSet::new();
    let mut host = HostTree::new(target.to_owned());
    for deleted in deleted {
        let inner = within(&deleted.path);
        let to = components(inner.get(above..).unwrap_or(inner)).fold(Vec::new(), |to, name| join(&to, name));
        // A link that was deleted may have had the name of an older directory: both cannot be there, and what was in that one does not go where the link leads.
        if let Some(other) = ancestors(&to).find(|above| host.entry(above).is_ok_and(|entry| entry.kind != Kind::Directory)) {
            failures.push(format!("{}: '{}' is in the way", shown(&deleted.path), host.shown(other)));
            continue;
        }
        if ancestors(inner).any(|directory| directories.contains(directory)) && host.entry(&to).is_ok() {
            continue;
        }
        match bring(past, place, deleted, &mut host, &to) {
            Ok(mut words) => {
                failures.append(&mut words);
                if deleted.stat.kind() == FileKind::Directory {
                    directories.insert(inner);
                }
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

/// A path below the root, without a slash in front.
fn within(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

/// Copies one thing from what has its newest version: a file rather from a snapshot, which keeps all of it; a directory from the newest, in which what is
/// below it is as it was last.
fn bring(past: &Past, place: &FilePlace, deleted: &Deleted, host: &mut HostTree, to: &[u8]) -> Result<Vec<String>> {
    let mut holders: Vec<&Holder> = deleted.holders.iter().collect();
    if deleted.stat.kind() != FileKind::Directory {
        holders.sort_by_key(|holder| matches!(holder, Holder::Group(_)));
    }
    let file = FilePlace { dataset: place.dataset.clone(), path: within(&deleted.path).to_vec(), host: None };
    let mut refused = format!("{}: nothing has it any more", shown(&deleted.path));
    for holder in holders {
        let moment = match holder {
            Holder::Snapshot(name) => Moment::Snapshot(name.clone()),
            Holder::Group(txg) => Moment::Group(*txg),
            Holder::Now => Moment::Now,
        };
        match open_with(past, &file, &moment) {
            Ok((pool, name)) => {
                host.make_ancestors(to)?;
                let mut from = PoolTree::new((*pool).clone(), &name)?;
                return Ok(copy_out(&mut from, &file.path, host, to));
            }
            Err(words) => refused = words,
        }
    }
    Err(refused)
}

/// Opens a state that has a file.
fn open_with(past: &Past, file: &FilePlace, moment: &Moment) -> Result<(PastPool, String)> {
    let (pool, name) = past.open_at(&file.dataset, moment).map_err(|error| format!("{}: {}", shown(&file.path), error.message()))?;
    let mut tree = PoolTree::new((*pool).clone(), &name)?;
    tree.entry(&file.path)?;
    Ok((pool, name))
}
