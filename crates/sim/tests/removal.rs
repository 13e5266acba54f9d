//! Removal of vdevs that hold data: whatever happens meanwhile, files and snapshots are what they should be; after each step, crashes among them, our checker and the real `zdb`,
//! which counts every byte of the maps, find nothing wrong.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use engine::error::ErrorKind;
use engine::pool::{Beside, Stopped};
use engine::tunables::{Parameter, Tunables};
use engine::vdev::label::DeviceLabels;
use engine::vdev::{NewLeaf, TopVdev, VdevKind};
use ondisk::feature::Feature;
use ondisk::indirect::{REMOVAL_ACTIVE, REMOVAL_CANCELED, REMOVAL_FINISHED};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::golden::{Compare, compare, open_images};
use sim::places;
use sim::scenario::{Layout, Rig, contents};
use tarnfs::{ImportOptions, Pool, VdevPaths};

const LAYOUTS: [Layout; 3] = [
    Layout { tops: 2, sides: 1, parity: 0, bytes: 256 << 20, ashift: 9 },
    Layout { tops: 3, sides: 2, parity: 0, bytes: 96 << 20, ashift: 12 },
    Layout { tops: 4, sides: 1, parity: 0, bytes: 256 << 20, ashift: 12 },
];
const FILES: u64 = 40;
/// A removal of pools as small as these takes no longer.
const PATIENCE: Duration = Duration::from_secs(60);

fn seed() -> u64 {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    places::say(&format!("removal: TARN_SEED={seed}"));
    seed
}

/// A group is written only when somebody asks for it, and copies so many bytes.
fn stepwise(bytes: u64) -> Tunables {
    let tunables = Tunables { scan_hastens: false, txg_timeout_ns: u64::MAX / 4, ..Tunables::default() };
    tunables.parameters.set(Parameter::RemoveMaxCopyBytes, &bytes.to_string()).unwrap();
    tunables.parameters.set(Parameter::RemoveMaxSegment, &bytes.min(16 << 20).to_string()).unwrap();
    tunables
}

fn name(number: u64) -> String {
    format!("f{number}")
}

/// Files of many sizes, of which some are gone again: what is free lies between what is in use.
fn fill(rig: &mut Rig, seed: u64) {
    for number in 0..FILES {
        rig.actor("tank").file(&name(number), &contents(seed + number, 1000 + 14_000 * number as usize, number as u8 % 3));
        rig.actor("tank").file(&format!("gone{number}"), &contents(seed + number, 3000 * (number as usize % 7 + 1), 0));
        if number % 10 == 0 {
            rig.sync();
        }
    }
    rig.sync();
    (0..FILES).for_each(|number| rig.actor("tank").unlink(&format!("gone{number}")));
    rig.sync();
}

/// Files are written over, removed and made again.
fn disturb(rig: &mut Rig, random: &mut ChaCha8Rng, steps: u64) {
    for _ in 0..steps {
        let chosen = name(random.random_range(0..FILES));
        let seed = random.random();
        let mut actor = rig.actor("tank");
        match (actor.model.find(&chosen), random.random_range(0..4)) {
            (None, _) => actor.file(&chosen, &contents(seed, random.random_range(1..300_000), 0)),
            (Some(_), 0) => actor.unlink(&chosen),
            (Some(_), 1) => actor.truncate(&chosen, random.random_range(0..100_000)),
            (Some(_), _) => actor.write(&chosen, random.random_range(0..200_000), &contents(seed, random.random_range(1..200_000), 0)),
        }
    }
    rig.sync();
}

fn tops(rig: &Rig) -> Vec<std::sync::Arc<TopVdev>> {
    rig.pool().engine().vdevs.data_tops()
}

/// A vdev begins to go: its number, and its devices.
fn remove(rig: &Rig, at: usize) -> Going {
    let top = tops(rig)[at].clone();
    rig.pool().engine().remove_top(top.guid()).unwrap_or_else(|error| panic!("vdev {}: {error}", top.id()));
    Going { vdev: top.id(), ashift: top.ashift(), images: top.leaves().iter().map(|leaf| leaf.name().into()).collect() }
}

struct Going {
    vdev: u64,
    ashift: u32,
    images: Vec<PathBuf>,
}

fn state(rig: &Rig) -> u64 {
    rig.pool().engine().last_removal().expect("the MOS").map_or(0, |removal| removal.phys.state)
}

fn group(rig: &Rig) {
    rig.pool().engine().write_group().expect("a group");
}

/// Groups are written until the removal is over. The devices are nobody's then.
fn finish(rig: &Rig, going: &Going, what: &str) {
    let begun = Instant::now();
    while rig.pool().engine().is_removing() {
        assert!(begun.elapsed() < PATIENCE, "{what}: the removal does not end: {:?}", rig.pool().engine().last_removal());
        group(rig);
    }
    // A group that began by itself may have ended it, and not be on disk.
    group(rig);
    let top = rig.pool().engine().vdevs.top(going.vdev).expect("its number is taken");
    assert_eq!(top.kind(), VdevKind::Indirect, "{what}");
    rig.pool().engine().vdevs.departures().wait();
    for image in &going.images {
        let disk = disk::open(&image.display().to_string(), disk::Access::Inspect).expect("the image");
        let labels = DeviceLabels::read(&*disk);
        let left = labels.newest_config().and_then(|config| config.u64("txg"));
        assert!(left == Some(0) && labels.uberblocks(going.ashift).is_empty(), "{what}: the labels of {} do not say that it left", image.display());
        std::fs::remove_file(image).expect("the image");
    }
}

fn destroy(rig: &Rig, snapshot: &str) {
    let refused = rig.pool().engine().dsl.snapshot_verbs().destroy_snapshots(vec![snapshot.to_owned()], false).expect("to destroy it");
    assert!(refused.is_empty(), "{refused:?}");
}

fn is_indirect(rig: &Rig, vdev: u64) -> bool {
    rig.pool().engine().vdevs.top(vdev).is_some_and(|top| top.kind() == VdevKind::Indirect)
}

#[test]
fn a_vdev_goes_under_files() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    for (number, layout) in LAYOUTS.into_iter().enumerate() {
        let what = format!("layout {number}");
        let mut rig = Rig::create_with(layout, &[], stepwise(128 << 10));
        fill(&mut rig, number as u64 * 1000);
        rig.pool().take_snapshots(vec!["tank@before".to_owned()]).expect("a snapshot");
        disturb(&mut rig, &mut random, 20);
        let going = remove(&rig, number % layout.tops);
        assert_eq!(state(&rig), REMOVAL_ACTIVE);
        rig.judge(&format!("{what}: begun"));
        let mut groups = 0;
        while rig.pool().engine().is_removing() {
            match groups % 6 {
                1 => disturb(&mut rig, &mut random, 4),
                3 => {
                    rig.sync();
                    if !rig.pool().engine().is_removing() {
                        break;
                    }
                    rig.judge_crash(&format!("{what}: crashed after {groups} groups"));
                    rig.compare(&format!("{what}: crashed after {groups} groups"));
                }
                5 => rig.judge(&format!("{what}: after {groups} groups")),
                _ => group(&rig),
            }
            groups += 1;
            assert!(groups < 500, "{what}: it does not end: {:?}", rig.pool().engine().last_removal());
        }
        finish(&rig, &going, &what);
        assert!(groups > 4 && state(&rig) == REMOVAL_FINISHED, "{what}: {groups} groups");
        let removal = rig.pool().engine().last_removal().expect("the MOS").expect("a removal");
        assert_eq!(removal.phys.copied, removal.phys.to_copy, "{what}");
        assert!(removal.map_bytes > 24, "{what}: {removal:?}");
        rig.judge_crash(&format!("{what}: gone, crashed"));
        rig.judge_thoroughly(&format!("{what}: gone"));
        disturb(&mut rig, &mut random, 40);
        rig.judge(&format!("{what}: lived on"));
        destroy(&rig, "tank@before");
        disturb(&mut rig, &mut random, 10);
        rig.judge_thoroughly(&format!("{what}: without the snapshot"));
        places::say(&format!("removal: {what}: {groups} groups, {} bytes copied, a map of {} bytes", removal.phys.copied, removal.map_bytes));
    }
}

/// Nothing is left of a removal that is given up, wherever it is; and the vdev can be removed then.
#[test]
fn a_removal_is_given_up() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    for (number, layout) in LAYOUTS.into_iter().enumerate() {
        let what = format!("layout {number}");
        let mut rig = Rig::create_with(layout, &[], stepwise(64 << 10));
        fill(&mut rig, number as u64 * 1000);
        let count = |rig: &Rig, feature| rig.pool().engine().dsl.meta.features.count(feature);
        for groups in [0, 2, 5] {
            let error = rig.pool().engine().cancel_removal().expect_err("there is none");
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            let going = remove(&rig, 0);
            for _ in 0..groups {
                group(&rig);
                disturb(&mut rig, &mut random, 2);
            }
            if groups == 5 {
                rig.judge_crash(&format!("{what}: crashed before it is given up"));
            }
            rig.pool().engine().cancel_removal().expect("to give it up");
            assert!(state(&rig) == REMOVAL_CANCELED && !is_indirect(&rig, going.vdev), "{what}");
            assert_eq!((count(&rig, Feature::DeviceRemoval), count(&rig, Feature::ObsoleteCounts)), (Some(0), Some(0)), "{what}");
            rig.judge_crash(&format!("{what}: given up after {groups} groups, crashed"));
            disturb(&mut rig, &mut random, 10);
            rig.judge(&format!("{what}: given up after {groups} groups"));
        }
        let going = remove(&rig, 0);
        finish(&rig, &going, &what);
        rig.judge_thoroughly(&format!("{what}: gone at last"));
    }
}

/// All vdevs but one go, one after the other: addresses lead through several maps.
#[test]
fn vdevs_go_one_after_the_other() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let mut rig = Rig::create_with(LAYOUTS[2], &[], stepwise(4 << 20));
    fill(&mut rig, 7);
    rig.pool().take_snapshots(vec!["tank@a".to_owned()]).expect("a snapshot");
    for left in (1..4).rev() {
        let what = format!("{left} left");
        let going = remove(&rig, random.random_range(0..=left));
        finish(&rig, &going, &what);
        assert_eq!(tops(&rig).len(), left, "{what}");
        disturb(&mut rig, &mut random, 15);
        rig.judge_crash(&format!("{what}, crashed"));
        rig.compare(&what);
        rig.judge_thoroughly(&what);
    }
    let error = rig.pool().engine().remove_top(tops(&rig)[0].guid()).expect_err("the last one");
    assert!(matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Invalid), "{error}");
    destroy(&rig, "tank@a");
    (0..FILES).for_each(|number| {
        let mut actor = rig.actor("tank");
        if actor.model.find(&name(number)).is_some() {
            actor.unlink(&name(number));
        }
    });
    rig.sync();
    rig.judge_thoroughly("all files are gone");
}

/// Free space is in small pieces only: what was one range goes to many places.
#[test]
fn room_in_small_pieces_is_enough() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let mut rig = Rig::create_with(LAYOUTS[1], &[("recordsize", "128K")], stepwise(1 << 30));
    fill(&mut rig, 3);
    rig.pool().engine().context.io.allocator().faults.fragment(20 << 10);
    let going = remove(&rig, 1);
    finish(&rig, &going, "small pieces");
    rig.pool().engine().context.io.allocator().faults.fragment(0);
    let runs = rig.pool().engine().vdevs.top(going.vdev).and_then(|top| top.map()).map_or(0, |map| map.runs());
    assert!(runs > 50, "{runs} runs");
    disturb(&mut rig, &mut random, 30);
    rig.judge_thoroughly("small pieces");
}

/// The maps get shorter when little of them is needed; so does one that was stopped in the middle.
#[test]
fn maps_are_condensed() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    for delay in [0, 1] {
        let what = format!("a delay of {delay}");
        let tunables = stepwise(1 << 30);
        for (parameter, value) in [(Parameter::CondenseMinMappingBytes, 0), (Parameter::CondenseObsoletePercent, 5), (Parameter::RemovalMaxSpan, 0), (Parameter::CondenseEntryDelay, delay)] {
            tunables.parameters.set(parameter, &value.to_string()).unwrap();
        }
        let mut rig = Rig::create_with(LAYOUTS[1], &[("compression", "off")], tunables.clone());
        fill(&mut rig, 3);
        tunables.parameters.set(Parameter::RemoveMaxSegment, "16384").unwrap();
        let going = remove(&rig, 1);
        finish(&rig, &going, &what);
        let runs = |rig: &Rig| rig.pool().engine().vdevs.top(going.vdev).and_then(|top| top.map()).map_or(0, |map| map.runs());
        let before = runs(&rig);
        (0..FILES / 2).for_each(|number| rig.actor("tank").unlink(&name(number * 2)));
        rig.sync();
        for step in 0..12 {
            group(&rig);
            if step % 4 == 3 {
                rig.judge_crash(&format!("{what}: crashed after {step} groups"));
            }
            disturb(&mut rig, &mut random, 1);
        }
        rig.judge(&format!("{what}: half-way"));
        let begun = Instant::now();
        while runs(&rig) == before && begun.elapsed() < PATIENCE {
            group(&rig);
        }
        let after = runs(&rig);
        assert!(after < before, "{what}: {before} runs before, {after} now");
        rig.judge_thoroughly(&format!("{what}: condensed"));
        places::say(&format!("removal: {what}: {before} runs became {after}"));
    }
}

/// What one side of the old mirror alone has right is right on one side of the new one, too.
#[test]
fn sides_of_a_mirror_are_copied_each_by_itself() {
    let mut rig = Rig::create_with(LAYOUTS[1], &[("compression", "off")], stepwise(1 << 30));
    fill(&mut rig, 3);
    rig.export();
    // Data of one side of the first vdev is something else now; the labels are left alone.
    let image = &rig.images()[1];
    let file = std::fs::OpenOptions::new().write(true).open(image).expect("an image");
    std::os::unix::fs::FileExt::write_all_at(&file, &contents(9, 60 << 20, 0), 5 << 20).expect("harm");
    drop(file);
    rig.import();
    let going = remove(&rig, 0);
    finish(&rig, &going, "a damaged side");
    rig.compare("a damaged side");
    rig.pool().engine().scrub(false).expect("a scrub");
    let begun = Instant::now();
    while rig.pool().engine().is_scanning() && begun.elapsed() < PATIENCE {
        group(&rig);
    }
    let progress = rig.pool().engine().scan_progress().expect("a scrub");
    assert_eq!(progress.record.errors, 0, "{progress:?}");
    rig.judge_thoroughly("a damaged side, scrubbed");
}

/// A side that was away while things were copied to its mirror gets them in a resilver, before the vdev is gone or after that.
#[test]
fn a_side_that_was_away_gets_what_was_copied_meanwhile() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    for ends_first in [false, true] {
        let what = format!("the removal ends first: {ends_first}");
        let mut rig = Rig::create_with(LAYOUTS[1], &[("compression", "off")], stepwise(64 << 10));
        fill(&mut rig, 5);
        let going = remove(&rig, 0);
        group(&rig);
        let images = rig.images();
        let away: Vec<(u64, &std::path::PathBuf)> = [3, 5].map(|at: usize| {
            let leaves = rig.pool().engine().vdevs.leaves();
            let leaf = leaves.iter().find(|leaf| std::path::Path::new(leaf.name()) == images[at]).expect("a side");
            (leaf.guid(), &images[at])
        }).into();
        for (guid, _) in &away {
            rig.pool().engine().stop_device(*guid, Stopped::Offline, false).expect("offline");
        }
        (0..3).for_each(|_| group(&rig));
        disturb(&mut rig, &mut random, 3);
        if ends_first {
            finish(&rig, &going, &what);
        }
        rig.judge(&format!("{what}: sides are away"));
        for (guid, path) in &away {
            let disk = disk::open(&path.display().to_string(), disk::Access::Write).expect("an image");
            rig.pool().engine().online_device(*guid, Some(disk), false).expect("online");
        }
        let begun = Instant::now();
        while rig.pool().engine().vdevs.leaves().iter().any(|leaf| leaf.is_behind()) {
            assert!(begun.elapsed() < PATIENCE, "{what}: the resilver does not end");
            group(&rig);
        }
        places::say(&format!("removal: {what}: when all sides have everything, it goes on: {}", rig.pool().engine().is_removing()));
        if !ends_first {
            finish(&rig, &going, &what);
        }
        rig.judge_thoroughly(&what);
        // The sides that were away alone have everything.
        rig.export();
        let place = tempfile::tempdir().expect("a place");
        for (_, image) in &away {
            let copied = std::process::Command::new("cp").arg("--sparse=always").arg(image).arg(place.path()).status();
            assert!(copied.is_ok_and(|status| status.success()));
        }
        let options = ImportOptions { read_only: true, force: true, ..ImportOptions::default() };
        let pool = Pool::import(&[place.path().to_owned()], "tank", options).unwrap_or_else(|error| panic!("{what}: {error}"));
        let report = pool.check(true, &|_| ()).expect("a check");
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
        pool.export().expect("nothing to write");
        rig.import();
        rig.compare(&what);
    }
}

#[test]
fn what_cannot_be_removed_stays() {
    let new_leaf = |rig: &Rig| {
        let path = rig.images()[0].with_file_name("new.img");
        std::fs::File::create(&path).and_then(|file| file.set_len(96 << 20)).expect("an image");
        NewLeaf { disk: disk::open(&path.display().to_string(), disk::Access::Write).expect("an image"), path: path.display().to_string(), whole_disk: false }
    };
    let refusal = |rig: &Rig, at: usize| rig.pool().engine().remove_top(tops(rig)[at].guid()).expect_err("a refusal").kind();
    let raidz = Rig::create(Layout { tops: 2, sides: 3, parity: 1, bytes: 96 << 20, ashift: 12 }, &[]);
    assert_eq!(refusal(&raidz, 0), ErrorKind::Invalid);
    let one = Rig::create(Layout { bytes: 96 << 20, ..Layout::default() }, &[]);
    assert_eq!(refusal(&one, 0), ErrorKind::NoSpace);
    let mut full = Rig::create(LAYOUTS[0], &[("compression", "off")]);
    for number in 0..15 {
        full.actor("tank").file(&name(number), &contents(number, 10 << 20, 0));
        full.sync();
    }
    assert_eq!(refusal(&full, 1), ErrorKind::NoSpace);
    full.judge("full");
    let mut rig = Rig::create_with(Layout { tops: 4, bytes: 128 << 20, ..LAYOUTS[1] }, &[], stepwise(64 << 10));
    fill(&mut rig, 1);
    let engine = rig.pool().engine().clone();
    engine.take_checkpoint().expect("a checkpoint");
    assert_eq!(refusal(&rig, 0), ErrorKind::Exists);
    engine.discard_checkpoint().expect("discard");
    while engine.checkpoint().expect("the MOS").is_some() {
        group(&rig);
    }
    assert_eq!(engine.remove_top(1).expect_err("no vdev").kind(), ErrorKind::NotSupported);
    let side = tops(&rig)[0].leaves()[0].guid();
    assert_eq!(engine.remove_top(side).expect_err("a side").kind(), ErrorKind::NotSupported);
    let mut going = remove(&rig, 0);
    assert_eq!((refusal(&rig, 0), refusal(&rig, 1)), (ErrorKind::Conflict, ErrorKind::Busy));
    assert_eq!(engine.take_checkpoint().expect_err("it is going").kind(), ErrorKind::Busy);
    let other = tops(&rig)[1].leaves()[0].guid();
    assert_eq!(engine.attach_device(other, new_leaf(&rig), Beside::Mirror, None).expect_err("it is going").kind(), ErrorKind::Busy);
    std::fs::remove_file(rig.images()[0].with_file_name("new.img")).expect("the image");
    // One side may go, of the vdev that goes too.
    engine.detach_device(side).expect("a side goes");
    drop(engine);
    std::fs::remove_file(going.images.remove(0)).expect("the image");
    finish(&rig, &going, "with one side");
    rig.judge("with one side");
}

/// A pool whose vdev OpenZFS removed: another one is removed here.
#[test]
fn a_pool_that_openzfs_removed_a_vdev_from_loses_another() {
    let Some(mut rig) = Rig::golden("remove") else { return places::skipped("golden pool remove: not found") };
    assert!(matches!(rig.pool().engine().remove_top(tops(&rig)[0].guid()).expect_err("the last one").kind(), ErrorKind::NoSpace | ErrorKind::Invalid));
    let added = rig.images()[0].with_file_name("added.img");
    std::fs::File::create(&added).and_then(|file| file.set_len(512 << 20)).expect("an image");
    rig.pool().add_vdevs(&[VdevPaths { paths: vec![added.clone()], ..VdevPaths::default() }], Some(12), false).expect("to add it");
    let going = remove(&rig, 0);
    finish(&rig, &going, "golden");
    for _ in 0..3 {
        group(&rig);
    }
    assert!(is_indirect(&rig, 1));
    rig.export();
    let golden = rig.golden_pool();
    let pool = open_images(&[&added]).expect("the pool opens");
    let report = compare(pool.as_ref(), &golden.manifest, Compare::STRICT).expect("it can be compared");
    let is_told = |difference: &&String| !difference.contains("property used ") && !difference.contains("property compressratio ");
    let differences: Vec<&String> = report.differences.iter().filter(is_told).collect();
    assert!(differences.is_empty(), "{differences:?}");
    drop(pool);
    rig.check("golden, removed");
    sim::oracle::zdb_check(&[&added]).expect_clean("golden, removed");
}
