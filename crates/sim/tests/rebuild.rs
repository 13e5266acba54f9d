//! Sequential rebuilds, and distributed spares of dRAID, under files: each set of devices that is enough holds everything afterwards, real zdb finds nothing wrong, kills and
//! exports in the middle change nothing, and what could not be rebuilt is found and named.
#![allow(clippy::disallowed_methods)] // the real clock: pieces are copied by real threads

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::pool::{Beside, Fill, Stopped};
use engine::tunables::{Parameter, Tunables};
use engine::vdev::{DraidColumns, NewLeaf, VdevConfig, VdevKind};
use ondisk::feature::Feature;
use ondisk::rebuild::{RebuildRecord, RebuildState};
use ondisk::scan::{ScanFunction, ScanState};
use sim::scenario::{Layout, Rig, contents};
use tarnfs::{ImportOptions, Pool};

const SIZE: u64 = 128 << 20;
/// A rebuild of pools as small as these takes no longer.
const PATIENCE: Duration = Duration::from_secs(120);
const DRAID: DraidColumns = DraidColumns { data: 3, spares: 1 };

fn mirror(sides: usize) -> Layout {
    Layout { sides, bytes: SIZE, ashift: 9, ..Layout::default() }
}

/// draid1 of six: three columns of data, one of parity, one spare.
fn draid() -> Layout {
    Layout { parity: 1, sides: 6, ashift: 12, bytes: SIZE, ..Layout::default() }
}

/// Few pieces in each group, so that a rebuild takes many.
fn slow() -> Tunables {
    let tunables = Tunables { scan_blocks_max: 8, ..Tunables::default() };
    tunables.parameters.set(Parameter::RebuildMaxSegment, "65536").unwrap();
    tunables
}

fn new_disk(rig: &Rig, name: &str) -> (PathBuf, NewLeaf) {
    let path = rig.images()[0].with_file_name(name);
    File::create(&path).and_then(|file| file.set_len(SIZE)).expect("an image");
    let disk = disk::open(&path.display().to_string(), disk::Access::Write).expect("the image");
    let leaf = NewLeaf { disk, path: path.display().to_string(), whole_disk: false };
    (path, leaf)
}

fn guid_of(rig: &Rig, path: &Path) -> u64 {
    let leaves = rig.pool().engine().vdevs.leaves();
    leaves.iter().find(|leaf| Path::new(leaf.name()) == path).unwrap_or_else(|| panic!("{} is in the pool", path.display())).guid()
}

/// Files of many sizes, in several groups; some are written durably, by way of the log.
fn work(rig: &mut Rig, seed: u64) {
    for number in 0..12 {
        let length = [300, 5000, 70_000, 200_000, 900_000][number as usize % 5];
        rig.actor("tank").file(&format!("f{seed}-{number}"), &contents(seed * 100 + number, length, number as u8 % 3));
        if number % 3 == 0 {
            rig.sync();
        }
    }
    rig.actor("tank").write(&format!("f{seed}-3"), 5000, &contents(seed, 70_000, 1));
    rig.sync();
}

fn judge(rig: &mut Rig, what: &str) {
    rig.compare(what);
    rig.export();
    rig.check(what);
    rig.zdb(what, true);
    rig.import();
    rig.compare(what);
}

fn has(config: &VdevConfig, kind: &VdevKind) -> bool {
    config.kind == *kind || config.children.iter().any(|child| has(child, kind))
}

/// Waits until the rebuild is over, and the scan that follows.
fn wait(rig: &Rig, what: &str) -> RebuildRecord {
    let (begun, engine) = (Instant::now(), rig.pool().engine());
    while engine.is_rebuilding() || engine.is_scanning() {
        assert!(begun.elapsed() < PATIENCE, "{what}: the rebuild does not end: {:?}, {:?}", engine.rebuild_progress(), engine.scan_progress());
        std::thread::sleep(Duration::from_millis(20));
    }
    rig.sync();
    let progress = engine.rebuild_progress();
    progress.first().unwrap_or_else(|| panic!("{what}: there was no rebuild")).record
}

/// A scrub has followed by itself, and has found nothing.
fn was_scrubbed(rig: &Rig, record: &RebuildRecord, what: &str) {
    let scan = rig.pool().engine().scan_progress().unwrap_or_else(|| panic!("{what}: no scrub followed")).record;
    assert_eq!((scan.function, scan.state, scan.errors, scan.processed), (ScanFunction::Scrub, ScanState::Finished, 0, 0), "{what}: {scan:?}");
    assert!(scan.start_time >= record.start_time, "{what}");
    assert!(!rig.pool().engine().dsl.meta.features.is_active(Feature::DeviceRebuild), "{what}");
}

/// Just these images hold everything.
fn alone(rig: &mut Rig, images: &[PathBuf], what: &str) {
    let place = tempfile::tempdir().expect("a place");
    for image in images {
        let copied = std::process::Command::new("cp").arg("--sparse=always").arg(image).arg(place.path()).status();
        assert!(copied.is_ok_and(|status| status.success()));
    }
    let options = ImportOptions { read_only: true, force: true, ..ImportOptions::default() };
    let pool = Pool::import(&[place.path().to_owned()], "tank", options).unwrap_or_else(|error| panic!("{what}: {images:?}: {error}"));
    let report = pool.check(true, &|_| ()).expect("a check");
    assert!(report.is_clean(), "{what}: {images:?}: {:?}", report.findings.iter().take(10).collect::<Vec<_>>());
    let fs = pool.file_system("tank").expect("the file system");
    rig.model("tank").compare(&fs, &format!("{what}: {images:?}"));
    fs.release_all();
    drop(fs);
    pool.export().expect("nothing to write");
}

#[test]
fn a_mirror_gets_a_side_by_a_rebuild_under_files() {
    let mut rig = Rig::create(mirror(1), &[]);
    (1..4).for_each(|seed| work(&mut rig, seed));
    let first = rig.images()[0].clone();
    let (second, leaf) = new_disk(&rig, "e1.img");
    let engine = rig.pool().engine().clone();
    engine.attach_and_fill(guid_of(&rig, &first), leaf, (Beside::Mirror, Fill::Sequential), None).expect("attach");
    assert!(engine.dsl.meta.features.is_active(Feature::DeviceRebuild));
    drop(engine);
    work(&mut rig, 4);
    let record = wait(&rig, "attached");
    assert_eq!((record.state, record.errors), (RebuildState::Complete, 0), "{record:?}");
    assert!(record.rebuilt > 2 << 20 && record.scanned >= record.issued && record.min_txg == 3, "{record:?}");
    was_scrubbed(&rig, &record, "attached");
    assert!(rig.pool().engine().vdevs.leaves().iter().all(|leaf| !leaf.is_behind()));
    work(&mut rig, 5);
    judge(&mut rig, "attached");
    rig.export();
    [&first, &second].into_iter().for_each(|image| alone(&mut rig, std::slice::from_ref(image), "attached"));
    rig.import();
}

#[test]
fn a_side_is_replaced_by_a_rebuild() {
    for sides in [1, 2] {
        let what = format!("a mirror of {sides}");
        let mut rig = Rig::create(mirror(sides), &[]);
        (1..4).for_each(|seed| work(&mut rig, seed));
        let old = rig.images()[sides - 1].clone();
        let (new, leaf) = new_disk(&rig, "e1.img");
        rig.pool().engine().attach_and_fill(guid_of(&rig, &old), leaf, (Beside::Replacement, Fill::Sequential), None).expect("replace");
        work(&mut rig, 4);
        let record = wait(&rig, &what);
        assert_eq!(record.state, RebuildState::Complete, "{what}: {record:?}");
        was_scrubbed(&rig, &record, &what);
        assert!(!has(&rig.pool().engine().vdevs.config(), &VdevKind::Replacing), "{what}");
        std::fs::remove_file(&old).unwrap();
        work(&mut rig, 5);
        judge(&mut rig, &what);
        rig.export();
        alone(&mut rig, &[new], &what);
        rig.import();
    }
}

/// A kill or an export anywhere in the middle: it goes on where it was, and is complete.
#[test]
fn a_rebuild_goes_on_after_kills_and_exports() {
    for is_draid in [false, true] {
        let what = if is_draid { "draid" } else { "mirror" };
        let mut rig = if is_draid { Rig::create_draid(draid(), DRAID, &[("compression", "off")]) } else { Rig::create_with(mirror(1), &[("compression", "off")], slow()) };
        (1..6).for_each(|seed| work(&mut rig, seed));
        if is_draid {
            rig.export();
            rig.set_tunables(slow());
            rig.import();
        }
        let images = rig.images();
        let (new, leaf) = new_disk(&rig, "e1.img");
        let how = if is_draid { Beside::Replacement } else { Beside::Mirror };
        rig.pool().engine().attach_and_fill(guid_of(&rig, &images[0]), leaf, (how, Fill::Sequential), None).expect("attach");
        let (mut ends, mut reached) = (0, Vec::new());
        while rig.pool().engine().is_rebuilding() {
            ends += 1;
            assert!(ends < 400, "{what}: {:?}", rig.pool().engine().rebuild_progress());
            let at = rig.pool().engine().uberblock().txg + 4;
            while rig.pool().engine().is_rebuilding() && rig.pool().engine().uberblock().txg < at {
                std::thread::sleep(Duration::from_millis(1));
            }
            reached.extend(rig.pool().engine().rebuild_progress().first().map(|progress| progress.record.done));
            // A disk whose replacement has ended is none of the pool's any more.
            let is_on = rig.pool().engine().is_rebuilding();
            if ends % 2 == 0 { rig.export() } else { rig.crash() }
            if ends % 5 == 1 && is_on {
                rig.check(&format!("{what}: in the middle"));
                rig.zdb(&format!("{what}: in the middle"), false);
            }
            rig.import();
            rig.compare(what);
        }
        assert!(ends > 1 && reached.windows(2).any(|pair| pair[0] > 0 && pair[1] > pair[0]), "{what}: it was never in the middle: {reached:?}");
        let record = wait(&rig, what);
        assert_eq!((record.state, record.errors), (RebuildState::Complete, 0), "{what}: {record:?}");
        rig.pool().engine().scrub(false).expect("scrub");
        wait(&rig, what);
        was_scrubbed(&rig, &record, what);
        if is_draid {
            std::fs::remove_file(&images[0]).unwrap();
        }
        judge(&mut rig, what);
        rig.export();
        if is_draid {
            for gone in 1..6 {
                let left: Vec<PathBuf> = images[1..].iter().filter(|image| **image != images[gone]).cloned().chain([new.clone()]).collect();
                alone(&mut rig, &left, what);
            }
        } else {
            alone(&mut rig, &[new], what);
        }
        rig.import();
    }
}

/// A device that comes later makes a rebuild begin anew; one that goes ends it.
#[test]
fn a_rebuild_begins_anew_and_is_given_up() {
    let tunables = slow();
    let mut rig = Rig::create_with(mirror(1), &[], tunables.clone());
    work(&mut rig, 1);
    let hold = |on: &str| tunables.parameters.set(Parameter::ScanSuspendProgress, on).unwrap();
    hold("1");
    let first = rig.images()[0].clone();
    let (second, leaf) = new_disk(&rig, "e1.img");
    let engine = rig.pool().engine().clone();
    let old = guid_of(&rig, &first);
    engine.attach_and_fill(old, leaf, (Beside::Mirror, Fill::Sequential), None).expect("attach");
    let begun = engine.rebuild_progress()[0].record;
    let refused = engine.scrub(false).unwrap_err();
    assert!(refused.message().contains("currently resilvering"), "{refused}");
    let (third, leaf) = new_disk(&rig, "e2.img");
    let refused = engine.attach_device(old, leaf, Beside::Mirror, None).unwrap_err();
    assert!(refused.message().contains("currently sequentially resilvering"), "{refused}");
    let (_, leaf) = new_disk(&rig, "e2.img");
    engine.attach_and_fill(old, leaf, (Beside::Mirror, Fill::Sequential), None).expect("a third one");
    let again = engine.rebuild_progress()[0].record;
    assert!(again.max_txg > begun.max_txg && again.is_active(), "{begun:?} {again:?}");
    for image in [&second, &third] {
        engine.detach_device(guid_of(&rig, image)).expect("detach");
    }
    hold("0");
    let record = wait(&rig, "given up");
    assert_eq!(record.state, RebuildState::Canceled);
    assert!(!engine.dsl.meta.features.is_active(Feature::DeviceRebuild));
    [second, third].into_iter().for_each(|image| std::fs::remove_file(image).unwrap());
    drop(engine);
    judge(&mut rig, "given up");
}

#[test]
fn raidz_and_old_pools_have_no_rebuilds() {
    let rig = Rig::create(Layout { parity: 1, sides: 3, ashift: 9, bytes: SIZE, ..Layout::default() }, &[]);
    let (_, leaf) = new_disk(&rig, "e1.img");
    let old = guid_of(&rig, &rig.images()[0]);
    let refused = rig.pool().engine().attach_and_fill(old, leaf, (Beside::Replacement, Fill::Sequential), None).unwrap_err();
    assert!(refused.message().contains("only mirror and dRAID vdevs support sequential reconstruction"), "{refused}");
    let rig = Rig::create_featured(mirror(1), &[], vec![Feature::ExtensibleDataset]);
    let (_, leaf) = new_disk(&rig, "e1.img");
    let old = guid_of(&rig, &rig.images()[0]);
    let refused = rig.pool().engine().attach_and_fill(old, leaf, (Beside::Mirror, Fill::Sequential), None).unwrap_err();
    assert!(refused.message().contains("device_rebuild feature must be enabled"), "{refused}");
}

/// A block on the only source is wrong: the rebuild copies it, and the scrub that follows names the file.
#[test]
fn what_is_wrong_on_the_source_is_found_by_the_scrub_that_follows() {
    let mut rig = Rig::create(mirror(1), &[("compression", "off"), ("checksum", "sha256")]);
    work(&mut rig, 1);
    let marker = contents(77, 131_072, 0);
    rig.actor("tank").file("spoiled", &marker);
    rig.sync();
    rig.export();
    let first = rig.images()[0].clone();
    let image = std::fs::read(&first).unwrap();
    let at = image.windows(512).step_by(512).position(|window| window == &marker[..512]).expect("the file's block") * 512;
    OpenOptions::new().write(true).open(&first).unwrap().write_all_at(&[0x5a; 4096], at as u64 + 8192).unwrap();
    rig.import();
    let (second, leaf) = new_disk(&rig, "e1.img");
    rig.pool().engine().attach_and_fill(guid_of(&rig, &first), leaf, (Beside::Mirror, Fill::Sequential), None).expect("attach");
    let record = wait(&rig, "spoiled");
    assert_eq!((record.state, record.errors), (RebuildState::Complete, 0), "nothing tells that it is wrong: {record:?}");
    let scan = rig.pool().engine().scan_progress().unwrap().record;
    assert_eq!((scan.function, scan.state), (ScanFunction::Scrub, ScanState::Finished));
    assert!(scan.errors > 0, "{scan:?}");
    let fs = rig.pool().file_system("tank").unwrap();
    let file = fs.lookup(fs.root(), b"spoiled").unwrap().inode;
    assert!(fs.read(file, 0, 131_072).is_err(), "never wrong data");
    fs.forget(file, 1);
    fs.release_all();
    drop(fs);
    assert!(second.exists());
}

/// The spare of a dRAID vdev, by its guid.
fn spare_of(rig: &Rig) -> u64 {
    rig.pool().engine().auxiliary().unwrap().spares.iter().find(|spare| spare.kind == VdevKind::DraidSpare).expect("a spare").guid
}

/// A disk is lost, the spare comes in, then each other disk may be lost: everything is there.
#[test]
fn a_distributed_spare_stands_in_for_a_disk() {
    for fill in [Fill::Sequential, Fill::Healing] {
        let what = format!("{fill:?}");
        let mut rig = Rig::create_draid(draid(), DRAID, &[]);
        (1..5).for_each(|seed| work(&mut rig, seed));
        let images = rig.images();
        let (lost, spare) = (guid_of(&rig, &images[2]), spare_of(&rig));
        rig.pool().engine().stop_device(lost, Stopped::Offline, false).expect("offline");
        work(&mut rig, 5);
        rig.pool().engine().attach_distributed(lost, spare, fill).expect("the spare comes in");
        let busy = rig.pool().engine().attach_distributed(guid_of(&rig, &images[3]), spare, fill).unwrap_err();
        assert!(busy.message().contains("is busy") || busy.message().contains("resilvering"), "{busy}");
        work(&mut rig, 6);
        let engine = rig.pool().engine().clone();
        let begun = Instant::now();
        while engine.is_rebuilding() || engine.is_scanning() {
            assert!(begun.elapsed() < PATIENCE, "{what}: {:?} {:?}", engine.rebuild_progress(), engine.scan_progress());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(engine.vdevs.config().find(spare).is_some_and(|spare| spare.get("DTL").is_none() && spare.get("rebuild_txg").is_none()), "{what}: {:?}", engine.vdevs.config());
        drop(engine);
        work(&mut rig, 7);
        rig.compare(&what);
        rig.export();
        rig.check(&what);
        std::fs::remove_file(&images[2]).unwrap();
        let left: Vec<PathBuf> = rig.images();
        for gone in &left {
            let others: Vec<PathBuf> = left.iter().filter(|image| *image != gone).cloned().collect();
            alone(&mut rig, &others, &what);
        }
        rig.zdb(&what, true);
        rig.import();
        rig.compare(&what);
        // The disk is replaced, and the spare is free again.
        let (_, leaf) = new_disk(&rig, "e1.img");
        rig.pool().engine().attach_and_fill(lost, leaf, (Beside::Replacement, fill), None).expect("replace");
        work(&mut rig, 8);
        let begun = Instant::now();
        while has(&rig.pool().engine().vdevs.config(), &VdevKind::DraidSpare) || rig.pool().engine().is_scanning() {
            assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", rig.pool().engine().vdevs.config());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!has(&rig.pool().engine().vdevs.config(), &VdevKind::Spare), "{what}");
        assert_eq!(spare_of(&rig), spare, "{what}: it is in the list");
        judge(&mut rig, &what);
        rig.export();
        let all = rig.images();
        for gone in &all {
            let others: Vec<PathBuf> = all.iter().filter(|image| *image != gone).cloned().collect();
            alone(&mut rig, &others, &what);
        }
        rig.import();
    }
}

/// By hand out again: the disk for which it stood in holds everything that it had.
#[test]
fn a_distributed_spare_goes_back() {
    let mut rig = Rig::create_draid(draid(), DRAID, &[]);
    (1..4).for_each(|seed| work(&mut rig, seed));
    let images = rig.images();
    let (old, spare) = (guid_of(&rig, &images[1]), spare_of(&rig));
    let wrong = rig.pool().engine().attach_distributed(old, spare + 1, Fill::Sequential).unwrap_err();
    assert!(wrong.message().contains("no distributed spare"), "{wrong}");
    rig.pool().engine().attach_distributed(old, spare, Fill::Sequential).expect("the spare comes in");
    let record = wait(&rig, "beside a disk that is well");
    assert_eq!((record.state, record.errors), (RebuildState::Complete, 0));
    work(&mut rig, 4);
    judge(&mut rig, "beside");
    rig.pool().engine().detach_device(spare).expect("detach");
    assert!(!has(&rig.pool().engine().vdevs.config(), &VdevKind::DraidSpare));
    assert_eq!(spare_of(&rig), spare);
    work(&mut rig, 5);
    judge(&mut rig, "back");
    rig.export();
    for gone in &images {
        let others: Vec<PathBuf> = images.iter().filter(|image| *image != gone).cloned().collect();
        alone(&mut rig, &others, "back");
    }
    rig.import();
}
