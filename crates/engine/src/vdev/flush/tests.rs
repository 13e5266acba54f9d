//! Flushes that fail: the system says so once, to the next caller of a flush, and has dropped what it could not write.

use crate::vdev::label::{LabelSync, sync_labels};
use crate::vdev::RequestKind;
use crate::vdev::{Class, Leaf, NewLeaf, NewTop, TopVdev, VdevTree, key};
use crate::zio::{BlockDevice, write_range, write_range_durable};
use crate::host::RealHost;
use disk::{Disk, MemDisk, Request, Watch, WatchedDisk};
use ondisk::label::{LABEL_BYTES, LABELS, label_offset};
use ondisk::nvlist::NvList;
use ondisk::uberblock::Uberblock;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const SIZE: u64 = 64 << 20;

/// Something else happens during the next flush of a disk, or its next durable write.
struct Meddling {
    memory: Arc<MemDisk>,
    meddle: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// What happens at each write and flush, from when it is set on.
    each: OnceLock<Box<dyn Fn(Request) + Send + Sync>>,
}

type Meddled = Arc<WatchedDisk<Meddling>>;

impl Watch for Meddling {
    fn before(&self, request: Request) -> io::Result<()> {
        if matches!(request, Request::Write(_) | Request::Flush) {
            self.each.get().iter().for_each(|each| each(request.clone()));
        }
        let meddle = if request == Request::Flush { self.meddle.lock().take() } else { None };
        if let Some(meddle) = meddle {
            meddle();
        }
        Ok(())
    }
}

fn meddled(name: &str) -> Meddled {
    let memory = Arc::new(MemDisk::new(name, SIZE));
    Arc::new(WatchedDisk::new(memory.clone(), Meddling { memory, meddle: Mutex::new(None), each: OnceLock::new() }))
}

/// During the next flush of a disk somebody else flushes `top`, and is told of an error.
fn tell_another(disk: &Meddled, top: &Arc<TopVdev>) {
    let (memory, top) = (disk.watch.memory.clone(), top.clone());
    *disk.watch.meddle.lock() = Some(Box::new(move || {
        memory.faults.fail_flush(1);
        let _ = top.flush();
    }));
}

fn device(top: &Arc<TopVdev>) -> Arc<dyn BlockDevice> {
    top.clone()
}

/// A vdev of these disks.
fn tree_of(disks: &[&Meddled]) -> (VdevTree, Arc<TopVdev>) {
    let leaf = |disk: &&Meddled| NewLeaf { disk: (*disk).clone(), path: disk.name().to_owned(), whole_disk: false };
    let new = NewTop { leaves: disks.iter().map(leaf).collect(), ashift: None, ..NewTop::default() };
    let tree = VdevTree::create(&RealHost, vec![new], 4).unwrap();
    let top = tree.top(0).unwrap();
    top.update_config(|config| config.set(key::METASLAB_ARRAY, 1));
    top.flush().unwrap();
    (tree, top)
}

/// A write of the log that is made durable at once is told of the error that a block of a group had: then the flush of the group succeeded, and the
/// group was taken for written.
#[test]
fn what_a_durable_write_is_told_of_is_lost_for_the_group_too() {
    let disk = meddled("d");
    let (tree, top) = tree_of(&[&disk]);
    write_range(&device(&top), Class::AsyncWrite, 0, &[&[1; 4096]], 4).unwrap();
    disk.watch.memory.faults.fail_flush(1);
    assert!(write_range_durable(&device(&top), 8192, &[&[2; 4096]], 4).is_err());
    assert!(tree.has_lost_writes());
    assert!(tree.flush_all().is_err());
}

/// Where nothing was lost but what the caller knows of, a durable write that fails stops nothing: the log goes on with its group.
#[test]
fn a_durable_write_that_fails_alone_loses_nothing_else() {
    let disk = meddled("d");
    let (tree, top) = tree_of(&[&disk]);
    write_range(&device(&top), Class::AsyncWrite, 0, &[&[1; 4096]], 4).unwrap();
    tree.flush_all().unwrap();
    write_range_durable(&device(&top), 8192, &[&[2; 4096]], 4).unwrap();
    disk.watch.memory.faults.fail_flush(1);
    assert!(write_range_durable(&device(&top), 16384, &[&[3; 4096]], 4).is_err());
    disk.watch.memory.faults.fail_write(1);
    assert!(write_range_durable(&device(&top), 16384, &[&[3; 4096]], 4).is_err());
    assert!(!tree.has_lost_writes());
    tree.flush_all().unwrap();
}

/// Of two flushes at a time only one was told: the other one, that of a group, succeeded.
#[test]
fn a_flush_during_which_another_one_fails_has_failed() {
    let disk = meddled("d");
    let (tree, top) = tree_of(&[&disk]);
    write_range(&device(&top), Class::AsyncWrite, 0, &[&[1; 4096]], 4).unwrap();
    tell_another(&disk, &top);
    assert!(tree.flush_all().is_err());
    assert!(tree.has_lost_writes());
    // The good side of a mirror is enough.
    let sides = [meddled("a"), meddled("b")];
    let (tree, top) = tree_of(&[&sides[0], &sides[1]]);
    write_range(&device(&top), Class::AsyncWrite, 0, &[&[1; 4096]], 4).unwrap();
    tell_another(&sides[0], &top);
    tree.flush_all().unwrap();
    assert!(top.leaves()[0].is_behind() && !top.leaves()[1].is_behind());
}

/// A device that was not found any more was closed in the middle of a group, and with it went what lay in its cache: nobody knew when it came back.
#[test]
fn a_device_that_is_gone_has_lost_what_was_not_flushed() {
    let sides = [meddled("a"), meddled("b")];
    let (tree, top) = tree_of(&[&sides[0], &sides[1]]);
    write_range(&device(&top), Class::AsyncWrite, 0, &[&[1; 4096]], 4).unwrap();
    let side = &top.leaves()[0];
    side.lose();
    tree.flush_all().unwrap();
    side.reopen(sides[0].clone());
    assert!(side.is_behind() && !side.missing_txgs().is_empty() && !tree.has_lost_writes(), "the other side has it");
    for is_flushed in [false, true] {
        let disk = meddled("d");
        let (tree, top) = tree_of(&[&disk]);
        write_range(&device(&top), Class::AsyncWrite, 0, &[&[1; 4096]], 4).unwrap();
        if is_flushed {
            tree.flush_all().unwrap();
        }
        top.leaves()[0].lose();
        assert!(tree.flush_all().is_err(), "it is not there");
        top.leaves()[0].reopen(disk.clone());
        assert_eq!((tree.has_lost_writes(), tree.flush_all().is_ok()), (!is_flushed, is_flushed));
    }
}

/// The labels, or an uberblock, were written and lost, and it was a commit of the log that was told so: the group was taken for committed.
#[test]
fn labels_that_another_flush_may_have_lost_are_not_written() {
    for nth in 0..3 {
        let disk = meddled("d");
        let (tree, top) = tree_of(&[&disk]);
        let uberblock = Uberblock { txg: 5, ..Uberblock::empty() };
        let tops = tree.tops();
        let label = |_: &TopVdev, _: &Leaf| {
            let mut list = NvList::new();
            list.set("txg", 5);
            list
        };
        let sync = LabelSync { uberblock: &uberblock, dirty: &tops, uberblock_tops: &tops, multihost: false, config: &label };
        // Among the flushes of the labels, after so many.
        fn after(disk: &Meddled, top: &Arc<TopVdev>, flushes: u32) {
            if flushes == 0 {
                return tell_another(disk, top);
            }
            let (next, top) = (disk.clone(), top.clone());
            *disk.watch.meddle.lock() = Some(Box::new(move || after(&next, &top, flushes - 1)));
        }
        after(&disk, &top, nth);
        assert!(sync_labels(&sync).is_err(), "flush {nth}");
        assert!(!tree.has_lost_writes(), "labels are written again");
        sync_labels(&sync).unwrap();
    }
}

/// Requests of several disks that are to be under way together: the nth of one waits for the nth of each other.
struct Meeting {
    begun: Mutex<Vec<Vec<Request>>>,
    changed: Condvar,
    alone: AtomicBool,
}

impl Meeting {
    fn meet(&self, disk: usize, request: Request) {
        let mut begun = self.begun.lock();
        begun[disk].push(request);
        let number = begun[disk].len();
        self.changed.notify_all();
        while begun.iter().any(|requests| requests.len() < number) && !self.alone.load(Ordering::Relaxed) {
            if self.changed.wait_for(&mut begun, Duration::from_secs(20)).timed_out() {
                self.alone.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// The labels of devices were written one after the other, and each flush waited for that of the device before: a group of a pool of many disks that turn
/// took as many turns for each of the three steps as there were disks. All devices are in the same step at the same time, and the steps keep their order.
#[test]
#[allow(clippy::disallowed_methods)] // a device that takes long
fn labels_of_all_devices_are_written_at_the_same_time() {
    const SLOW: Duration = Duration::from_millis(2);
    let disks = ["a", "b", "c"].map(meddled);
    let new = |disk: &Meddled| NewLeaf { disk: disk.clone(), path: disk.name().to_owned(), whole_disk: false };
    let tops = vec![
        NewTop { leaves: disks[..2].iter().map(new).collect(), ashift: None, ..NewTop::default() },
        NewTop { leaves: vec![new(&disks[2])], ashift: None, ..NewTop::default() },
    ];
    let tree = VdevTree::create(&RealHost, tops, 4).unwrap();
    let tops = tree.tops();
    tree.set_crew(&Arc::new(crate::sync::Executor::new(&RealHost::shared(), "test", 3)));
    for top in &tops {
        top.update_config(|config| config.set(key::METASLAB_ARRAY, 1));
        for leaf in &top.leaves() {
            leaf.traffic.set_clock(&RealHost::shared());
            // One that took long is enough to be known as slow.
            let under_way = leaf.traffic.begin(RequestKind::Write, 1, 1);
            std::thread::sleep(SLOW);
            drop(under_way);
            leaf.traffic.flush(|| std::thread::sleep(SLOW));
        }
    }
    let meeting = Arc::new(Meeting { begun: Mutex::new(vec![Vec::new(); 3]), changed: Condvar::new(), alone: AtomicBool::new(false) });
    for (number, disk) in disks.iter().enumerate() {
        let meeting = meeting.clone();
        let _ = disk.watch.each.set(Box::new(move |request| meeting.meet(number, request)));
    }
    let uberblock = Uberblock { txg: 5, ..Uberblock::empty() };
    let label = |_: &TopVdev, _: &Leaf| {
        let mut list = NvList::new();
        list.set("txg", 5);
        list
    };
    sync_labels(&LabelSync { uberblock: &uberblock, dirty: &tops, uberblock_tops: &tops, multihost: false, config: &label }).unwrap();
    assert!(!meeting.alone.load(Ordering::Relaxed), "a device waited for another one: {:?}", meeting.begun.lock());
    let label_of = |request: &Request| match request {
        Request::Write(range) => (0..LABELS).find(|label| (label_offset(SIZE, *label)..label_offset(SIZE, *label) + LABEL_BYTES).contains(&range.start)),
        _ => None,
    };
    for requests in &*meeting.begun.lock() {
        let steps: Vec<Option<usize>> = requests.iter().map(label_of).collect();
        assert_eq!(steps, [Some(0), Some(2), None, Some(0), Some(1), Some(2), Some(3), None, Some(1), Some(3), None]);
    }
}
