//! Devices that go while their pool is in use.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use disk::MemDisk;
use engine::host::RealHost;
use engine::tunables::Tunables;
use engine::vdev::{FailureMode, NewLeaf, NewTop};
use sim::scenario::contents;
use tarnfs::{CreateOptions, Credentials, FileSystem, ImportOptions, Pool, SetAttributes, VdevPaths, WriteMode};

/// Nothing here takes so long.
const LONG: Duration = Duration::from_secs(120);

/// No group ends by itself.
fn tunables() -> Tunables {
    Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() }
}

fn image(directory: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = directory.join(name);
    std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

fn empty(path: &Path) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
}

/// Makes a file, writes it and calls `fsync`.
fn synced_file(fs: &FileSystem, number: u64) -> tarnfs::zpl::InodeNumber {
    let root = Credentials::root();
    let stat = fs.create(fs.root(), format!("f{number}").as_bytes(), 0o100_644, 0, &root).unwrap();
    fs.write(stat.inode, WriteMode::At(0), &contents(number, 5000, 0), &root).unwrap();
    fs.fsync(stat.inode).unwrap();
    stat.inode
}

/// The file of a log device was emptied (`: > log.img`) while the pool was in use. It took every write, as a file does, and so fifty more files were
/// acknowledged by `fsync` that a crash took away: the beginning of the log, which leads to the rest, was no more. What is not in the log is made safe by its
/// group.
#[test]
fn what_is_synced_after_the_log_device_was_emptied_survives() {
    let directory = tempfile::tempdir().unwrap();
    let (data, log) = (image(directory.path(), "data.img", 128 << 20), image(directory.path(), "log.img", 64 << 20));
    let vdev = |path: &PathBuf, is_log| VdevPaths { paths: vec![path.clone()], is_log };
    let options = CreateOptions { tunables: Some(tunables()), ..CreateOptions::default() };
    let pool = Pool::create("tank", &[vdev(&data, false), vdev(&log, true)], options).unwrap();
    let fs = pool.file_system("tank").unwrap();
    for number in 0..5 {
        synced_file(&fs, number);
    }
    let is_used = || pool.engine().vdevs.data_tops().iter().any(|top| top.is_log() && top.leaves()[0].stats.writes.load(Ordering::Relaxed) > 0);
    assert!(is_used(), "the log is on the device for it");
    empty(&log);
    for number in 5..55 {
        synced_file(&fs, number);
    }
    pool.abandon();
    drop((fs, pool));
    let options = ImportOptions { forget_log: true, force: true, ..ImportOptions::default() };
    let pool = Pool::import(&[data], "tank", options).unwrap();
    let fs = pool.file_system("tank").unwrap();
    for number in 0..55 {
        let stat = fs.lookup(fs.root(), format!("f{number}").as_bytes()).unwrap_or_else(|error| panic!("file {number} was synced: {error}"));
        assert!(fs.read(stat.inode, 0, 5000).unwrap() == contents(number, 5000, 0), "file {number}");
        fs.forget(stat.inode, 1);
    }
    drop(fs);
    pool.export().unwrap();
}

/// The same of an image of the pool itself: everything went on, `zpool sync` too, in a file of which most was gone. It says so, and which file it is.
#[test]
fn a_pool_whose_image_was_emptied_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let data = image(directory.path(), "data.img", 128 << 20);
    let options = CreateOptions { tunables: Some(tunables()), ..CreateOptions::default() };
    let pool = Pool::create("tank", &[VdevPaths { paths: vec![data.clone()], is_log: false }], options).unwrap();
    let fs = pool.file_system("tank").unwrap();
    synced_file(&fs, 0);
    pool.sync().unwrap();
    empty(&data);
    let root = Credentials::root();
    let stat = fs.create(fs.root(), b"later", 0o100_644, 0, &root).unwrap();
    fs.write(stat.inode, WriteMode::At(0), b"later", &root).unwrap();
    let error = pool.sync().expect_err("it is not on disk");
    assert!(error.to_string().contains("data.img") && error.to_string().contains("shorter"), "{error}");
    pool.abandon();
}

/// The records of the log were not counted as memory: on a pool that waits for its device (`failmode=wait`), a loop of `chmod`, which changes the same few
/// bytes again and again but makes a record each time, grew by gigabytes.
#[test]
#[allow(clippy::disallowed_methods)] // this test is about threads
fn changes_of_a_pool_that_waits_take_no_more_memory_than_is_dirty_at_most() {
    // Their records are more than may be dirty.
    const CHANGES: u32 = 100_000;
    const COUNTED: u64 = 4 << 20;
    let memory = Arc::new(MemDisk::new("/memory/d0", 128 << 20));
    let top = NewTop { leaves: vec![NewLeaf { disk: memory.clone(), path: "/memory/d0".into(), whole_disk: false }], ashift: None, is_log: false };
    let tunables = Tunables { dirty_bytes_max: 16 << 20, delay_ns_max: 10_000, ..tunables() };
    let options = CreateOptions { tunables: Some(tunables), ..CreateOptions::default() };
    let pool = Pool::create_on("tank", vec![top], options, RealHost::shared()).unwrap();
    pool.engine().vdevs.gate().set_mode(FailureMode::Wait);
    let fs = pool.file_system("tank").unwrap();
    let file = synced_file(&fs, 0);
    pool.sync().unwrap();
    memory.faults.break_writes(true);
    let (changed, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let work = {
        let (fs, changed, ended) = (fs.clone(), changed.clone(), ended.clone());
        move || {
            for number in 0..CHANGES {
                let mode = SetAttributes { mode: Some(0o600 | number & 0o77), ..SetAttributes::default() };
                fs.setattr(file, &mode, &Credentials::root()).unwrap();
                changed.store(number + 1, Ordering::SeqCst);
            }
            ended.store(true, Ordering::SeqCst);
        }
    };
    let worker = std::thread::spawn(work);
    let wait_until = |what: &str, is_so: &dyn Fn() -> bool| {
        let until = Instant::now() + LONG;
        while !is_so() {
            assert!(Instant::now() < until, "{what}: not after {LONG:?}; {} changes", changed.load(Ordering::SeqCst));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let dirty = &pool.engine().context.dirty;
    // (Other pools of this process have their part of what may be dirty.)
    wait_until("records are counted, or all is done", &|| dirty.total() >= COUNTED || ended.load(Ordering::SeqCst));
    assert!(!ended.load(Ordering::SeqCst), "{CHANGES} changes were taken of a pool that cannot be written, {} bytes of them counted", dirty.total());
    memory.faults.break_writes(false);
    pool.engine().clear_errors(None);
    wait_until("the device is back", &|| ended.load(Ordering::SeqCst));
    worker.join().unwrap();
    drop(fs);
    pool.export().unwrap();
}
