//! Names and attributes: which prefix of what a thread did is there?

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::journal::{Event, Op};
use super::work::ATTRIBUTE;

/// What is known of a file besides its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) mode: u32,
    pub(super) owner: u32,
    pub(super) attribute: Option<u64>,
}

impl Facts {
    const NEW: Facts = Facts { mode: 0o600, owner: 0, attribute: None };

    /// After an operation that changes one of them.
    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Mode { mode, .. } => self.mode = *mode,
            Op::Owner { owner, .. } => self.owner = *owner,
            Op::Attribute { value, .. } => self.attribute = Some(*value),
            _ => {}
        }
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
pub(super) struct Names {
    entries: BTreeMap<String, Entry>,
    /// Facts, and the inode number if it is known.
    files: BTreeMap<u64, (Facts, u64)>,
}

impl Names {
    /// The file of that name, if it is one.
    pub(super) fn file(&self, name: &str) -> Option<u64> {
        match self.entries.get(name) {
            Some(Entry::File(file)) => Some(*file),
            _ => None,
        }
    }

    /// All names of files.
    pub(super) fn files(&self) -> impl Iterator<Item = (&String, u64)> {
        self.entries.keys().filter_map(|name| Some((name, self.file(name)?)))
    }

    pub(super) fn apply(&mut self, event: &Event) {
        match &event.op {
            Op::Create { name, file } => {
                self.entries.insert(name.clone(), Entry::File(*file));
                self.files.insert(*file, (Facts::NEW, event.inode));
            }
            Op::Link { old, new } => drop(self.entries.insert(new.clone(), self.entries[old].clone())),
            Op::Rename { old, new } => {
                let entry = self.entries.remove(old).unwrap();
                self.entries.insert(new.clone(), entry);
            }
            Op::Exchange { one, other } => {
                let (first, second) = (self.entries[one].clone(), self.entries[other].clone());
                self.entries.insert(one.clone(), second);
                self.entries.insert(other.clone(), first);
            }
            Op::Remove { name } | Op::RemoveDirectory { name } => drop(self.entries.remove(name).unwrap()),
            Op::Symlink { name, target } => drop(self.entries.insert(name.clone(), Entry::Symlink(target.clone()))),
            Op::MakeDirectory { name } => drop(self.entries.insert(name.clone(), Entry::Directory)),
            Op::Mode { name, .. } | Op::Owner { name, .. } | Op::Attribute { name, .. } => {
                let file = self.file(name).unwrap_or_else(|| panic!("the journal has {name} as no file"));
                self.files.get_mut(&file).unwrap().0.apply(&event.op);
            }
            _ => {}
        }
    }
}

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Actual {
    File { inode: u64, facts: Facts },
    Symlink(String),
    Directory,
}

fn attribute(path: &Path) -> Option<u64> {
    let mut buffer = [0; 40];
    let length = rustix::fs::getxattr(path, ATTRIBUTE, &mut buffer).ok()?;
    Some(std::str::from_utf8(&buffer[..length]).unwrap().parse().unwrap())
}

/// Everything below `directory`.
pub(super) fn look(directory: &Path, prefix: &str, found: &mut BTreeMap<String, Actual>, what: &str) {
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
            let facts = Facts { mode: metadata.mode() & 0o7777, owner: metadata.uid(), attribute: attribute(&path) };
            Actual::File { inode: metadata.ino(), facts }
        };
        found.insert(name, actual);
    }
}

/// Whether the names are these; with `facts`, whether the files are what they must be, too.
fn is_same(names: &Names, actual: &BTreeMap<String, Actual>, facts: bool) -> bool {
    let mut inodes = BTreeMap::new();
    names.entries.len() == actual.len()
        && names.entries.iter().zip(actual).all(|((name, entry), (found, actual))| {
            name == found
                && match (entry, actual) {
                    (Entry::Directory, Actual::Directory) => true,
                    (Entry::Symlink(target), Actual::Symlink(found)) => target == found,
                    (Entry::File(file), Actual::File { inode, facts: found }) => {
                        let (known, number) = names.files[file];
                        // The number of a file whose creation was not acknowledged is not known; its names agree anyway.
                        let first = *inodes.entry(*file).or_insert(*inode);
                        (!facts || known == *found) && (number == 0 || number == *inode) && first == *inode
                    }
                    _ => false,
                }
        })
}

/// The prefixes of a thread's operations after which it looks like this.
#[derive(Debug)]
pub(super) struct Prefixes {
    /// Numbers of operations.
    pub(super) fit: Vec<usize>,
    /// The names after the shortest.
    pub(super) names: Names,
}

/// `facts`: attributes of files are part of how it looks.
pub(super) fn prefixes(events: &[&Event], actual: &BTreeMap<String, Actual>, facts: bool) -> Prefixes {
    let mut names = Names::default();
    let mut found = Prefixes { fit: Vec::new(), names: Names::default() };
    for count in 0..=events.len() {
        if count > 0 {
            names.apply(events[count - 1]);
        }
        if is_same(&names, actual, facts) {
            if found.fit.is_empty() {
                found.names = names.clone();
            }
            found.fit.push(count);
        }
    }
    found
}

/// Every file must have facts that it had after its own last durable moment: where an intent log was replayed, attributes
/// are as old as the last `fsync` of the file, or newer, whatever became of other files.
pub(super) fn judge_facts(events: &[&Event], durable: &BTreeMap<u64, usize>, actual: &BTreeMap<String, Actual>, there: &Names) -> Result<(), String> {
    for (name, file) in there.files() {
        let Some(Actual::File { facts: found, .. }) = actual.get(name) else { continue };
        let (mut names, mut facts, mut may) = (Names::default(), Facts::NEW, vec![Facts::NEW]);
        for event in events {
            let of_file = match &event.op {
                Op::Mode { name, .. } | Op::Owner { name, .. } | Op::Attribute { name, .. } => names.file(name) == Some(file),
                _ => false,
            };
            names.apply(event);
            if of_file {
                facts.apply(&event.op);
                if event.done.is_some_and(|done| durable.get(&file).is_some_and(|since| done < *since)) {
                    may.clear();
                }
                may.push(facts);
            }
        }
        if !may.contains(found) {
            return Err(format!("{name}: {found:?}, which is none of {may:?}"));
        }
    }
    Ok(())
}

/// Damage of every kind that the judge of names must see.
pub(super) fn canary() {
    let event = |op, at| Event { op, begun: at, done: Some(at + 1), inode: 5 };
    let events = [
        event(Op::Create { name: "a".into(), file: 7 }, 0),
        event(Op::Mode { name: "a".into(), mode: 0o640 }, 2),
        event(Op::Rename { old: "a".into(), new: "b".into() }, 4),
    ];
    let events: Vec<&Event> = events.iter().collect();
    let there = |name: &str, mode, inode| BTreeMap::from([(name.to_owned(), Actual::File { inode, facts: Facts { mode, ..Facts::NEW } })]);
    assert_eq!(prefixes(&events, &BTreeMap::new(), true).fit, [0]);
    assert_eq!(prefixes(&events, &there("a", 0o640, 5), true).fit, [2]);
    assert_eq!(prefixes(&events, &there("b", 0o600, 5), false).fit, [3]);
    for wrong in [there("b", 0o600, 5), there("b", 0o640, 6), there("c", 0o640, 5)] {
        assert!(prefixes(&events, &wrong, true).fit.is_empty(), "{wrong:?} was not seen");
    }
    let (old, new) = (there("b", 0o600, 5), there("b", 0o640, 5));
    let names = prefixes(&events, &new, false).names;
    assert_eq!(judge_facts(&events, &BTreeMap::new(), &old, &names), Ok(()));
    assert_eq!(judge_facts(&events, &BTreeMap::from([(7, 10)]), &new, &names), Ok(()));
    assert!(judge_facts(&events, &BTreeMap::from([(7, 10)]), &old, &names).is_err(), "lost attributes were not seen");
    assert!(judge_facts(&events, &BTreeMap::new(), &there("b", 0o644, 5), &names).is_err(), "foreign attributes were not seen");
}
