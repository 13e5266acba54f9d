//! What was done, and what may be there afterwards.

use std::collections::BTreeMap;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tarnfs::zpl::FileSystem;
use tarnfs::{Credentials, FileKind, InodeNumber, RenameMode, SetAttributes, WriteMode, XattrMode};

use crate::Mode;

/// So many bytes of a write, or all, are in one record.
const LOG_WRITE_MIN: usize = 100_000;

/// Every path, and the inode it names.
type Names = BTreeMap<Vec<u8>, InodeNumber>;

/// A file after an operation on it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    contents: Vec<u8>,
    mode: u32,
    xattr: Option<Vec<u8>>,
}

/// The versions of one file: from which operation on each holds.
#[derive(Debug, Clone, Default)]
struct History {
    versions: Vec<(usize, Version)>,
    /// Operations after which the file was safe.
    safe: Vec<usize>,
    /// Renames: the file's earlier writes are then logged with the names, and with them bytes that later ones put there.
    renamed: Vec<usize>,
}

/// See the module.
pub(crate) struct World<'a> {
    fs: &'a FileSystem,
    /// The names after each operation.
    names: Vec<Names>,
    files: BTreeMap<InodeNumber, History>,
    /// Operations after which all names were safe.
    safe: Vec<usize>,
    /// The kernel's references, so that no number is used twice.
    held: Vec<InodeNumber>,
    next: u64,
    /// What was done, in words: printed with a failure.
    story: Vec<String>,
    mode: Mode,
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|byte| *byte == b'/').unwrap();
    (&path[..at], &path[at + 1..])
}

impl<'a> World<'a> {
    pub(crate) fn new(fs: &'a FileSystem, mode: Mode) -> Self {
        let names = Names::from([(Vec::new(), fs.root())]);
        World { fs, names: vec![names], files: BTreeMap::new(), safe: vec![0], held: Vec::new(), next: 0, story: Vec::new(), mode }
    }

    /// How many operations are done.
    pub(crate) fn done(&self) -> usize {
        self.names.len() - 1
    }

    fn now(&self) -> &Names {
        self.names.last().unwrap()
    }

    /// Everything is on disk. That counts as an operation: one that was cut in the midst was not acknowledged.
    pub(crate) fn all_safe(&mut self) {
        let names = self.now().clone();
        self.did(names);
        let done = self.done();
        self.story.push(format!("{done}: everything is on disk"));
        self.safe.push(done);
        self.files.values_mut().for_each(|file| file.safe.push(done));
    }

    fn choose(&self, random: &mut ChaCha8Rng, kind: FileKind) -> Option<(Vec<u8>, InodeNumber)> {
        let is = |inode: &InodeNumber| self.files.contains_key(inode) == (kind == FileKind::Regular);
        let all: Vec<_> = self.now().iter().filter(|(_, inode)| is(inode)).collect();
        let (path, inode) = all.get(random.random_range(0..all.len().max(1)))?;
        Some(((*path).clone(), **inode))
    }

    fn free_name(&mut self, random: &mut ChaCha8Rng) -> (InodeNumber, Vec<u8>) {
        let (directory, inode) = self.choose(random, FileKind::Directory).unwrap();
        self.next += 1;
        (inode, [&directory[..], format!("/n{}", self.next).as_bytes()].concat())
    }

    /// The names have changed, or not: an operation is done.
    fn did(&mut self, names: Names) {
        self.names.push(names);
    }

    fn changed(&mut self, inode: InodeNumber, change: impl FnOnce(&mut Version)) {
        let names = self.now().clone();
        self.did(names);
        let done = self.done();
        let history = self.files.get_mut(&inode).unwrap();
        let mut version = history.versions.last().unwrap().1.clone();
        change(&mut version);
        history.versions.push((done, version));
    }

    /// One operation, and perhaps an `fsync` of what it was done to.
    pub(crate) fn step(&mut self, random: &mut ChaCha8Rng) {
        let user = Credentials::root();
        let file = self.choose(random, FileKind::Regular);
        let mut names = self.now().clone();
        let choice = random.random_range(0..16);
        let of = file.as_ref().map_or(String::new(), |(path, inode)| format!("{} ({inode})", String::from_utf8_lossy(path)));
        let touched = match (choice, file) {
            (0..=2, _) | (_, None) => {
                let (directory, path) = self.free_name(random);
                let stat = self.fs.create(directory, split(&path).1, 0o100_644, 0, &user).unwrap();
                self.held.push(stat.inode);
                names.insert(path, stat.inode);
                self.did(names);
                let first = Version { contents: Vec::new(), mode: stat.mode, xattr: None };
                self.files.insert(stat.inode, History { versions: vec![(self.done(), first)], safe: Vec::new(), renamed: Vec::new() });
                stat.inode
            }
            (3, _) => {
                let (directory, path) = self.free_name(random);
                let stat = self.fs.mkdir(directory, split(&path).1, 0o755, &user).unwrap();
                self.held.push(stat.inode);
                names.insert(path, stat.inode);
                self.did(names);
                stat.inode
            }
            (4..=9, Some((_, inode))) => {
                let size = self.files[&inode].versions.last().unwrap().1.contents.len();
                let (offset, length) = match random.random_range(0..4) {
                    0 => (size, random.random_range(1..9000)),
                    1 => (random.random_range(0..size + 1), random.random_range(1..200)),
                    2 => (random.random_range(0..300_000), random.random_range(1..5000)),
                    _ => (0, random.random_range(1..400_000)),
                };
                let data: Vec<u8> = (0..length).map(|_| random.random()).collect();
                self.fs.write(inode, WriteMode::At(offset as u64), &data, &user).unwrap();
                self.changed(inode, |version| {
                    version.contents.resize(version.contents.len().max(offset + length), 0);
                    version.contents[offset..offset + length].copy_from_slice(&data);
                });
                inode
            }
            (10, Some((_, inode))) => {
                let size = random.random_range(0..300_000);
                self.fs.truncate(inode, size as u64, &user).unwrap();
                self.changed(inode, |version| version.contents.resize(size, 0));
                inode
            }
            (11, Some((path, inode))) => {
                let (_, new) = self.free_name(random);
                let (from, to) = (names[split(&path).0], names[split(&new).0]);
                self.fs.rename(from, split(&path).1, to, split(&new).1, RenameMode::Replace).unwrap();
                names.remove(&path);
                names.insert(new, inode);
                self.did(names);
                let done = self.done();
                self.files.get_mut(&inode).unwrap().renamed.push(done);
                inode
            }
            (12, Some((path, inode))) => {
                self.fs.unlink(names[split(&path).0], split(&path).1).unwrap();
                names.remove(&path);
                self.did(names);
                inode
            }
            (13, Some((_, inode))) => {
                let (directory, path) = self.free_name(random);
                self.fs.link(inode, directory, split(&path).1).unwrap();
                names.insert(path, inode);
                self.did(names);
                // What was done to the file before is logged before, as with a rename.
                let done = self.done();
                self.files.get_mut(&inode).unwrap().renamed.push(done);
                inode
            }
            (14, Some((_, inode))) => {
                let mode = 0o600 | random.random_range(0..0o100);
                self.fs.setattr(inode, &SetAttributes { mode: Some(mode), ..SetAttributes::default() }, &user).unwrap();
                self.changed(inode, |version| version.mode = version.mode & !0o7777 | mode);
                inode
            }
            (_, Some((_, inode))) => {
                let value: Vec<u8> = (0..random.random_range(1..2000)).map(|_| random.random()).collect();
                self.fs.setxattr(inode, b"user.x", &value, XattrMode::Any).unwrap();
                self.changed(inode, |version| version.xattr = Some(value));
                inode
            }
        };
        let done = self.done();
        self.story.push(format!("{done}: operation {choice}, file {of}, touched {touched}"));
        if random.random_range(0..3) == 0 {
            self.fs.fsync(touched).unwrap();
            self.story.push(format!("{done}: fsync {touched}"));
            self.safe.push(done);
            if let Some(history) = self.files.get_mut(&touched) {
                history.safe.push(done);
            }
        }
    }

    fn tell(&self) {
        self.story.iter().for_each(|line| println!("{line}"));
    }

    fn found(fs: &FileSystem) -> Names {
        let mut names = Names::from([(Vec::new(), fs.root())]);
        let mut todo = vec![(Vec::new(), fs.root())];
        while let Some((path, directory)) = todo.pop() {
            let mut entries = Vec::new();
            fs.read_directory(directory, 2, &mut |entry| {
                entries.push(entry);
                true
            })
            .unwrap();
            for entry in entries {
                let path = [&path[..], b"/", &entry.name].concat();
                names.insert(path.clone(), entry.inode);
                if entry.kind == FileKind::Directory {
                    todo.push((path, entry.inode));
                }
            }
        }
        names
    }

    /// What is in `fs` is what may be there after a cut when `progress` operations were done.
    pub(crate) fn compare(&self, fs: &FileSystem, progress: usize, what: &str) {
        let last = |safe: &[usize]| safe.iter().rev().copied().find(|done| *done <= progress);
        let safe = last(&self.safe).unwrap_or(0);
        let found = Self::found(fs);
        // An operation may have been under way when the power went.
        let until = (progress + 1).min(self.done());
        let fits = (safe..=until).rev().find(|index| self.names[*index] == found);
        if fits.is_none() {
            self.tell();
            let expected = &self.names[safe];
            let missing: Vec<_> = expected.iter().filter(|(path, inode)| found.get(*path) != Some(inode)).map(|(path, _)| String::from_utf8_lossy(path)).collect();
            panic!("{what}: the names are of no operation in {safe}..={until}: {} found, of operation {safe} missing: {missing:?}", found.len());
        }
        for (path, inode) in found.iter().filter(|(_, inode)| self.files.contains_key(inode)) {
            let history = &self.files[inode];
            let since = last(&history.safe).unwrap_or(0);
            let stat = fs.getattr(*inode).unwrap();
            let now = Version {
                contents: fs.read(*inode, 0, stat.size as usize).unwrap(),
                mode: stat.mode,
                xattr: fs.getxattr(*inode, b"user.x").ok(),
            };
            let first = history.versions.iter().rposition(|(index, _)| *index <= since).unwrap_or(0);
            let possible = history.versions[first..].iter().filter(|(index, _)| *index <= until);
            let mixed = history.renamed.iter().any(|at| *at > since && *at <= until && possible.clone().any(|(index, _)| index > at));
            let piece = if self.mode.record_bytes < LOG_WRITE_MIN as u64 { 1 } else { LOG_WRITE_MIN };
            let torn = possible.clone().enumerate().any(|(at, (_, new))| possible.clone().take(at).any(|(_, old)| is_torn(old, new, &now, piece)));
            let blended = (self.mode.throughput || mixed) && is_blend(&possible.clone().map(|(_, version)| version).collect::<Vec<_>>(), &now);
            let fits = torn || blended || possible.clone().any(|(_, version)| *version == now);
            if !fits {
                self.tell();
                let closest: Vec<_> = possible.map(|(index, v)| (*index, v.contents.len(), v.contents == now.contents, v.mode == now.mode, v.xattr == now.xattr)).collect();
                panic!("{what}: {} (inode {inode}, {} bytes) is no version since operation {since}: {closest:?}", String::from_utf8_lossy(path), now.contents.len());
            }
        }
    }
}

/// Whether `now` is `old` with the beginning of what makes it `new`: a write that no log block has room for is several records, and one
/// that nobody was told of may be there in part. The log reads what was written when it writes its records out, so that `new` may be
/// several writes later than `old`: the beginning of a large write then has a later small write inside
/// (TARN_SEED=860681206822), and an earlier small one has bytes of a later one whose own record is lost (TARN_SEED=215305602821).
fn is_torn(old: &Version, new: &Version, now: &Version, piece: usize) -> bool {
    let same = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let written = same(&now.contents, &new.contents);
    let from = same(&old.contents, &new.contents);
    let rest = |contents: &[u8]| contents.get(written..).map_or(Vec::new(), <[u8]>::to_vec);
    let is_beginning =
        written >= from + piece && now.contents.len() == old.contents.len().max(written) && rest(&now.contents) == rest(&old.contents);
    let of_either = |(at, byte): (usize, &u8)| *byte == old.contents[at] || new.contents.get(at) == Some(byte);
    let is_overtaken = now.contents.len() == old.contents.len() && now.contents.iter().enumerate().all(of_either);
    (is_beginning || is_overtaken) && (now.mode, &now.xattr) == (old.mode, &old.xattr)
}

/// With `logbias=throughput` a record brings back the whole block that it touched, as it was when the record was written: with writes that
/// came after it, and whose own records may be lost with the rest of a log that nobody was told of. So each byte is that of some version. The same goes
/// for a file that was renamed or linked: its earlier writes go to the log with that, and with them bytes that later ones put there.
fn is_blend(versions: &[&Version], now: &Version) -> bool {
    let lengths = versions.iter().map(|version| version.contents.len());
    let (least, most) = (lengths.clone().min().unwrap_or(0), lengths.max().unwrap_or(0));
    let from_some = |(at, byte): (usize, &u8)| versions.iter().any(|version| version.contents.get(at).unwrap_or(&0) == byte);
    versions.len() > 1
        && (least..=most).contains(&now.contents.len())
        && versions.iter().any(|version| (version.mode, &version.xattr) == (now.mode, &now.xattr))
        && now.contents.iter().enumerate().all(from_some)
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        self.held.clear();
    }
}
