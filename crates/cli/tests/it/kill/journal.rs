//! What was begun and what was acknowledged, and contents that say what they are.
//!
//! # Theory
//! Every thread appends a line before each operation and one after it to the same file, with one `write` each, so the
//! order of the lines is an order of events: what is done before something else begins happened before it.
//! Contents are made of records, each of which says eight times over which file, which version and which place it
//! belongs to, so that any mixture shows.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

const MAGIC: u64 = 0x6e72_6154_5365_4c4c;
const CELL: usize = 32;

/// One record of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) file: u64,
    pub(crate) version: u64,
    pub(crate) index: u64,
}

impl Record {
    pub(crate) const BYTES: usize = 8 * CELL;

    /// Odd versions do not compress, even ones do.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        for cell in 0..8u64 {
            let mix = if self.version % 2 == 1 { scramble(self.file ^ self.version.rotate_left(20) ^ self.index.rotate_left(40) ^ (cell << 60)) } else { 0 };
            for (at, word) in [MAGIC, self.file, self.version, self.index].into_iter().enumerate() {
                let noise = if cell == 0 { 0 } else { mix.wrapping_mul(2 * at as u64 + 1) };
                out.extend((word ^ noise).to_le_bytes());
            }
        }
    }

    /// `Ok(None)`: nothing but zeros.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Record>, String> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if bytes.len() != Record::BYTES {
            return Err(format!("{} bytes of a record", bytes.len()));
        }
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap());
        let record = Record { file: word(1), version: word(2), index: word(3) };
        let mut again = Vec::new();
        record.encode(&mut again);
        if word(0) == MAGIC && again == bytes { Ok(Some(record)) } else { Err(format!("not a record: {:02x?}", &bytes[..2 * CELL])) }
    }
}

fn scramble(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `count` records.
pub(crate) fn fill(file: u64, version: u64, first: u64, count: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count as usize * Record::BYTES);
    for index in first..first + count {
        Record { file, version, index }.encode(&mut bytes);
    }
    bytes
}

/// An operation. Files are numbered, because names change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Create { name: String, file: u64 },
    Link { old: String, new: String },
    Rename { old: String, new: String },
    /// The two names change places.
    Exchange { one: String, other: String },
    Remove { name: String },
    Symlink { name: String, target: String },
    MakeDirectory { name: String },
    RemoveDirectory { name: String },
    Mode { name: String, mode: u32 },
    Owner { name: String, owner: u32 },
    Attribute { name: String, value: u64 },
    Write { file: u64, first: u64, count: u64, version: u64 },
    /// A write that is durable when it returns.
    WriteThrough { file: u64, first: u64, count: u64, version: u64 },
    Truncate { file: u64, records: u64 },
    /// Makes a hole.
    Punch { file: u64, first: u64, count: u64 },
    Sync { file: u64 },
    SyncDirectory,
    /// `zpool sync`.
    SyncPool,
}

impl Op {
    /// Does it change names or attributes?
    pub(crate) fn is_of_names(&self) -> bool {
        !self.is_of_contents() && !self.is_sync() && *self != Op::SyncPool
    }

    fn is_of_contents(&self) -> bool {
        matches!(self, Op::Write { .. } | Op::WriteThrough { .. } | Op::Truncate { .. } | Op::Punch { .. })
    }

    pub(crate) fn is_of_attributes(&self) -> bool {
        matches!(self, Op::Mode { .. } | Op::Owner { .. } | Op::Attribute { .. })
    }

    pub(crate) fn is_sync(&self) -> bool {
        matches!(self, Op::Sync { .. } | Op::SyncDirectory)
    }

    fn print(&self) -> String {
        match self {
            Op::Create { name, file } => format!("create {name} {file}"),
            Op::Link { old, new } => format!("link {old} {new}"),
            Op::Rename { old, new } => format!("rename {old} {new}"),
            Op::Exchange { one, other } => format!("exchange {one} {other}"),
            Op::Remove { name } => format!("remove {name}"),
            Op::Symlink { name, target } => format!("symlink {name} {target}"),
            Op::MakeDirectory { name } => format!("mkdir {name}"),
            Op::RemoveDirectory { name } => format!("rmdir {name}"),
            Op::Mode { name, mode } => format!("mode {name} {mode}"),
            Op::Owner { name, owner } => format!("owner {name} {owner}"),
            Op::Attribute { name, value } => format!("attribute {name} {value}"),
            Op::Write { file, first, count, version } => format!("write {file} {first} {count} {version}"),
            Op::WriteThrough { file, first, count, version } => format!("through {file} {first} {count} {version}"),
            Op::Truncate { file, records } => format!("truncate {file} {records}"),
            Op::Punch { file, first, count } => format!("punch {file} {first} {count}"),
            Op::Sync { file } => format!("sync {file}"),
            Op::SyncDirectory => "syncdir".to_owned(),
            Op::SyncPool => "syncpool".to_owned(),
        }
    }

    fn parse(words: &[&str]) -> Op {
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let name = |at: usize| words[at].to_owned();
        match words[0] {
            "create" => Op::Create { name: name(1), file: number(2) },
            "link" => Op::Link { old: name(1), new: name(2) },
            "rename" => Op::Rename { old: name(1), new: name(2) },
            "exchange" => Op::Exchange { one: name(1), other: name(2) },
            "remove" => Op::Remove { name: name(1) },
            "symlink" => Op::Symlink { name: name(1), target: name(2) },
            "mkdir" => Op::MakeDirectory { name: name(1) },
            "rmdir" => Op::RemoveDirectory { name: name(1) },
            "mode" => Op::Mode { name: name(1), mode: number(2) as u32 },
            "owner" => Op::Owner { name: name(1), owner: number(2) as u32 },
            "attribute" => Op::Attribute { name: name(1), value: number(2) },
            "write" => Op::Write { file: number(1), first: number(2), count: number(3), version: number(4) },
            "through" => Op::WriteThrough { file: number(1), first: number(2), count: number(3), version: number(4) },
            "truncate" => Op::Truncate { file: number(1), records: number(2) },
            "punch" => Op::Punch { file: number(1), first: number(2), count: number(3) },
            "sync" => Op::Sync { file: number(1) },
            "syncdir" => Op::SyncDirectory,
            "syncpool" => Op::SyncPool,
            other => panic!("the journal has {other:?}"),
        }
    }
}

/// An operation and its place in the order of events.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) op: Op,
    pub(crate) begun: usize,
    /// `None`: never acknowledged.
    pub(crate) done: Option<usize>,
    /// The inode number of a new file.
    pub(crate) inode: u64,
}

/// The file with the lines.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    pub(crate) fn create(path: &Path) -> Journal {
        let file = OpenOptions::new().append(true).create_new(true).open(path).unwrap();
        Journal { path: path.to_owned(), file }
    }

    pub(crate) fn open(path: &Path) -> Journal {
        Journal { path: path.to_owned(), file: OpenOptions::new().append(true).open(path).unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn line(&self, line: &str) {
        let written = (&self.file).write(format!("{line}\n").as_bytes()).unwrap();
        assert_eq!(written, line.len() + 1, "a line was torn");
    }

    pub(crate) fn begin(&self, thread: u64, op: &Op) {
        self.line(&format!("B {thread} {}", op.print()));
    }

    pub(crate) fn done(&self, thread: u64, inode: u64) {
        self.line(&format!("D {thread} {inode}"));
    }

    pub(crate) fn failed(&self, thread: u64, error: &str) {
        self.line(&format!("E {thread} {error}"));
    }

    /// From here on failures are expected.
    pub(crate) fn kill_follows(&self) {
        self.line("K");
    }

    /// What each thread did, in its order. Panics on failures that no kill explains.
    pub(crate) fn read(&self, what: &str) -> Vec<Vec<Event>> {
        let mut threads: Vec<Vec<Event>> = Vec::new();
        let mut killed = false;
        for (at, line) in fs::read_to_string(&self.path).unwrap().lines().enumerate() {
            let words: Vec<&str> = line.split(' ').collect();
            if words[0] == "K" {
                killed = true;
                continue;
            }
            let thread: usize = words[1].parse().unwrap();
            if threads.len() <= thread {
                threads.resize_with(thread + 1, Vec::new);
            }
            match words[0] {
                "B" => threads[thread].push(Event { op: Op::parse(&words[2..]), begun: at, done: None, inode: 0 }),
                "D" => {
                    let event = threads[thread].last_mut().unwrap();
                    event.done = Some(at);
                    event.inode = words[2].parse().unwrap();
                }
                _ => assert!(killed, "{what}: thread {thread} failed before the kill: {line}, in {:?}", threads[thread].last()),
            }
        }
        threads
    }
}
