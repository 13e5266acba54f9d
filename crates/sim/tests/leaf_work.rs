//! Free space that is written (`zpool initialize`) or given back (`zpool trim`, `autotrim`) under files: nothing is touched that somebody needs, at no
//! moment; and it goes on after a kill.
//!
//! A device that is told that something is not needed has garbage there afterwards. So a range that was in use, or that a checkpoint or one of the last
//! uberblocks leads to, shows as damage in what a loss of power at any moment leaves.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use disk::{Disk, DiskKind, DiskRef, MemDisk};
use engine::dsl::PropertyValue;
use engine::host::RealHost;
use engine::pool::import::discover;
use engine::pool::{WorkCommand, WorkKind, WorkState};
use engine::tunables::{Parameter, Tunables};
use engine::vdev::{DraidColumns, NewLeaf, NewTop};
use parking_lot::RwLock;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::places;
use sim::scenario::{Layout, Rig, contents};
use tarnfs::{CreateOptions, Credentials, ErrorKind, FileSystem, ImportOptions, Pool, Rewind, WriteMode};

const START: WorkCommand = WorkCommand::Start { rate: 0 };
const PATIENCE: Duration = Duration::from_secs(120);
const FILES: u64 = 24;
/// Bytes of files on both sides of a mirror, or nearly, that are removed.
const GONE: u64 = 140 << 20;

/// A disk in memory that has garbage where nothing is needed.
struct Poisoned {
    inner: MemDisk,
    /// Held while a copy of all disks is made: a moment is the same for all.
    moment: Arc<RwLock<()>>,
    discarded: AtomicU64,
    /// Each write of a mebibyte takes so long.
    pause: Duration,
}

impl Disk for Poisoned {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buf, offset)
    }

    #[allow(clippy::disallowed_methods)] // a slow device
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if buf.len() == 1 << 20 {
            std::thread::sleep(self.pause);
        }
        let _moment = self.moment.read();
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn can_discard(&self) -> bool {
        true
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let _moment = self.moment.read();
        self.discarded.fetch_add(length, Ordering::Relaxed);
        let garbage = vec![0xEE; 1 << 16];
        for at in (offset..offset + length).step_by(garbage.len()) {
            self.inner.write_at(&garbage[..(offset + length - at).min(1 << 16) as usize], at)?;
        }
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn sector_bytes(&self) -> u64 {
        512
    }

    fn kind(&self) -> DiskKind {
        DiskKind::File
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}

struct Machine {
    disks: Vec<Arc<Poisoned>>,
    moment: Arc<RwLock<()>>,
}

/// Groups are written often.
const OFTEN_NS: u64 = 20_000_000;
fn tunables(txg_timeout_ns: u64) -> Tunables {
    let tunables = Tunables { cache_bytes_max: 32 << 20, txg_timeout_ns, ..Tunables::default() };
    // Small pieces, and each metaslab often.
    for (parameter, value) in [(Parameter::TrimExtentBytesMin, "512"), (Parameter::TrimTxgBatch, "2"), (Parameter::TrimExtentBytesMax, "1048576")] {
        tunables.parameters.set(parameter, value).unwrap();
    }
    tunables
}

impl Machine {
    /// A new pool `tank`, open.
    fn create(layout: Layout, pause: Duration, txg_timeout_ns: u64) -> (Machine, Arc<Pool>) {
        let moment: Arc<RwLock<()>> = Arc::default();
        let (mut disks, mut tops) = (Vec::new(), Vec::new());
        for _ in 0..layout.tops {
            let mut leaves = Vec::new();
            for _ in 0..layout.sides {
                let path = format!("/memory/d{}", disks.len());
                let inner = MemDisk::new(path.clone(), layout.bytes);
                let disk = Arc::new(Poisoned { inner, moment: moment.clone(), discarded: AtomicU64::new(0), pause });
                leaves.push(NewLeaf { disk: disk.clone(), path, whole_disk: false });
                disks.push(disk);
            }
            // Six devices are dRAID.
            let draid = (layout.sides == 6).then_some(DraidColumns { data: 3, spares: 1 });
            tops.push(NewTop { leaves, parity: layout.parity, draid, ashift: Some(layout.ashift), ..NewTop::default() });
        }
        let options = CreateOptions { command: "zpool create tank".into(), tunables: Some(tunables(txg_timeout_ns)), ..CreateOptions::default() };
        let pool = Pool::create_on("tank", tops, options, RealHost::shared()).unwrap_or_else(|error| panic!("create: {error}"));
        (Machine { disks, moment }, pool)
    }

    fn import(&self) -> Arc<Pool> {
        open(self.disks.iter().map(|disk| disk.clone() as DiskRef).collect(), Rewind::No, false).unwrap_or_else(|error| panic!("import: {error}"))
    }

    /// What is on all disks at one moment.
    fn now(&self) -> Vec<Arc<MemDisk>> {
        let _moment = self.moment.write();
        self.disks.iter().map(|disk| Arc::new(disk.inner.snapshot())).collect()
    }

    fn discarded(&self) -> u64 {
        self.disks.iter().map(|disk| disk.discarded.load(Ordering::Relaxed)).sum()
    }
}

fn open(disks: Vec<DiskRef>, rewind: Rewind, read_only: bool) -> Result<Arc<Pool>, tarnfs::Error> {
    let candidate = discover(disks).into_iter().next().expect("a pool");
    let options = ImportOptions { force: true, read_only, rewind, tunables: Some(tunables(OFTEN_NS)), ..ImportOptions::default() };
    Pool::import_on(candidate, options, RealHost::shared()).map(|(pool, _)| pool)
}

/// All that can be read of a state is right.
fn judge(disks: &[Arc<MemDisk>], rewind: Rewind, what: &str) -> u64 {
    let copies = disks.iter().map(|disk| Arc::new(disk.snapshot()) as DiskRef).collect();
    let pool = open(copies, rewind, true).unwrap_or_else(|error| panic!("{what}: {rewind:?}: {error}"));
    let report = pool.check(true, &|_| ()).unwrap_or_else(|error| panic!("{what}: {rewind:?}: {error}"));
    let shown: Vec<String> = report.findings.iter().take(10).map(ToString::to_string).collect();
    assert!(report.is_clean(), "{what}: {rewind:?}: {} findings: {shown:#?}", report.findings.len());
    assert!(report.blocks > 0);
    let txg = pool.engine().uberblock().txg;
    pool.abandon();
    txg
}

/// Files are written over and removed.
fn work(fs: &FileSystem, random: &mut ChaCha8Rng, steps: u64) {
    let user = Credentials::root();
    for _ in 0..steps {
        let name = format!("f{}", random.random_range(0..FILES));
        let found = fs.lookup(fs.root(), name.as_bytes());
        if found.is_ok() && random.random_range(0..3) == 0 {
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
            continue;
        }
        let inode = found.map_or_else(|_| fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).unwrap().inode, |stat| stat.inode);
        let data = contents(random.random(), random.random_range(1..200_000), 0);
        fs.write(inode, WriteMode::At(random.random_range(0..100_000)), &data, &user).unwrap();
        if random.random_range(0..4) == 0 {
            fs.fsync(inode).unwrap();
        }
        fs.forget(inode, 1);
    }
}

fn start_all(pool: &Pool, kind: WorkKind) -> usize {
    let engine = pool.engine();
    engine.vdevs.leaves().iter().filter(|leaf| engine.work_on_leaf(leaf.guid(), kind, START).is_ok()).count()
}

fn is_active(pool: &Pool) -> bool {
    pool.engine().leaf_work().iter().any(|work| work.state == WorkState::Active)
}

#[allow(clippy::disallowed_methods)] // the threads of a real host are at work
fn wait(pool: &Pool, what: &str) {
    let begun = Instant::now();
    while is_active(pool) {
        assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", pool.engine().leaf_work());
        // It goes on when a group is written, which none is by itself here.
        pool.sync().unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn seed() -> u64 {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    places::say(&format!("leaf work: TARN_SEED={seed}"));
    seed
}

#[test]
fn nothing_is_touched_that_somebody_needs() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    for layout in [
        Layout { tops: 1, sides: 1, parity: 0, bytes: 128 << 20, ashift: 9 },
        Layout { tops: 2, sides: 2, parity: 0, bytes: 96 << 20, ashift: 12 },
        Layout { tops: 1, sides: 4, parity: 1, bytes: 80 << 20, ashift: 12 },
        Layout { tops: 1, sides: 6, parity: 1, bytes: 112 << 20, ashift: 12 },
    ] {
        let what = format!("{layout:?}");
        let (machine, pool) = Machine::create(layout, Duration::ZERO, OFTEN_NS);
        pool.engine().set_properties(vec![("autotrim".to_owned(), PropertyValue::Number(1))]).unwrap();
        let fs = pool.file_system("tank").unwrap();
        work(&fs, &mut random, 60);
        let (mut states, mut begun, mut with_checkpoint) = (0, 0, false);
        for round in 0..8 {
            if round == 3 {
                pool.engine().take_checkpoint().unwrap();
                with_checkpoint = true;
            }
            begun += start_all(&pool, WorkKind::Trim);
            if round % 3 == 0 {
                for leaf in pool.engine().vdevs.leaves() {
                    let _ = pool.engine().work_on_leaf(leaf.guid(), WorkKind::Initialize, WorkCommand::Forget);
                }
                begun += start_all(&pool, WorkKind::Initialize);
            }
            work(&fs, &mut random, 12);
            let disks = machine.now();
            let txg = judge(&disks, Rewind::No, &what);
            for before in [txg - 1, txg - 2] {
                judge(&disks, Rewind::To(before), &what);
            }
            if with_checkpoint {
                judge(&disks, Rewind::ToCheckpoint, &what);
            }
            states += 1;
            wait(&pool, &what);
        }
        assert!(begun >= 8 * layout.sides * layout.tops, "{what}: {begun}");
        let discarded = machine.discarded();
        assert!(discarded > 4 * layout.bytes, "{what}: {discarded} bytes discarded");
        fs.release_all();
        drop(fs);
        pool.export().unwrap();
        judge(&machine.now(), Rewind::No, &what);
        places::say(&format!("leaf work: {what}: {states} moments, {begun} begun, {discarded} bytes discarded"));
    }
}

/// What was freed before a trim is asked for is free some groups later. They are written then, however long they might stay open.
#[test]
#[allow(clippy::disallowed_methods)] // the threads of a real host are at work
fn a_trim_begins_at_once() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let (machine, pool) = Machine::create(Layout { tops: 1, sides: 1, parity: 0, bytes: 128 << 20, ashift: 9 }, Duration::ZERO, HOUR_NS);
    assert_eq!(start_all(&pool, WorkKind::Trim), 1);
    let begun = Instant::now();
    while is_active(&pool) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", pool.engine().leaf_work());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(machine.discarded() > 64 << 20);
    pool.export().unwrap();
    judge(&machine.now(), Rewind::No, "after an export");
}

/// The part of the disks that has the pattern of an initialization.
fn patterned(machine: &Machine) -> f64 {
    let pattern = 0xdead_beef_dead_beee_u64.to_ne_bytes();
    let (mut found, mut all) = (0_u64, 0_u64);
    let mut buffer = vec![0; 1 << 16];
    for disk in &machine.disks {
        for at in (0..disk.size_bytes()).step_by(buffer.len()) {
            disk.read_at(&mut buffer, at).unwrap();
            found += buffer.as_chunks::<8>().0.iter().filter(|word| **word == pattern).count() as u64 * 8;
            all += buffer.len() as u64;
        }
    }
    found as f64 / all as f64
}

#[test]
#[allow(clippy::disallowed_methods)] // the threads of a real host are at work
fn an_initialization_goes_on_after_a_kill_and_an_export() {
    for layout in [Layout { tops: 1, sides: 2, parity: 0, bytes: 128 << 20, ashift: 12 }, Layout { tops: 1, sides: 3, parity: 1, bytes: 96 << 20, ashift: 9 }] {
        let (machine, mut pool) = Machine::create(layout, Duration::from_millis(10), OFTEN_NS);
        assert_eq!(start_all(&pool, WorkKind::Initialize), layout.sides);
        let error = pool.engine().work_on_leaf(pool.engine().vdevs.leaves()[0].guid(), WorkKind::Initialize, START).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        let mut last = 0;
        for kill in [true, false, true] {
            let begun = Instant::now();
            let done = |pool: &Pool| pool.engine().leaf_work().iter().map(|work| work.done).min().unwrap_or(0);
            while done(&pool) < last + (17 << 20) {
                assert!(begun.elapsed() < PATIENCE && is_active(&pool), "{:?}", pool.engine().leaf_work());
                std::thread::sleep(Duration::from_millis(5));
            }
            if kill {
                pool.engine().write_group().unwrap();
                pool.abandon();
            } else {
                pool.export().unwrap();
            }
            drop(pool);
            pool = machine.import();
            assert!(done(&pool) > last, "{layout:?}: {last}, {:?}", pool.engine().leaf_work());
            last = done(&pool);
        }
        wait(&pool, "initialize");
        assert!(pool.engine().leaf_work().iter().all(|work| work.state == WorkState::Complete && work.done == work.total && work.errors == 0));
        pool.export().unwrap();
        let part = patterned(&machine);
        assert!(part > 0.85, "{layout:?}: {part} of the disks was written");
        // It is known in the next import, and does not begin again.
        let pool = machine.import();
        assert!(pool.engine().leaf_work().iter().all(|work| work.state == WorkState::Complete));
        let guid = pool.engine().vdevs.leaves()[0].guid();
        for (command, kind) in [(WorkCommand::Cancel, ErrorKind::Conflict), (WorkCommand::Suspend, ErrorKind::Conflict)] {
            assert_eq!(pool.engine().work_on_leaf(guid, WorkKind::Initialize, command).unwrap_err().kind(), kind);
        }
        pool.engine().work_on_leaf(guid, WorkKind::Initialize, WorkCommand::Forget).unwrap();
        pool.export().unwrap();
        let pool = machine.import();
        assert_eq!(pool.engine().leaf_work().len(), layout.sides - 1);
        pool.export().unwrap();
        judge(&machine.now(), Rewind::No, "initialized");
        places::say(&format!("leaf work: {layout:?}: {part:.2} of the disks has the pattern"));
    }
}

#[test]
#[allow(clippy::disallowed_methods)] // the threads of a real host are at work
fn images_become_smaller_by_a_trim() {
    use std::os::unix::fs::MetadataExt;
    for autotrim in [false, true] {
        let tunables = tunables(OFTEN_NS);
        let mut rig = Rig::create_with(Layout { bytes: 192 << 20, sides: 2, ..Layout::default() }, &[], tunables);
        let taken = |rig: &Rig| rig.images().iter().map(|image| std::fs::metadata(image).unwrap().blocks() * 512).sum::<u64>();
        if autotrim {
            rig.pool().engine().set_properties(vec![("autotrim".to_owned(), PropertyValue::Number(1))]).unwrap();
        }
        for number in 0..40 {
            rig.actor("tank").file(&format!("f{number}"), &contents(number, 2 << 20, 0));
        }
        rig.sync();
        let full = taken(&rig);
        for number in 0..39 {
            rig.actor("tank").unlink(&format!("f{number}"));
        }
        rig.sync();
        if autotrim {
            let begun = Instant::now();
            while taken(&rig) > full - GONE {
                assert!(begun.elapsed() < PATIENCE, "{full} bytes, and {} after a while", taken(&rig));
                rig.pool().engine().write_group().unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        } else {
            // What was freed just now comes free some groups later, and is trimmed all the same.
            assert_eq!(start_all(rig.pool(), WorkKind::Trim), 2);
            wait(rig.pool(), "trim");
        }
        let now = taken(&rig);
        assert!(now <= full - GONE, "autotrim {autotrim}: {full} bytes, {now} afterwards");
        rig.judge(&format!("trimmed, autotrim {autotrim}"));
        places::say(&format!("leaf work: autotrim {autotrim}: {full} bytes became {now}"));
    }
}
