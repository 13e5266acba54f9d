//! Is what is there after the kill something that may be there?
//!
//! # Theory
//! *Names and attributes* of a thread are those after a prefix of what it did: a transaction group has all of an operation
//! or nothing, and everything that came before. If an operation is there, so is what was done, by whichever thread, before it began. An acknowledged `fsync` of a file
//! or directory means that the last operation that changed that inode is there.
//!
//! *Contents* reach the file system page by page, when the kernel likes. A record may be the one that the last acknowledged
//! `fsync` of its file covered, or any that was written over it since, or zeros where the file has been truncated or
//! extended since.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::journal::{Event, Journal, Op, Record};
use super::work::ATTRIBUTE;

/// What was looked at.
#[derive(Debug, Default, Clone)]
pub(super) struct Totals {
    pub(super) rounds: u64,
    pub(super) acknowledged: u64,
    pub(super) synced: u64,
    pub(super) survived: u64,
    pub(super) names: u64,
    pub(super) records: u64,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Totals) {
        self.rounds += other.rounds;
        self.acknowledged += other.acknowledged;
        self.synced += other.synced;
        self.survived += other.survived;
        self.names += other.names;
        self.records += other.records;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { rounds, acknowledged, synced, survived, names, records } = self;
        write!(f, "{rounds} rounds; {acknowledged} operations acknowledged, {synced} of them fsync; {survived} operations on names survived; {names} names and {records} records compared")
    }
}

/// One name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    File(u64),
    Symlink(String),
    Directory,
}

/// Names and attributes after some of a thread's operations.
#[derive(Debug, Clone, Default)]
struct Names {
    entries: BTreeMap<String, Entry>,
    /// Mode, attribute, and the inode number if it is known.
    files: BTreeMap<u64, (u32, Option<u64>, u64)>,
}

impl Names {
    fn file(&mut self, name: &str) -> &mut (u32, Option<u64>, u64) {
        match self.entries.get(name) {
            Some(Entry::File(file)) => self.files.get_mut(file).unwrap(),
            other => panic!("the journal has {name} as {other:?}"),
        }
    }

    fn apply(&mut self, event: &Event) {
        match &event.op {
            Op::Create { name, file } => {
                self.entries.insert(name.clone(), Entry::File(*file));
                self.files.insert(*file, (0o600, None, event.inode));
            }
            Op::Link { old, new } => drop(self.entries.insert(new.clone(), self.entries[old].clone())),
            Op::Rename { old, new } => {
                let entry = self.entries.remove(old).unwrap();
                self.entries.insert(new.clone(), entry);
            }
            Op::Remove { name } | Op::RemoveDirectory { name } => drop(self.entries.remove(name).unwrap()),
            Op::Symlink { name, target } => drop(self.entries.insert(name.clone(), Entry::Symlink(target.clone()))),
            Op::MakeDirectory { name } => drop(self.entries.insert(name.clone(), Entry::Directory)),
            Op::Mode { name, mode } => self.file(name).0 = *mode,
            Op::Attribute { name, value } => self.file(name).1 = Some(*value),
            _ => {}
        }
    }
}

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Actual {
    File { inode: u64, mode: u32, attribute: Option<u64> },
    Symlink(String),
    Directory,
}

fn attribute(path: &Path) -> Option<u64> {
    let mut buffer = [0; 40];
    let length = rustix::fs::getxattr(path, ATTRIBUTE, &mut buffer).ok()?;
    Some(std::str::from_utf8(&buffer[..length]).unwrap().parse().unwrap())
}

fn look(directory: &Path, prefix: &str, found: &mut BTreeMap<String, Actual>, what: &str) {
    for entry in fs::read_dir(directory).unwrap_or_else(|error| panic!("{what}: {}: {error}", directory.display())) {
        let entry = entry.unwrap();
        let path = entry.path();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        let metadata = fs::symlink_metadata(&path).unwrap_or_else(|error| panic!("{what}: {} is listed: {error}", path.display()));
        let actual = if metadata.is_dir() {
            look(&path, &format!("{name}/"), found, what);
            Actual::Directory
        } else if metadata.is_symlink() {
            Actual::Symlink(fs::read_link(&path).unwrap().to_str().unwrap().to_owned())
        } else {
            Actual::File { inode: metadata.ino(), mode: metadata.mode() & 0o7777, attribute: attribute(&path) }
        };
        found.insert(name, actual);
    }
}

fn is_same(names: &Names, actual: &BTreeMap<String, Actual>) -> bool {
    let mut inodes = BTreeMap::new();
    names.entries.len() == actual.len()
        && names.entries.iter().zip(actual).all(|((name, entry), (found, actual))| {
            name == found
                && match (entry, actual) {
                    (Entry::Directory, Actual::Directory) => true,
                    (Entry::Symlink(target), Actual::Symlink(found)) => target == found,
                    (Entry::File(file), Actual::File { inode, mode, attribute }) => {
                        let known = &names.files[file];
                        // The number of a file whose creation was not acknowledged is not known; its names agree anyway.
                        let first = *inodes.entry(*file).or_insert(*inode);
                        (*mode, *attribute) == (known.0, known.1) && (known.2 == 0 || known.2 == *inode) && first == *inode
                    }
                    _ => false,
                }
        })
}

/// The prefixes of a thread's operations on names after which it looks like this.
#[derive(Debug)]
struct Prefixes {
    /// Numbers of operations.
    fit: Vec<usize>,
    /// The names after the shortest.
    names: Names,
}

fn prefixes(events: &[&Event], actual: &BTreeMap<String, Actual>) -> Prefixes {
    let mut names = Names::default();
    let mut found = Prefixes { fit: Vec::new(), names: Names::default() };
    for count in 0..=events.len() {
        if count > 0 {
            names.apply(events[count - 1]);
        }
        if is_same(&names, actual) {
            if found.fit.is_empty() {
                found.names = names.clone();
            }
            found.fit.push(count);
        }
    }
    found
}

/// What a file may contain.
#[derive(Debug, Default)]
struct Contents {
    /// Versions that a record may have; 0: zeros. Beyond: zeros.
    may: Vec<Vec<u64>>,
    now: Vec<u64>,
    size_min: u64,
    size_max: u64,
}

impl Contents {
    fn begin(&mut self, op: &Op) {
        match op {
            Op::Write { first, count, version, .. } | Op::WriteThrough { first, count, version, .. } => {
                let (first, end) = (*first as usize, (first + count) as usize);
                if self.may.len() < end {
                    self.may.resize(end, vec![0]);
                }
                self.may[first..end].iter_mut().for_each(|may| may.push(*version));
                if self.now.len() < end {
                    self.now.resize(end, 0);
                }
                self.now[first..end].fill(*version);
            }
            Op::Truncate { records, .. } => {
                self.now.resize(*records as usize, 0);
                self.may.iter_mut().skip(*records as usize).for_each(|may| may.push(0));
                self.size_min = self.size_min.min(*records);
            }
            _ => {}
        }
        self.size_max = self.size_max.max(self.now.len() as u64);
    }

    fn done(&mut self, op: &Op) {
        match op {
            Op::Sync { .. } => {
                self.may = self.now.iter().map(|version| vec![*version]).collect();
                (self.size_min, self.size_max) = (self.now.len() as u64, self.now.len() as u64);
            }
            Op::WriteThrough { first, count, version, .. } => {
                self.may[*first as usize..(first + count) as usize].iter_mut().for_each(|may| *may = vec![*version]);
                self.size_min = self.size_min.max(first + count);
            }
            _ => {}
        }
    }

    /// Is it what it may be? How many records it has.
    fn judge(&self, file: u64, bytes: &[u8]) -> Result<u64, String> {
        let size = (bytes.len() / Record::BYTES) as u64;
        if !bytes.len().is_multiple_of(Record::BYTES) || !(self.size_min..=self.size_max).contains(&size) {
            return Err(format!("{} bytes, which are not {} to {} records", bytes.len(), self.size_min, self.size_max));
        }
        for (index, record) in bytes.chunks(Record::BYTES).enumerate() {
            let version = match Record::decode(record) {
                Ok(None) => 0,
                Ok(Some(found)) if found.file == file && found.index == index as u64 => found.version,
                Ok(Some(found)) => return Err(format!("record {index} of file {file} is {found:?}")),
                Err(text) => return Err(format!("record {index} of {size}: {text}")),
            };
            let may = self.may.get(index).map_or(&[0][..], Vec::as_slice);
            if !may.contains(&version) {
                return Err(format!("record {index} of {size} has version {version}, not one of {may:?}"));
            }
        }
        Ok(size)
    }
}

/// What a thread's acknowledged syncs promise.
#[derive(Debug, Default)]
struct Durable {
    /// The last operation that changed something synced began here.
    begun: usize,
    /// So many of its operations on names are there.
    names: usize,
}

fn durable(events: &[Event]) -> Durable {
    /// The thread's own directory among the files.
    const DIRECTORY: u64 = u64::MAX;
    let mut durable = Durable::default();
    let mut names = Names::default();
    // When an inode changed last, and how many operations on names there were then.
    let mut changed: BTreeMap<u64, Durable> = BTreeMap::new();
    let mut count = 0;
    for event in events.iter().filter(|event| event.done.is_some()) {
        let file_of = |names: &Names, name: &String| match names.entries.get(name) {
            Some(Entry::File(file)) => Some(*file),
            _ => None,
        };
        let in_directory = |name: &String| (!name.contains('/')).then_some(DIRECTORY);
        let inodes = match &event.op {
            Op::Create { name, file } => vec![Some(*file), in_directory(name)],
            Op::Link { old, new } => vec![file_of(&names, old), in_directory(new)],
            Op::Rename { old, new } => vec![file_of(&names, old), file_of(&names, new), in_directory(old), in_directory(new)],
            Op::Remove { name } => vec![file_of(&names, name), in_directory(name)],
            Op::Symlink { name, .. } | Op::MakeDirectory { name } | Op::RemoveDirectory { name } => vec![in_directory(name)],
            Op::Mode { name, .. } | Op::Attribute { name, .. } => vec![file_of(&names, name)],
            Op::Write { file, .. } | Op::WriteThrough { file, .. } | Op::Truncate { file, .. } => vec![Some(*file)],
            Op::Sync { .. } | Op::SyncDirectory => Vec::new(),
        };
        if event.op.is_of_names() {
            names.apply(event);
            count += 1;
        }
        for inode in inodes.into_iter().flatten() {
            changed.insert(inode, Durable { begun: event.begun, names: count });
        }
        let synced = match &event.op {
            Op::Sync { file } | Op::WriteThrough { file, .. } => changed.get(file),
            Op::SyncDirectory => changed.get(&DIRECTORY),
            _ => None,
        };
        if let Some(synced) = synced {
            durable.begun = durable.begun.max(synced.begun);
            durable.names = durable.names.max(synced.names);
        }
    }
    durable
}

/// What each file may contain.
fn contents(threads: &[Vec<Event>]) -> BTreeMap<u64, Contents> {
    let mut files: BTreeMap<u64, Contents> = BTreeMap::new();
    for event in threads.iter().flatten() {
        let (Op::Write { file, .. } | Op::WriteThrough { file, .. } | Op::Truncate { file, .. } | Op::Sync { file } | Op::Create { file, .. }) = &event.op else { continue };
        let contents = files.entry(*file).or_default();
        contents.begin(&event.op);
        if event.done.is_some() {
            contents.done(&event.op);
        }
    }
    files
}

/// Judges what one round left. Panics with what is wrong.
pub(super) fn judge(directory: &Path, journal: &Journal, what: &str) -> Totals {
    let threads = journal.read(what);
    let mut totals = Totals { rounds: 1, ..Totals::default() };
    totals.acknowledged = threads.iter().flatten().filter(|event| event.done.is_some()).count() as u64;
    totals.synced = threads.iter().flatten().filter(|event| event.op.is_sync() && event.done.is_some()).count() as u64;
    let contents = contents(&threads);
    let durable: Vec<Durable> = threads.iter().map(|events| durable(events)).collect();
    // The last operation that is known to be there: whatever was done before it began must be.
    let mut visible = (0, String::new());
    for (number, durable) in durable.iter().enumerate() {
        if durable.begun > visible.0 {
            visible = (durable.begun, format!("what thread {number} synced"));
        }
    }
    let mut found = Vec::new();
    for (number, events) in threads.iter().enumerate() {
        let names: Vec<&Event> = events.iter().filter(|event| event.op.is_of_names()).collect();
        let place = directory.join(number.to_string());
        let mut actual = BTreeMap::new();
        if place.exists() {
            look(&place, "", &mut actual, what);
        }
        let prefixes = prefixes(&names, &actual);
        let Some(shortest) = prefixes.fit.first() else { panic!("{what}: thread {number}: no prefix of its operations leads to {actual:#?}\n{names:#?}") };
        if let Some(last) = shortest.checked_sub(1)
            && names[last].begun > visible.0
        {
            visible = (names[last].begun, format!("thread {number}: {:?}", names[last].op));
        }
        totals.survived += *shortest as u64;
        totals.names += actual.len() as u64;
        totals.records += judge_contents(&place, &prefixes.names, &contents, &format!("{what}: thread {number}"));
        found.push((number, prefixes, names));
    }
    for (number, prefixes, names) in found {
        let owed = names.iter().filter(|event| event.done.is_some_and(|done| done < visible.0)).count();
        let owed = owed.max(durable[number].names);
        let longest = *prefixes.fit.last().unwrap();
        assert!(
            longest >= owed,
            "{what}: thread {number}: {longest} of its operations on names are there; {owed} were done before {} (line {}); the first that is missing: {:?}",
            visible.1,
            visible.0,
            names[longest]
        );
    }
    totals
}

fn judge_contents(place: &Path, names: &Names, contents: &BTreeMap<u64, Contents>, what: &str) -> u64 {
    let mut records = 0;
    for (name, entry) in &names.entries {
        let Entry::File(file) = entry else { continue };
        let bytes = fs::read(place.join(name)).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
        records += contents[file].judge(*file, &bytes).unwrap_or_else(|text| panic!("{what}: {name}: {text}"));
    }
    records
}

/// Damage of every kind that the judge must see.
pub(super) fn canary() {
    let write = |version, first, count| Op::Write { file: 7, first, count, version };
    let mut contents = Contents::default();
    for op in [write(2, 0, 10), Op::Sync { file: 7 }, write(5, 4, 2), Op::Truncate { file: 7, records: 8 }] {
        contents.begin(&op);
        contents.done(&op);
    }
    let fill = super::journal::fill;
    let good = [fill(7, 2, 0, 4), fill(7, 5, 4, 1), fill(7, 2, 5, 5)].concat();
    assert_eq!(contents.judge(7, &good), Ok(10));
    assert_eq!(contents.judge(7, &good[..8 * Record::BYTES]), Ok(8));
    let damaged = |at: usize, bytes: Vec<u8>| [&good[..at], &bytes, &good[at + bytes.len()..]].concat();
    for (bad, why) in [
        (good[..7 * Record::BYTES].to_vec(), "bytes"),
        (damaged(0, vec![0; Record::BYTES]), "version 0"),
        (damaged(0, fill(7, 3, 0, 1)), "version 3"),
        (damaged(0, fill(8, 2, 0, 1)), "is Record"),
        (damaged(0, fill(7, 2, 1, 1)), "is Record"),
        (damaged(100, vec![1]), "not a record"),
        (damaged(4 * Record::BYTES + 40, vec![9; 8]), "not a record"),
    ] {
        assert!(contents.judge(7, &bad).is_err_and(|text| text.contains(why)), "{why} was not seen");
    }
    let event = |op| Event { op, begun: 0, done: Some(0), inode: 5 };
    let events = [event(Op::Create { name: "a".into(), file: 7 }), event(Op::Mode { name: "a".into(), mode: 0o640 }), event(Op::Rename { old: "a".into(), new: "b".into() })];
    let events: Vec<&Event> = events.iter().collect();
    let there = |name: &str, mode, inode| BTreeMap::from([(name.to_owned(), Actual::File { inode, mode, attribute: None })]);
    assert_eq!(prefixes(&events, &BTreeMap::new()).fit, [0]);
    assert_eq!(prefixes(&events, &there("a", 0o640, 5)).fit, [2]);
    for wrong in [there("b", 0o600, 5), there("b", 0o640, 6), there("c", 0o640, 5)] {
        assert!(prefixes(&events, &wrong).fit.is_empty(), "{wrong:?} was not seen");
    }
}
