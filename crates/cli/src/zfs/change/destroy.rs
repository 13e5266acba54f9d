//! `zfs destroy`
//!
//! # Theory
//!
//! What depends on a dataset is destroyed before it: the datasets below it, its snapshots in the order of their
//! making, and the clones of each snapshot before the snapshot. Without `-r` (children) or `-R` (clones elsewhere) the
//! same walk only lists what would have to go. Snapshots that follow each other go in one request, all or none.

use std::collections::HashSet;

use tarnfs::control::{DatasetDestroy, DatasetEntry, DatasetKind, DatasetKinds, Request, SnapshotsDestroy, SnapshotsSpace};

use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::Options;
use crate::text::units;
use crate::zfs::datasets::{self, Query};

#[derive(Default)]
pub(super) struct Flags {
    verbose: bool,
    parsable: bool,
    dry_run: bool,
    defer: bool,
    force: bool,
    recurse: bool,
    clones: bool,
}

impl Flags {
    /// For what a rollback destroys before: nothing is reported, and all that depends on it was found.
    pub(super) fn for_rollback(force: bool) -> Flags {
        Flags { recurse: true, force, ..Flags::default() }
    }
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut flags = Flags::default();
    let mut options = Options::new(words, "vpndfrR", &[]);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'v' => flags.verbose = true,
            'p' => (flags.verbose, flags.parsable) = (true, true),
            'n' => flags.dry_run = true,
            'd' => flags.defer = true,
            'f' => flags.force = true,
            'r' => flags.recurse = true,
            _ => (flags.recurse, flags.clones) = (true, true),
        }
    }
    let operands = options.operands();
    let [name] = operands.as_slice() else {
        return Err(session.misuse(if operands.is_empty() { "missing dataset argument" } else { "too many arguments" }));
    };
    if let Some((dataset, snapshots)) = name.split_once('@') {
        return destroy_snapshots(session, &flags, dataset, snapshots);
    }
    if name.contains('#') {
        return destroy_bookmark(session, &flags, name);
    }
    destroy_dataset(session, &flags, name)
}

fn is_below(name: &str, ancestor: &str) -> bool {
    name.strip_prefix(ancestor).is_some_and(|rest| rest.starts_with(['/', '@']))
}

/// Everything that must go before `name`, in the order in which it must go.
pub(super) fn dependents(session: &mut Session<'_>, name: &str, kind: DatasetKind) -> Result<Vec<DatasetEntry>, Stop> {
    Walk::new(session, false).all(name, kind)
}

/// The walk over what depends on a dataset. A clone may be below the dataset, too, and is found once.
struct Walk<'w, 's> {
    session: &'w mut Session<'s>,
    /// A dataset that depends on itself is no error; it is not found again.
    loops_are_passed_over: bool,
    /// The datasets on the way.
    path: Vec<String>,
    found: HashSet<String>,
    all: Vec<DatasetEntry>,
}

impl<'w, 's> Walk<'w, 's> {
    fn new(session: &'w mut Session<'s>, loops_are_passed_over: bool) -> Walk<'w, 's> {
        Walk { session, loops_are_passed_over, path: Vec::new(), found: HashSet::new(), all: Vec::new() }
    }

    fn all(mut self, name: &str, kind: DatasetKind) -> Result<Vec<DatasetEntry>, Stop> {
        self.visit(name, kind)?;
        Ok(self.all)
    }

    /// Adds what depends on a dataset; `false`: the walk is at that dataset already.
    fn visit(&mut self, name: &str, kind: DatasetKind) -> Result<bool, Stop> {
        if self.path.iter().any(|known| known == name) {
            if self.loops_are_passed_over {
                return Ok(false);
            }
            complain!(self.session, "cannot determine dependent datasets: recursive dependency at '{name}'");
            return Err(Stop::Code(1));
        }
        let nearest = match kind {
            DatasetKind::Snapshot => self.clones(name)?,
            _ => self.children(name)?,
        };
        self.path.push(name.to_owned());
        for dependent in nearest {
            if !self.found.contains(&dependent.name) && self.visit(&dependent.name, dependent.kind)? {
                self.found.insert(dependent.name.clone());
                self.all.push(dependent);
            }
        }
        self.path.pop();
        Ok(true)
    }

    fn clones(&mut self, snapshot: &str) -> Result<Vec<DatasetEntry>, Stop> {
        let snapshot = datasets::open(self.session, snapshot, DatasetKinds::NONE.with(DatasetKind::Snapshot), &["clones"])?;
        let clones = snapshot.property("clones").and_then(|value| value.value.text()).unwrap_or("").to_owned();
        clones.split(',').filter(|clone| !clone.is_empty()).map(|clone| datasets::open(self.session, clone, DatasetKinds::HEADS, &[])).collect()
    }

    /// Datasets first, then snapshots.
    fn children(&mut self, head: &str) -> Result<Vec<DatasetEntry>, Stop> {
        let mut query = Query::new(DatasetKinds::DATASETS, tarnfs::control::Wanted::Only(Vec::new()));
        query.recurse = true;
        query.depth = Some(1);
        let (mut children, _) = datasets::gather(self.session, &[head.to_owned()], &query)?;
        children.retain(|child| child.name != head);
        children.sort_by_key(|child| child.kind == DatasetKind::Snapshot);
        Ok(children)
    }
}

/// Complains about dependents that the flags do not allow to destroy.
fn check(session: &mut Session<'_>, flags: &Flags, target: &str, kind: DatasetKind, dependents: &[DatasetEntry]) -> Result<(), Stop> {
    let mut first = true;
    for dependent in dependents {
        let child = is_below(&dependent.name, target);
        let (what, option) = match child {
            true if flags.recurse => continue,
            true => ("children", "-r"),
            false if !flags.recurse && kind != DatasetKind::Snapshot => continue,
            false => ("dependent clones", "-R"),
        };
        if std::mem::take(&mut first) {
            complain!(session, "cannot destroy '{target}': {} has {what}", kind.word());
            complain!(session, "use '{option}' to destroy the following datasets:");
        }
        complain!(session, "{}", dependent.name);
    }
    if first { Ok(()) } else { Err(Stop::Code(1)) }
}

fn report(session: &mut Session<'_>, flags: &Flags, name: &str) {
    if flags.parsable {
        say!(session, "destroy\t{name}");
    } else if flags.verbose {
        say!(session, "{} destroy {name}", if flags.dry_run { "would" } else { "will" });
    }
}

/// Destroys a run of snapshots.
fn destroy_batch(session: &mut Session<'_>, flags: &Flags, batch: &mut Vec<String>) -> Result<(), Stop> {
    if batch.is_empty() {
        return Ok(());
    }
    let names = std::mem::take(batch);
    match session.refusals(Request::SnapshotsDestroy(SnapshotsDestroy { names, defer: flags.defer })) {
        Ok(refusals) if refusals.is_empty() => Ok(()),
        Ok(refusals) => {
            for refusal in refusals {
                session.failed(format_args!("cannot destroy snapshot {}", refusal.name), &refusal.failure);
            }
            Err(Stop::Code(1))
        }
        Err(failure) => Err(session.failed("cannot destroy snapshots", &failure)),
    }
}

/// Destroys datasets in order. The pool's root is left.
pub(super) fn destroy_all(session: &mut Session<'_>, flags: &Flags, all: &[DatasetEntry]) -> Outcome {
    let mut batch = Vec::new();
    let mut gone = HashSet::new();
    let mut code = 0;
    for entry in all {
        if !gone.insert(&entry.name) {
            continue;
        }
        report(session, flags, &entry.name);
        let is_pool = !entry.name.contains(['/', '@', '#']);
        if is_pool || flags.dry_run {
            continue;
        }
        if entry.kind == DatasetKind::Snapshot {
            batch.push(entry.name.clone());
            continue;
        }
        if let Err(stop) = destroy_batch(session, flags, &mut batch) {
            if !flags.recurse {
                return Err(stop);
            }
            // It has them still. What follows may go, as after a dataset that stays.
            code = 1;
            continue;
        }
        let request = DatasetDestroy { names: vec![entry.name.clone()], defer: false, force: flags.force };
        if let Err(failure) = session.perform(Request::DatasetDestroy(request)) {
            let stop = session.failed(format_args!("cannot destroy '{}'", entry.name), &failure);
            if !flags.recurse {
                return Err(stop);
            }
            code = 1;
        }
    }
    destroy_batch(session, flags, &mut batch)?;
    Ok(code)
}

fn destroy_dataset(session: &mut Session<'_>, flags: &Flags, name: &str) -> Outcome {
    let kinds = if flags.defer { DatasetKinds::NONE.with(DatasetKind::Snapshot) } else { DatasetKinds::DATASETS };
    let target = datasets::open(session, name, kinds, &[])?;
    if !flags.recurse && !name.contains('/') {
        complain!(session, "cannot destroy '{name}': operation does not apply to pools");
        complain!(session, "use 'zfs destroy -r {name}' to destroy all datasets in the pool");
        complain!(session, "use 'zpool destroy {name}' to destroy the pool itself");
        return Ok(1);
    }
    if !flags.clones {
        let all = Walk::new(session, true).all(name, target.kind)?;
        check(session, flags, name, target.kind, &all)?;
    }
    let mut all = dependents(session, name, target.kind)?;
    all.push(target);
    destroy_all(session, flags, &all)
}

/// Picks snapshots by `a,b%c,%d`: names, and ranges by time of making.
fn pick<'a>(snapshots: &'a [DatasetEntry], specification: &str) -> Vec<&'a DatasetEntry> {
    let short = |entry: &'a DatasetEntry| entry.name.split_once('@').map_or("", |(_, name)| name);
    let mut picked = vec![false; snapshots.len()];
    for part in specification.split(',') {
        let place = |name: &str| snapshots.iter().position(|entry| short(entry) == name);
        let range = match part.split_once('%') {
            None => place(part).map(|at| (at, at)),
            Some((first, last)) => {
                let begin = if first.is_empty() { Some(0) } else { place(first) };
                let end = if last.is_empty() { snapshots.len().checked_sub(1) } else { place(last) };
                begin.zip(end)
            }
        };
        if let Some((begin, end)) = range {
            picked.iter_mut().take(end + 1).skip(begin).for_each(|picked| *picked = true);
        }
    }
    snapshots.iter().zip(picked).filter_map(|(entry, picked)| picked.then_some(entry)).collect()
}

fn destroy_snapshots(session: &mut Session<'_>, flags: &Flags, dataset: &str, specification: &str) -> Outcome {
    let target = datasets::open(session, dataset, DatasetKinds::HEADS, &[])?;
    let mut heads = vec![target];
    if flags.recurse {
        heads.extend(datasets::below(session, dataset, DatasetKinds::HEADS, &[])?);
    }
    let mut chosen: Vec<DatasetEntry> = Vec::new();
    let mut ranges = Vec::new();
    for head in &heads {
        let mut query = Query::new(DatasetKinds::NONE.with(DatasetKind::Snapshot), tarnfs::control::Wanted::Only(vec!["clones".to_owned()]));
        query.recurse = true;
        query.depth = Some(1);
        let (snapshots, _) = datasets::gather(session, std::slice::from_ref(&head.name), &query)?;
        let picked = pick(&snapshots, specification);
        ranges.extend(in_a_row(&snapshots, &picked));
        chosen.extend(picked.into_iter().cloned());
    }
    let (mut clones, mut is_refused) = (Vec::new(), false);
    let is_cloned = |entry: &&DatasetEntry| entry.property("clones").and_then(|value| value.value.text()).is_some_and(|clones| !clones.is_empty());
    for snapshot in chosen.iter().filter(|_| flags.clones || !flags.defer).filter(is_cloned) {
        let dependents = dependents(session, &snapshot.name, DatasetKind::Snapshot)?;
        if !flags.clones {
            is_refused |= check(session, flags, &snapshot.name, DatasetKind::Snapshot, &dependents).is_err();
        }
        clones.extend(dependents);
    }
    if chosen.is_empty() {
        complain!(session, "could not find any snapshots to destroy; check snapshot names.");
        return Ok(1);
    }
    for snapshot in &chosen {
        report(session, flags, &snapshot.name);
    }
    if is_refused {
        return Ok(1);
    }
    report_space(session, flags, ranges)?;
    if flags.dry_run {
        return Ok(0);
    }
    if flags.clones {
        let now = Flags { defer: false, verbose: flags.verbose, parsable: flags.parsable, force: flags.force, ..Flags::default() };
        destroy_all(session, &now, &clones)?;
    }
    destroy_batch(session, flags, &mut chosen.into_iter().map(|entry| entry.name).collect())?;
    Ok(0)
}

/// The first and the last of those that follow each other: what only they have together comes free together.
fn in_a_row(all: &[DatasetEntry], picked: &[&DatasetEntry]) -> Vec<(String, String)> {
    let mut ranges: Vec<(String, String)> = Vec::new();
    let (mut goes_on, picked) = (false, picked.iter().map(|picked| &picked.name).collect::<HashSet<_>>());
    for entry in all {
        let is_picked = picked.contains(&entry.name);
        match ranges.last_mut() {
            Some((_, last)) if is_picked && goes_on => last.clone_from(&entry.name),
            _ if is_picked => ranges.push((entry.name.clone(), entry.name.clone())),
            _ => {}
        }
        goes_on = is_picked;
    }
    ranges
}

/// What comes free when the snapshots are gone.
fn report_space(session: &mut Session<'_>, flags: &Flags, ranges: Vec<(String, String)>) -> Result<(), Stop> {
    if !flags.verbose {
        return Ok(());
    }
    let total = session.space(Request::SnapshotsSpace(SnapshotsSpace { ranges })).map_err(|failure| session.failed("cannot estimate space", &failure))?;
    if flags.parsable {
        say!(session, "reclaim\t{total}");
    } else {
        say!(session, "{} reclaim {}", if flags.dry_run { "would" } else { "will" }, units::nice_bytes(total));
    }
    Ok(())
}

fn destroy_bookmark(session: &mut Session<'_>, flags: &Flags, name: &str) -> Outcome {
    for (given, words) in [(flags.dry_run, "dryrun"), (flags.defer, "defer destroy"), (flags.recurse, "recursive")] {
        if given {
            complain!(session, "{words} is not supported with bookmark");
            return Ok(255);
        }
    }
    let mut query = Query::new(DatasetKinds::NONE.with(DatasetKind::Bookmark), tarnfs::control::Wanted::Only(Vec::new()));
    query.recurse = true;
    query.depth = Some(1);
    let head = name.split('#').next().unwrap_or(name).to_owned();
    // A file system that is not there has no bookmarks.
    let is_there = session.datasets(Request::DatasetList(datasets::request(&query, Some(&head), Some(0)))).is_ok();
    let bookmarks = if is_there { datasets::gather(session, &[head], &query)?.0 } else { Vec::new() };
    if !bookmarks.iter().any(|bookmark| bookmark.name == name) {
        complain!(session, "bookmark '{name}' does not exist.");
        return Ok(1);
    }
    let request = DatasetDestroy { names: vec![name.to_owned()], defer: false, force: false };
    session.perform(Request::DatasetDestroy(request)).map_err(|failure| session.failed("cannot destroy bookmark", &failure))?;
    Ok(0)
}
