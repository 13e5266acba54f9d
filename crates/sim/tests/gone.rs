//! Devices that go while their pool is in use.
#![allow(clippy::disallowed_methods)] // real threads and clocks are what is tested

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use disk::{Access, DiskRef, Request, WatchedDisk};
use engine::error::{Error, ErrorKind};
use engine::host::RealHost;
use engine::pool::check::CheckOptions;
use engine::pool::import::discover;
use engine::pool::{NewPool, OpenOptions as EngineOptions, Pool as Engine, Stopped};
use engine::tunables::Tunables;
use engine::vdev::{FailureMode, NewLeaf, NewTop};
use parking_lot::Mutex;
use sim::oracle;
use sim::scenario::contents;
use tarnfs::{Bias, CreateOptions, Credentials, FileSystem, ImportOptions, MountOptions, Pool, VdevPaths, WriteMode};

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

/// When the device begins to refuse writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// The group before the one is being written that is to make the change.
    Before,
    /// The change is made, and its group is not on disk.
    Amid,
}

type Question = Box<dyn Fn() -> bool + Send>;

/// Whether a device refuses writes.
#[derive(Default)]
struct Switch {
    is_broken: AtomicBool,
    /// Asked before each write: is this the first one that it refuses?
    breaks: Mutex<Option<Question>>,
}

impl Switch {
    fn refuses(&self) -> bool {
        let mut breaks = self.breaks.lock();
        if breaks.as_ref().is_some_and(|breaks| breaks()) {
            *breaks = None;
            self.is_broken.store(true, Ordering::SeqCst);
        }
        self.is_broken.load(Ordering::SeqCst)
    }
}

/// A pool on images, of which one is on a device with a switch, and a file system.
struct Troubled {
    directory: tempfile::TempDir,
    switch: Arc<Switch>,
    engine: Arc<Engine>,
    fs: Arc<FileSystem>,
}

impl Troubled {
    /// The device with the switch is the vdev of this number.
    fn new(vdevs: &[Bias], switched: usize) -> Troubled {
        let (directory, switch) = (tempfile::tempdir().unwrap(), Arc::new(Switch::default()));
        let top = |(number, bias): (usize, &Bias)| {
            let path = image(directory.path(), &format!("d{number}.img"), 256 << 20);
            let mut disk = disk::open(&path.display().to_string(), Access::Write).unwrap();
            if number == switched {
                let switch = switch.clone();
                let before = move |request: Request| match request {
                    Request::Write(_) if switch.refuses() => Err(io::Error::other("it takes no writes now")),
                    _ => Ok(()),
                };
                disk = Arc::new(WatchedDisk::new(disk, before)) as DiskRef;
            }
            NewTop { leaves: vec![NewLeaf { disk, path: path.display().to_string(), whole_disk: false }], ashift: Some(12), bias: *bias, ..NewTop::default() }
        };
        let new = NewPool {
            name: "tank".into(),
            vdevs: vdevs.iter().enumerate().map(top).collect(),
            features: ondisk::feature::Feature::for_new_pools().collect(),
            properties: Vec::new(),
            fill: Box::new(|objset, tx| tarnfs::zpl::initialize(objset, tx, &tarnfs::zpl::NewFileSystem::default())),
            command: "zpool create tank".into(),
            configure: Box::new(|_| ()),
        };
        let options = EngineOptions { host: RealHost::shared(), tunables: tunables(), read_only: false, file_owner: Some(tarnfs::zpl::file_owner), new_name: None, forget_log: false };
        let engine = Engine::create(new, options).unwrap();
        engine.vdevs.gate().set_mode(FailureMode::Wait);
        let objset = engine.dsl.objset(&engine.dsl.open_dataset("tank").unwrap()).unwrap();
        let fs = Arc::new(FileSystem::open(objset, MountOptions::default(), || (0, 1 << 40)).unwrap());
        Troubled { directory, switch, engine, fs }
    }

    fn image(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("d{number}.img"))
    }

    /// Files are made durable, and groups are written.
    fn live_on(&self, first: u64) {
        for number in first..first + 20 {
            self.fs.forget(synced_file(&self.fs, number), 1);
            if number % 4 == 0 {
                self.engine.write_group().unwrap();
            }
        }
    }

    /// What a verb says during which the device begins to refuse writes, beside a writer; then the device is in order again, and all goes on.
    fn amid(&self, when: When, is_made: impl Fn(&Engine) -> bool + Send + 'static, verb: impl FnOnce(&Engine) -> Result<(), Error>) -> Error {
        let asked = self.engine.clone();
        *self.switch.breaks.lock() = Some(Box::new(move || match when {
            When::Before => {
                std::thread::sleep(Duration::from_millis(2));
                asked.context.groups.syncing_txg().is_some_and(|txg| asked.dsl.has_tasks(txg + 1) || asked.dsl.has_tasks(txg + 2))
            }
            When::Amid => is_made(&asked),
        }));
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = {
            let (fs, groups, is_over) = (self.fs.clone(), self.engine.context.groups.clone(), is_over.clone());
            std::thread::spawn(move || {
                let root = Credentials::root();
                let file = fs.create(fs.root(), b"busy", 0o100_644, 0, &root).unwrap().inode;
                for round in 0.. {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    fs.write(file, WriteMode::At(round % 8 * 50_000), &contents(round, 50_000, 0), &root).unwrap();
                    // One group is written behind the other.
                    groups.kick(groups.open_txg());
                    std::thread::sleep(Duration::from_millis(1));
                }
                fs.unlink(fs.root(), b"busy").unwrap();
                fs.forget(file, 1);
            })
        };
        let error = verb(&self.engine).expect_err("nothing can be written");
        assert!(self.switch.is_broken.load(Ordering::SeqCst), "{when:?}: {error}");
        is_over.store(true, Ordering::SeqCst);
        self.switch.is_broken.store(false, Ordering::SeqCst);
        self.engine.clear_errors(None);
        writer.join().unwrap();
        self.engine.sync_all().unwrap();
        assert_eq!((error.kind(), error.goes_on()), (ErrorKind::Suspended, when == When::Amid), "{when:?}: {error}");
        error
    }

    fn end(self, images: &[usize], what: &str) {
        self.engine.sync_all().unwrap();
        let report = self.engine.check(CheckOptions { verify_data: true, ..CheckOptions::default() }, &|_| ()).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
        let images: Vec<PathBuf> = images.iter().map(|number| self.image(*number)).collect();
        let Troubled { directory: _directory, engine, fs, .. } = self;
        fs.release_all();
        drop(fs);
        engine.export().unwrap();
        drop(engine);
        oracle::zdb_check(&images.iter().map(PathBuf::as_path).collect::<Vec<_>>()).expect_clean(what);
    }
}

/// The pool stopped to wait before a removal began, and the user was told so; the vdev was opened to new blocks again, and when the pool went on the removal began after all:
/// blocks came in front of what was copied, and were lost with the vdev, or stopped the pool when they came free.
#[test]
fn a_removal_that_was_not_begun_when_the_pool_stopped_is_none() {
    for when in [When::Before, When::Amid] {
        let pool = Troubled::new(&[Bias::None, Bias::None], 1);
        pool.live_on(0);
        let (engine, top) = (pool.engine.clone(), pool.engine.vdevs.data_tops()[0].guid());
        pool.amid(when, Engine::is_removing, |engine| engine.remove_top(top));
        assert_eq!(engine.last_removal().unwrap().is_some(), when == When::Amid, "{when:?}");
        pool.live_on(100);
        if when == When::Before {
            assert!(!engine.is_removing());
            engine.remove_top(top).unwrap();
        }
        let begun = Instant::now();
        while engine.is_removing() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{when:?}: {:?}", engine.last_removal());
            engine.write_group().unwrap();
        }
        pool.live_on(200);
        engine.vdevs.departures().wait();
        drop(engine);
        pool.end(&[1], &format!("{when:?}: removed"));
    }
}

/// The same of a device for the log: it was used again, and went when the pool went on, with what files had there.
#[test]
fn a_log_device_whose_removal_was_not_begun_when_the_pool_stopped_stays() {
    for when in [When::Before, When::Amid] {
        let pool = Troubled::new(&[Bias::None, Bias::Log], 0);
        pool.live_on(0);
        let log = pool.engine.vdevs.data_tops()[1].clone();
        let writes = || log.leaves()[0].stats.writes.load(Ordering::Relaxed);
        assert!(writes() > 0);
        pool.amid(when, |engine| !engine.vdevs.holes().is_empty(), |engine| engine.remove_log(log.guid()));
        let holes = if when == When::Amid { vec![1] } else { Vec::new() };
        assert_eq!(pool.engine.vdevs.holes(), holes, "{when:?}");
        let before = writes();
        pool.live_on(100);
        assert_eq!(writes() > before, when == When::Before, "{when:?}: the log is on it");
        assert_eq!(pool.engine.vdevs.holes(), holes, "{when:?}");
        pool.engine.vdevs.departures().wait();
        if when == When::Amid {
            let disk = disk::open(&pool.image(1).display().to_string(), Access::Inspect).unwrap();
            assert!(discover(vec![disk]).is_empty(), "its labels say that it left");
        }
        drop(log);
        pool.end(if when == When::Amid { &[0] } else { &[0, 1] }, &format!("{when:?}: a log device"));
    }
}

/// A device for the log that was used again while the pool stopped got blocks before the group that says so was on disk: after a crash then it was still
/// offline, and with it what `fsync` had put there.
#[test]
fn a_log_device_that_comes_back_is_used_when_that_is_on_disk() {
    for when in [When::Before, When::Amid] {
        let pool = Troubled::new(&[Bias::None, Bias::Log], 0);
        pool.live_on(0);
        let log = pool.engine.vdevs.data_tops()[1].clone();
        let leaf = log.leaves()[0].clone();
        let group = pool.engine.context.io.allocator().group(log.id() as u32).unwrap();
        assert!(group.is_usable());
        pool.engine.stop_device(leaf.guid(), Stopped::Offline, false).unwrap();
        assert!(!group.is_usable(), "{when:?}: it is offline");
        let found = || disk::open(&pool.image(1).display().to_string(), Access::Write).unwrap();
        let (coming, disk) = (leaf.clone(), found());
        pool.amid(when, move |_| coming.is_open(), |engine| {
            let online = engine.online_device(leaf.guid(), Some(disk), false);
            assert!(!group.is_usable(), "{when:?}: nothing on disk says that it is used");
            online.map(|_| ())
        });
        assert_eq!(group.is_usable(), when == When::Amid, "{when:?}: the pool goes on");
        if when == When::Before {
            pool.engine.online_device(leaf.guid(), Some(found()), false).unwrap();
        }
        assert!(group.is_usable(), "{when:?}: it is online");
        let writes = || leaf.stats.writes.load(Ordering::Relaxed);
        let before = writes();
        pool.live_on(100);
        assert!(writes() > before, "{when:?}: the log is on it");
        for _ in 0..20 {
            if leaf.is_behind() {
                pool.engine.write_group().unwrap();
            }
        }
        drop((log, leaf, group));
        pool.end(&[0, 1], &format!("{when:?}: a log device that came back"));
    }
}
