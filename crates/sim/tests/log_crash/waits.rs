//! A commit may wait for other threads, but never for one that waits for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use engine::error::Result;
use engine::pool::Pool;
use engine::vdev::FailureMode;
use engine::zil::{LogSource, WantedWrite, Zil};
use tarnfs::zpl::{FileSource, FileSystem};
use tarnfs::{Credentials, WriteMode};

use crate::directed::make;
use crate::disk::CutDisk;
use crate::{DISK_BYTES, Mode, check, create, create_on, create_with, file_system, file_system_in, open, open_all, replay, top};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// Runs `work` on a thread of its own, and fails if that does not come back.
fn within_reason<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = channel();
    std::thread::spawn(move || done.send(work()));
    wait.recv_timeout(LONG).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Bytes from `late` on are given only when the open group is on disk: as if a writer had them, who waits for room.
struct Late {
    fs: Arc<FileSystem>,
    pool: Arc<Pool>,
    late: u64,
}

impl LogSource for Late {
    fn fetch(&self, write: &WantedWrite, out: &mut Vec<u8>) -> Result<()> {
        if write.offset >= self.late {
            self.pool.sync_all()?;
        }
        FileSource::of(&self.fs).fetch(write, out)
    }
}

/// A commit of several rounds had the first of them placed in a group, and waited for bytes that a writer had, who waited for that group.
#[test]
fn a_commit_waits_for_no_writer_while_a_group_waits_for_it() {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let fs = Arc::new(file_system(&pool));
    fs.fsync(make(&fs, "first")).unwrap();
    let file = make(&fs, "file");
    fs.write(file, WriteMode::At(0), &vec![7; 12 << 20], &Credentials::root()).unwrap();
    let source = Late { fs: fs.clone(), pool: pool.clone(), late: 9 << 20 };
    within_reason("a commit of two rounds", move || Zil::of(source.fs.objset()).commit(Some(file), &source)).unwrap();
    fs.release_all();
    drop(fs);
    pool.sync_all().unwrap();
    check(&pool, "after a commit of two rounds");
    pool.export().unwrap();
}

/// A bug while the bytes of the first round are fetched, when a second commit waits for its turn behind it.
struct Buggy {
    fs: Arc<FileSystem>,
    second: Arc<std::sync::Barrier>,
}

impl LogSource for Buggy {
    fn fetch(&self, _: &WantedWrite, _: &mut Vec<u8>) -> Result<()> {
        self.second.wait();
        // The other one has taken its round, and waits for this one's.
        std::thread::sleep(Duration::from_millis(300));
        panic!("a bug, in {}", self.fs.objset().name());
    }
}

/// The thread that fetched the bytes of a round died of a bug: all with records in the log behind it, and the group, waited for ever.
#[test]
fn a_bug_in_a_commit_leaves_nobody_waiting() {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let fs = Arc::new(file_system(&pool));
    fs.fsync(make(&fs, "first")).unwrap();
    let (file, other) = (make(&fs, "file"), make(&fs, "other"));
    fs.write(file, WriteMode::At(0), &[7; 100], &Credentials::root()).unwrap();
    let second = Arc::new(std::sync::Barrier::new(2));
    let source = Buggy { fs: fs.clone(), second: second.clone() };
    let buggy = std::thread::spawn(move || Zil::of(source.fs.objset()).commit(Some(file), &source));
    second.wait();
    fs.write(other, WriteMode::At(0), &[8; 100], &Credentials::root()).unwrap();
    let syncing = fs.clone();
    let refused = within_reason("a commit behind one that died", move || syncing.fsync(other)).unwrap_err();
    assert!(refused.to_string().contains("a bug"), "{refused}");
    assert!(buggy.join().is_err());
    let whole = pool.clone();
    within_reason("the group", move || whole.sync_all()).unwrap_err();
    let image = disk.cut(0).image;
    fs.release_all();
    drop(fs);
    within_reason("closing", move || pool.abandon());
    let disk = CutDisk::new(image);
    let pool = open(&disk, false);
    check(&pool, "after a bug in a commit");
    pool.abandon();
}

/// A device for the log alone that fails is done without: the pool does not wait for somebody to repair it.
#[test]
fn a_log_device_that_fails_suspends_nothing() {
    for bytes in [100, 300_000] {
        let (disk, log) = (CutDisk::new(vec![0; DISK_BYTES]), CutDisk::new(vec![0; DISK_BYTES]));
        let pool = create_on(&disk, Some(&log));
        let fs = Arc::new(file_system(&pool));
        pool.vdevs.gate().set_mode(FailureMode::Wait);
        let file = make(&fs, "file");
        fs.fsync(file).unwrap();
        log.break_down();
        fs.write(file, WriteMode::At(0), &vec![7; bytes], &Credentials::root()).unwrap();
        let syncing = fs.clone();
        within_reason(&format!("a commit of {bytes} bytes"), move || syncing.fsync(file)).unwrap();
        assert!(pool.vdevs.gate().failure().is_none(), "{bytes} bytes: the pool is suspended");
        fs.release_all();
        drop(fs);
        pool.abandon();
    }
}

/// The file is made shorter before the bytes are fetched.
struct Shortened<'a>(&'a FileSystem, u64);

impl LogSource for Shortened<'_> {
    fn fetch(&self, write: &WantedWrite, out: &mut Vec<u8>) -> Result<()> {
        self.0.truncate(write.object, self.1, &Credentials::root())?;
        FileSource::of(self.0).fetch(write, out)
    }
}

/// What there is of a file, if it is there, when the power fails behind a commit of its new contents, which `commit` does.
fn after_a_commit(new: &[u8], what: &str, commit: impl Fn(&FileSystem, u64)) -> Option<Vec<u8>> {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let fs = file_system(&pool);
    let (first, file) = (make(&fs, "first"), make(&fs, "file"));
    fs.write(file, WriteMode::At(0), &vec![1; new.len()], &Credentials::root()).unwrap();
    fs.fsync(first).unwrap();
    pool.sync_all().unwrap();
    fs.write(file, WriteMode::At(0), new, &Credentials::root()).unwrap();
    commit(&fs, file);
    let image = disk.cut(0).image;
    pool.abandon();
    let disk = CutDisk::new(image);
    let pool = open(&disk, false);
    let fs = file_system(&pool);
    replay(&pool, &fs, what);
    let found = fs.lookup(fs.root(), b"file").ok().map(|file| {
        let found = fs.read(file.inode, 0, new.len() + 1).unwrap();
        fs.forget(file.inode, 1);
        found
    });
    pool.abandon();
    found
}

/// What was written was not logged, since it was not there any more, and that it was not there any more was for a later commit.
#[test]
fn what_is_cut_off_during_a_commit_is_not_what_it_was_before() {
    let (new, left) = (vec![2; 70_000], 100);
    let commit = |fs: &FileSystem, file| Zil::of(fs.objset()).commit(Some(file), &Shortened(fs, left)).unwrap();
    let found = after_a_commit(&new, "a file that was cut off", commit).unwrap();
    assert!(found == new || found == new[..left as usize], "{} bytes, of which the last is {:?}", found.len(), found.last());
}

/// The file is removed before the bytes are fetched, and is open still or not.
struct Removed<'a>(&'a FileSystem, bool);

impl LogSource for Removed<'_> {
    fn fetch(&self, write: &WantedWrite, out: &mut Vec<u8>) -> Result<()> {
        self.0.unlink(self.0.root(), b"file")?;
        if !self.1 {
            self.0.forget(write.object, 1);
        }
        FileSource::of(self.0).fetch(write, out)
    }
}

/// Nothing was logged of a file that was removed, and that it was removed was for a later commit: with the power gone, it was what it had been before.
#[test]
fn what_is_removed_during_a_commit_is_not_what_it_was_before() {
    for is_open in [false, true] {
        let new = vec![2; 70_000];
        let commit = |fs: &FileSystem, file| Zil::of(fs.objset()).commit(Some(file), &Removed(fs, is_open)).unwrap();
        if let Some(found) = after_a_commit(&new, "a file that was removed", commit) {
            assert!(found == new, "open: {is_open}: {} bytes, of which the last is {:?}", found.len(), found.last());
        }
    }
}

/// A file that had no name got one, for which there is no record, while a commit waited for its log to begin; and what came after that was in the log: with
/// the power gone the later name was there, and the earlier one was not.
#[test]
fn what_comes_after_something_without_a_record_is_not_in_the_log_before_it() {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let fs = Arc::new(file_system(&pool));
    let unnamed = fs.create_unnamed(fs.root(), 0o644, &Credentials::root()).unwrap().inode;
    let first = make(&fs, "first");
    let groups = fs.objset().context().groups.clone();
    let group = groups.open_txg();
    let held = disk.groups.lock();
    let (syncing, (done, wait)) = (fs.clone(), channel());
    std::thread::spawn(move || done.send(syncing.fsync(first)));
    while groups.open_txg() == group {
        std::thread::sleep(Duration::from_millis(1));
    }
    fs.forget(fs.link(unnamed, fs.root(), b"earlier").unwrap().inode, 1);
    make(&fs, "later");
    disk.cut_when_durable.store(true, Ordering::Relaxed);
    drop(held);
    wait.recv_timeout(LONG).unwrap().unwrap();
    let image = disk.cut(0).image;
    fs.release_all();
    drop(fs);
    pool.abandon();
    let disk = CutDisk::new(image);
    let pool = open(&disk, false);
    let fs = file_system(&pool);
    replay(&pool, &fs, "a name without a record");
    let there = ["earlier", "later"].map(|name| fs.lookup(fs.root(), name.as_bytes()).is_ok());
    assert!(there[0] || !there[1], "the later name is there, the earlier one is not");
    fs.release_all();
    drop(fs);
    pool.abandon();
}

/// A group flushes the log's device too, and can do without it: it was told of the error, took no notice, and the commit that flushed it
/// again was told that all was well.
#[test]
fn what_a_log_device_has_lost_in_the_flush_of_a_group_is_not_safe() {
    let mode = Mode { throughput: true, ..Mode::default() };
    let (disk, log) = (CutDisk::new(vec![0; DISK_BYTES]), CutDisk::new(vec![0; DISK_BYTES]));
    let pool = create_with(vec![top(&disk, "/cut", false), top(&log, "/log", true)], mode);
    let fs = file_system_in(&pool, mode);
    let file = make(&fs, "file");
    fs.write(file, WriteMode::At(0), &[1; 256 << 10], &Credentials::root()).unwrap();
    fs.fsync(file).unwrap();
    fs.write(file, WriteMode::At(0), &[2; 256 << 10], &Credentials::root()).unwrap();
    // When the commit has written, and flushes.
    let (flushing, losing) = (pool.clone(), log.clone());
    *disk.at_flush.lock() = Some(Box::new(move || {
        losing.loses.store(true, Ordering::Relaxed);
        flushing.vdevs.flush_all().unwrap();
    }));
    fs.fsync(file).unwrap();
    assert!(disk.at_flush.lock().is_none() && !log.loses.load(Ordering::Relaxed), "nobody flushed");
    let images = [disk.cut(0).image, log.cut(0).image];
    fs.release_all();
    drop(fs);
    pool.abandon();
    let pool = open_all(&images.map(CutDisk::new), false);
    let fs = file_system(&pool);
    replay(&pool, &fs, "a log device that has lost something");
    let found = fs.lookup(fs.root(), b"file").unwrap();
    assert!(fs.read(found.inode, 0, 1 << 20).unwrap() == [2; 256 << 10], "what was acknowledged is gone");
    fs.release_all();
    drop(fs);
    pool.abandon();
}
