//! Devices that come and go in pools in memory. What a resilver does, a copy of the device does here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::{Disk, DiskRef, MemDisk};
use ondisk::label;

use super::caught_up::caught_up;
use super::in_one_group;
use crate::error::ErrorKind;
use crate::host::RealHost;
use crate::pool::check::CheckOptions;
use crate::pool::import::{discover, select};
use crate::pool::{Beside, Fill, NewPool, OpenOptions, Pool, Stopped};
use crate::tunables::{Parameter, Tunables};
use crate::vdev::label::DeviceLabels;
use crate::vdev::{NewLeaf, NewTop, Reason, VdevKind, VdevState, key};

const SIZE: u64 = 96 << 20;

fn disk(name: &str) -> Arc<MemDisk> {
    Arc::new(MemDisk::new(format!("/{name}"), SIZE))
}

fn leaf(disk: &Arc<MemDisk>) -> NewLeaf {
    NewLeaf { disk: disk.clone(), path: disk.name().to_owned(), whole_disk: false }
}

/// No resilver gets on here: what one does is done by hand, when the test wants it.
fn options(read_only: bool) -> OpenOptions {
    let tunables = Tunables { scan_hastens: false, ..Tunables::default() };
    tunables.parameters.set(Parameter::ScanSuspendProgress, "1").unwrap();
    OpenOptions { host: RealHost::shared(), tunables, read_only, file_owner: None, new_name: None, forget_log: false }
}

fn new_pool(disks: &[Arc<MemDisk>]) -> NewPool {
    NewPool {
        name: "tank".into(),
        vdevs: vec![NewTop { leaves: disks.iter().map(leaf).collect(), ashift: Some(9), ..NewTop::default() }],
        features: ondisk::feature::Feature::for_new_pools().collect(),
        properties: Vec::new(),
        fill: Box::new(|_, _| Ok(())),
        command: "zpool create tank".into(),
        configure: Box::new(|_| ()),
    }
}

fn pool_on(disks: &[Arc<MemDisk>]) -> Arc<Pool> {
    Pool::create(new_pool(disks), options(false)).unwrap()
}

fn open(disks: &[&Arc<MemDisk>], read_only: bool) -> Arc<Pool> {
    let candidates = discover(disks.iter().map(|disk| (*disk).clone() as DiskRef).collect());
    Pool::open(select(&candidates, "tank", false).unwrap(), options(read_only)).unwrap()
}

fn check(pool: &Pool, what: &str) {
    let report = pool.check(CheckOptions { verify_data: true, ..CheckOptions::default() }, &|_| ()).unwrap();
    assert!(report.is_clean(), "{what}: {:?}", report.findings);
}

/// The txg in a device's labels.
fn left(disk: &Arc<MemDisk>) -> Option<u64> {
    DeviceLabels::read(&**disk).newest_config()?.u64("txg")
}

fn guids(pool: &Pool) -> Vec<u64> {
    pool.vdevs.leaves().iter().map(|leaf| leaf.guid()).collect()
}

/// Groups with something in them.
fn write(pool: &Pool, groups: usize) {
    for group in 0..groups {
        pool.change_config(|config| config.comment = Some(format!("group {group}").as_str().into()));
        pool.sync_all().unwrap();
    }
}

/// What a resilver does: the second device gets all that the first one has, and nobody has missed anything.
fn resilver(pool: &Pool, from: &Arc<MemDisk>, to: &Arc<MemDisk>) {
    let (from, to, vdevs) = (from.clone(), to.clone(), pool.vdevs.clone());
    in_one_group(pool.groups(), move |writer, tx| {
        let mut bytes = vec![0; 1 << 20];
        let mut at = label::START_BYTES;
        while at < SIZE - label::END_BYTES {
            let length = (SIZE - label::END_BYTES - at).min(bytes.len() as u64) as usize;
            from.read_at(&mut bytes[..length], at).unwrap();
            to.write_at(&bytes[..length], at).unwrap();
            at += length as u64;
        }
        vdevs.leaves().iter().filter(|leaf| leaf.is_open()).for_each(|leaf| leaf.set_behind(false));
        caught_up(writer.layers(), writer.configuration(), tx)?;
        Ok(Ok(()))
    })
    .unwrap();
    pool.vdevs.departures().wait();
}

#[test]
fn a_disk_becomes_a_mirror_and_the_other_disk_goes_on_alone() {
    let (a, b) = (disk("a"), disk("b"));
    let pool = pool_on(std::slice::from_ref(&a));
    write(&pool, 2);
    let first = guids(&pool)[0];
    assert_eq!(pool.detach_device(first).unwrap_err().kind(), ErrorKind::Unsupported);
    pool.attach_device(first, leaf(&b), Beside::Mirror, None).unwrap();
    assert_eq!((pool.vdevs.tops()[0].kind(), pool.vdevs.leaves().len()), (VdevKind::Mirror, 2));
    write(&pool, 2);
    let described = pool.vdevs.config();
    let new = &described.children[0].children[1];
    assert!(new.number(key::DTL) != 0 && new.number(key::LEAF_ZAP) != 0 && new.number(key::RESILVER_TXG) != 0);
    assert_eq!(pool.detach_device(first).unwrap_err().kind(), ErrorKind::Busy, "the new one has not everything");
    check(&pool, "attached");
    pool.export().unwrap();
    // What it missed is known to the next import.
    let pool = open(&[&a, &b], false);
    assert_eq!(pool.vdevs.leaves().iter().map(|leaf| leaf.is_behind()).collect::<Vec<_>>(), [false, true]);
    resilver(&pool, &a, &b);
    assert_eq!(pool.vdevs.config().children[0].children[1].get(key::RESILVER_TXG), None);
    pool.detach_device(first).unwrap();
    let top = pool.vdevs.tops()[0].clone();
    assert_eq!((top.kind(), top.guid(), top.leaves()[0].guid(), top.leaves()[0].name()), (VdevKind::File, described.children[0].guid, top.guid(), "/b"));
    assert_eq!(left(&a), Some(0), "the labels say that it left");
    write(&pool, 2);
    check(&pool, "detached");
    pool.export().unwrap();
    let pool = open(&[&b], true);
    check(&pool, "the other one alone");
    assert_eq!(pool.vdevs.state(), VdevState::Online);
}

#[test]
fn a_device_is_replaced() {
    let disks: Vec<Arc<MemDisk>> = ["a", "b", "c"].map(disk).into();
    let pool = pool_on(&disks[..2]);
    let old = guids(&pool)[1];
    let small = Arc::new(MemDisk::new("/small", SIZE - (40 << 20)));
    let refused = pool.attach_device(old, leaf(&small), Beside::Replacement, None).unwrap_err();
    assert!(refused.kind() == ErrorKind::Invalid && refused.message().contains("device is too small"), "{refused}");
    let coarse = Arc::new(MemDisk::with_sector("/coarse", SIZE, 4096));
    assert!(pool.attach_device(old, leaf(&coarse), Beside::Replacement, None).unwrap_err().message().contains("higher alignment"));
    pool.attach_device(old, leaf(&disks[2]), Beside::Replacement, None).unwrap();
    write(&pool, 3);
    assert_eq!(pool.vdevs.config().children[0].children[1].kind, VdevKind::Replacing);
    let refused = pool.attach_device(old, leaf(&disk("d")), Beside::Mirror, None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    check(&pool, "replacing");
    resilver(&pool, &disks[0], &disks[2]);
    let config = pool.vdevs.config();
    let names: Vec<Option<String>> = config.children[0].children.iter().map(|child| child.string(key::PATH)).collect();
    assert_eq!(names, [Some("/a".to_owned()), Some("/c".to_owned())]);
    assert_eq!(left(&disks[1]), Some(0));
    check(&pool, "replaced");
    pool.export().unwrap();
    let pool = open(&[&disks[2]], true);
    check(&pool, "the new one alone");
}

#[test]
fn a_device_is_offline_until_it_is_to_be_online() {
    let (a, b) = (disk("a"), disk("b"));
    let pool = pool_on(&[a.clone(), b.clone()]);
    let [first, second] = guids(&pool)[..] else { panic!("two devices") };
    pool.stop_device(second, Stopped::Offline, false).unwrap();
    assert_eq!((pool.vdevs.leaves()[1].state(), pool.vdevs.state()), (VdevState::Offline, VdevState::Degraded));
    assert_eq!(pool.stop_device(first, Stopped::Offline, false).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(pool.detach_device(first).unwrap_err().kind(), ErrorKind::Busy);
    write(&pool, 3);
    pool.export().unwrap();
    // It stays so, although it is there.
    let pool = open(&[&a, &b], false);
    assert_eq!(pool.vdevs.leaves()[1].state(), VdevState::Offline);
    write(&pool, 1);
    assert!(!pool.vdevs.leaves()[1].missing_txgs().is_empty());
    // Not just any disk: one of another pool, nothing, an empty one.
    let other = disk("other");
    pool_on(std::slice::from_ref(&other)).export().unwrap();
    for (found, why) in [(Some(other), Reason::BadLabel), (None, Reason::NotFound), (Some(disk("empty")), Reason::BadLabel)] {
        let state = pool.online_device(second, found.map(|disk| disk as DiskRef), false).unwrap();
        assert_eq!((state, pool.vdevs.leaves()[1].reason()), (VdevState::Unavailable, why));
    }
    assert_eq!(pool.online_device(second, Some(b.clone()), false).unwrap(), VdevState::Online);
    assert!(pool.vdevs.leaves()[1].is_behind(), "it has missed what was written");
    assert_eq!(pool.stop_device(first, Stopped::Offline, false).unwrap_err().kind(), ErrorKind::Busy, "the other is behind");
    write(&pool, 1);
    check(&pool, "online");
    resilver(&pool, &a, &b);
    // Until it is exported.
    pool.stop_device(first, Stopped::Offline, true).unwrap();
    write(&pool, 1);
    pool.export().unwrap();
    let pool = open(&[&a, &b], false);
    assert!(pool.vdevs.leaves()[0].state().is_readable());
    assert!(pool.vdevs.leaves()[0].is_behind());
    check(&pool, "after a temporary absence");
    pool.export().unwrap();
}

/// Somebody else has written it meanwhile.
#[test]
fn a_device_that_another_host_has_written_is_not_used() {
    let (a, b) = (disk("a"), disk("b"));
    let pool = pool_on(&[a.clone(), b.clone()]);
    let second = guids(&pool)[1];
    pool.stop_device(second, Stopped::Offline, true).unwrap();
    let elsewhere = Arc::new(b.snapshot());
    let there = open(&[&elsewhere], false);
    write(&there, 40);
    there.export().unwrap();
    assert_eq!(pool.online_device(second, Some(elsewhere), false).unwrap(), VdevState::Unavailable);
    pool.export().unwrap();
}

#[test]
fn what_counts_as_broken_is_so_until_it_is_cleared() {
    let (a, b) = (disk("a"), disk("b"));
    let pool = pool_on(&[a.clone(), b.clone()]);
    let [first, second] = guids(&pool)[..] else { panic!("two devices") };
    pool.stop_device(second, Stopped::Faulted, false).unwrap();
    // The last one is used for as long as it gives anything.
    pool.stop_device(first, Stopped::Faulted, true).unwrap();
    assert_eq!(pool.vdevs.leaves().iter().map(|leaf| leaf.state()).collect::<Vec<_>>(), [VdevState::Degraded, VdevState::Faulted]);
    assert_eq!(pool.online_device(second, Some(b.clone()), false).unwrap(), VdevState::Faulted);
    write(&pool, 1);
    pool.export().unwrap();
    let pool = open(&[&a, &b], false);
    assert_eq!(pool.vdevs.leaves()[1].state(), VdevState::Faulted);
    pool.forgive_devices(None, vec![(second, b.clone() as DiskRef)]);
    pool.clear_errors(None);
    write(&pool, 1);
    assert_eq!(pool.vdevs.leaves().iter().map(|leaf| leaf.state()).collect::<Vec<_>>(), [VdevState::Online, VdevState::Online]);
    let config = pool.vdevs.config();
    assert!(config.leaves().iter().all(|leaf| !leaf.flag(key::FAULTED) && !leaf.flag(key::DEGRADED) && leaf.string(key::AUX_STATE).is_none()));
    assert!(pool.vdevs.leaves()[1].is_behind());
    check(&pool, "cleared");
    pool.export().unwrap();
}

/// One that is being replaced may be lost next: what counts as broken leaves room for that.
#[test]
fn a_replacement_counts_where_devices_are_declared_broken() {
    let disks: Vec<Arc<MemDisk>> = ["a", "b", "c", "d", "new"].map(disk).into();
    let new = NewTop { leaves: disks[..4].iter().map(leaf).collect(), parity: 2, ashift: Some(9), ..NewTop::default() };
    let pool = Pool::create(NewPool { vdevs: vec![new], ..new_pool(&[]) }, options(false)).unwrap();
    let [first, second, _, last] = guids(&pool)[..] else { panic!("four devices") };
    pool.attach_device(last, leaf(&disks[4]), Beside::Replacement, None).unwrap();
    pool.stop_device(first, Stopped::Faulted, true).unwrap();
    pool.stop_device(second, Stopped::Faulted, true).unwrap();
    let states: Vec<VdevState> = pool.vdevs.leaves().iter().map(|leaf| leaf.state()).take(2).collect();
    assert_eq!(states, [VdevState::Faulted, VdevState::Degraded]);
    check(&pool, "one is broken");
    pool.export().unwrap();
}

#[test]
fn devices_that_went_and_came_are_seen_when_they_are_looked_for() {
    let (a, b) = (disk("a"), disk("b"));
    let pool = pool_on(&[a.clone(), b.clone()]);
    let second = guids(&pool)[1];
    pool.reopen_devices(Vec::new(), vec![second]).unwrap();
    assert_eq!(pool.vdevs.leaves()[1].state(), VdevState::Unavailable);
    write(&pool, 2);
    pool.reopen_devices(vec![(second, b.clone() as DiskRef)], Vec::new()).unwrap();
    assert_eq!(pool.vdevs.leaves()[1].state(), VdevState::Online);
    assert!(pool.vdevs.leaves()[1].is_behind());
    write(&pool, 1);
    check(&pool, "it came back");
    pool.export().unwrap();
}

#[test]
fn what_a_device_has_more_is_used_when_it_is_to_be() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("grows");
    let file = Arc::new(disk::FileDisk::create(&path, SIZE).unwrap());
    let new = NewPool {
        name: "tank".into(),
        vdevs: vec![NewTop { leaves: vec![NewLeaf { disk: file, path: path.display().to_string(), whole_disk: false }], ashift: Some(9), ..NewTop::default() }],
        features: ondisk::feature::Feature::for_new_pools().collect(),
        properties: Vec::new(),
        fill: Box::new(|_, _| Ok(())),
        command: "zpool create tank".into(),
        configure: Box::new(|_| ()),
    };
    let pool = Pool::create(new, options(false)).unwrap();
    let before = pool.capacity().size;
    pool.expand(None).unwrap();
    assert_eq!(pool.capacity().size, before, "nothing is larger");
    std::fs::File::options().write(true).open(&path).unwrap().set_len(2 * SIZE).unwrap();
    write(&pool, 1);
    assert_eq!((pool.capacity().size, pool.vdevs.tops()[0].expandable()), (before, 0), "nobody has asked for it");
    // Its last labels are in another place from then on, and are as the others.
    let labels_of = |label: usize| {
        let found = DeviceLabels::read(&*disk::open(&path.display().to_string(), disk::Access::Inspect).unwrap()).uberblocks(9);
        found.into_iter().filter(|found| found.label == label).map(|found| (found.slot, found.uberblock)).collect::<Vec<_>>()
    };
    pool.reopen_devices(Vec::new(), Vec::new()).unwrap();
    assert_eq!((pool.capacity().size, pool.vdevs.tops()[0].expandable()), (before, SIZE), "it is known that there is more");
    assert!(labels_of(0).len() > 2 && (1..4).all(|label| labels_of(label) == labels_of(0)));
    pool.expand(None).unwrap();
    assert_eq!(pool.vdevs.tops()[0].expandable(), 0);
    let after = pool.capacity().size;
    assert!(after >= before + SIZE / 2, "{before} {after}");
    write(&pool, 3);
    check(&pool, "grown");
    pool.export().unwrap();
    drop(pool);
    let again = Pool::open(
        select(&discover(vec![disk::open(&path.display().to_string(), disk::Access::Write).unwrap()]), "tank", false).unwrap(),
        options(false),
    )
    .unwrap();
    assert_eq!(again.capacity().size, after);
    write(&again, 1);
    check(&again, "grown and imported");
    again.export().unwrap();
}

/// It could not come back then: it was too small.
#[test]
fn a_vdev_does_not_outgrow_a_device_that_is_away() {
    let (small, large) = (disk("small"), Arc::new(MemDisk::new("/large", 2 * SIZE)));
    let pool = pool_on(&[small.clone(), large]);
    write(&pool, 2);
    let (first, before) = (guids(&pool)[0], pool.vdevs.tops()[0].asize());
    pool.stop_device(first, Stopped::Offline, false).unwrap();
    pool.expand(None).unwrap();
    assert_eq!((pool.vdevs.tops()[0].asize(), pool.vdevs.tops()[0].expandable()), (before, 0));
    assert_eq!(pool.online_device(first, Some(small.clone()), false).unwrap(), VdevState::Online);
    write(&pool, 1);
    check(&pool, "it came back");
    pool.export().unwrap();
}

/// Where its end is now there was half of a label, as the vdev did not grow.
#[test]
fn a_device_that_alone_has_grown_has_all_its_labels() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("grows");
    let file = Arc::new(disk::FileDisk::create(&path, SIZE).unwrap());
    let grows = NewLeaf { disk: file, path: path.display().to_string(), whole_disk: false };
    let vdevs = vec![NewTop { leaves: vec![grows, leaf(&disk("stays"))], ashift: Some(9), ..NewTop::default() }];
    let pool = Pool::create(NewPool { vdevs, ..new_pool(&[]) }, options(false)).unwrap();
    write(&pool, 1);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(2 * SIZE).unwrap();
    pool.expand(None).unwrap();
    let labels = DeviceLabels::read(&*disk::open(&path.display().to_string(), disk::Access::Inspect).unwrap());
    assert_eq!(labels.configs().count(), 4);
    pool.export().unwrap();
}

#[test]
fn one_side_of_each_mirror_becomes_a_pool() {
    let disks: Vec<Arc<MemDisk>> = ["a", "b"].map(disk).into();
    let pool = pool_on(&disks);
    write(&pool, 3);
    let chosen = guids(&pool)[1];
    assert_eq!(pool.split(&[], OpenOptions { new_name: Some("half".into()), ..options(false) }).err().unwrap().kind(), ErrorKind::Invalid);
    let half = pool.split(&[chosen], OpenOptions { new_name: Some("half".into()), ..options(false) }).unwrap();
    assert!(half.guid() != pool.guid());
    write(&half, 1);
    write(&pool, 2);
    check(&half, "the new one");
    check(&pool, "the old one");
    half.export().unwrap();
    pool.export().unwrap();
    let found = discover(disks.iter().map(|disk| disk.clone() as DiskRef).collect());
    let names: Vec<&str> = found.iter().map(|candidate| candidate.config.name.as_str()).collect();
    assert_eq!(names, ["half", "tank"]);
    for candidate in &found {
        let pool = Pool::open(candidate, options(false)).unwrap();
        assert_eq!((pool.vdevs.state(), pool.vdevs.leaves().len()), (VdevState::Online, 1));
        write(&pool, 1);
        check(&pool, candidate.config.name.as_str());
        pool.export().unwrap();
    }
}

/// One side was taken out and was nobody's, as the next one could not go: the other side of that had missed something since the sides were chosen.
#[test]
fn a_split_that_is_refused_takes_no_side() {
    let disks: Vec<Arc<MemDisk>> = ["a", "b", "c", "d"].map(disk).into();
    let mirror = |disks: &[Arc<MemDisk>]| NewTop { leaves: disks.iter().map(leaf).collect(), ashift: Some(9), ..NewTop::default() };
    let pool = Pool::create(NewPool { vdevs: disks.chunks(2).map(mirror).collect(), ..new_pool(&[]) }, options(false)).unwrap();
    write(&pool, 3);
    let chosen: Vec<u64> = [1, 3].map(|at: usize| guids(&pool)[at]).into();
    // There is something to write, which this side does not take.
    pool.change_config(|config| config.comment = Some("missed".into()));
    disks[2].faults.break_writes(true);
    let refused = pool.split(&chosen, OpenOptions { new_name: Some("half".into()), ..options(false) }).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    assert!(pool.vdevs.leaves()[2].is_behind());
    assert_eq!(pool.vdevs.data_tops().iter().map(|top| top.leaves().len()).collect::<Vec<_>>(), [2, 2]);
    disks[2].faults.break_writes(false);
    pool.clear_errors(None);
    write(&pool, 2);
    check(&pool, "not split");
    pool.export().unwrap();
}

/// For a moment it was a side like the other, and readers took what it had not.
#[test]
fn a_device_that_comes_in_is_behind_when_it_is_first_seen() {
    let a = disk("a");
    let pool = pool_on(std::slice::from_ref(&a));
    for round in 0..12 {
        let (first, b) = (guids(&pool)[0], disk("b"));
        let is_over = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let look = || loop {
                if let Some(new) = pool.vdevs.top(0).and_then(|top| top.leaves().get(1).cloned()) {
                    return Some(new.is_behind());
                }
                if is_over.load(Ordering::Relaxed) {
                    return None;
                }
            };
            let looking = scope.spawn(look);
            #[cfg(debug_assertions)]
            let _pauses = parking_lot::counting::pause(4);
            let attached = pool.attach_and_fill(first, leaf(&b), (Beside::Mirror, Fill::Sequential), None);
            is_over.store(true, Ordering::Relaxed);
            attached.unwrap();
            looking.join().unwrap()
        });
        assert_ne!(seen, Some(false), "round {round}: it has everything, so it seems");
        pool.detach_device(guids(&pool)[1]).unwrap();
    }
    pool.export().unwrap();
}
