//! The model: what must be there after the verbs that were done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::error::ErrorKind;

use super::verb::{Change, Verb};
use crate::explore::op::bytes;

/// A file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct File {
    /// Contents.
    pub contents: Arc<Vec<u8>>,
    /// Permissions.
    pub mode: u32,
    /// Its one extended attribute.
    pub xattr: Option<Vec<u8>>,
}

/// The files of one version of a file system.
pub type Files = BTreeMap<String, File>;

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its number: another for each snapshot.
    pub number: u64,
    /// What its guid says: a snapshot that was received has that of the one that was sent.
    pub identity: u64,
    /// When it was made: those of one verb are of one moment.
    pub moment: u64,
    /// The short name.
    pub name: String,
    /// What was there.
    pub files: Arc<Files>,
    /// The version that the file system had, which changes with each change.
    pub version: u64,
    /// The tags that hold it.
    pub holds: BTreeSet<String>,
    /// It goes when nothing keeps it any more.
    pub is_doomed: bool,
}

/// A bookmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bookmark {
    /// Of the snapshot.
    pub identity: u64,
    /// When that was made.
    pub moment: u64,
    /// The version of that.
    pub version: u64,
}

/// A file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dataset {
    /// What is there now.
    pub files: Arc<Files>,
    /// Another one after each change.
    pub version: u64,
    /// Oldest first.
    pub snapshots: Vec<Snapshot>,
    /// The number of the snapshot that it is a clone of.
    pub origin: Option<u64>,
    /// By short name.
    pub bookmarks: BTreeMap<String, Bookmark>,
}

impl Dataset {
    /// Where the snapshot of a short name is.
    pub fn position(&self, short: &str) -> Option<usize> {
        self.snapshots.iter().position(|snapshot| snapshot.name == short)
    }

    /// The snapshot of a short name.
    pub fn snapshot(&self, short: &str) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.name == short)
    }
}

/// All file systems of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// By full name.
    pub datasets: BTreeMap<String, Dataset>,
    last: u64,
}

/// What a verb has done, or why not.
pub type Outcome = Result<(), ErrorKind>;

impl Tree {
    /// A new pool.
    pub fn new(pool: &str) -> Tree {
        Tree { datasets: BTreeMap::from([(pool.to_owned(), Dataset::default())]), last: 0 }
    }

    /// A number that was never there before, and is larger than all of them.
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn dataset(&self, name: &str) -> Result<&Dataset, ErrorKind> {
        self.datasets.get(name).ok_or(ErrorKind::NotFound)
    }

    fn dataset_mut(&mut self, name: &str) -> Result<&mut Dataset, ErrorKind> {
        self.datasets.get_mut(name).ok_or(ErrorKind::NotFound)
    }

    /// The snapshot of a full name.
    pub fn snapshot(&self, name: &str) -> Result<&Snapshot, ErrorKind> {
        let (dataset, short) = name.split_once('@').ok_or(ErrorKind::Invalid)?;
        self.dataset(dataset)?.snapshot(short).ok_or(ErrorKind::NotFound)
    }

    fn snapshot_mut(&mut self, name: &str) -> Result<&mut Snapshot, ErrorKind> {
        let (dataset, short) = name.split_once('@').ok_or(ErrorKind::Invalid)?;
        let found = self.dataset_mut(dataset)?.snapshots.iter_mut().find(|snapshot| snapshot.name == short);
        found.ok_or(ErrorKind::NotFound)
    }

    /// The dataset that has a snapshot, and its place there.
    pub fn owner(&self, number: u64) -> Option<(&str, usize)> {
        self.datasets.iter().find_map(|(name, dataset)| {
            let at = dataset.snapshots.iter().position(|snapshot| snapshot.number == number)?;
            Some((name.as_str(), at))
        })
    }

    /// The full name of the snapshot of a number.
    pub fn name_of(&self, number: u64) -> Option<String> {
        let (owner, at) = self.owner(number)?;
        Some(format!("{owner}@{}", self.datasets[owner].snapshots[at].name))
    }

    /// The clones of a snapshot.
    pub fn clones(&self, number: u64) -> Vec<&str> {
        self.datasets.iter().filter(|(_, dataset)| dataset.origin == Some(number)).map(|(name, _)| name.as_str()).collect()
    }

    /// Those right below.
    pub fn children<'t>(&'t self, name: &'t str) -> impl Iterator<Item = &'t str> {
        let is_child = move |other: &str| other.strip_prefix(name).and_then(|rest| rest.strip_prefix('/')).is_some_and(|rest| !rest.contains('/'));
        self.datasets.keys().map(String::as_str).filter(move |other| is_child(other))
    }

    pub(super) fn check_new(&self, name: &str) -> Outcome {
        let (parent, _) = name.rsplit_once('/').ok_or(ErrorKind::Invalid)?;
        self.dataset(parent)?;
        if self.datasets.contains_key(name) { Err(ErrorKind::Exists) } else { Ok(()) }
    }

    /// Whether what was a snapshot of `dataset` at that moment is in the past of the head called `later`.
    pub fn is_past_of(&self, later: &str, dataset: &str, moment: u64) -> bool {
        let (mut at, mut before) = (later, u64::MAX);
        loop {
            if moment > before {
                return false;
            }
            if at == dataset {
                return true;
            }
            let Some((owner, place)) = self.datasets.get(at).and_then(|dataset| dataset.origin).and_then(|origin| self.owner(origin)) else { return false };
            before = self.datasets[owner].snapshots[place].moment;
            at = owner;
        }
    }

    /// Does a verb.
    ///
    /// # Errors
    /// Why it is refused; then nothing has changed.
    pub fn apply(&mut self, verb: &Verb) -> Outcome {
        match verb {
            Verb::Write { dataset, changes, .. } => self.write(dataset, changes),
            Verb::Create { dataset } => {
                self.check_new(dataset)?;
                let version = self.number();
                self.datasets.insert(dataset.clone(), Dataset { version, ..Dataset::default() });
                Ok(())
            }
            Verb::Snapshot { names } => self.take(names),
            Verb::Clone { snapshot, to } => {
                let origin = self.snapshot(snapshot)?.clone();
                self.check_new(to)?;
                let clone = Dataset { files: origin.files, version: origin.version, origin: Some(origin.number), ..Dataset::default() };
                self.datasets.insert(to.clone(), clone);
                Ok(())
            }
            Verb::Promote { dataset } => self.promote(dataset),
            Verb::RollBack { dataset, to } => self.roll_back(dataset, to.as_deref()),
            Verb::RollBackAndWrite { dataset, changes, snapshot } => {
                let mut after = self.clone();
                after.roll_back(dataset, None)?;
                after.write(dataset, changes)?;
                if let Some(snapshot) = snapshot {
                    after.take(&[format!("{dataset}@{snapshot}")])?;
                }
                *self = after;
                Ok(())
            }
            Verb::Rename { from, to } => self.rename(from, to),
            Verb::RenameSnapshot { dataset, from, to, recursive } => self.rename_snapshots(dataset, from, to, *recursive),
            Verb::Destroy { dataset } => self.destroy(dataset),
            Verb::DestroySnapshots { names, defer } => self.destroy_snapshots(names, *defer),
            Verb::Hold { names, tag } => self.hold(names, tag),
            Verb::Release { names, tag } => self.release(names, tag),
            Verb::Bookmark { name, source } => self.bookmark(name, source),
            Verb::DestroyBookmarks { names } => {
                for (dataset, short) in names.iter().filter_map(|name| name.split_once('#')) {
                    self.datasets.get_mut(dataset).and_then(|dataset| dataset.bookmarks.remove(short));
                }
                Ok(())
            }
            Verb::Receive(receive) => self.receive(receive),
        }
    }

    fn write(&mut self, name: &str, changes: &[Change]) -> Outcome {
        let version = self.number();
        let dataset = self.dataset_mut(name)?;
        let files = Arc::make_mut(&mut dataset.files);
        changes.iter().try_for_each(|change| apply_change(files, change))?;
        if !changes.is_empty() {
            dataset.version = version;
        }
        Ok(())
    }

    fn take(&mut self, names: &[String]) -> Outcome {
        for name in names {
            if self.snapshot(name).map_or_else(|error| (error != ErrorKind::NotFound).then_some(error), |_| Some(ErrorKind::Exists)).is_some() {
                return Err(ErrorKind::Exists);
            }
            self.dataset(name.split('@').next().unwrap_or_default())?;
        }
        let moment = self.number();
        for name in names {
            let (number, identity) = (self.number(), self.number());
            let Some((head, short)) = name.split_once('@') else { continue };
            let dataset = self.dataset_mut(head)?;
            let (files, version) = (dataset.files.clone(), dataset.version);
            dataset.snapshots.push(Snapshot { number, identity, moment, name: short.to_owned(), files, version, holds: BTreeSet::new(), is_doomed: false });
        }
        Ok(())
    }

    fn promote(&mut self, name: &str) -> Outcome {
        let origin = self.dataset(name)?.origin.ok_or(ErrorKind::Invalid)?;
        let Some((old, at)) = self.owner(origin).map(|(owner, at)| (owner.to_owned(), at)) else { return Err(ErrorKind::Corrupt) };
        let (clone, before) = (&self.datasets[name], &self.datasets[&old]);
        let moment = before.snapshots[at].moment;
        let moves = |bookmark: &Bookmark| bookmark.moment <= moment;
        if before.snapshots[..=at].iter().any(|snapshot| clone.snapshot(&snapshot.name).is_some())
            || before.bookmarks.iter().any(|(short, bookmark)| moves(bookmark) && clone.bookmarks.contains_key(short))
        {
            return Err(ErrorKind::Exists);
        }
        let before = self.dataset_mut(&old)?;
        let snapshots: Vec<Snapshot> = before.snapshots.drain(..=at).collect();
        let grand = before.origin.replace(origin);
        let moved: Vec<String> = before.bookmarks.iter().filter(|(_, bookmark)| moves(bookmark)).map(|(short, _)| short.clone()).collect();
        let bookmarks: Vec<(String, Bookmark)> = moved.into_iter().filter_map(|short| before.bookmarks.remove_entry(&short)).collect();
        let clone = self.dataset_mut(name)?;
        clone.origin = grand;
        clone.snapshots.splice(0..0, snapshots);
        clone.bookmarks.extend(bookmarks);
        Ok(())
    }

    fn roll_back(&mut self, name: &str, to: Option<&str>) -> Outcome {
        let dataset = self.dataset_mut(name)?;
        if let Some(to) = to {
            dataset.position(to).ok_or(ErrorKind::NotFound)?;
        }
        let newest = dataset.snapshots.last().ok_or(ErrorKind::NotFound)?;
        let is_other = to.is_some_and(|to| to != newest.name);
        if is_other || dataset.bookmarks.values().any(|bookmark| bookmark.moment > newest.moment) {
            return Err(ErrorKind::Exists);
        }
        dataset.files = newest.files.clone();
        dataset.version = newest.version;
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Outcome {
        self.dataset(from)?;
        if !from.contains('/') {
            return Err(ErrorKind::Invalid);
        }
        self.check_new(to)?;
        let below = format!("{from}/");
        if to.starts_with(&below) {
            return Err(ErrorKind::Invalid);
        }
        let names: Vec<String> = self.datasets.keys().filter(|name| *name == from || name.starts_with(&below)).cloned().collect();
        for name in names {
            if let Some(dataset) = self.datasets.remove(&name) {
                self.datasets.insert(format!("{to}{}", &name[from.len()..]), dataset);
            }
        }
        Ok(())
    }

    fn rename_snapshots(&mut self, name: &str, from: &str, to: &str, recursive: bool) -> Outcome {
        self.dataset(name)?;
        let below = format!("{name}/");
        let is_meant = |other: &str, dataset: &Dataset| (other == name || recursive && other.starts_with(&below)) && dataset.snapshot(from).is_some();
        let all: Vec<String> = self.datasets.iter().filter(|(other, dataset)| is_meant(other, dataset)).map(|(other, _)| other.clone()).collect();
        if all.iter().any(|name| self.datasets[name].snapshot(to).is_some()) {
            return Err(ErrorKind::Exists);
        }
        if all.is_empty() {
            return Err(ErrorKind::NotFound);
        }
        for name in all {
            self.snapshot_mut(&format!("{name}@{from}"))?.name = to.to_owned();
        }
        Ok(())
    }

    fn destroy(&mut self, name: &str) -> Outcome {
        let dataset = self.dataset(name)?;
        if !dataset.snapshots.is_empty() || self.children(name).next().is_some() {
            return Err(ErrorKind::Exists);
        }
        let origin = dataset.origin;
        self.datasets.remove(name);
        if let Some(origin) = origin {
            self.destroy_if_unkept(origin);
        }
        Ok(())
    }

    /// What waits for its last clone or hold goes with it.
    fn destroy_if_unkept(&mut self, number: u64) {
        let Some((owner, at)) = self.owner(number).map(|(owner, at)| (owner.to_owned(), at)) else { return };
        let snapshot = &self.datasets[&owner].snapshots[at];
        if snapshot.is_doomed && snapshot.holds.is_empty() && self.clones(number).is_empty() {
            self.datasets.get_mut(&owner).map(|dataset| dataset.snapshots.remove(at));
        }
    }

    /// Why a snapshot cannot be destroyed.
    pub(super) fn what_keeps(&self, snapshot: &Snapshot) -> Option<ErrorKind> {
        match snapshot.holds.is_empty() {
            false => Some(ErrorKind::Busy),
            true if self.clones(snapshot.number).is_empty() => None,
            true => Some(ErrorKind::Exists),
        }
    }

    fn destroy_snapshots(&mut self, names: &[String], defer: bool) -> Outcome {
        let refused = |name: &String| self.snapshot(name).ok().and_then(|snapshot| self.what_keeps(snapshot));
        if let Some(kind) = names.iter().find_map(refused).filter(|_| !defer) {
            return Err(kind);
        }
        for name in names {
            let Ok(snapshot) = self.snapshot_mut(name) else { continue };
            let number = snapshot.number;
            // Whether it is marked or goes: what keeps it now decides.
            snapshot.is_doomed = true;
            self.destroy_if_unkept(number);
        }
        Ok(())
    }

    fn hold(&mut self, names: &[String], tag: &str) -> Outcome {
        for name in names {
            if self.snapshot(name)?.holds.contains(tag) {
                return Err(ErrorKind::Exists);
            }
        }
        for name in names {
            self.snapshot_mut(name)?.holds.insert(tag.to_owned());
        }
        Ok(())
    }

    fn release(&mut self, names: &[String], tag: &str) -> Outcome {
        for name in names {
            if !self.snapshot(name)?.holds.contains(tag) {
                return Err(ErrorKind::NoAttribute);
            }
        }
        for name in names {
            let snapshot = self.snapshot_mut(name)?;
            snapshot.holds.remove(tag);
            let number = snapshot.number;
            self.destroy_if_unkept(number);
        }
        Ok(())
    }

    fn bookmark(&mut self, name: &str, source: &str) -> Outcome {
        let (head, short) = name.split_once('#').ok_or(ErrorKind::Invalid)?;
        if self.dataset(head)?.bookmarks.contains_key(short) {
            return Err(ErrorKind::Exists);
        }
        let (of, bookmark) = match source.split_once('#') {
            Some((of, short)) => (of, *self.dataset(of)?.bookmarks.get(short).ok_or(ErrorKind::NotFound)?),
            None => {
                let snapshot = self.snapshot(source)?;
                (source.split('@').next().unwrap_or_default(), Bookmark { identity: snapshot.identity, moment: snapshot.moment, version: snapshot.version })
            }
        };
        if !self.is_past_of(head, of, bookmark.moment) {
            return Err(ErrorKind::CrossDevice);
        }
        self.dataset_mut(head)?.bookmarks.insert(short.to_owned(), bookmark);
        Ok(())
    }
}

/// What is not there cannot be changed.
fn apply_change(files: &mut Files, change: &Change) -> Outcome {
    match change {
        Change::Write { file, offset, length, seed } => {
            let file = files.entry(file.clone()).or_insert_with(|| File { mode: 0o644, ..File::default() });
            let contents = Arc::make_mut(&mut file.contents);
            let end = offset + length;
            contents.resize(contents.len().max(end), 0);
            contents[*offset..end].copy_from_slice(&bytes(*seed, *length));
        }
        Change::Remove { file } => drop(files.remove(file).ok_or(ErrorKind::NotFound)?),
        Change::Rename { from, to } => {
            let file = files.remove(from).ok_or(ErrorKind::NotFound)?;
            files.insert(to.clone(), file);
        }
        Change::Truncate { file, .. } | Change::Punch { file, .. } | Change::Chmod { file, .. } | Change::SetXattr { file, .. } => {
            let file = files.get_mut(file).ok_or(ErrorKind::NotFound)?;
            match change {
                Change::Truncate { size, .. } => Arc::make_mut(&mut file.contents).resize(*size, 0),
                Change::Punch { offset, length, .. } => {
                    let end = file.contents.len();
                    Arc::make_mut(&mut file.contents)[(*offset).min(end)..(offset + length).min(end)].fill(0);
                }
                Change::Chmod { mode, .. } => file.mode = *mode,
                Change::SetXattr { length, seed, .. } => file.xattr = Some(bytes(*seed, *length)),
                _ => {}
            }
        }
    }
    Ok(())
}
