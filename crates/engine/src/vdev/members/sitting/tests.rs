use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use disk::{Disk, MemDisk, Request, Watch, WatchedDisk};

use super::*;
use crate::host::{Host, RealHost};
use crate::vdev::{Class, NewLeaf, NewTop, VdevTree};
use crate::zio::{BlockDevice, read_range, scan_range, write_range};

const BIRTH: u64 = 4;
const LENGTH: usize = 64 << 10;
const FAST_NS: u64 = 1_000_000;
const BLOCKS: usize = 8;

/// Blocks do not all begin on the same device: so all are read.
fn place(block: usize) -> u64 {
    ((block as u64) << 20) + block as u64 * (3 << 9)
}

/// A clock that goes only as devices are used.
#[derive(Default)]
struct Clock(AtomicU64);

impl Host for Clock {
    fn now_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }
    fn wall_clock(&self) -> (u64, u32) {
        RealHost.wall_clock()
    }
    fn random(&self) -> u64 {
        RealHost.random()
    }
    fn sleep(&self, _: Duration) {}
    fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> bool {
        false
    }
    fn processors(&self) -> usize {
        1
    }
    fn host_name(&self) -> String {
        RealHost.host_name()
    }
    fn host_id(&self) -> u32 {
        RealHost.host_id()
    }
}

/// Reads of a device take so long.
struct Timed {
    clock: Arc<Clock>,
    takes: AtomicU64,
    reads: AtomicU64,
}

impl Watch for Timed {
    fn before(&self, request: Request) -> io::Result<()> {
        if matches!(request, Request::Read(_)) {
            self.clock.0.fetch_add(self.takes.load(Relaxed), Relaxed);
            self.reads.fetch_add(1, Relaxed);
        }
        Ok(())
    }
}

struct Rig {
    clock: Arc<Clock>,
    disks: Vec<Arc<WatchedDisk<Timed>>>,
    limits: Tunables,
    top: Arc<TopVdev>,
    data: Vec<u8>,
}

impl Rig {
    /// RAID-Z2 of so many devices that are as fast as each other, with something on it.
    fn new(width: usize) -> Rig {
        let (clock, limits) = (Arc::new(Clock::default()), Tunables::default());
        clock.0.store(1, Relaxed);
        let disk = |number| {
            let timed = Timed { clock: clock.clone(), takes: AtomicU64::new(FAST_NS), reads: AtomicU64::new(0) };
            Arc::new(WatchedDisk::new(Arc::new(MemDisk::new(format!("d{number}"), 64 << 20)), timed).as_block_device())
        };
        let disks: Vec<_> = (0..width).map(disk).collect();
        let leaf = |disk: &Arc<WatchedDisk<Timed>>| NewLeaf { disk: disk.clone(), path: disk.name().to_owned(), whole_disk: false };
        let new = NewTop { leaves: disks.iter().map(leaf).collect(), parity: 2, ..NewTop::default() };
        let tree = VdevTree::create(&RealHost, vec![new], BIRTH).unwrap();
        let host: HostRef = clock.clone();
        tree.set_clock(&host);
        tree.set_limits(&limits);
        let data: Vec<u8> = (0..LENGTH * BLOCKS).map(|at| (at * 7 + at / 253) as u8).collect();
        let top = tree.top(0).unwrap();
        let rig = Rig { clock, disks, limits, top, data };
        for block in 0..BLOCKS {
            write_range(&rig.device(), Class::AsyncWrite, place(block), &[&rig.data[block * LENGTH..][..LENGTH]], BIRTH).unwrap();
        }
        rig
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        self.top.clone()
    }

    /// Reads everything once, and says how long the slowest block took.
    fn read(&self) -> u64 {
        let one = |block: usize| {
            let (mut bytes, begun) = (vec![0; LENGTH], self.clock.now_ns());
            read_range(&self.device(), place(block), &mut bytes, BIRTH).unwrap();
            assert!(bytes == self.data[block * LENGTH..][..LENGTH], "block {block}");
            self.clock.now_ns() - begun
        };
        (0..BLOCKS).map(one).max().unwrap_or(0)
    }

    /// Which devices sit out.
    fn sitting(&self) -> Vec<u32> {
        self.top.leaves().iter().filter(|leaf| leaf.traffic.sits_out()).map(|leaf| leaf.number()).collect()
    }

    fn slow_down(&self, number: usize, times: u64) {
        self.disks[number].watch.takes.store(times * FAST_NS, Relaxed);
    }

    /// Reads until some device sits out, or until the others would have waited long.
    fn read_until_sitting(&self) -> Vec<u32> {
        let before = self.sitting();
        (0..300).find(|_| {
            self.read();
            self.sitting() != before
        });
        self.sitting()
    }
}

#[test]
fn readers_do_not_wait_for_a_device_that_is_far_slower_than_the_others() {
    let rig = Rig::new(8);
    rig.slow_down(5, 100);
    assert_eq!(rig.read_until_sitting(), [0; 0], "nobody has asked for it");
    assert!(rig.top.set_autosit(true));
    assert_eq!(rig.read_until_sitting(), [5]);
    let leaf = rig.top.leaves()[5].clone();
    assert_eq!((leaf.traffic.sat_out(), leaf.traffic.slow()), (1, 1));
    let reads = rig.disks[5].watch.reads.load(Relaxed);
    assert!((0..50).all(|_| rig.read() < 20 * FAST_NS), "no reader waits for it");
    assert_eq!(rig.disks[5].watch.reads.load(Relaxed), reads);
    // One that looks at everything does.
    scan_range(&rig.device(), 0, &mut [0; LENGTH], BIRTH).unwrap();
    assert!(rig.disks[5].watch.reads.load(Relaxed) > reads);
    // A while later it is tried again, and is still slow.
    rig.clock.0.fetch_add(600_000_000_000, Relaxed);
    assert_eq!((rig.sitting(), rig.read_until_sitting(), leaf.traffic.sat_out()), (vec![], vec![5], 2));
    // Another one is as slow; a third one has to be waited for: two are as many as there is parity.
    rig.slow_down(2, 100);
    assert_eq!(rig.read_until_sitting(), [2, 5]);
    rig.slow_down(7, 100);
    assert_eq!(rig.read_until_sitting(), [2, 5]);
    // All sit in if the parameter says so.
    rig.limits.parameters.set(Parameter::ReadSitOutSecs, "0").unwrap();
    assert_eq!(rig.sitting(), [0; 0]);
}

#[test]
fn devices_that_are_as_fast_as_each_other_are_left_alone() {
    for width in [4, 5, 8] {
        let rig = Rig::new(width);
        rig.top.set_autosit(true);
        // Each is slower for a while; with too few nothing can be said.
        for round in 0..400 {
            (0..width).for_each(|number| rig.slow_down(number, if number == round / 3 % width { 60 } else { 1 }));
            if width >= 8 && round % 3 != 0 {
                (0..width).for_each(|number| rig.slow_down(number, 1));
            }
            rig.read();
        }
        assert_eq!(rig.sitting(), [0; 0], "{width} devices");
    }
}

/// Slow for some seconds, as fast as the others for some, again and again: readers wait for it some seconds of each ten minutes.
#[test]
fn a_device_that_is_slow_now_and_then_is_seldom_tried() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    for phase_ns in [3_000_000_000, 700_000_000, 20_000_000_000] {
        let rig = Rig::new(8);
        rig.top.set_autosit(true);
        let (mut waited, mut changes, mut before) = (0, 0, vec![]);
        while rig.clock.now_ns() < HOUR_NS {
            rig.slow_down(5, if rig.clock.now_ns() / phase_ns % 2 == 0 { 100 } else { 1 });
            waited += u64::from(rig.read() >= 50 * FAST_NS);
            let sitting = rig.sitting();
            assert!(sitting.is_empty() || sitting == [5], "{sitting:?}");
            changes += u64::from(std::mem::replace(&mut before, sitting.clone()) != sitting);
            rig.clock.0.fetch_add(200_000_000, Relaxed);
        }
        let sat_out = rig.top.leaves()[5].traffic.sat_out();
        assert!((3..=6).contains(&sat_out) && changes <= 2 * sat_out, "{phase_ns}: {sat_out} times, {changes} changes");
        assert!(waited <= 40 * sat_out, "{phase_ns}: {waited} rounds of readers waited");
        let all = |number: usize| (rig.top.leaves()[number].traffic.sat_out(), rig.top.leaves()[number].traffic.slow());
        assert_eq!((all(5), all(4)), ((sat_out, sat_out), (0, 0)), "each is counted once");
    }
}

#[test]
fn an_administrator_leaves_devices_out_as_far_as_there_is_parity() {
    let rig = Rig::new(6);
    let leaves = rig.top.leaves();
    let sit = |number: usize, sits: bool| rig.top.sit_out(&leaves[number], sits).map_err(|error| error.kind());
    assert_eq!((sit(0, true), sit(1, true), sit(1, true), sit(2, true)), (Ok(()), Ok(()), Ok(()), Err(crate::error::ErrorKind::Busy)));
    (0..2).for_each(|number| rig.slow_down(number, 1000));
    assert!(rig.read() < 20 * FAST_NS, "neither is read");
    rig.clock.0.fetch_add(1 << 60, Relaxed);
    assert_eq!(rig.sitting(), [0, 1], "for good");
    // What else is lost comes first: then one that sits out is read all the same.
    leaves[4].set_state(VdevState::Offline, crate::vdev::Reason::None);
    leaves[5].set_state(VdevState::Offline, crate::vdev::Reason::None);
    rig.read();
    assert_eq!((sit(1, false), sit(2, true)), (Ok(()), Ok(())));
    leaves[2].clear_errors();
    assert_eq!(rig.sitting(), [0]);
}

/// What a reader asks for each time is in atomics.
#[cfg(debug_assertions)]
#[test]
fn a_read_takes_no_lock_for_this() {
    let rig = Rig::new(6);
    let locks = || parking_lot::counting::record(|| assert!(rig.read() > 0)).len();
    let before = locks();
    rig.limits.parameters.set(Parameter::OutlierCheckIntervalMs, "86400000").unwrap();
    rig.top.set_autosit(true);
    rig.read();
    assert_eq!(locks(), before);
}

#[test]
fn an_outlier_is_far_beyond_the_others() {
    let of = |times: &[u64]| outlier(&times.iter().map(|time| Column::Took(*time)).collect::<Vec<_>>(), 50);
    assert_eq!(of(&[100, 100, 100, 100, 100, 10_000]), Some((5, 5)));
    assert_eq!(of(&[100, 10_000, 100, 100, 100, 100, 100]), Some((1, 5)));
    assert_eq!(of(&[100, 100, 1_360, 100, 100, 100]), Some((2, 1)), "just beyond");
    assert_eq!((of(&[100, 100, 1_350, 100, 100, 100]), of(&[100, 200, 300, 400, 500, 10_000]), of(&[0; 6]), of(&[])), (None, None, None, None));
    assert_eq!(outlier(&[Column::Out, Column::Out, Column::Took(9), Column::Took(9), Column::Took(9), Column::Took(1000)], 50), Some((5, 5)));
}
