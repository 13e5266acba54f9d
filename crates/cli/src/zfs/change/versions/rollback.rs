//! `zfs rollback`
//!
//! # Theory
//!
//! Only the newest snapshot can be rolled back to. What is newer than the one that is named is destroyed before: snapshots and bookmarks with `-r`,
//! with `-R` the clones of those, too. Without, it is only listed.

use tarnfs::control::{DatasetEntry, DatasetKind, DatasetKinds, DatasetRollback, Request};

use crate::zfs::change::destroy::{self, dependents, destroy_all};
use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::Options;
use crate::zfs::datasets::{self, Query};

#[derive(Default)]
struct Flags {
    recurse: bool,
    clones: bool,
    force: bool,
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut flags = Flags::default();
    let mut options = Options::new(words, "rRf", &[]);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'r' => flags.recurse = true,
            'R' => (flags.recurse, flags.clones) = (true, true),
            _ => flags.force = true,
        }
    }
    let operands = options.operands();
    let [name] = operands.as_slice() else {
        return Err(session.misuse(if operands.is_empty() { "missing dataset argument" } else { "too many arguments" }));
    };
    let snapshot = datasets::open(session, name, DatasetKinds::NONE.with(DatasetKind::Snapshot), &[])?;
    let head = snapshot.name.split('@').next().unwrap_or_default().to_owned();
    let newer = newer_than(session, &head, &snapshot)?;
    if !flags.clones {
        check(session, &flags, name, &newer)?;
    }
    let roll_back = |session: &mut Session<'_>, dry_run: bool| {
        let request = DatasetRollback { snapshot: snapshot.name.clone(), dry_run };
        session.perform(Request::DatasetRollback(request)).map_err(|failure| session.failed(format_args!("cannot rollback '{head}'"), &failure))
    };
    // What is destroyed for a rollback that then cannot be done is gone for nothing.
    if !newer.is_empty() {
        roll_back(session, true)?;
    }
    for entry in newer {
        let mut all = if entry.kind == DatasetKind::Snapshot { dependents(session, &entry.name, entry.kind)? } else { Vec::new() };
        all.push(entry);
        let flags = destroy::Flags::for_rollback(flags.force);
        if destroy_all(session, &flags, &all)? != 0 {
            return Ok(1);
        }
    }
    roll_back(session, false)?;
    Ok(0)
}

/// Snapshots and bookmarks of the dataset that are newer than one of its snapshots, the newest first.
fn newer_than(session: &mut Session<'_>, head: &str, snapshot: &DatasetEntry) -> Result<Vec<DatasetEntry>, Stop> {
    let kinds = DatasetKinds::NONE.with(DatasetKind::Snapshot).with(DatasetKind::Bookmark);
    let mut query = Query::new(kinds, tarnfs::control::Wanted::Only(Vec::new()));
    query.recurse = true;
    query.depth = Some(1);
    let (mut found, _) = datasets::gather(session, &[head.to_owned()], &query)?;
    found.retain(|entry| entry.creation_txg > snapshot.creation_txg);
    // Snapshots before bookmarks, each oldest first.
    found.sort_by_key(|entry| (entry.kind == DatasetKind::Bookmark, entry.creation_txg));
    Ok(found)
}

/// Complains about what the flags do not allow to destroy.
fn check(session: &mut Session<'_>, flags: &Flags, target: &str, newer: &[DatasetEntry]) -> Result<(), Stop> {
    let mut in_the_way = Vec::new();
    for entry in newer {
        if !flags.recurse {
            in_the_way.push(entry.name.clone());
        } else if entry.kind == DatasetKind::Snapshot {
            in_the_way.extend(dependents(session, &entry.name, entry.kind)?.into_iter().map(|dependent| dependent.name));
        }
    }
    if in_the_way.is_empty() {
        return Ok(());
    }
    let (what, option, of) = match flags.recurse {
        false => ("more recent snapshots or bookmarks", "-r", "snapshots and bookmarks"),
        true => ("clones of previous snapshots", "-R", "clones and dependents"),
    };
    complain!(session, "cannot rollback to '{target}': {what} exist");
    complain!(session, "use '{option}' to force deletion of the following {of}:");
    for name in in_the_way {
        complain!(session, "{name}");
    }
    Err(Stop::Code(1))
}
