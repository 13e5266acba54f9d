//! Scans of disks that are slow, while there always are users that wait for the group: what is left of a window is put off, and read later.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use disk::{Disk, DiskRef, Request, Watch, WatchedDisk};
use engine::host::RealHost;
use engine::pool::import::discover;
use engine::vdev::{NewLeaf, NewTop};
use tarnfs::{CreateOptions, SetAttributes};

use super::*;

/// All scans are over sooner.
const MOST: Duration = Duration::from_secs(60);
/// A read takes so long while it is scanned, in microseconds.
const TAKES_US: u64 = 3000;
pub(super) const BLOCK: usize = 128 << 10;
pub(super) const BLOCKS: usize = 8;
/// Where a device's data begins.
const DATA: u64 = 4 << 20;

/// Reads of a device take a while.
pub(super) struct Slow {
    pub(super) takes_us: AtomicU64,
}

impl Watch for Slow {
    fn before(&self, request: Request) -> io::Result<()> {
        let began = Instant::now();
        // It may become fast meanwhile.
        let left = || Duration::from_micros(self.takes_us.load(SeqCst)).checked_sub(began.elapsed()).filter(|left| !left.is_zero());
        while let Request::Read(_) = request && let Some(left) = left() {
            std::thread::sleep(left.min(Duration::from_millis(5)));
        }
        Ok(())
    }
}

/// For what users wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Users {
    /// Until what they changed is on disk.
    Sync,
    /// They have no room before the group is written.
    Stuck,
    /// Some for this, some for that.
    Both,
}

/// A pool on slow disks.
pub(super) struct World {
    directory: tempfile::TempDir,
    pub(super) disks: Vec<Arc<WatchedDisk<Slow>>>,
    pub(super) tunables: Tunables,
    pool: Option<Arc<Pool>>,
}

impl World {
    pub(super) fn new(sides: usize, parity: u8) -> World {
        let directory = tempfile::Builder::new().prefix("tarn-waited-").tempdir().unwrap();
        let open = |number: usize| {
            let path = directory.path().join(format!("d{number}.img"));
            fs::File::create(&path).and_then(|file| file.set_len(256 << 20)).unwrap();
            let file = disk::open(&path.display().to_string(), disk::Access::Write).unwrap();
            Arc::new(WatchedDisk::new(file, Slow { takes_us: AtomicU64::new(0) }))
        };
        let disks: Vec<_> = (0..sides).map(open).collect();
        let leaf = |disk: &Arc<WatchedDisk<Slow>>| NewLeaf { disk: disk.clone(), path: disk.name().to_owned(), whole_disk: false };
        let top = NewTop { leaves: disks.iter().map(leaf).collect(), parity, ashift: Some(12), ..NewTop::default() };
        let tunables = Tunables::default();
        for least in [Parameter::ScrubMinTime, Parameter::ResilverMinTime] {
            tunables.parameters.set(least, "20").unwrap();
        }
        let options = CreateOptions { properties: sim::scenario::properties(&[("compression", "off")]), tunables: Some(tunables.clone()), ..CreateOptions::default() };
        let pool = Pool::create_on("tank", vec![top], options, RealHost::shared()).unwrap();
        World { directory, disks, tunables, pool: Some(pool) }
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().expect("it is imported")
    }

    fn image(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("d{number}.img"))
    }

    pub(super) fn import(&mut self) {
        let candidate = discover(self.disks.iter().map(|disk| disk.clone() as DiskRef).collect()).into_iter().next().expect("the pool");
        let options = ImportOptions { force: true, tunables: Some(self.tunables.clone()), ..ImportOptions::default() };
        self.pool = Some(Pool::import_on(candidate, options, RealHost::shared()).unwrap().0);
    }

    pub(super) fn export(&mut self) {
        self.pool.take().expect("it is imported").export().unwrap();
    }

    fn crash(&mut self) {
        self.pool.take().expect("it is imported").abandon();
    }

    fn be_slow(&self, is_slow: bool) {
        self.disks.iter().for_each(|disk| disk.watch.takes_us.store(if is_slow { TAKES_US } else { 0 }, SeqCst));
    }

    /// Files of some blocks each.
    pub(super) fn write(&self, dataset: &str, seed: u64, files: Range<u64>) {
        let (fs, user) = (self.pool().file_system(dataset).unwrap(), Credentials::root());
        for number in files {
            let name = format!("f{number}");
            let found = fs.lookup(fs.root(), name.as_bytes()).or_else(|_| fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user));
            let file = found.unwrap().inode;
            fs.write(file, WriteMode::At(0), &contents(seed + number, BLOCK * BLOCKS, 0), &user).unwrap();
            fs.forget(file, 1);
        }
        self.pool().sync().unwrap();
    }

    /// Where a block of a file is on each device of a mirror.
    fn place(&self, dataset: &str, file: u64, block: u64) -> u64 {
        let fs = self.pool().file_system(dataset).unwrap();
        let inode = fs.lookup(fs.root(), format!("f{file}").as_bytes()).unwrap().inode;
        let pointer = fs.objset().hold(inode).unwrap().block_pointer(block).unwrap();
        fs.forget(inode, 1);
        pointer.first_dva().unwrap().offset + DATA
    }

    /// Inverts a block of a device.
    fn damage(&self, number: usize, place: u64) {
        let file = fs::OpenOptions::new().read(true).write(true).open(self.image(number)).unwrap();
        let mut bytes = vec![0; BLOCK];
        file.read_exact_at(&mut bytes, place).unwrap();
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        file.write_all_at(&bytes, place).unwrap();
    }

    fn cut(&self) -> u64 {
        self.pool().engine().scan_progress().map_or(0, |progress| progress.cut)
    }

    fn record(&self) -> ScanRecord {
        self.pool().engine().scan_progress().expect("a scan").record
    }

    /// Users wait for the group all the time, until the scan is over or `is_enough`.
    fn among_users(&self, users: Users, dataset: &str, is_enough: &dyn Fn(&World) -> bool) {
        self.be_slow(true);
        let (over, until) = (AtomicBool::new(false), Instant::now() + MOST);
        std::thread::scope(|scope| {
            if users != Users::Stuck {
                scope.spawn(|| self.change(dataset, &over));
            }
            if users != Users::Sync {
                scope.spawn(|| while !over.load(SeqCst) {
                    self.pool().engine().context.groups.wait_for_room().unwrap();
                });
            }
            while self.pool().engine().is_scanning() && !is_enough(self) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            over.store(true, SeqCst);
        });
        self.be_slow(self.pool().engine().is_scanning());
        assert!(Instant::now() < until, "{users:?}: it does not end: {:?}", self.pool().engine().scan_progress());
    }

    /// Changes one file after the other, so that all blocks of dnodes are young, and waits for each.
    fn change(&self, dataset: &str, over: &AtomicBool) {
        let (fs, user) = (self.pool().file_system(dataset).unwrap(), Credentials::root());
        let files: Vec<u64> = (0..).map_while(|number| Some(fs.lookup(fs.root(), format!("f{number}").as_bytes()).ok()?.inode)).collect();
        for number in 0_u32.. {
            if over.load(SeqCst) {
                break;
            }
            let set = SetAttributes { mode: Some(0o600 + number % 8), ..SetAttributes::default() };
            files.iter().step_by(7).for_each(|file| drop(fs.setattr(*file, &set, &user).unwrap()));
            self.pool().sync().unwrap();
        }
        files.iter().for_each(|file| fs.forget(*file, 1));
    }

    /// Each of these devices alone has all files of the dataset, and zdb finds nothing wrong with all. The pool is exported.
    pub(super) fn is_whole(&mut self, what: &str, dataset: &str, (seed, files): (u64, u64), alone_on: &[&[usize]]) {
        self.export();
        let images: Vec<PathBuf> = (0..self.disks.len()).map(|number| self.image(number)).collect();
        sim::oracle::zdb_check(&images.iter().map(PathBuf::as_path).collect::<Vec<_>>()).expect_clean(what);
        for numbers in alone_on {
            let images: Vec<PathBuf> = numbers.iter().map(|number| self.image(*number)).collect();
            alone(&images, "tank", |pool| {
                let fs = pool.file_system(dataset).unwrap();
                for number in 0..files {
                    let file = fs.lookup(fs.root(), format!("f{number}").as_bytes()).unwrap().inode;
                    let found = fs.read(file, 0, BLOCK * BLOCKS).unwrap_or_else(|error| panic!("{what}: {numbers:?}: f{number}: {error}"));
                    assert!(found == contents(seed + number, BLOCK * BLOCKS, 0), "{what}: {numbers:?}: f{number} has other contents");
                    fs.forget(file, 1);
                }
            });
        }
    }
}

/// Blocks are wrong on one side, and others on both: that is said once, and the others are repaired once.
#[test]
fn a_scrub_among_users_that_wait_repairs_and_counts_once() {
    const FILES: u64 = 40;
    for users in [Users::Sync, Users::Stuck, Users::Both] {
        let mut world = World::new(2, 0);
        world.write("tank", 100, 0..FILES);
        let damaged: Vec<u64> = (0..FILES).step_by(2).map(|file| world.place("tank", file, file % BLOCKS as u64)).collect();
        let lost: Vec<u64> = (0..FILES).map(|file| world.place("tank", file, (file + 3) % BLOCKS as u64)).collect();
        world.export();
        damaged.iter().for_each(|place| world.damage(1, *place));
        lost.iter().for_each(|place| (0..2).for_each(|number| world.damage(number, *place)));
        world.import();
        world.be_slow(true);
        world.pool().engine().scrub(false).unwrap();
        world.among_users(users, "tank", &|_| false);
        let (record, cut) = (world.record(), world.cut());
        places::say(&format!("scan: {users:?}: cut {cut} times, {record:?}"));
        assert_eq!((record.state, record.errors, record.processed), (ScanState::Finished, lost.len() as u64, (damaged.len() * BLOCK) as u64), "{users:?}");
        assert!(users != Users::Sync || cut > 0, "no window was cut");
        world.write("tank", 100, 0..FILES);
        let clean = scrub(world.pool());
        assert_eq!((clean.errors, clean.processed), (0, 0), "{users:?}");
        world.is_whole(&format!("{users:?}"), "tank", (100, FILES), &[&[0], &[1]]);
    }
}

/// A device lacks all that was written while it was away.
fn come_back(world: &World, number: usize, written: impl FnOnce()) {
    let guid = world.pool().engine().vdevs.leaves()[number].guid();
    world.pool().engine().stop_device(guid, Stopped::Offline, false).unwrap();
    written();
    world.be_slow(true);
    world.pool().engine().online_device(guid, Some(world.disks[number].clone()), false).unwrap();
    let until = Instant::now() + PATIENCE;
    while world.pool().engine().is_resilver_due() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_resilvered(world: &World, what: &str) {
    for leaf in world.pool().engine().vdevs.leaves() {
        assert!(!leaf.is_behind() && leaf.missing_txgs().is_empty(), "{what}: {}: {:?}", leaf.name(), leaf.missing_txgs());
    }
}

#[test]
fn a_resilver_among_users_that_wait_is_complete_and_counts_once() {
    for users in [Users::Sync, Users::Stuck, Users::Both] {
        let mut world = World::new(2, 0);
        world.pool().create_file_system("tank/a", sim::scenario::properties(&[("checksum", "off")])).unwrap();
        world.write("tank/a", 100, 0..10);
        come_back(&world, 1, || world.write("tank/a", 200, 0..40));
        world.among_users(users, "tank/a", &|_| false);
        let (record, cut) = (wait(world.pool()), world.cut());
        places::say(&format!("scan: {users:?}: cut {cut} times, {record:?}"));
        assert_eq!((record.function, record.state, record.errors), (ScanFunction::Resilver, ScanState::Finished, 0), "{users:?}");
        assert!(users != Users::Sync || cut > 0, "no window was cut");
        let (written, most) = ((40 * BLOCKS * BLOCK) as u64, if users == Users::Sync { 4 << 20 } else { 16 << 20 });
        // In each group also what is above the place where the scan goes on.
        assert!((written..written + most).contains(&record.processed), "{users:?}: each block is written once: {record:?}");
        is_resilvered(&world, &format!("{users:?}"));
        world.is_whole(&format!("{users:?}"), "tank/a", (200, 40), &[&[0], &[1]]);
    }
}

/// What happens when a window has just been cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Crash,
    Export,
    Snapshot,
    Destroy,
}

impl World {
    fn happen(&mut self, event: Event, number: usize) {
        match event {
            Event::Crash | Event::Export => {
                if event == Event::Crash { self.crash() } else { self.export() }
                self.import();
            }
            Event::Snapshot => {
                snapshot(self.pool(), &format!("tank/a@{number}"));
                snapshot(self.pool(), &format!("tank/b{number}@{number}"));
            }
            Event::Destroy => {
                self.pool().destroy_file_system(&format!("tank/b{number}")).unwrap();
                if number == 0 {
                    self.pool().engine().dsl.snapshot_verbs().destroy_snapshots(vec!["tank/a@first".to_owned()], false).unwrap();
                }
            }
        }
    }

    /// Lets a scan be cut, and things happen then, and lets it come to its end.
    fn interrupt(&mut self, event: Event) -> usize {
        let mut happened = 0;
        while self.pool().engine().is_scanning() && happened < 3 {
            let before = self.cut();
            self.among_users(Users::Sync, "tank/a", &|world| world.cut() > before);
            if self.pool().engine().is_scanning() {
                self.happen(event, happened);
                happened += 1;
            }
        }
        self.among_users(Users::Sync, "tank/a", &|_| false);
        happened
    }
}

fn interrupted(event: Event, is_resilver: bool) {
    let what = format!("{event:?}, resilver: {is_resilver}");
    let mut world = World::new(2, 0);
    let write = |world: &World| {
        for name in ["tank/a", "tank/b0", "tank/b1", "tank/b2"] {
            let words: &[_] = if is_resilver { &[("checksum", "off")] } else { &[] };
            world.pool().create_file_system(name, sim::scenario::properties(words)).unwrap();
            world.write(name, 100, 0..12);
        }
        snapshot(world.pool(), "tank/a@first");
        world.write("tank/a", 100, 12..24);
    };
    if is_resilver {
        come_back(&world, 1, || write(&world));
    } else {
        write(&world);
        world.export();
        overwrite(&world.image(1));
        world.import();
        world.be_slow(true);
        world.pool().engine().scrub(false).unwrap();
    }
    let happened = world.interrupt(event);
    let record = wait(world.pool());
    places::say(&format!("scan: {what}: {happened} times, {record:?}"));
    assert!(happened > 0, "{what}: it was over at once");
    assert_eq!((record.state, record.errors), (ScanState::Finished, 0), "{what}");
    assert_eq!(record.function, if is_resilver { ScanFunction::Resilver } else { ScanFunction::Scrub }, "{what}");
    is_resilvered(&world, &what);
    let clean = scrub(world.pool());
    assert_eq!((clean.errors, clean.processed), (0, 0), "{what}: something was left");
    world.is_whole(&what, "tank/a", (100, 24), &[&[0], &[1]]);
}

#[test]
fn a_scrub_that_was_cut_goes_on_whatever_happens() {
    [Event::Crash, Event::Export, Event::Snapshot].into_iter().for_each(|event| interrupted(event, false));
}

#[test]
fn a_resilver_that_was_cut_goes_on_whatever_happens() {
    [Event::Crash, Event::Export, Event::Snapshot, Event::Destroy].into_iter().for_each(|event| interrupted(event, true));
}

/// A scan is in a snapshot when that is destroyed: it goes on in the file system for what the snapshot had, and then looks at it again for the rest. It does not go back to the one while it
/// is at the other.
#[test]
fn a_snapshot_goes_that_a_scan_among_users_is_in() {
    for more in 0..4 {
        let mut world = World::new(2, 0);
        // Enough to come to the one and the other in a group.
        world.tunables.parameters.set(Parameter::ScrubMinTime, "120").unwrap();
        world.pool().create_file_system("tank/a", Vec::new()).unwrap();
        world.write("tank/a", 100, 0..40 + more);
        snapshot(world.pool(), "tank/a@first");
        let first = world.pool().engine().dsl.open_dataset("tank/a@first").unwrap().object;
        world.write("tank/a", 100, 40 + more..60);
        world.export();
        overwrite(&world.image(1));
        world.import();
        world.be_slow(true);
        world.pool().engine().scrub(false).unwrap();
        world.among_users(Users::Sync, "tank/a", &|world| world.record().dataset() == first && world.cut() > 0);
        assert!(world.pool().engine().is_scanning(), "it was over at once");
        world.pool().engine().dsl.snapshot_verbs().destroy_snapshots(vec!["tank/a@first".to_owned()], false).unwrap();
        world.among_users(Users::Sync, "tank/a", &|_| false);
        let record = wait(world.pool());
        places::say(&format!("scan: a snapshot goes: cut {} times, {record:?}", world.cut()));
        assert_eq!((record.state, record.errors), (ScanState::Finished, 0));
        let clean = scrub(world.pool());
        assert_eq!((clean.errors, clean.processed), (0, 0), "{more}: something was left");
        if more == 3 {
            world.is_whole("a snapshot goes", "tank/a", (100, 60), &[&[1]]);
        }
    }
}

/// Files without blocks of pointers, whose blocks of dnodes are all young: a piece of the scan begins with the first block of a window, and does not go back to that.
#[test]
fn a_scrub_of_small_files_among_users_that_change_them_ends() {
    let mut world = World::new(2, 0);
    let (fs, user) = (world.pool().file_system("tank").unwrap(), Credentials::root());
    for number in 0..400 {
        let file = fs.create(fs.root(), format!("f{number}").as_bytes(), 0o100_644, 0, &user).unwrap().inode;
        fs.write(file, WriteMode::At(0), &contents(number, BLOCK, 0), &user).unwrap();
        fs.forget(file, 1);
    }
    drop(fs);
    world.pool().sync().unwrap();
    world.be_slow(true);
    world.pool().engine().scrub(false).unwrap();
    world.among_users(Users::Sync, "tank", &|_| false);
    let (record, cut) = (wait(world.pool()), world.cut());
    places::say(&format!("scan: small files: cut {cut} times, {record:?}"));
    assert_eq!((record.state, record.errors, record.processed), (ScanState::Finished, 0, 0));
    assert!(cut > 0, "no window was cut");
    world.is_whole("small files", "tank", (0, 0), &[]);
}
