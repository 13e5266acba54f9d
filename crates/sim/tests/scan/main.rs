//! Scrubs and resilvers: what is damaged or was missed is made right, and the pool is whole again with each side alone.
#![allow(clippy::disallowed_methods)] // the real clock: blocks are read by real threads

mod cloned;
mod flapping;
mod waited;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::dsl::NewSnapshots;
use engine::pool::Stopped;
use engine::tunables::{Parameter, Tunables};
use engine::vdev::label::DeviceLabels;
use ondisk::feature::Feature;
use ondisk::scan::{ScanFunction, ScanRecord, ScanState};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::golden::{Compare, compare, open_images};
use sim::places;
use sim::scenario::{Layout, MemoryDisks, Rig, contents};
use tarnfs::{Credentials, ImportOptions, Pool, WriteMode};

/// Nothing takes so long.
const PATIENCE: Duration = Duration::from_secs(300);
const MIRROR: Layout = Layout { tops: 1, sides: 2, parity: 0, bytes: 128 << 20, ashift: 12 };
const FILES: u64 = 24;

fn wait(pool: &Pool) -> ScanRecord {
    let until = Instant::now() + PATIENCE;
    while pool.engine().is_scanning() {
        assert!(Instant::now() < until, "{:?}", pool.engine().scan_progress());
        std::thread::sleep(Duration::from_millis(5));
    }
    pool.sync().unwrap();
    pool.engine().scan_progress().expect("a scan").record
}

fn scrub(pool: &Pool) -> ScanRecord {
    pool.engine().scrub(false).unwrap();
    let record = wait(pool);
    assert_eq!((record.function, record.state), (ScanFunction::Scrub, ScanState::Finished));
    record
}

fn length(number: u64) -> usize {
    [300, 5000, 40_000, 131_072, 400_000][number as usize % 5]
}

fn write(pool: &Arc<Pool>, dataset: &str, seed: u64) {
    let (fs, user) = (pool.file_system(dataset).unwrap(), Credentials::root());
    for number in 0..FILES {
        let name = format!("f{number}");
        let found = fs.lookup(fs.root(), name.as_bytes()).or_else(|_| fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user));
        let file = found.unwrap().inode;
        fs.write(file, WriteMode::At(0), &contents(seed + number, length(number), 0), &user).unwrap();
        fs.forget(file, 1);
    }
    pool.sync().unwrap();
}

fn read(pool: &Arc<Pool>, dataset: &str, seed: u64, what: &str) {
    let fs = pool.file_system(dataset).unwrap();
    for number in 0..FILES {
        let file = fs.lookup(fs.root(), format!("f{number}").as_bytes()).unwrap().inode;
        let found = fs.read(file, 0, length(number)).unwrap_or_else(|error| panic!("{what}: f{number}: {error}"));
        assert!(found == contents(seed + number, length(number), 0), "{what}: f{number} has other contents");
        fs.forget(file, 1);
    }
}

fn snapshot(pool: &Pool, name: &str) {
    let new = NewSnapshots { names: vec![name.to_owned()], properties: Vec::new() };
    let refused = pool.engine().dsl.snapshot_verbs().create_snapshots(new).unwrap();
    assert!(refused.is_empty(), "{name}");
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("--sparse=always").args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "copying {}", from.display());
}

/// The pool on these images alone, for reading: not a block of it is wrong.
fn alone(images: &[PathBuf], name: &str, look: impl FnOnce(&Arc<Pool>)) {
    let directory = tempfile::tempdir().unwrap();
    images.iter().for_each(|image| copy(image, &directory.path().join(image.file_name().unwrap())));
    let options = ImportOptions { read_only: true, force: true, ..ImportOptions::default() };
    let pool = Pool::import(&[directory.path().to_owned()], name, options).unwrap_or_else(|error| panic!("{images:?}: {error}"));
    look(&pool);
    let report = pool.check(true, &|_| ()).unwrap();
    assert!(report.is_clean(), "{images:?}: {:#?}", report.findings.iter().take(10).collect::<Vec<_>>());
    pool.export().unwrap();
}

/// Inverts a few ranges of an image, all of them in its data.
fn damage(image: &Path, random: &mut ChaCha8Rng, ranges: usize) {
    let file = fs::OpenOptions::new().read(true).write(true).open(image).unwrap();
    let size = file.metadata().unwrap().len();
    for _ in 0..ranges {
        let length = 512 << random.random_range(0..10);
        let at = random.random_range((4 << 20)..size - (1 << 20) - length);
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, at).unwrap();
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        file.write_all_at(&bytes, at).unwrap();
    }
}

/// Overwrites an image from the front of its data to half of it.
fn overwrite(image: &Path) {
    let file = fs::OpenOptions::new().write(true).open(image).unwrap();
    let size = file.metadata().unwrap().len();
    for at in ((4 << 20)..size / 2).step_by(1 << 20) {
        file.write_all_at(&[0xa5; 1 << 20], at).unwrap();
    }
}

fn side(rig: &Rig, number: usize) -> PathBuf {
    rig.images()[number].clone()
}

#[test]
fn a_mirror_with_a_rotten_side_is_whole_after_a_scrub() {
    let mut rig = Rig::create(MIRROR, &[("compression", "off")]);
    rig.create_file_system("tank/a", &[]);
    write(rig.pool(), "tank/a", 100);
    snapshot(rig.pool(), "tank/a@s");
    rig.export();
    overwrite(&side(&rig, 1));
    rig.import();
    let record = scrub(rig.pool());
    assert_eq!(record.errors, 0);
    assert!(record.processed > 3 << 20, "{record:?}");
    let clean = scrub(rig.pool());
    assert_eq!((clean.errors, clean.processed), (0, 0), "nothing is left to do");
    assert_eq!(rig.pool().engine().last_scrubbed_txg().unwrap(), clean.max_txg);
    rig.export();
    rig.check("scrubbed");
    rig.zdb("scrubbed", true);
    for number in [0, 1] {
        alone(&[side(&rig, number)], "tank", |pool| read(pool, "tank/a", 100, "alone"));
    }
}

/// Ends the pool after a few groups, by a crash or an export, and imports it again.
fn interrupt(rig: &mut Rig, number: u32) {
    let at = rig.pool().engine().uberblock().txg + 3;
    while rig.pool().engine().is_scanning() && rig.pool().engine().uberblock().txg < at {
        std::thread::sleep(Duration::from_millis(1));
    }
    if number % 2 == 0 { rig.export() } else { rig.crash() }
    if number % 5 == 0 {
        rig.zdb("in the middle of a scan", false);
    }
    rig.import();
    assert!(number < 500, "{:?}", rig.pool().engine().scan_progress());
}

/// A limit of blocks for each group, so that a scan takes many.
fn slow(blocks: u64) -> Tunables {
    Tunables { scan_blocks_max: blocks, ..Tunables::default() }
}

#[test]
fn a_scrub_goes_on_after_kills_and_exports() {
    let mut rig = Rig::create_with(MIRROR, &[("compression", "off")], slow(3));
    rig.create_file_system("tank/a", &[]);
    write(rig.pool(), "tank/a", 100);
    rig.export();
    overwrite(&side(&rig, 0));
    rig.import();
    rig.pool().engine().scrub(false).unwrap();
    let started = rig.pool().engine().scan_progress().unwrap().record;
    let mut ends = 0;
    while rig.pool().engine().is_scanning() {
        ends += 1;
        interrupt(&mut rig, ends);
    }
    let record = rig.pool().engine().scan_progress().unwrap().record;
    assert!(ends > 3, "it was never in the middle: {ends}");
    assert_eq!((record.state, record.errors, record.max_txg), (ScanState::Finished, 0, started.max_txg));
    assert_eq!(scrub(rig.pool()).processed, 0);
    rig.export();
    for number in [0, 1] {
        alone(&[side(&rig, number)], "tank", |pool| read(pool, "tank/a", 100, "alone"));
    }
}

/// A paused scrub stays where it is, over an import too; stopped, it is gone.
#[test]
fn a_scrub_is_paused_goes_on_and_is_stopped() {
    let mut rig = Rig::create_with(MIRROR, &[], slow(5));
    rig.create_file_system("tank/a", &[]);
    write(rig.pool(), "tank/a", 100);
    let state = |rig: &Rig| {
        let record = rig.pool().engine().scan_progress().unwrap().record;
        (record.state, record.is_paused())
    };
    rig.pool().engine().scrub(false).unwrap();
    let busy = rig.pool().engine().scrub(false).unwrap_err();
    assert!(busy.message().contains("currently scrubbing"), "{busy}");
    rig.pool().engine().pause_scrub().unwrap();
    assert!(rig.pool().engine().pause_scrub().unwrap_err().message().contains("scrub is paused"));
    assert_eq!(state(&rig), (ScanState::Scanning, true));
    rig.export();
    rig.import();
    assert_eq!(state(&rig), (ScanState::Scanning, true));
    assert!(!rig.pool().engine().is_scanning());
    rig.pool().engine().scrub(false).unwrap();
    assert_eq!(state(&rig), (ScanState::Scanning, false));
    rig.pool().engine().stop_scrub().unwrap();
    assert_eq!(state(&rig), (ScanState::Canceled, false));
    assert!(rig.pool().engine().stop_scrub().unwrap_err().message().contains("no active scrub"));
    assert_eq!(scrub(rig.pool()).errors, 0);
    rig.export();
    rig.zdb("after scrubs", false);
}

/// A side that was away gets what it missed when it is back, and the log of that is empty.
#[test]
fn a_side_that_was_away_is_resilvered() {
    for is_interrupted in [false, true] {
        let tunables = if is_interrupted { slow(3) } else { Tunables::default() };
        let mut rig = Rig::create_with(MIRROR, &[("compression", "off")], tunables);
        rig.create_file_system("tank/a", &[("checksum", "off")]);
        write(rig.pool(), "tank/a", 100);
        rig.export();
        let (away, hidden) = (side(&rig, 1), tempfile::tempdir().unwrap());
        copy(&away, &hidden.path().join("away"));
        fs::remove_file(&away).unwrap();
        rig.import();
        write(rig.pool(), "tank/a", 200);
        rig.export();
        copy(&hidden.path().join("away"), &away);
        rig.import();
        let mut ends = 0;
        while is_interrupted && rig.pool().engine().is_scanning() {
            ends += 1;
            interrupt(&mut rig, ends);
        }
        assert!(!is_interrupted || ends > 3, "it was never in the middle: {ends}");
        let record = wait(rig.pool());
        assert_eq!((record.function, record.state, record.errors), (ScanFunction::Resilver, ScanState::Finished, 0));
        assert!(is_interrupted || record.processed > 2 << 20 && record.min_txg > 0, "{record:?}");
        for leaf in rig.pool().engine().vdevs.leaves() {
            assert!(!leaf.is_behind() && leaf.missing_txgs().is_empty(), "{}: {:?}", leaf.name(), leaf.missing_txgs());
        }
        assert_eq!(rig.pool().engine().vdevs.state(), engine::vdev::VdevState::Online);
        read(rig.pool(), "tank/a", 200, "resilvered");
        rig.export();
        rig.zdb("resilvered", true);
        for number in [0, 1] {
            alone(&[side(&rig, number)], "tank", |pool| read(pool, "tank/a", 200, "alone"));
        }
        rig.import();
        assert!(!rig.pool().engine().is_scanning(), "nothing is left to do");
        rig.export();
    }
}

/// Each side of a mirror did not take some writes.
#[test]
fn sides_that_each_missed_something_are_both_brought_up_to_date() {
    let disks = MemoryDisks::create(MIRROR, &[("compression", "off"), ("checksum", "off")]);
    let pool = disks.import(false).unwrap();
    write(&pool, "tank", 100);
    for number in [0, 1] {
        let (fs, user) = (pool.file_system("tank").unwrap(), Credentials::root());
        let file = fs.create(fs.root(), format!("while-{number}-failed").as_bytes(), 0o100_644, 0, &user).unwrap().inode;
        fs.write(file, WriteMode::At(0), &contents(number as u64, 900_000, 0), &user).unwrap();
        fs.forget(file, 1);
        disks.disk(number).faults.fail_write(1);
        pool.sync().unwrap();
        for _ in 0..4 {
            pool.engine().write_group().unwrap();
        }
    }
    assert!(pool.engine().vdevs.leaves().iter().all(|leaf| leaf.is_behind()));
    pool.engine().clear_errors(None);
    let record = wait(&pool);
    assert_eq!((record.function, record.state, record.errors), (ScanFunction::Resilver, ScanState::Finished, 0));
    assert!(pool.engine().vdevs.leaves().iter().all(|leaf| !leaf.is_behind()), "{record:?}");
    pool.export().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for image in disks.to_images(directory.path()) {
        alone(&[image], "tank", |pool| {
            read(pool, "tank", 100, "alone");
            let fs = pool.file_system("tank").unwrap();
            for number in [0, 1] {
                let file = fs.lookup(fs.root(), format!("while-{number}-failed").as_bytes()).unwrap().inode;
                assert!(fs.read(file, 0, 900_000).unwrap() == contents(number, 900_000, 0), "file {number}");
            }
        });
    }
}

/// Of a pool without redundancy what is lost is written down, is there after an import, and is gone when it is gone.
#[test]
fn what_cannot_be_repaired_is_in_the_log_until_a_scrub_does_not_find_it() {
    let mut rig = Rig::create(Layout { bytes: 128 << 20, ..Layout::default() }, &[("compression", "off")]);
    rig.create_file_system("tank/a", &[]);
    write(rig.pool(), "tank/a", 100);
    let fs = rig.pool().file_system("tank/a").unwrap();
    let file = fs.lookup(fs.root(), b"f4").unwrap().inode;
    let block = fs.objset().hold(file).unwrap().block_pointer(1).unwrap();
    fs.forget(file, 1);
    drop(fs);
    rig.export();
    let (image, dva) = (side(&rig, 0), block.first_dva().unwrap());
    fs::OpenOptions::new().write(true).open(&image).unwrap().write_all_at(&[0x77; 4096], dva.offset + (4 << 20)).unwrap();
    rig.import();
    let record = scrub(rig.pool());
    assert_eq!(record.errors, 1);
    let logged = |rig: &Rig| {
        let mos = &rig.pool().engine().dsl.meta.mos;
        let log = mos.zap_u64(1, "errlog_last").unwrap().unwrap_or(0);
        if log == 0 {
            return BTreeSet::new();
        }
        let heads = mos.zap_entries(log).unwrap();
        heads.iter().flat_map(|(_, blocks)| mos.zap_entries(blocks.first()).unwrap()).map(|(name, _)| name).collect::<BTreeSet<String>>()
    };
    let expected = BTreeSet::from([format!("{file:x}:0:1:{:x}", block.physical_birth())]);
    assert_eq!(logged(&rig), expected);
    rig.export();
    rig.zdb("with a log of errors", false);
    rig.import();
    assert_eq!(logged(&rig), expected);
    assert_eq!(scrub(rig.pool()).errors, 1);
    assert_eq!(logged(&rig), expected);
    let fs = rig.pool().file_system("tank/a").unwrap();
    fs.unlink(fs.root(), b"f4").unwrap();
    rig.sync();
    drop(fs);
    assert_eq!(scrub(rig.pool()).errors, 0);
    assert_eq!(logged(&rig), BTreeSet::new());
    rig.export();
    rig.check("without it");
    rig.zdb("without it", false);
}

/// Datasets come, go and change while a scrub is under way: it comes to its end, and has seen what stayed.
#[test]
fn datasets_change_under_a_scrub() {
    let mut rig = Rig::create_with(MIRROR, &[("compression", "off")], slow(8));
    for name in ["tank/a", "tank/b", "tank/c", "tank/stays"] {
        rig.create_file_system(name, &[]);
        write(rig.pool(), name, 100);
    }
    rig.export();
    overwrite(&side(&rig, 1));
    rig.import();
    rig.pool().engine().scrub(false).unwrap();
    let mut round = 0_u64;
    while rig.pool().engine().is_scanning() {
        round += 1;
        let name = ["tank/a", "tank/b", "tank/c"][round as usize % 3];
        snapshot(rig.pool(), &format!("{name}@{round}"));
        if round % 4 == 0 {
            rig.create_file_system(&format!("tank/new{round}"), &[]);
            write(rig.pool(), &format!("tank/new{round}"), round);
        }
        if round % 5 == 0 && round > 8 {
            let old = round - 6;
            let name = format!("{}@{old}", ["tank/a", "tank/b", "tank/c"][old as usize % 3]);
            rig.pool().engine().dsl.snapshot_verbs().destroy_snapshots(vec![name], false).unwrap();
        }
        if round == 9 {
            rig.destroy_file_system("tank/new4");
        }
        assert!(round < 3000, "{:?}", rig.pool().engine().scan_progress());
    }
    let record = rig.pool().engine().scan_progress().unwrap().record;
    assert_eq!((record.state, record.errors), (ScanState::Finished, 0));
    assert!(round > 5, "the scrub was over at once");
    for name in ["tank/a", "tank/b", "tank/c", "tank/stays"] {
        read(rig.pool(), name, 100, name);
    }
    rig.export();
    rig.zdb("datasets changed", true);
    alone(&[side(&rig, 1)], "tank", |pool| read(pool, "tank/stays", 100, "alone"));
}

/// Pools whose devices missed something, made by OpenZFS; and the images without which everything must still be there when they are resilvered.
#[test]
fn pools_of_openzfs_are_resilvered() {
    for name in ["resilver", "degraded-mir", "degraded-z1", "degraded-z2", "degraded-off"] {
        let Some(mut rig) = Rig::golden(name) else {
            places::skipped(&format!("golden pool {name}: not found"));
            continue;
        };
        let before: Vec<String> = rig.pool().engine().vdevs.leaves().iter().map(|leaf| format!("{} {} {:?}", leaf.name(), leaf.state(), leaf.missing_txgs())).collect();
        if rig.pool().engine().is_scanning() {
            let record = wait(rig.pool());
            assert_eq!((record.state, record.errors), (ScanState::Finished, 0), "{name}");
        }
        for leaf in rig.pool().engine().vdevs.leaves().iter().filter(|leaf| leaf.is_open()) {
            assert!(leaf.missing_txgs().is_empty(), "{name}: {}: {:?}", leaf.name(), leaf.missing_txgs());
        }
        // Some were damaged besides.
        let record = scrub(rig.pool());
        assert_eq!((record.errors, scrub(rig.pool()).processed), (0, 0), "{name}");
        places::say(&format!("scan: {name}: {before:?}: then {} bytes repaired", record.processed));
        rig.export();
        // A replacement is done: what was replaced belongs to no pool.
        let is_replaced = |image: &PathBuf| DeviceLabels::read(&*disk::open(&image.display().to_string(), disk::Access::Read).unwrap()).newest_config().is_some_and(|label| label.u64("txg") == Some(0));
        let replaced: Vec<PathBuf> = rig.images().into_iter().filter(is_replaced).collect();
        assert_eq!(replaced.len(), usize::from(name == "resilver"), "{name}: {replaced:?}");
        replaced.iter().for_each(|image| std::fs::remove_file(image).unwrap());
        rig.check(name);
        rig.zdb(name, true);
        let golden = rig.golden_pool();
        let report = compare(open_images(&rig.images()).unwrap().as_ref(), &golden.manifest, Compare::STRICT).unwrap();
        assert!(report.differences.is_empty(), "{name}: {:?}", report.differences);
    }
}

/// Random damage within the redundancy is repaired by one scrub: `SEED`, `ROUNDS`.
#[test]
fn random_damage_is_repaired() {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (seed, rounds) = (number("SEED", 1), number("ROUNDS", 3));
    for round in seed..seed + rounds {
        let mut random = ChaCha8Rng::seed_from_u64(round);
        let sides = random.random_range(2..4);
        let mut rig = Rig::create(Layout { sides, bytes: 96 << 20, ..MIRROR }, &[("compression", ["off", "lz4"][random.random_range(0..2)])]);
        rig.create_file_system("tank/a", &[("copies", ["1", "2"][random.random_range(0..2)])]);
        write(rig.pool(), "tank/a", round);
        rig.export();
        let good = random.random_range(0..sides);
        for bad in (0..sides).filter(|side| *side != good) {
            damage(&side(&rig, bad), &mut random, 60);
        }
        rig.import();
        let record = scrub(rig.pool());
        assert_eq!(record.errors, 0, "seed {round}");
        assert_eq!(scrub(rig.pool()).processed, 0, "seed {round}");
        rig.export();
        rig.zdb(&format!("seed {round}"), false);
        for bad in 0..sides {
            alone(&[side(&rig, bad)], "tank", |pool| read(pool, "tank/a", round, "alone"));
        }
        places::say(&format!("scan: seed {round}: {sides} sides, {} bytes repaired", record.processed));
    }
}

/// The same for RAID-Z, on pools that OpenZFS made.
#[test]
fn random_damage_of_raidz_is_repaired() {
    for (name, parity) in [("raidz1", 1), ("raidz2", 2), ("raidz3", 3)] {
        let Some(mut rig) = Rig::golden(name) else {
            places::skipped(&format!("golden pool {name}: not found"));
            continue;
        };
        rig.export();
        let mut random = ChaCha8Rng::seed_from_u64(parity as u64);
        let images = rig.images();
        let first = random.random_range(0..images.len());
        for bad in 0..parity {
            damage(&images[(first + bad) % images.len()], &mut random, 200);
        }
        rig.import();
        let record = scrub(rig.pool());
        assert_eq!(record.errors, 0, "{name}");
        assert!(record.processed > 0, "{name}");
        assert_eq!(scrub(rig.pool()).processed, 0, "{name}");
        rig.export();
        rig.zdb(name, true);
        let golden = rig.golden_pool();
        let report = compare(open_images(&golden.images).unwrap().as_ref(), &golden.manifest, Compare::STRICT).unwrap();
        assert!(report.differences.is_empty(), "{name}: {:?}", report.differences);
        places::say(&format!("scan: {name}: {} bytes repaired", record.processed));
    }
}

/// No progress where a tunable says so.
#[test]
fn a_scan_can_be_told_to_stand_still() {
    let rig = Rig::create(MIRROR, &[]);
    let parameters = rig.pool().engine().context.tunables.parameters.clone();
    parameters.set(Parameter::ScanSuspendProgress, "1").unwrap();
    rig.pool().engine().scrub(false).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(rig.pool().engine().scan_progress().unwrap().record.examined, 0);
    assert!(rig.pool().engine().is_scanning());
    parameters.set(Parameter::ScanSuspendProgress, "0").unwrap();
    assert_eq!(wait(rig.pool()).state, ScanState::Finished);
}

/// Which devices wait for the end of the resilver of others is on disk, and holds when the pool was imported in between.
#[test]
fn a_deferred_resilver_is_on_disk() {
    let tunables = Tunables::default();
    let parameter = |parameter, value: &str| tunables.parameters.set(parameter, value).unwrap();
    let layout = Layout { tops: 2, ..MIRROR };
    let mut rig = Rig::create_with(layout, &[("compression", "off")], tunables.clone());
    rig.create_file_system("tank/a", &[("checksum", "off")]);
    write(rig.pool(), "tank/a", 100);
    parameter(Parameter::ScanSuspendProgress, "1");
    parameter(Parameter::ResilverDeferPercent, "0");
    let guids: Vec<u64> = rig.pool().engine().vdevs.leaves().iter().map(|leaf| leaf.guid()).collect();
    for (seed, number) in [(200, 1), (300, 3)] {
        let guid = guids[number];
        rig.pool().engine().stop_device(guid, Stopped::Offline, false).unwrap();
        write(rig.pool(), "tank/a", seed);
        let disk = disk::open(&side(&rig, number).display().to_string(), disk::Access::Write).unwrap();
        rig.pool().engine().online_device(guid, Some(disk), false).unwrap();
        let until = Instant::now() + PATIENCE;
        while rig.pool().engine().scan_progress().is_none_or(|progress| progress.record.state != ScanState::Scanning) || rig.pool().engine().is_resilver_due() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let noted = |rig: &Rig| {
        rig.pool().sync().unwrap();
        let engine = rig.pool().engine();
        let of = |guid: &&u64| engine.vdevs.config().find(**guid).is_some_and(engine::vdev::VdevConfig::is_deferred);
        let count = engine.dsl.meta.features.count(Feature::ResilverDefer);
        (guids.iter().filter(of).copied().collect::<Vec<u64>>(), engine.awaiting_resilver(), count)
    };
    let deferred = (vec![guids[3]], vec![guids[3]], Some(1));
    assert_eq!(noted(&rig), deferred);
    // An import knows of the first resilver only what is on disk.
    rig.crash();
    rig.zdb("deferred", true);
    rig.import();
    assert_eq!(noted(&rig), deferred);
    let started = rig.pool().engine().scan_progress().unwrap().record.start_time;
    rig.export();
    rig.zdb("deferred", true);
    rig.import();
    assert_eq!((noted(&rig), rig.pool().engine().scan_progress().unwrap().record.start_time), (deferred, started), "the same goes on");
    parameter(Parameter::ScanSuspendProgress, "0");
    wait(rig.pool());
    assert_eq!(noted(&rig), (vec![], vec![], Some(0)));
    assert!(rig.pool().engine().vdevs.leaves().iter().all(|leaf| !leaf.is_behind()));
    read(rig.pool(), "tank/a", 300, "resilvered");
    rig.export();
    rig.zdb("resilvered", true);
    for sides in [[0, 2], [1, 3]] {
        alone(&sides.map(|number| side(&rig, number)), "tank", |pool| read(pool, "tank/a", 300, "alone"));
    }
}
