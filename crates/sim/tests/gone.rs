//! Devices that go while their pool is in use.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use engine::tunables::Tunables;
use sim::scenario::contents;
use tarnfs::{Bias, CreateOptions, Credentials, FileSystem, ImportOptions, Pool, VdevPaths, WriteMode};

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
    let vdev = |path: &PathBuf, bias| VdevPaths { paths: vec![path.clone()], bias, ..VdevPaths::default() };
    let options = CreateOptions { tunables: Some(tunables()), ..CreateOptions::default() };
    let pool = Pool::create("tank", &[vdev(&data, Bias::None), vdev(&log, Bias::Log)], options).unwrap();
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
    let pool = Pool::create("tank", &[VdevPaths { paths: vec![data.clone()], ..VdevPaths::default() }], options).unwrap();
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
