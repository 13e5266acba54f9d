//! What programs do to the pool while its daemon is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::thread;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::fs::{CWD, FallocateFlags, RenameFlags, renameat_with};

use super::journal::{Journal, Op, Record, fill};

/// The name of the extended attribute.
pub(super) const ATTRIBUTE: &str = "user.version";
/// Records of a page.
const PAGE: u64 = (4096 / Record::BYTES) as u64;
/// Files of a thread.
const FILES_MAX: usize = 30;

/// A process that writes through a shared mapping: it dies of SIGBUS with the daemon. Same journal, same records.
pub(super) const MAPPER: &str = r#"
import mmap, os, random, struct, sys
thread = int(os.environ["KILL_WORKER"]); journal = os.open(os.environ["KILL_JOURNAL"], os.O_WRONLY | os.O_APPEND)
say = lambda line: os.write(journal, (line + "\n").encode())
directory = os.path.join(os.environ["KILL_DIRECTORY"], str(thread)); key = thread << 32; version = 2; count = 512
def begin(op): say("B %d %s" % (thread, op))
def done(inode=0): say("D %d %d" % (thread, inode))
try:
    os.mkdir(directory)
    begin("create map %d" % key); file = os.open(os.path.join(directory, "map"), os.O_RDWR | os.O_CREAT, 0o600); done(os.fstat(file).st_ino)
    begin("truncate %d %d" % (key, count)); os.ftruncate(file, 256 * count); done()
    area = mmap.mmap(file, 256 * count)
    while True:
        first = random.randrange(count); records = random.randrange(1, min(40, count - first) + 1); version += 2
        begin("write %d %d %d %d" % (key, first, records, version))
        area[256 * first:256 * (first + records)] = b"".join(struct.pack("<QQQQ", 0x6e7261545365_4c4c, key, version, index) * 8 for index in range(first, first + records))
        done()
        if random.random() < 0.05:
            begin("sync %d" % key); area.flush(); done()
except OSError as error:
    say("E %d %s" % (thread, error)); os._exit(0)
"#;

/// A file as its thread knows it.
#[derive(Debug, Default)]
struct Known {
    /// Which version each record has; 0: zeros.
    versions: Vec<u64>,
}

struct Worker {
    thread: u64,
    directory: PathBuf,
    journal: Journal,
    random: ChaCha8Rng,
    names: BTreeMap<String, u64>,
    links: BTreeSet<String>,
    files: BTreeMap<u64, Known>,
    /// Removed, and still open.
    orphans: Vec<(File, u64)>,
    count: u64,
}

/// Not a test: the process that [`super::Campaign`] starts.
#[test]
#[ignore = "a process of the kill tests"]
fn worker() {
    let Ok(process) = std::env::var("KILL_WORKER") else { return };
    let variable = |name: &str| std::env::var_os(name).unwrap();
    let (process, seed): (u64, u64) = (process.parse().unwrap(), variable("KILL_SEED").to_str().unwrap().parse().unwrap());
    let (directory, journal) = (PathBuf::from(variable("KILL_DIRECTORY")), PathBuf::from(variable("KILL_JOURNAL")));
    thread::scope(|scope| {
        for thread in process * super::THREADS..(process + 1) * super::THREADS {
            let (directory, journal) = (directory.join(thread.to_string()), Journal::open(&journal));
            scope.spawn(move || {
                let random = ChaCha8Rng::seed_from_u64(seed ^ thread);
                let mut worker = Worker {
                    thread,
                    directory,
                    journal,
                    random,
                    names: BTreeMap::new(),
                    links: BTreeSet::new(),
                    files: BTreeMap::new(),
                    orphans: Vec::new(),
                    count: 0,
                };
                let error = worker.work().expect_err("work ends with a kill");
                worker.journal.failed(thread, &error.to_string());
            });
        }
    });
}

impl Worker {
    fn work(&mut self) -> io::Result<()> {
        fs::create_dir(&self.directory)?;
        for name in ["s0", "s1"] {
            let path = self.directory.join(name);
            self.perform(Op::MakeDirectory { name: name.to_owned() }, || fs::create_dir(path).map(|()| 0))?;
        }
        loop {
            self.step()?;
        }
    }

    fn perform(&self, op: Op, act: impl FnOnce() -> io::Result<u64>) -> io::Result<()> {
        self.journal.begin(self.thread, &op);
        let inode = act()?;
        self.journal.done(self.thread, inode);
        Ok(())
    }

    fn new_name(&mut self) -> String {
        let directory = ["", "", "s0/", "s1/"][self.random.random_range(0..4)];
        self.count += 1;
        format!("{directory}f{}", self.count)
    }

    fn a_name(&mut self) -> Option<String> {
        let at = self.random.random_range(0..self.names.len().max(1));
        self.names.keys().nth(at).cloned()
    }

    fn step(&mut self) -> io::Result<()> {
        let choice = self.random.random_range(0..100);
        let Some(name) = self.a_name() else { return self.create() };
        let (file, path) = (self.names[&name], self.directory.join(&name));
        match choice {
            0..15 if self.names.len() < FILES_MAX => self.create(),
            0..40 => self.write(file, &path),
            40..44 => self.truncate(file, &path),
            44..46 => self.punch(file, &path),
            46..52 => self.perform(Op::Sync { file }, || File::open(&path)?.sync_all().map(|()| 0)),
            52..54 => self.perform(Op::SyncDirectory, || File::open(&self.directory)?.sync_all().map(|()| 0)),
            54..60 => self.rename(name),
            60..62 => self.exchange(name),
            62..72 => self.remove(name),
            72..75 => self.link(name),
            75..78 => self.symbolic_link(),
            78..81 => self.directory(),
            81..86 => {
                let mode = 0o600 | self.random.random_range(0..0o177u32);
                self.perform(Op::Mode { name, mode }, || fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map(|()| 0))
            }
            86..88 => {
                let owner = self.random.random_range(0..5000);
                self.perform(Op::Owner { name, owner }, || chown(&path, Some(owner), None).map(|()| 0))
            }
            88..92 => {
                let value: u64 = self.random.random();
                let bytes = value.to_string();
                self.perform(Op::Attribute { name, value }, || Ok(rustix::fs::setxattr(&path, ATTRIBUTE, bytes.as_bytes(), rustix::fs::XattrFlags::empty()).map(|()| 0)?))
            }
            92..96 => self.write_to_orphan(),
            _ => self.read(file, &path),
        }
    }

    fn create(&mut self) -> io::Result<()> {
        let name = self.new_name();
        let file = (self.thread << 32) | self.count;
        let path = self.directory.join(&name);
        self.perform(Op::Create { name: name.clone(), file }, || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.metadata().map(|found| found.ino()))?;
        self.names.insert(name, file);
        self.files.insert(file, Known::default());
        Ok(())
    }

    /// Where a write goes: within the file, or to its end and beyond.
    fn range(&mut self, file: u64) -> (u64, u64) {
        let size = self.files[&file].versions.len() as u64;
        let count: u64 = if self.random.random_ratio(1, 12) { self.random.random_range(1..4096) } else { self.random.random_range(1..40) };
        let first = match self.random.random_range(0..4) {
            0 => size,
            1 => size + self.random.random_range(0..200),
            _ => self.random.random_range(0..=size),
        };
        match size {
            12_001.. => (self.random.random_range(0..size), 1),
            // Whole pages go around the caches.
            _ if self.random.random_ratio(1, 5) => (first / PAGE * PAGE, (count.min(40) * 20).next_multiple_of(PAGE)),
            _ => (first, count),
        }
    }

    fn write(&mut self, file: u64, path: &std::path::Path) -> io::Result<()> {
        let (first, count) = self.range(file);
        self.count += 1;
        let version = 2 * self.count + u64::from(self.random.random::<bool>());
        let bytes = fill(file, version, first, count);
        let offset = first * Record::BYTES as u64;
        let around = if first.is_multiple_of(PAGE) && count.is_multiple_of(PAGE) { libc::O_DIRECT } else { 0 };
        if self.random.random_ratio(1, 15) {
            let open = || OpenOptions::new().write(true).custom_flags(around | libc::O_DSYNC).open(path);
            self.perform(Op::WriteThrough { file, first, count, version }, || open()?.write_all_at(&bytes, offset).map(|()| 0))?;
        } else {
            self.perform(Op::Write { file, first, count, version }, || OpenOptions::new().write(true).custom_flags(around).open(path)?.write_all_at(&bytes, offset).map(|()| 0))?;
        }
        self.files.get_mut(&file).unwrap().write(first, count, version);
        Ok(())
    }

    fn truncate(&mut self, file: u64, path: &std::path::Path) -> io::Result<()> {
        let size = self.files[&file].versions.len();
        let records = if self.random.random() { self.random.random_range(0..=size) } else { size + self.random.random_range(0..300) };
        let bytes = (records * Record::BYTES) as u64;
        self.perform(Op::Truncate { file, records: records as u64 }, || OpenOptions::new().write(true).open(path)?.set_len(bytes).map(|()| 0))?;
        self.files.get_mut(&file).unwrap().versions.resize(records, 0);
        Ok(())
    }

    fn punch(&mut self, file: u64, path: &std::path::Path) -> io::Result<()> {
        let size = self.files[&file].versions.len() as u64;
        let (first, count) = (self.random.random_range(0..=size), self.random.random_range(1..100u64));
        let (offset, length) = (first * Record::BYTES as u64, count * Record::BYTES as u64);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let open = || OpenOptions::new().write(true).open(path);
        self.perform(Op::Punch { file, first, count }, || Ok(rustix::fs::fallocate(open()?, flags, offset, length).map(|()| 0)?))?;
        let end = size.min(first + count) as usize;
        self.files.get_mut(&file).unwrap().versions[first as usize..end].fill(0);
        Ok(())
    }

    fn exchange(&mut self, one: String) -> io::Result<()> {
        let Some(other) = self.a_name().filter(|other| self.names[other] != self.names[&one]) else { return Ok(()) };
        let (from, to) = (self.directory.join(&one), self.directory.join(&other));
        let act = || Ok(renameat_with(CWD, &from, CWD, &to, RenameFlags::EXCHANGE).map(|()| 0)?);
        self.perform(Op::Exchange { one: one.clone(), other: other.clone() }, act)?;
        let (first, second) = (self.names[&one], self.names[&other]);
        self.names.insert(one, second);
        self.names.insert(other, first);
        Ok(())
    }

    fn rename(&mut self, old: String) -> io::Result<()> {
        let replaced = self.random.random_ratio(1, 3).then(|| self.a_name()).flatten();
        // Two names of one file: `rename` does nothing.
        let new = replaced.filter(|new| self.names[new] != self.names[&old]).unwrap_or_else(|| self.new_name());
        let (from, to) = (self.directory.join(&old), self.directory.join(&new));
        self.perform(Op::Rename { old: old.clone(), new: new.clone() }, || fs::rename(from, to).map(|()| 0))?;
        let file = self.names.remove(&old).unwrap();
        self.names.insert(new, file);
        Ok(())
    }

    fn remove(&mut self, name: String) -> io::Result<()> {
        let path = self.directory.join(&name);
        if self.orphans.len() < 6 && self.random.random() {
            self.orphans.push((OpenOptions::new().write(true).open(&path)?, self.names[&name]));
        } else if self.random.random_ratio(1, 4) {
            self.orphans.clear();
        }
        self.perform(Op::Remove { name: name.clone() }, || fs::remove_file(path).map(|()| 0))?;
        self.names.remove(&name);
        Ok(())
    }

    fn link(&mut self, old: String) -> io::Result<()> {
        let new = self.new_name();
        let (from, to) = (self.directory.join(&old), self.directory.join(&new));
        self.perform(Op::Link { old: old.clone(), new: new.clone() }, || fs::hard_link(from, to).map(|()| 0))?;
        self.names.insert(new, self.names[&old]);
        Ok(())
    }

    fn symbolic_link(&mut self) -> io::Result<()> {
        if self.links.len() > 5 {
            let name = self.links.pop_first().unwrap();
            let path = self.directory.join(&name);
            return self.perform(Op::Remove { name }, || fs::remove_file(path).map(|()| 0));
        }
        let (name, target) = (self.new_name(), "x".repeat(self.random.random_range(1..200)));
        let path = self.directory.join(&name);
        self.perform(Op::Symlink { name: name.clone(), target: target.clone() }, || symlink(target, path).map(|()| 0))?;
        self.links.insert(name);
        Ok(())
    }

    fn directory(&mut self) -> io::Result<()> {
        self.count += 1;
        let name = format!("d{}", self.count);
        let path = self.directory.join(&name);
        self.perform(Op::MakeDirectory { name: name.clone() }, || fs::create_dir(&path).map(|()| 0))?;
        if self.random.random() {
            self.perform(Op::RemoveDirectory { name }, || fs::remove_dir(&path).map(|()| 0))?;
        }
        Ok(())
    }

    fn write_to_orphan(&mut self) -> io::Result<()> {
        let at = self.random.random_range(0..self.orphans.len().max(1));
        let Some((handle, file)) = self.orphans.get(at) else { return Ok(()) };
        self.count += 1;
        let (file, version) = (*file, 2 * self.count);
        if self.names.values().any(|named| *named == file) {
            // It has another name: its contents are to be judged, and are not known here.
            return Ok(());
        }
        handle.write_all_at(&fill(file, version, 0, 300), 0)
    }

    fn read(&mut self, file: u64, path: &std::path::Path) -> io::Result<()> {
        let bytes = fs::read(path)?;
        let versions = &self.files[&file].versions;
        let wrong = |text: String| Err(io::Error::other(format!("{}: {text}", path.display())));
        if bytes.len() != versions.len() * Record::BYTES {
            return wrong(format!("{} bytes, not {}", bytes.len(), versions.len() * Record::BYTES));
        }
        for (index, version) in versions.iter().enumerate() {
            let expected = (*version > 0).then_some(Record { file, version: *version, index: index as u64 });
            let found = Record::decode(&bytes[index * Record::BYTES..(index + 1) * Record::BYTES]);
            if found != Ok(expected) {
                return wrong(format!("record {index}: {found:?}, not {expected:?}"));
            }
        }
        Ok(())
    }
}

impl Known {
    fn write(&mut self, first: u64, count: u64, version: u64) {
        let end = (first + count) as usize;
        if self.versions.len() < end {
            self.versions.resize(end, 0);
        }
        self.versions[first as usize..end].fill(version);
    }
}
