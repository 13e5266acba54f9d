//! Cache devices: what leaves memory is found there, and nothing that is wrong with them reaches a reader.

use std::time::Duration;

use disk::{Request, Watch, WatchedDisk};
use ondisk::cache_device::{Header, header_bytes};
use ondisk::label;

use super::*;
use crate::arc::{CachePolicy, Kept, NewCacheDevice};
use crate::host::{Host, HostRef};
use crate::tunables::{Parameter, Tunables};
use crate::vdev::{VdevConfig, VdevKind, key};

const DEVICE_BYTES: u64 = 68 << 20;
const BLOCKS: u64 = 60;

/// Threads and time would make it random what a device has.
struct Threadless;

impl Host for Threadless {
    fn now_ns(&self) -> u64 {
        1
    }

    fn wall_clock(&self) -> (u64, u32) {
        (1, 0)
    }

    fn random(&self) -> u64 {
        7
    }

    fn sleep(&self, _: Duration) {}

    fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> bool {
        false
    }

    fn processors(&self) -> usize {
        1
    }

    fn host_name(&self) -> String {
        "test".into()
    }

    fn host_id(&self) -> u32 {
        1
    }
}

/// A pool of one device, some blocks, and a cache device.
struct Rig {
    io: Arc<BlockIo>,
    mirrors: Vec<Arc<Mirror>>,
    pointers: Vec<BlkPtr>,
    disk: Arc<MemDisk>,
    tunables: Tunables,
    cache: BlockCache,
}

fn contents(number: u64) -> Vec<u8> {
    let length = 65_536;
    let mut data = noise(number, length);
    data[length / 2..].fill(number as u8);
    data
}

impl Rig {
    fn new() -> Rig {
        let Bench { io, mirrors } = bench(1, 1);
        let requests = (0..BLOCKS).map(|number| request(contents(number), 1)).collect();
        let pointers = io.write_many(requests, 10).into_iter().map(Result::unwrap).collect();
        let disk = Arc::new(MemDisk::new("cache", DEVICE_BYTES));
        let tunables = Tunables::default();
        for (parameter, value) in [(Parameter::CacheRebuildMinBytes, "0"), (Parameter::CacheMetaPercent, "100")] {
            tunables.parameters.set(parameter, value).unwrap();
        }
        let cache = BlockCache::new(io.clone(), 1 << 20);
        let rig = Rig { io, mirrors, pointers, disk, tunables, cache };
        rig.attach(&rig.cache, 11);
        rig
    }

    fn attach(&self, cache: &BlockCache, pool_guid: u64) {
        let mut config = VdevConfig::new(VdevKind::File, 0, 99);
        config.set(key::ASHIFT, 12);
        let host: HostRef = Arc::new(Threadless);
        cache.set_devices(vec![NewCacheDevice { config, disk: self.disk.clone() }], pool_guid, &self.tunables, &host);
    }

    /// As the pool is imported again.
    fn again(&mut self, pool_guid: u64) {
        let host: HostRef = Arc::new(Threadless);
        self.cache.set_devices(Vec::new(), 0, &self.tunables, &host);
        self.cache = BlockCache::new(self.io.clone(), 1 << 20);
        self.attach(&self.cache, pool_guid);
        self.cache.feed(&self.tunables);
    }

    /// Reads all blocks, and feeds the device now and then; how many came from the pool.
    fn read_all(&self) -> u64 {
        let reads = || self.mirrors[0].sides[0].faults.reads();
        let before = reads();
        for (number, pointer) in (0..).zip(&self.pointers) {
            assert_eq!(*self.cache.read(pointer, &HERE).unwrap(), contents(number), "block {number}");
            if number % 4 == 3 {
                self.cache.feed(&self.tunables);
            }
        }
        reads() - before
    }

    fn header(&self) -> Header {
        let mut bytes = vec![0; header_bytes(12)];
        self.disk.read_at(&mut bytes, label::START_BYTES).unwrap();
        Header::decode(&bytes).unwrap()
    }

    /// Changes the header, whose checksum is right afterwards.
    fn rewrite_header(&self, change: impl FnOnce(&mut Header)) {
        let mut header = self.header();
        change(&mut header);
        let mut bytes = header.encode(12);
        let verifier = [label::START_BYTES, 0, 0, 0];
        transform::checksum::embedded::seal(transform::checksum::LABEL, &mut bytes, verifier).unwrap();
        self.disk.write_at(&bytes, label::START_BYTES).unwrap();
    }
}

#[test]
fn what_leaves_memory_is_read_from_the_device_and_found_again() {
    let mut rig = Rig::new();
    assert_eq!(rig.read_all(), BLOCKS);
    let stats = rig.cache.second_stats();
    assert!(stats.writes_done > 0 && stats.asize >= 40 * 36_864 && stats.size > stats.asize, "{stats:?}");
    // A shard of so small a cache has room for none: some blocks leave before a round comes.
    let missed = rig.read_all();
    assert!(missed <= BLOCKS / 4, "{missed} of {BLOCKS} blocks came from the pool");
    let status = rig.cache.device_statuses().pop().unwrap();
    assert_eq!(status.allocated, rig.cache.second_stats().asize + rig.cache.second_stats().log_blk_asize);
    rig.again(11);
    let stats = rig.cache.second_stats();
    assert!(stats.rebuild_success == 1 && stats.rebuild_bufs >= 40 && stats.log_blk_count >= 10, "{stats:?}");
    let missed = rig.read_all();
    assert!(missed <= BLOCKS / 4 + 8 && rig.cache.second_stats().cksum_bad == 0, "{missed} of {BLOCKS} blocks came from the pool");
    // A block that is freed leaves the index.
    let before = rig.cache.second_stats().asize;
    rig.pointers.iter().for_each(|pointer| rig.cache.invalidate(pointer));
    assert!(before > 0 && rig.cache.second_stats().asize == 0);
    assert_eq!(rig.read_all(), BLOCKS);
}

#[test]
fn a_device_of_another_pool_is_begun_anew() {
    let mut rig = Rig::new();
    rig.read_all();
    rig.again(12);
    let stats = rig.cache.second_stats();
    assert!((stats.rebuild_success, stats.rebuild_abort_unsupported, stats.asize) == (0, 1, 0), "{stats:?}");
    assert_eq!((rig.header().pool_guid, rig.header().log_blocks), (12, 0));
    assert_eq!(rig.read_all(), BLOCKS);
}

#[test]
fn what_a_property_excludes_is_not_stored() {
    let rig = Rig::new();
    rig.cache.set_policy(HERE.objset, CachePolicy { secondary: Kept::Metadata, ..CachePolicy::default() });
    rig.read_all();
    assert_eq!(rig.cache.second_stats().asize, 0);
    rig.cache.set_policy(HERE.objset, CachePolicy::default());
    rig.read_all();
    assert!(rig.cache.second_stats().asize > 0);
}

#[test]
fn damage_counts_and_the_block_comes_from_the_pool() {
    let rig = Rig::new();
    rig.read_all();
    rig.disk.corrupt(rig.header().area.start, 8 << 20);
    rig.read_all();
    let (stats, status) = (rig.cache.second_stats(), rig.cache.device_statuses().pop().unwrap());
    assert!(stats.cksum_bad > 10 && status.status.checksum_errors == stats.cksum_bad, "{stats:?}");
    rig.disk.faults.break_reads(true);
    rig.disk.faults.break_writes(true);
    for _ in 0..4 {
        rig.read_all();
    }
    let (stats, status) = (rig.cache.second_stats(), rig.cache.device_statuses().pop().unwrap());
    assert!(stats.io_error > 0 && stats.writes_error > 0 && status.status.read_errors > 0 && status.status.write_errors > 0, "{stats:?}");
    assert_eq!(status.status.state, crate::vdev::VdevState::Faulted, "after so many errors it is left alone");
}

/// A write that was under way when the device was let go of came back later, and what it had written was in the index for good.
#[test]
fn what_is_written_to_a_device_that_is_let_go_of_is_not_in_the_index() {
    let rig = Rig::new();
    let host = crate::host::RealHost::shared();
    rig.cache.set_devices(Vec::new(), 0, &rig.tunables, &host);
    let slow = Arc::new(Slow::default());
    slow.hold_reads(true);
    let held = slow.clone();
    let disk = Arc::new(WatchedDisk::new(rig.disk.clone(), move |request: Request| -> std::io::Result<()> {
        // Blocks, not the header.
        if matches!(request, Request::Write(range) if range.end - range.start > 4096) {
            held.pass_read();
        }
        Ok(())
    }));
    let mut config = VdevConfig::new(VdevKind::File, 0, 99);
    config.set(key::ASHIFT, 12);
    rig.cache.set_devices(vec![NewCacheDevice { config, disk: disk.clone() }], 11, &rig.tunables, &host);
    drop(rig.cache.read(&rig.pointers[0], &HERE).unwrap());
    slow.wait_for_a_held_read();
    rig.cache.set_devices(Vec::new(), 0, &rig.tunables, &host);
    slow.hold_reads(false);
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while Arc::strong_count(&disk) > 1 {
        assert!(std::time::Instant::now() < until, "the device is not let go of");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(rig.cache.second_stats().hdr_size, 0);
}

/// Each read that came back wrong had come back: so a device that gave nothing but garbage was asked for ever.
#[test]
fn a_device_that_gives_garbage_is_given_up() {
    let rig = Rig::new();
    rig.read_all();
    for _ in 0..6 {
        rig.disk.write_at(&vec![0xee; 24 << 20], rig.header().area.start).unwrap();
        rig.read_all();
    }
    let (stats, status) = (rig.cache.second_stats(), rig.cache.device_statuses().pop().unwrap());
    assert_eq!(status.status.state, crate::vdev::VdevState::Faulted, "{stats:?}");
    assert!(stats.io_error == 0 && status.status.checksum_errors >= 64, "{stats:?}");
}

/// The device has a block of before, and at its place in the pool is another of the same group, without a checksum: the one of before was given to readers.
#[test]
fn a_block_without_a_checksum_comes_from_the_pool() {
    let mut rig = Rig::new();
    rig.read_all();
    rig.again(11);
    assert!(rig.cache.second_stats().rebuild_bufs >= 40, "{:?}", rig.cache.second_stats());
    for (number, pointer) in (0..).zip(&rig.pointers) {
        let mut data = data_pointer(pointer);
        data.checksum_algorithm = ChecksumAlgorithm::Off;
        (data.compression, data.logical_size) = (Compression::Off, data.physical_size);
        let other = noise(1000 + number, data.physical_size as usize);
        rig.mirrors[0].sides[0].write_at(&other, data.dvas()[0].offset).unwrap();
        assert_eq!(*rig.cache.read(&data.encode(), &HERE).unwrap(), other, "block {number}");
    }
}

#[test]
fn garbage_on_a_device_ends_the_chain() {
    let mut rig = Rig::new();
    rig.read_all();
    let good = rig.header();
    let newest = good.newest[0];
    rig.rewrite_header(|header| header.newest = [newest, newest]);
    rig.again(11);
    assert_eq!(rig.cache.second_stats().rebuild_log_blks, 1, "no log block is looked at twice");
    for address in [0, good.area.start - 4096, good.area.end - 512, u64::MAX - 4096, 1 << 62, newest.address + 1] {
        rig.rewrite_header(|header| {
            *header = good;
            header.newest[0].address = address;
        });
        rig.again(11);
        assert_eq!(rig.read_all(), BLOCKS, "address {address:#x}");
    }
    rig.rewrite_header(|header| *header = good);
    rig.disk.corrupt(newest.address + 100, 8);
    rig.again(11);
    assert_eq!(rig.cache.second_stats().rebuild_abort_cksum_lb_errors, 1);
    rig.disk.corrupt(label::START_BYTES + 200, 8);
    rig.again(11);
    assert_eq!(rig.cache.second_stats().rebuild_abort_unsupported, 1, "a torn header");
    let mut labels = vec![0; 512 << 10];
    rig.disk.read_at(&mut labels, DEVICE_BYTES - (512 << 10)).unwrap();
    assert!(labels.iter().all(|byte| *byte == 0), "labels were written over");
}

/// The hand goes round a small device: blocks that are dropped from the index are written again and again.
#[test]
fn the_hand_goes_round() {
    let mut rig = Rig::new();
    for _ in 0..90 {
        rig.read_all();
        rig.cache.feed(&rig.tunables);
        rig.pointers.iter().for_each(|pointer| rig.cache.invalidate(pointer));
    }
    let (stats, area) = (rig.cache.second_stats(), rig.header().area);
    assert!(stats.write_bytes > 2 * area.bytes() && !rig.header().is_first_round, "{stats:?}");
    assert_eq!((stats.cksum_bad, stats.io_error, stats.asize), (0, 0, 0));
    assert!(stats.log_blk_asize <= area.bytes() / 8 && stats.log_blk_count == rig.header().log_blocks, "{stats:?}");
    rig.again(11);
    let again = rig.cache.second_stats();
    assert!(again.rebuild_success == 1 && again.rebuild_bufs >= BLOCKS / 2 && again.log_blk_count <= stats.log_blk_count, "{again:?}");
    assert!(rig.read_all() <= BLOCKS / 2 && rig.cache.second_stats().cksum_bad == 0);
}

/// A disk does not answer while it hangs.
struct Hanging {
    hangs: Mutex<bool>,
    changed: parking_lot::Condvar,
}

impl Hanging {
    fn set(&self, hangs: bool) {
        *self.hangs.lock() = hangs;
        self.changed.notify_all();
    }

}

impl Watch for Hanging {
    fn before(&self, _: Request) -> std::io::Result<()> {
        let mut hangs = self.hangs.lock();
        self.changed.wait_while(&mut hangs, |hangs| *hangs);
        Ok(())
    }
}

/// A reader that had asked a cache device that hung waited for ever; now it is asked once, in vain, and then left alone until it answers.
#[test]
fn a_device_that_hangs_holds_nobody_up_for_long() {
    let rig = Rig::new();
    let hanging = Arc::new(WatchedDisk::new(rig.disk.clone(), Hanging { hangs: Mutex::new(false), changed: parking_lot::Condvar::new() }));
    let mut config = VdevConfig::new(VdevKind::File, 0, 99);
    config.set(key::ASHIFT, 12);
    rig.cache.set_devices(Vec::new(), 0, &rig.tunables, &(Arc::new(Threadless) as HostRef));
    let attach = || rig.cache.set_devices(vec![NewCacheDevice { config: config.clone(), disk: hanging.clone() }], 11, &rig.tunables, &crate::host::RealHost::shared());
    attach();
    rig.read_all();
    let timed = |act: &dyn Fn()| {
        let begin = std::time::Instant::now();
        act();
        begin.elapsed()
    };
    let hits = || rig.cache.second_stats().hits;
    rig.read_all();
    assert!(hits() > 20, "{:?}", rig.cache.second_stats());
    hanging.watch.set(true);
    let before = hits();
    // `read_all` would feed the device, and wait for that.
    let read = || (0..).zip(&rig.pointers).for_each(|(number, pointer)| assert_eq!(*rig.cache.read(pointer, &HERE).unwrap(), contents(number)));
    let took = timed(&|| {
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(read))));
    });
    assert!(took < Duration::from_secs(11), "{took:?}");
    assert_eq!(hits(), before);
    let took = timed(&read);
    assert!(took < Duration::from_secs(4), "it is left alone: {took:?}");
    hanging.watch.set(false);
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while hits() == before {
        assert!(std::time::Instant::now() < until, "it is used again: {:?}", rig.cache.second_stats());
        read();
    }
    // At the end of the pool nobody waits for it.
    hanging.watch.set(true);
    let stuck = rig.cache.clone();
    let pointers = rig.pointers.clone();
    let reader = std::thread::spawn(move || pointers.iter().for_each(|pointer| drop(stuck.read(pointer, &HERE))));
    std::thread::sleep(Duration::from_millis(200));
    let took = timed(&|| rig.cache.set_devices(Vec::new(), 0, &rig.tunables, &crate::host::RealHost::shared()));
    assert!(took < Duration::from_secs(5), "{took:?}");
    hanging.watch.set(false);
    reader.join().unwrap();
}
