//! Devices that are attached, replaced, detached, offline and online while files are written: the files are what they should be, real zdb finds nothing
//! wrong after each step, and where a resilver has ended each side alone has everything.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::pool::{Beside, Stopped};
use engine::tunables::{Parameter, Tunables};
use engine::vdev::{NewLeaf, VdevConfig, VdevKind, VdevState};
use sim::{oracle, places};
use sim::scenario::{Layout, Rig, contents};
use tarnfs::{ImportOptions, Pool, Rewind};

const SIZE: u64 = 96 << 20;
/// A resilver of pools as small as these takes no longer.
const PATIENCE: Duration = Duration::from_secs(60);

fn layout(sides: usize) -> Layout {
    Layout { sides, bytes: SIZE, ashift: 9, ..Layout::default() }
}

fn new_disk(rig: &Rig, name: &str, size: u64) -> (PathBuf, NewLeaf) {
    let path = rig.images()[0].with_file_name(name);
    File::create(&path).and_then(|file| file.set_len(size)).expect("an image");
    let disk = disk::open(&path.display().to_string(), disk::Access::Write).expect("the image");
    let leaf = NewLeaf { disk, path: path.display().to_string(), whole_disk: false };
    (path, leaf)
}

fn guid_of(rig: &Rig, path: &Path) -> u64 {
    let leaves = rig.pool().engine().vdevs.leaves();
    leaves.iter().find(|leaf| Path::new(leaf.name()) == path).unwrap_or_else(|| panic!("{} is in the pool", path.display())).guid()
}

/// Files that are written in several groups.
fn work(rig: &mut Rig, seed: u64) {
    for number in 0..6 {
        let name = format!("f{seed}-{number}");
        rig.actor("tank").file(&name, &contents(seed * 100 + number, 200_000, 0));
        if number % 2 == 0 {
            rig.sync();
        }
    }
    rig.actor("tank").write(&format!("f{seed}-1"), 5000, &contents(seed, 70_000, 1));
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

fn has(config: &VdevConfig, kind: &VdevKind) -> bool {
    config.kind == *kind || config.children.iter().any(|child| has(child, kind))
}

/// Waits until nobody is behind, and no device is being replaced.
fn wait(rig: &Rig, what: &str) {
    let begun = Instant::now();
    let engine = rig.pool().engine();
    while has(&engine.vdevs.config(), &VdevKind::Replacing) || engine.vdevs.leaves().iter().any(|leaf| leaf.is_open() && leaf.is_behind()) {
        assert!(begun.elapsed() < PATIENCE, "{what}: the resilver does not end: {:?}", engine.vdevs.status());
        std::thread::sleep(Duration::from_millis(50));
    }
    rig.sync();
}

/// Each of these images alone holds everything.
fn each_alone(rig: &mut Rig, images: &[PathBuf], what: &str) {
    rig.export();
    for image in images {
        let place = tempfile::tempdir().expect("a place");
        let copy = place.path().join(image.file_name().expect("a name"));
        let copied = std::process::Command::new("cp").arg("--sparse=always").arg(image).arg(&copy).status();
        assert!(copied.is_ok_and(|status| status.success()));
        let options = ImportOptions { read_only: true, force: true, ..ImportOptions::default() };
        let pool = Pool::import(&[place.path().to_owned()], "tank", options).unwrap_or_else(|error| panic!("{what}: {} alone: {error}", image.display()));
        let report = pool.check(true, &|_| ()).expect("a check");
        assert!(report.is_clean(), "{what}: {} alone: {:?}", image.display(), report.findings);
        pool.export().expect("nothing to write");
    }
    rig.import();
    rig.compare(what);
}

#[test]
fn a_disk_becomes_a_mirror_of_three_and_goes_on_with_the_last() {
    let mut rig = Rig::create(layout(1), &[]);
    work(&mut rig, 1);
    let first = rig.images()[0].clone();
    let (second, leaf) = new_disk(&rig, "e1.img", SIZE);
    rig.pool().engine().attach_device(guid_of(&rig, &first), leaf, Beside::Mirror, None).expect("attach");
    work(&mut rig, 2);
    judge(&mut rig, "attached");
    wait(&rig, "attached");
    each_alone(&mut rig, &[first.clone(), second.clone()], "a mirror");
    let (third, leaf) = new_disk(&rig, "e2.img", SIZE);
    rig.pool().engine().attach_device(guid_of(&rig, &second), leaf, Beside::Mirror, None).expect("attach");
    work(&mut rig, 3);
    wait(&rig, "three");
    each_alone(&mut rig, &[first.clone(), second.clone(), third.clone()], "three");
    for gone in [&first, &second] {
        rig.pool().engine().detach_device(guid_of(&rig, gone)).expect("detach");
        work(&mut rig, if *gone == first { 4 } else { 5 });
    }
    let leaves = rig.pool().engine().vdevs.leaves();
    assert_eq!((leaves.len(), leaves[0].name()), (1, third.to_str().unwrap()));
    std::fs::remove_file(&first).unwrap();
    std::fs::remove_file(&second).unwrap();
    judge(&mut rig, "the last");
}

/// How the devices of an older state are when one looks at it.
fn states_in(rig: &Rig, txg: u64, tunables: &Tunables) -> Vec<(VdevKind, VdevState)> {
    let options = ImportOptions { read_only: true, force: true, rewind: Rewind::To(txg), tunables: Some(tunables.clone()), ..ImportOptions::default() };
    let directory = rig.images()[0].parent().expect("a directory").to_owned();
    let pool = Pool::import(&[directory], "tank", options).expect("an older state");
    let states = pool.engine().vdevs.tops().iter().flat_map(|top| top.leaves().into_iter().map(|leaf| (top.kind(), leaf.state()))).collect();
    pool.export().expect("nothing to write");
    states
}

/// The side that stays takes the guid of the mirror. Where one goes back to when it was a side it is known by its place; and a disk that was a disk all the time, if the tunable for that says so.
#[test]
fn a_side_that_stayed_is_known_by_those_who_go_back() {
    let tunables = Tunables::default();
    let mut rig = Rig::create(layout(1), &[]);
    work(&mut rig, 1);
    let alone = rig.pool().engine().uberblock().txg;
    let first = rig.images()[0].clone();
    let (second, leaf) = new_disk(&rig, "e1.img", SIZE);
    rig.pool().engine().attach_device(guid_of(&rig, &first), leaf, Beside::Mirror, None).expect("attach");
    wait(&rig, "attached");
    let beside = rig.pool().engine().uberblock().txg;
    rig.pool().engine().detach_device(guid_of(&rig, &second)).expect("detach");
    rig.sync();
    rig.export();
    let online = |kind: VdevKind, count| vec![(kind, VdevState::Online); count];
    assert_eq!(states_in(&rig, beside, &tunables), online(VdevKind::Mirror, 2));
    tunables.parameters.set(Parameter::ValidateSkip, "1").expect("a value");
    assert_eq!(states_in(&rig, alone, &tunables), online(VdevKind::File, 1));
    std::fs::remove_file(&second).unwrap();
    rig.import();
    judge(&mut rig, "nothing was written");
}

#[test]
fn a_device_is_replaced_under_files() {
    for sides in [1, 2] {
        let mut rig = Rig::create(layout(sides), &[]);
        work(&mut rig, 1);
        let old = rig.images()[sides - 1].clone();
        let (new, leaf) = new_disk(&rig, "e1.img", SIZE);
        rig.pool().engine().attach_device(guid_of(&rig, &old), leaf, Beside::Replacement, None).expect("replace");
        work(&mut rig, 2);
        rig.compare("replacing");
        wait(&rig, "replacing");
        work(&mut rig, 3);
        assert!(rig.pool().engine().vdevs.leaves().iter().all(|leaf| Path::new(leaf.name()) != old));
        each_alone(&mut rig, &[new], "replaced");
        std::fs::remove_file(&old).unwrap();
        judge(&mut rig, "replaced");
    }
}

#[test]
fn a_device_that_was_offline_gets_what_it_missed() {
    let mut rig = Rig::create(layout(2), &[]);
    work(&mut rig, 1);
    let images = rig.images();
    let away = guid_of(&rig, &images[1]);
    rig.pool().engine().stop_device(away, Stopped::Offline, false).expect("offline");
    work(&mut rig, 2);
    judge(&mut rig, "offline");
    assert_eq!(rig.pool().engine().vdevs.leaves()[1].state(), VdevState::Offline);
    work(&mut rig, 3);
    let disk = disk::open(&images[1].display().to_string(), disk::Access::Write).expect("the image");
    assert_eq!(rig.pool().engine().online_device(away, Some(disk), false).expect("online"), VdevState::Online);
    work(&mut rig, 4);
    rig.compare("online");
    wait(&rig, "online");
    each_alone(&mut rig, &images, "online");
    judge(&mut rig, "online");
}

/// OpenZFS left a spare in the place of a device: either goes.
#[test]
fn a_spare_of_openzfs_goes_back_or_stays() {
    for goes in [VdevKind::Spare, VdevKind::Disk] {
        let Some(mut rig) = Rig::golden("spare") else { return places::skipped("golden pool spare: not found") };
        let engine = rig.pool().engine().clone();
        let group = engine.vdevs.config().children[0].children[1].clone();
        assert_eq!((&group.kind, group.children.len()), (&VdevKind::Spare, 2));
        let (first, spare) = (group.children[0].guid, group.children[1].guid);
        assert!(engine.auxiliary().unwrap().find(spare).is_some());
        engine.detach_device(if goes == VdevKind::Spare { spare } else { first }).expect("detach");
        let what = format!("detached: {goes}");
        let left = engine.vdevs.config().children[0].children[1].clone();
        assert_eq!((left.children.len(), left.guid), (0, if goes == VdevKind::Spare { first } else { spare }), "{what}");
        assert_eq!(engine.auxiliary().unwrap().find(spare).is_some(), goes == VdevKind::Spare, "{what}");
        drop(engine);
        rig.export();
        rig.check(&what);
        let images = rig.images();
        let images: Vec<&Path> = images.iter().map(PathBuf::as_path).filter(|image| goes == VdevKind::Spare || !image.ends_with("d1.img")).collect();
        oracle::zdb_check(&images).expect_clean(&what);
    }
}
