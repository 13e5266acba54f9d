//! dRAID, and RAID-Z that gets a device more, under files: the files are what they should be, real zdb finds nothing wrong, and as many devices as there is parity may be lost.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use engine::tunables::{Parameter, Tunables};
use engine::vdev::{DraidColumns, NewLeaf};
use sim::golden::{Compare, compare, open_images};
use sim::places;
use sim::scenario::{Layout, Rig, contents};
use tarnfs::{ImportOptions, Pool, Rewind};

const SIZE: u64 = 96 << 20;
/// An expansion of pools as small as these takes no longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Files of many sizes, in several groups.
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

/// What is exported, checked by us and the real zdb, and imported again.
fn judge(rig: &mut Rig, what: &str) {
    rig.compare(what);
    rig.export();
    rig.check(what);
    rig.zdb(what, true);
    rig.import();
    rig.compare(what);
}

/// Everything is there without these devices.
fn without(rig: &mut Rig, gone: &[usize], what: &str) {
    let place = tempfile::tempdir().expect("a place");
    for (_, image) in rig.images().iter().enumerate().filter(|(index, _)| !gone.contains(index)) {
        let copied = std::process::Command::new("cp").arg("--sparse=always").arg(image).arg(place.path()).status();
        assert!(copied.is_ok_and(|status| status.success()));
    }
    let options = ImportOptions { read_only: true, force: true, ..ImportOptions::default() };
    let pool = Pool::import(&[place.path().to_owned()], "tank", options).unwrap_or_else(|error| panic!("{what}: without {gone:?}: {error}"));
    let report = pool.check(true, &|_| ()).expect("a check");
    assert!(report.is_clean(), "{what}: without {gone:?}: {:?}", report.findings);
    pool.export().expect("nothing to write");
}

fn new_disk(rig: &Rig, name: &str) -> NewLeaf {
    let path: PathBuf = rig.images()[0].with_file_name(name);
    File::create(&path).and_then(|file| file.set_len(SIZE)).expect("an image");
    let disk = disk::open(&path.display().to_string(), disk::Access::Write).expect("the image");
    NewLeaf { disk, path: path.display().to_string(), whole_disk: false }
}

fn expand(rig: &Rig, name: &str) {
    let guid = rig.pool().engine().vdevs.tops()[0].guid();
    rig.pool().engine().expand_raidz(guid, new_disk(rig, name), None).unwrap_or_else(|error| panic!("{name}: {error}"));
}

fn is_done(rig: &Rig) -> bool {
    rig.pool().engine().expansion_progress().is_some_and(|progress| progress.is_done)
}

fn wait(rig: &Rig, what: &str) {
    let begun = Instant::now();
    while !is_done(rig) || rig.pool().engine().is_scanning() {
        assert!(begun.elapsed() < PATIENCE, "{what}: the expansion does not end: {:?}", rig.pool().engine().expansion_progress());
        std::thread::sleep(Duration::from_millis(30));
    }
    for _ in 0..4 {
        rig.pool().engine().write_group().expect("a group");
    }
}

#[test]
fn raidz_gets_a_device_under_files() {
    for (parity, sides, ashift) in [(1, 3, 9), (2, 4, 12)] {
        let mut rig = Rig::create(Layout { parity, sides, ashift, bytes: SIZE, ..Layout::default() }, &[]);
        let what = format!("raidz{parity} of {sides}");
        work(&mut rig, 1);
        let before = rig.pool().engine().vdevs.tops()[0].asize();
        expand(&rig, "e0.img");
        let mut seed = 2;
        while !is_done(&rig) && seed < 12 {
            work(&mut rig, seed);
            rig.compare(&what);
            seed += 1;
        }
        wait(&rig, &what);
        work(&mut rig, 50);
        let after = rig.pool().engine().vdevs.tops()[0].asize();
        assert_eq!(after / (sides as u64 + 1), before / sides as u64, "{what}: it has the room of the new device");
        judge(&mut rig, &what);
        rig.export();
        for gone in 0..=sides {
            let set: Vec<usize> = (0..parity as usize).map(|next| (gone + next) % (sides + 1)).collect();
            without(&mut rig, &set, &what);
        }
        rig.import();
        // And another one.
        expand(&rig, "e1.img");
        wait(&rig, &what);
        work(&mut rig, 51);
        judge(&mut rig, &what);
        rig.export();
        without(&mut rig, &[sides + 1], &what);
        rig.import();
        rig.compare(&what);
    }
}

/// An expansion that is stopped anywhere goes on when the pool is imported again; in the middle, too, devices may be lost.
#[test]
fn an_expansion_goes_on_where_it_was() {
    let tunables = Tunables::default();
    let mut rig = Rig::create_with(Layout { parity: 1, sides: 3, ashift: 9, bytes: SIZE, ..Layout::default() }, &[("compression", "off")], tunables.clone());
    (1..6).for_each(|seed| work(&mut rig, seed));
    let limit = |bytes: u64| tunables.parameters.set(Parameter::ExpandBytesMax, &bytes.to_string()).unwrap();
    limit(1);
    expand(&rig, "e0.img");
    for (step, bytes) in [1_u64, 16 << 20, 18 << 20, 20 << 20].into_iter().enumerate() {
        let what = format!("stopped after {bytes} bytes");
        limit(bytes);
        rig.pool().engine().write_group().expect("a group");
        (0..8).for_each(|_| rig.pool().engine().write_group().expect("a group"));
        assert!(!is_done(&rig), "{what}");
        work(&mut rig, 10 + step as u64);
        rig.compare(&what);
        rig.export();
        rig.check(&what);
        rig.zdb(&what, true);
        for gone in 0..4 {
            without(&mut rig, &[gone], &what);
        }
        rig.import();
        rig.compare(&what);
    }
    limit(0);
    rig.pool().engine().write_group().expect("a group");
    wait(&rig, "the rest");
    judge(&mut rig, "the rest");
}

/// The pool as it was in a group, or why it cannot be had.
fn gone_back(rig: &Rig, txg: u64, read_only: bool) -> Result<(), String> {
    let place = tempfile::tempdir().expect("a place");
    for image in rig.images() {
        let copied = std::process::Command::new("cp").arg("--sparse=always").arg(image).arg(place.path()).status();
        assert!(copied.is_ok_and(|status| status.success()));
    }
    let options = ImportOptions { read_only, force: true, rewind: Rewind::To(txg), ..ImportOptions::default() };
    let pool = Pool::import(&[place.path().to_owned()], "tank", options).map_err(|error| error.to_string())?;
    // One that may be written goes on with the expansion meanwhile.
    if read_only {
        let report = pool.check(true, &|_| ()).expect("a check");
        assert!(report.is_clean(), "{txg}: {:?}", report.findings);
    }
    pool.export().map_err(|error| error.to_string())
}

/// What an uberblock from before sectors were moved leads to is not where it was, and is not taken for the pool, though much of it can be read.
#[test]
fn nobody_goes_back_to_before_sectors_were_moved() {
    let tunables = Tunables::default();
    let mut rig = Rig::create_with(Layout { parity: 1, sides: 3, ashift: 9, bytes: SIZE, ..Layout::default() }, &[("compression", "off")], tunables.clone());
    let limit = |bytes: u64| tunables.parameters.set(Parameter::ExpandBytesMax, &bytes.to_string()).unwrap();
    (1..6).for_each(|seed| work(&mut rig, seed));
    let before = rig.pool().engine().uberblock().txg;
    limit(1);
    expand(&rig, "e0.img");
    (0..6).for_each(|_| rig.pool().engine().write_group().expect("a group"));
    let resting = rig.pool().engine().uberblock();
    assert_ne!(resting.raidz_reflow.offset(), 0, "the first sectors are moved");
    assert!(!is_done(&rig));
    rig.actor("tank").file("last", &contents(77, 5000, 0));
    rig.sync();
    rig.export();
    for read_only in [true, false] {
        let refused = gone_back(&rig, before, read_only).expect_err("to before it began");
        assert!(refused.contains("moved since"), "{refused}");
        gone_back(&rig, resting.txg, read_only).expect("nothing was moved since then");
    }
    rig.import();
    limit(0);
    rig.pool().engine().write_group().expect("a group");
    wait(&rig, "the rest");
    rig.export();
    for (txg, what) in [(before, "to before it began"), (resting.txg, "to its middle")] {
        gone_back(&rig, txg, true).expect_err(what);
    }
    rig.import();
    judge(&mut rig, "the end");
}

#[test]
fn draid_survives_what_it_has_parity_for() {
    for (parity, data, spares, sides, ashift) in [(1, 3, 1, 6, 9), (2, 4, 1, 8, 12), (3, 2, 0, 5, 9)] {
        let mut rig = Rig::create_draid(Layout { parity, sides, ashift, bytes: SIZE, ..Layout::default() }, DraidColumns { data, spares }, &[]);
        let what = format!("draid{parity}:{data}d:{sides}c:{spares}s");
        (1..4).for_each(|seed| work(&mut rig, seed));
        judge(&mut rig, &what);
        (4..6).for_each(|seed| work(&mut rig, seed));
        judge(&mut rig, &what);
        rig.export();
        for gone in 0..sides {
            let set: Vec<usize> = (0..parity as usize).map(|next| (gone + 2 * next) % sides).collect();
            without(&mut rig, &set, &what);
        }
        rig.import();
        rig.compare(&what);
    }
}

/// OpenZFS began, and stopped in the middle: the rest is done here, and nothing of what the manifest has is another.
#[test]
fn an_expansion_that_openzfs_began_is_finished() {
    let Some(mut rig) = Rig::golden("expand-part") else { return places::skipped("golden pool expand-part: not found") };
    let width = rig.pool().engine().vdevs.tops()[0].leaves().len();
    wait(&rig, "expand-part");
    let top = rig.pool().engine().vdevs.tops()[0].config();
    assert_eq!((top.is_expanding(), top.expansions().len(), top.children.len()), (false, 1, width));
    assert_eq!(rig.pool().engine().uberblock().raidz_reflow.0, 0);
    rig.export();
    let golden = rig.golden_pool();
    let pool = open_images(&golden.images).expect("the pool opens");
    let report = compare(pool.as_ref(), &golden.manifest, Compare::STRICT).expect("it can be compared");
    // Groups were written since: what is used is the pool's own affair.
    let is_told = |difference: &&String| !difference.contains("property used ") && !difference.contains("property compressratio ");
    let differences: Vec<&String> = report.differences.iter().filter(is_told).collect();
    assert!(differences.is_empty(), "{differences:?}");
    drop(pool);
    rig.check("expand-part, finished");
    rig.zdb("expand-part, finished", true);
}
