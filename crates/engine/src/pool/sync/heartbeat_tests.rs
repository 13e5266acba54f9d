//! Hosts of which nothing is heard for too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use disk::{DiskRef, MemDisk, Request, WatchedDisk};
use ondisk::label::{END_BYTES, LABELS, Ring, START_BYTES, label_offset};

use super::claim::Claim;
use crate::error::{ErrorKind, Result};
use crate::host::{Host, HostRef, RealHost};
use crate::pool::import::{Candidate, discover};
use crate::pool::{Import, NewPool, OpenOptions, Pool, check_not_in_use};
use crate::tunables::Tunables;
use crate::vdev::{Class, FailureMode, NewLeaf, NewTop};
use crate::zio::{BlockDevice, write_range};

const SIZE: u64 = 128 << 20;
const ASHIFT: u32 = 12;
const MINUTE_NS: u64 = 60_000_000_000;

/// A host whose clock can be moved on. It sleeps for a moment, and its clock moves on by the rest.
struct TestHost {
    id: u32,
    ahead_ns: AtomicU64,
}

impl TestHost {
    fn new(id: u32) -> Arc<TestHost> {
        Arc::new(TestHost { id, ahead_ns: AtomicU64::new(0) })
    }

    /// A minute passes, in which this host does nothing.
    fn stand_still(&self) {
        self.ahead_ns.fetch_add(MINUTE_NS, SeqCst);
    }
}

impl Host for TestHost {
    fn now_ns(&self) -> u64 {
        RealHost.now_ns() + self.ahead_ns.load(SeqCst)
    }
    fn wall_clock(&self) -> (u64, u32) {
        RealHost.wall_clock()
    }
    fn random(&self) -> u64 {
        RealHost.random()
    }
    fn sleep(&self, duration: Duration) {
        let moment = duration.min(Duration::from_millis(50));
        RealHost.sleep(moment);
        self.ahead_ns.fetch_add((duration - moment).as_nanos() as u64, SeqCst);
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> bool {
        RealHost.spawn(name, body)
    }
    fn processors(&self) -> usize {
        2
    }
    fn host_name(&self) -> String {
        format!("host-{}", self.id)
    }
    fn host_id(&self) -> u32 {
        self.id
    }
}

/// Ten heartbeats in a second, of which `fails` may be missed on a busy machine. Another host waits for twice as long.
fn fast(fails: u16) -> Tunables {
    Tunables { multihost_interval_ms: 100, multihost_fail_intervals: fails, ..Tunables::default() }
}

fn options(host: HostRef, tunables: Tunables) -> OpenOptions {
    OpenOptions { host, tunables, read_only: false, file_owner: None, new_name: None, forget_log: false }
}

/// A pool with multihost protection, on one disk or on the sides of a mirror.
fn pool_on(disks: &[DiskRef], host: HostRef, tunables: Tunables) -> Arc<Pool> {
    let leaf = |disk: &DiskRef| NewLeaf { disk: disk.clone(), path: format!("/{}", disk.name()), whole_disk: false };
    let new = NewPool {
        name: "beats".into(),
        vdevs: vec![NewTop { leaves: disks.iter().map(leaf).collect(), ashift: Some(ASHIFT), ..NewTop::default() }],
        features: ondisk::feature::Feature::for_new_pools().collect(),
        properties: Vec::new(),
        fill: Box::new(|_, _| Ok(())),
        command: "zpool create beats".into(),
        configure: Box::new(|_| ()),
    };
    let pool = Pool::create(new, options(host, tunables)).unwrap();
    pool.set_properties(vec![("multihost".into(), crate::dsl::PropertyValue::Number(1))]).unwrap();
    pool
}

/// Waits, but not for ever; whether it is so.
fn wait_until(is_so: impl Fn() -> bool) -> bool {
    let begin = RealHost.now_ns();
    while !is_so() && RealHost.now_ns() - begin < MINUTE_NS / 3 {
        RealHost.sleep(Duration::from_millis(5));
    }
    is_so()
}

/// A heartbeat that got through after a minute counted as any other, and the pool went on, though another host may have it.
#[test]
fn a_host_that_was_silent_for_too_long_stops() {
    for by_commit in [false, true] {
        let host = TestHost::new(1);
        let pool = pool_on(&[Arc::new(MemDisk::new("silent", SIZE))], host.clone(), Tunables::default());
        pool.groups().beat(0);
        assert!(pool.context.groups.failure().is_none());
        host.stand_still();
        if by_commit {
            pool.change_config(|config| config.comment = Some("changed".into()));
            assert!(pool.sync_all().is_err(), "a group was written");
        } else {
            pool.groups().beat(0);
        }
        let failure = pool.context.groups.failure().expect("another host may have the pool");
        assert!(failure.message().contains("another host may take the pool"), "{failure}");
        let top = pool.vdevs.top(0).unwrap();
        let end = top.asize();
        let written = write_range(&(top as Arc<dyn BlockDevice>), Class::AsyncWrite, end - 4096, &[&[1; 4096]], 4);
        assert!(written.is_err(), "a pass that is under way goes on");
        pool.change_config(|config| config.comment = Some("changed again".into()));
        assert!(pool.sync_all().is_err());
        assert!(pool.export().is_err());
    }
}

/// A disk in memory on which heartbeats hang while it is told so.
#[derive(Default)]
struct Hanging {
    hangs: AtomicBool,
    beats: AtomicU64,
}

impl Hanging {
    fn new(name: &str) -> (DiskRef, Arc<Hanging>) {
        let ring = Ring::new(ASHIFT);
        let is_heartbeat = move |at: u64| (0..LABELS).any(|label| at == label_offset(SIZE, label) + ring.slot_offset(ring.slots() - 1));
        let hanging = Arc::new(Hanging::default());
        let told = hanging.clone();
        let watch = move |request: Request| -> std::io::Result<()> {
            if let Request::Write(range) = &request
                && is_heartbeat(range.start)
            {
                told.beats.fetch_add(1, SeqCst);
                while told.hangs.load(SeqCst) {
                    RealHost.sleep(Duration::from_millis(5));
                }
            }
            Ok(())
        };
        (Arc::new(WatchedDisk::new(Arc::new(MemDisk::new(name, SIZE)), watch)), hanging)
    }

    /// Hangs, and has been asked for a heartbeat since.
    fn hang(&self) -> bool {
        self.hangs.store(true, SeqCst);
        let before = self.beats.load(SeqCst);
        wait_until(|| self.beats.load(SeqCst) > before)
    }
}

/// A device that hung, and gave no error, kept heartbeats from all others; and as long as one hung, nothing looked at the clock.
#[test]
fn while_devices_hang_others_are_written_and_the_clock_counts() {
    let host = TestHost::new(1);
    let ((left_disk, left), (right_disk, right)) = (Hanging::new("left"), Hanging::new("right"));
    let pool = pool_on(&[left_disk, right_disk], host.clone(), fast(300));
    let left_hangs = left.hang();
    let before = right.beats.load(SeqCst);
    let right_goes_on = wait_until(|| right.beats.load(SeqCst) > before + 3);
    let goes_on = pool.context.groups.failure().is_none();
    let right_hangs = right.hang();
    host.stand_still();
    let stops = wait_until(|| pool.context.groups.failure().is_some());
    // Or the pool could not end.
    [left, right].iter().for_each(|side| side.hangs.store(false, SeqCst));
    assert!(left_hangs && right_goes_on && goes_on, "hangs: {left_hangs}, the other goes on: {right_goes_on}, the pool goes on: {goes_on}");
    assert!(right_hangs && stops, "both hang: {right_hangs}, the pool stops: {stops}");
    assert!(pool.export().is_err());
}

/// `zpool clear` had a host write again that had been silent for a minute.
#[test]
fn a_host_that_another_may_have_followed_writes_nothing_when_it_is_cleared() {
    for only_labels in [false, true] {
        let host = TestHost::new(1);
        let memory = Arc::new(MemDisk::new("cleared", SIZE));
        let broken = Arc::new(AtomicBool::new(false));
        let switch = broken.clone();
        let watch = move |request: Request| match request {
            Request::Write(range) if switch.load(SeqCst) && (!only_labels || range.start < START_BYTES || range.start >= SIZE - END_BYTES) => {
                Err(std::io::Error::other("broken, on purpose"))
            }
            _ => Ok(()),
        };
        let pool = pool_on(&[Arc::new(WatchedDisk::new(memory.clone(), watch))], host.clone(), Tunables::default());
        pool.sync_all().unwrap();
        pool.vdevs.gate().set_mode(FailureMode::Wait);
        broken.store(true, SeqCst);
        pool.change_config(|config| config.comment = Some("changed".into()));
        pool.context.groups.kick(pool.context.groups.open_txg());
        assert!(wait_until(|| pool.vdevs.gate().failure().is_some()), "only labels: {only_labels}");
        host.stand_still();
        pool.groups().beat(0);
        let has_ended = wait_until(|| pool.context.groups.syncing_txg().is_none());
        let before = memory.faults.writes();
        broken.store(false, SeqCst);
        pool.clear_errors(None);
        // Whatever it says.
        let _ = pool.reopen_devices(Vec::new(), Vec::new());
        RealHost.sleep(Duration::from_millis(300));
        assert_eq!(memory.faults.writes(), before, "only labels: {only_labels}: it was written");
        assert!(has_ended, "only labels: {only_labels}: a group waits to be written");
        assert!(pool.sync_all().is_err() && pool.export().is_err(), "only labels: {only_labels}");
        assert_eq!(memory.faults.writes(), before, "only labels: {only_labels}: it was written in the end");
    }
}

/// A pool that a host had when it died; its disk.
fn left_behind() -> Arc<MemDisk> {
    let disk = Arc::new(MemDisk::new("left", SIZE));
    let pool = pool_on(&[disk.clone()], TestHost::new(7), fast(100));
    pool.write_group().unwrap();
    pool.abandon();
    disk
}

fn found(disk: &Arc<MemDisk>) -> Candidate {
    discover(vec![disk.clone()]).pop().unwrap()
}

/// Looks at what was found, and claims it.
fn claim(found: &Candidate, host: &HostRef) -> Result<Option<Claim>> {
    check_not_in_use(found, host, &fast(100), true)
}

fn is_in_use<T>(result: Result<T>) -> bool {
    result.err().map(|error| error.kind()) == Some(ErrorKind::InUseElsewhere)
}

/// The look compared what is on disk with itself: what had been found before was opened, though another host had written groups since.
#[test]
fn what_was_found_before_the_pool_went_on_is_not_opened() {
    let disk = Arc::new(MemDisk::new("older", SIZE));
    let pool = pool_on(&[disk.clone()], TestHost::new(7), fast(100));
    pool.write_group().unwrap();
    let old = found(&disk);
    (0..2).for_each(|_| pool.write_group().unwrap());
    pool.abandon();
    let host: HostRef = TestHost::new(1);
    assert!(is_in_use(claim(&old, &host)), "two groups would be lost");
    assert!(claim(&found(&disk), &host).is_ok(), "nobody has it any more");
}

/// From the claim of a pool until its first heartbeat nothing changed on disk: a host that looked then had it, too.
#[test]
fn a_pool_that_is_being_opened_is_in_use() {
    let disk = left_behind();
    let before = found(&disk).uberblock().clone();
    let hosts: [HostRef; 2] = [TestHost::new(1), TestHost::new(2)];
    let held = claim(&found(&disk), &hosts[0]).unwrap();
    assert!(held.is_some(), "the host has threads");
    assert!(is_in_use(claim(&found(&disk), &hosts[1])), "it is being opened");
    drop(held);
    assert_eq!(found(&disk).uberblock(), &before, "what was given up leaves nothing");
    let held = claim(&found(&disk), &hosts[1]).unwrap();
    let import = Import { claim: held, ..Import::default() };
    let pool = Pool::open_imported(&found(&disk), options(hosts[1].clone(), fast(100)), import).unwrap();
    assert!(is_in_use(claim(&found(&disk), &hosts[0])), "it is open");
    pool.export().unwrap();
}

/// A host that stands still while it opens a pool may have been followed by another one.
#[test]
fn a_pool_whose_claim_was_lost_is_not_opened() {
    let disk = left_behind();
    let host = TestHost::new(1);
    let (own, other): (HostRef, HostRef) = (host.clone(), TestHost::new(2));
    let candidate = found(&disk);
    let held = claim(&candidate, &own).unwrap();
    host.stand_still();
    // What was being written then is on disk.
    RealHost.sleep(Duration::from_millis(200));
    assert!(claim(&found(&disk), &other).is_ok(), "a claim that was lost is not written any more");
    let before = disk.faults.writes();
    let import = Import { claim: held, ..Import::default() };
    assert!(is_in_use(Pool::open_imported(&candidate, options(own, fast(100)), import)));
    assert_eq!(disk.faults.writes(), before, "the other host may have it");
}
