//! Nothing acknowledged is lost: random operations on a pool whose power goes at some write; what is there afterwards, when the
//! intent log has been replayed, is compared with what had been done.
//!
//! What must hold for each cut, where `s` is the last operation whose `fsync` had returned (or whose group had been synced):
//! 1. the names (which paths there are, and which inode each is) are those after some operation `j >= s`: a prefix, and nothing that was
//!    acknowledged is missing;
//! 2. each file's contents and mode are what they were after some operation since its own last `fsync`;
//! 3. our checker, and for some cuts the real `zdb`, find nothing wrong, before the replay and after it.
//!
//! `TARN_SEED=N cargo test -p sim --test log_crash` repeats one run; `TARN_CUTS=N` makes more of them.
#![allow(clippy::disallowed_methods)] // real threads and clocks are what is tested

mod ahead;
mod crowd;
mod devices;
mod members;
mod directed;
mod disk;
mod full;
mod order;
mod past;
mod soon;
mod threads;
mod volume;
mod waits;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::disk::DiskRef;
use engine::dsl::{PropertyChange, PropertyValue};
use engine::host::RealHost;
use engine::pool::check::CheckOptions;
use engine::pool::import::{discover, select};
use engine::pool::{NewPool, OpenOptions, Pool};
use engine::tunables::Tunables;
use engine::vdev::{Bias, NewLeaf, NewTop};
use engine::zil::{Replay, Replayed, Zil};
use ondisk::zil::Record;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::oracle;
use tarnfs::zpl::{FileReplay, FileSystem, MountOptions};

use disk::CutDisk;
use world::World;

const DISK_BYTES: usize = 80 << 20;

fn options(read_only: bool, commits: usize) -> OpenOptions {
    // No group ends by itself: what is safe is safe because of the log.
    let tunables = Tunables { txg_timeout_ns: 3_600_000_000_000, cache_bytes_max: 16 << 20, log_commits_max: commits, ..Tunables::default() };
    OpenOptions { host: RealHost::shared(), tunables, read_only, file_owner: Some(tarnfs::zpl::file_owner), new_name: None, forget_log: false }
}

fn create(disk: &Arc<CutDisk>) -> Arc<Pool> {
    create_on(disk, None)
}

fn create_on(disk: &Arc<CutDisk>, log: Option<&Arc<CutDisk>>) -> Arc<Pool> {
    create_tops([top(disk, "/cut", false)].into_iter().chain(log.map(|log| top(log, "/log", true))).collect())
}

fn top(disk: &Arc<CutDisk>, path: &str, is_log: bool) -> NewTop {
    NewTop { leaves: vec![NewLeaf { disk: disk.clone(), path: path.into(), whole_disk: false }], ashift: Some(9), bias: if is_log { Bias::Log } else { Bias::None }, ..NewTop::default() }
}

fn create_tops(vdevs: Vec<NewTop>) -> Arc<Pool> {
    create_with(vdevs, Mode::default())
}

/// How what is written gets into the log.
#[derive(Debug, Clone, Copy)]
struct Mode {
    record_bytes: u64,
    /// All of it as blocks in their place.
    throughput: bool,
    /// How many commits may be under way.
    commits: usize,
}

impl Default for Mode {
    fn default() -> Self {
        Mode { record_bytes: 128 << 10, throughput: false, commits: 8 }
    }
}

impl Mode {
    /// Every third run is an ordinary one.
    fn of_seed(seed: u64) -> Mode {
        match seed % 3 {
            0 => Mode::default(),
            kind => Mode { record_bytes: 4096 << (seed / 3 % 9), throughput: kind == 1, ..Mode::default() },
        }
    }
}

fn create_with(vdevs: Vec<NewTop>, mode: Mode) -> Arc<Pool> {
    let number = |name: &str, number| (name.to_owned(), PropertyChange::Set(PropertyValue::Number(number)));
    let new = NewPool {
        name: "tank".into(),
        vdevs,
        features: ondisk::feature::Feature::for_new_pools().collect(),
        properties: vec![number("recordsize", mode.record_bytes), number("logbias", u64::from(mode.throughput))],
        fill: Box::new(|objset, tx| tarnfs::zpl::initialize(objset, tx, &tarnfs::zpl::NewFileSystem::default())),
        command: "zpool create tank cut".into(),
        configure: Box::new(|_| ()),
    };
    Pool::create(new, options(false, mode.commits)).unwrap_or_else(|error| panic!("create: {error}"))
}

fn open(disk: &Arc<CutDisk>, read_only: bool) -> Arc<Pool> {
    open_all(std::slice::from_ref(disk), read_only)
}

fn open_all(disks: &[Arc<CutDisk>], read_only: bool) -> Arc<Pool> {
    let candidates = discover(disks.iter().map(|disk| disk.clone() as DiskRef).collect());
    Pool::open(select(&candidates, "tank", false).unwrap(), options(read_only, 8)).unwrap_or_else(|error| panic!("open: {error}"))
}

fn file_system(pool: &Arc<Pool>) -> FileSystem {
    file_system_in(pool, Mode::default())
}

fn file_system_in(pool: &Arc<Pool>, mode: Mode) -> FileSystem {
    let dataset = pool.dsl.open_dataset("tank").unwrap();
    let objset = pool.dsl.objset(&dataset).unwrap();
    let options = MountOptions { log_xattrs: true, log_throughput: mode.throughput, ..MountOptions::default() };
    FileSystem::open(objset, options, || (0, 1 << 40)).unwrap_or_else(|error| panic!("file system: {error}"))
}

pub(crate) fn check(pool: &Pool, what: &str) {
    let report = pool.check(CheckOptions { verify_data: true, ..CheckOptions::default() }, &|_| ()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
}

pub(crate) fn zdb(image: &[u8], what: &str) {
    let directory = tempfile::Builder::new().prefix("tarn-cut-").tempdir().unwrap();
    let path = directory.path().join("d0.img");
    std::fs::write(&path, image).unwrap();
    let result = oracle::zdb_check_metadata(&[&path]);
    if let (oracle::OracleResult::Wrong(_), Some(place)) = (&result, std::env::var_os("TARN_KEEP")) {
        std::fs::copy(&path, std::path::PathBuf::from(place).join("cut.img")).unwrap();
    }
    result.expect_clean(what);
}

/// Records that led to a block in its place, of those that were replayed.
static PLACED: AtomicU64 = AtomicU64::new(0);

/// Says which record cannot be replayed: that is the end of a replay, and what follows it is lost.
struct Loud<'a>(FileReplay<'a>);

impl Replay for Loud<'_> {
    fn replay(&self, record: Record<'_>, data: Option<&[u8]>) -> engine::error::Result<()> {
        if std::env::var_os("TARN_SEED").is_some() {
            println!("{record:.200?}");
        }
        PLACED.fetch_add(u64::from(data.is_some_and(|data| !data.is_empty())), Ordering::Relaxed);
        // (That no block goes beyond its file, which OpenZFS would then make as long, cannot be told from the record: its own part of the block may be
        // any, and the file have grown since.)
        let result = self.0.replay(record, data);
        if let Err(error) = &result {
            println!("replay of {record:?}: {error}");
        }
        result
    }
}

/// Does again what the log has, and says what that was.
fn replay(pool: &Arc<Pool>, fs: &FileSystem, what: &str) -> Replayed {
    let done = Zil::of(fs.objset()).replay(fs.objset(), &|| pool.sync_all(), &Loud(FileReplay(fs)));
    done.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// One run: operations, a cut, a replay, a comparison. Returns how many records were replayed.
fn run(seed: u64, ask_zdb: bool) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let mode = Mode::of_seed(seed);
    let pool = create_with(vec![top(&disk, "/cut", false)], mode);
    let fs = file_system_in(&pool, mode);
    let mut world = World::new(&fs, mode);
    let operations = random.random_range(5..120);
    let armed_at = random.random_range(0..operations);
    for index in 0..operations {
        if index == armed_at {
            disk.arm(random.random_range(0..60), seed);
        }
        if random.random_range(0..30) == 0 {
            pool.sync_all().unwrap();
            world.all_safe();
        } else {
            world.step(&mut random);
        }
        disk.progress.store(world.done(), Ordering::SeqCst);
    }
    let cut = disk.cut(seed);
    pool.abandon();

    let what = format!("{mode:?}, seed {seed} (TARN_SEED={seed} cargo test -p sim --test log_crash)");
    if ask_zdb {
        zdb(&cut.image, &format!("{what}: as the cut left it"));
    }
    let disk = CutDisk::new(cut.image);
    let pool = open(&disk, true);
    check(&pool, &format!("{what}: as the cut left it"));
    pool.abandon();
    let pool = open(&disk, false);
    let again = file_system_in(&pool, mode);
    again.drain_delete_queue().unwrap();
    let replayed = replay(&pool, &again, &what);
    again.drain_delete_queue().unwrap();
    world.compare(&again, cut.progress, &what);
    again.release_all();
    drop(again);
    pool.sync_all().unwrap();
    check(&pool, &format!("{what}: after the replay"));
    pool.export().unwrap();
    if ask_zdb {
        let image = disk.cut(0).image;
        zdb(&image, &format!("{what}: after the replay"));
    }
    replayed.records
}

#[test]
fn nothing_that_was_acknowledged_is_lost() {
    if let Ok(seed) = std::env::var("TARN_SEED") {
        run(seed.parse().expect("a number"), true);
        return;
    }
    let cuts: u64 = std::env::var("TARN_CUTS").ok().and_then(|cuts| cuts.parse().ok()).unwrap_or(40);
    let first: u64 = rand::random_range(0..1 << 40);
    println!("seeds {first}..{}", first + cuts);
    let replayed: u64 = (first..first + cuts).map(|seed| run(seed, seed % 20 == 0)).sum();
    let placed = PLACED.load(Ordering::Relaxed);
    sim::places::say(&format!("log: {cuts} cuts, {replayed} records replayed, {placed} of them with a block in its place"));
    assert!(placed > cuts, "hardly any block was in its place: {placed} in {cuts} runs");
    assert!(replayed > cuts, "hardly anything was replayed: {replayed} records in {cuts} runs");
}
