//! A device that is slow for a while, fast for a while, and one that hangs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use engine::zio::Bookmark;

use super::waited::{BLOCK, BLOCKS, World};
use super::*;

const FILES: u64 = 16;
/// A device takes so long for a read.
const FAST_US: u64 = 1000;
/// One takes so long for a while, and then as long as the others for a while.
const SLOW_US: u64 = 100 * FAST_US;
const PHASE: Duration = Duration::from_millis(900);
/// A device that hangs is one that takes longer than all the test.
const HANGS_US: u64 = 100_000_000;

/// A RAID-Z2 with some files, of so many devices that one can be told from the others. Blocks do not all begin on the same device: so all are read.
fn world() -> World {
    let world = World::new(8, 2);
    let parameter = |parameter, value: &str| world.tunables.parameters.set(parameter, value).unwrap();
    parameter(Parameter::OutlierCheckIntervalMs, "20");
    parameter(Parameter::ReadSitOutSecs, "1");
    world.pool().create_file_system("tank/a", Vec::new()).unwrap();
    world.write("tank/a", 100, 0..FILES);
    world
}

/// Reads files until told otherwise, and says how often a block took longer than half of the slow device's time, of how many.
fn read_on(world: &World, over: &AtomicBool) -> (u64, u64) {
    let fs = world.pool().file_system("tank/a").unwrap();
    let (mut waited, mut count) = (0, 0);
    for number in (0..FILES).cycle() {
        let file = fs.lookup(fs.root(), format!("f{number}").as_bytes()).unwrap().inode;
        let (expected, dnode) = (contents(100 + number, BLOCK * BLOCKS, 0), fs.objset().hold(file).unwrap());
        for block in 0..BLOCKS {
            let (pointer, at) = (dnode.block_pointer(block as u64).unwrap(), Bookmark { objset: 0, object: file, level: 0, block: block as u64 });
            let began = Instant::now();
            // Past the cache.
            let found = world.pool().engine().context.io.read(&pointer, &at).unwrap();
            waited += u64::from(began.elapsed() > Duration::from_micros(SLOW_US / 2));
            count += 1;
            assert!(found[..] == expected[block * BLOCK..][..BLOCK], "f{number}: {block}");
        }
        drop(dnode);
        fs.forget(file, 1);
        if over.load(SeqCst) {
            break;
        }
    }
    (waited, count)
}

fn sits(world: &World) -> Vec<usize> {
    let leaves = world.pool().engine().vdevs.leaves();
    (0..leaves.len()).filter(|number| leaves[*number].traffic.sits_out()).collect()
}

/// Readers do without it most of the time, and a scrub that is under way sees all of it.
#[test]
fn a_device_that_is_slow_now_and_then() {
    let mut world = world();
    assert!(world.pool().engine().vdevs.data_tops()[0].set_autosit(true));
    let (over, sat) = (AtomicBool::new(false), AtomicU64::new(0));
    world.disks.iter().for_each(|disk| disk.watch.takes_us.store(FAST_US, SeqCst));
    let flapping = &world.disks[3].watch.takes_us;
    let began = Instant::now();
    let (waited, count) = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(|| read_on(&world, &over))).collect();
        world.pool().engine().scrub(false).unwrap();
        while began.elapsed() < Duration::from_secs(8) || world.pool().engine().is_scanning() && began.elapsed() < PATIENCE {
            flapping.store(if began.elapsed().as_millis() / PHASE.as_millis() % 2 == 0 { SLOW_US } else { FAST_US }, SeqCst);
            let sitting = sits(&world);
            assert!(sitting.is_empty() || sitting == [3], "{sitting:?}");
            sat.fetch_add(u64::from(!sitting.is_empty()), SeqCst);
            std::thread::sleep(Duration::from_millis(5));
        }
        world.disks.iter().for_each(|disk| disk.watch.takes_us.store(0, SeqCst));
        over.store(true, SeqCst);
        readers.into_iter().map(|reader| reader.join().unwrap()).fold((0, 0), |(waited, count), (w, c)| (waited + w, count + c))
    });
    let leaf = world.pool().engine().vdevs.leaves()[3].clone();
    let (sat_out, took) = (leaf.traffic.sat_out(), began.elapsed());
    places::say(&format!("scan: flapping: {sat_out} times in {took:?}, {waited} of {count} reads waited"));
    assert!(sat_out > 0 && sat_out <= took.as_secs() + 1, "{sat_out} times in {took:?}");
    assert!(waited * 4 < count, "{waited} of {count} reads waited");
    assert_eq!((leaf.state(), leaf.is_behind()), (engine::vdev::VdevState::Online, false));
    let record = wait(world.pool());
    assert_eq!((record.state, record.errors, record.processed), (ScanState::Finished, 0, 0));
    world.is_whole("flapping", "tank/a", (100, FILES), &[&[0, 1, 2, 4, 5, 6], &[2, 3, 4, 5, 6, 7]]);
}

/// Reads of a device do not come back: readers that were told to do without it go on, and so does a scrub when they do come back.
#[test]
fn a_device_that_hangs_for_readers() {
    let mut world = world();
    let (top, leaf) = (world.pool().engine().vdevs.data_tops()[0].clone(), world.pool().engine().vdevs.leaves()[3].clone());
    top.sit_out(&leaf, true).unwrap();
    let over = AtomicBool::new(false);
    world.disks[3].watch.takes_us.store(HANGS_US, SeqCst);
    let (waited, count) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_on(&world, &over));
        // The group in which it begins waits for the device.
        let scrub = scope.spawn(|| world.pool().engine().scrub(false).unwrap());
        std::thread::sleep(Duration::from_secs(1));
        let is_waiting = !scrub.is_finished() || world.pool().engine().is_scanning();
        over.store(true, SeqCst);
        let read = reader.join().unwrap();
        world.disks[3].watch.takes_us.store(0, SeqCst);
        assert!(is_waiting, "a scrub looks at it");
        read
    });
    assert!(count > 0 && waited * 4 < count, "{waited} of {count} reads waited");
    let record = wait(world.pool());
    assert_eq!((record.state, record.errors, record.processed), (ScanState::Finished, 0, 0));
    top.sit_out(&leaf, false).unwrap();
    drop((top, leaf));
    world.is_whole("hung", "tank/a", (100, FILES), &[&[0, 2, 3, 4, 5, 7]]);
}
