use super::label::{DeviceLabels, LabelSync, clear_labels, init_labels, retire_labels, spread_uberblocks, sync_labels};
use super::*;
use crate::error::ErrorKind;
use crate::host::RealHost;
use crate::zio::{BlockDevice, read_range, write_blocks, write_range, write_range_durable};
use disk::{Disk, DiskRef, MemDisk, Request, Watch, WatchedDisk};
use ondisk::label as layout;
use ondisk::nvlist::NvList;
use ondisk::uberblock::Uberblock;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const SIZE: u64 = 64 << 20;

fn new_top(disks: &[Arc<MemDisk>]) -> NewTop {
    let leaf = |disk: &Arc<MemDisk>| NewLeaf { disk: disk.clone(), path: disk.name().to_owned(), whole_disk: false };
    NewTop { leaves: disks.iter().map(leaf).collect(), ashift: None, ..NewTop::default() }
}

fn disks(count: usize) -> Vec<Arc<MemDisk>> {
    (0..count).map(|i| Arc::new(MemDisk::new(format!("d{i}"), SIZE))).collect()
}

fn mirror(disks: &[Arc<MemDisk>]) -> (VdevTree, Arc<TopVdev>) {
    let tree = VdevTree::create(&RealHost, vec![new_top(disks)], 4).unwrap();
    let top = tree.top(0).unwrap();
    (tree, top)
}

fn device(top: &Arc<TopVdev>) -> Arc<dyn BlockDevice> {
    top.clone()
}

fn side(leaf: u32) -> LeafId {
    LeafId { vdev: 0, leaf }
}

/// Reads as zio does; says which leaf that was.
fn read(top: &Arc<TopVdev>, offset: u64, buf: &mut [u8], birth: u64) -> crate::error::Result<usize> {
    let reads = |leaf: &Arc<Leaf>| leaf.stats.read_bytes.load(Relaxed);
    let before: Vec<u64> = top.leaves().iter().map(reads).collect();
    read_range(&device(top), offset, buf, birth)?;
    Ok(top.leaves().iter().zip(before).position(|(leaf, before)| reads(leaf) > before).unwrap())
}

#[test]
fn a_new_tree_describes_itself() {
    let disks = disks(3);
    let tree = VdevTree::create(&RealHost, vec![new_top(&disks[..1]), new_top(&disks[1..])], 4).unwrap();
    let config = tree.config();
    assert_eq!(config.children.len(), 2);
    assert_eq!(config.children[0].kind, VdevKind::File);
    assert_eq!(config.children[1].children[1].number(key::CREATE_TXG), 4);
    let top = tree.top(1).unwrap();
    assert_eq!((top.ashift(), top.asize(), top.metaslab_shift(), top.metaslab_count()), (9, 62_390_272, 24, 3));
    assert_eq!((top.layout().allocated_size(1, 4), top.layout().deflated_size(4096)), (512, 4096));
    assert!(tree.top(2).is_none() && tree.top(u64::MAX).is_none());
    assert_eq!(tree.state(), VdevState::Online);
    // The same again from its own description, on the same devices.
    let mut devices = Devices::new();
    for (leaf, disk) in tree.leaves().iter().zip(&disks) {
        devices.insert(leaf.guid(), disk.clone());
    }
    let again = VdevTree::open(&config.to_mos(), &devices).unwrap();
    assert_eq!(again.config().to_mos(), config.to_mos());
    assert_eq!(again.guid_sum(), tree.guid_sum());
    again.check_complete().unwrap();
}

/// As OpenZFS made them: golden pools raidz1 to raidz3.
#[test]
fn new_raidz_has_the_sizes_of_openzfs() {
    for (parity, width, ashift, asize, shift) in [(1, 3, 9, 187_170_816, 24), (2, 6, 12, 374_341_632, 25), (3, 8, 9, 499_122_176, 25)] {
        let tree = VdevTree::create(&RealHost, vec![NewTop { parity, ashift: Some(ashift), ..new_top(&disks(width)) }], 4).unwrap();
        let top = tree.top(0).unwrap();
        assert_eq!((top.asize(), top.metaslab_shift()), (asize, shift), "raidz{parity}");
        let config = tree.config();
        assert_eq!((config.children[0].kind.clone(), config.children[0].number(key::PARITY)), (VdevKind::Raidz, parity.into()));
        assert!(config.children[0].children.iter().enumerate().all(|(at, child)| child.id == at as u64 && child.kind == VdevKind::File));
        assert_eq!(config.children[0].group_name(), format!("raidz{parity}-0"));
        let mut devices = Devices::new();
        tree.leaves().iter().for_each(|leaf| devices.insert(leaf.guid(), leaf.disk().unwrap()));
        let again = VdevTree::open(&config.to_mos(), &devices).unwrap();
        assert_eq!((again.config().to_mos(), again.state()), (config.to_mos(), VdevState::Online));
    }
}

/// Blocks that follow each other on RAID-Z are a few large writes, and each can be read by itself when as many devices are gone as there is parity.
#[test]
fn blocks_on_raidz_are_written_together() {
    for parity in 1..=3u8 {
        let disks = disks(6);
        let tree = VdevTree::create(&RealHost, vec![NewTop { parity, ashift: Some(12), ..new_top(&disks) }], 4).unwrap();
        let top = tree.top(0).unwrap();
        let mut at = 1 << 20;
        let blocks: Vec<(u64, Vec<u8>)> = (0..32u64)
            .map(|number| {
                let length = [128 << 10, 64 << 10, 4 << 10, 20 << 10][number as usize % 4];
                let place = at;
                at += top.layout().allocated_size(length, 4);
                (place, (0..length).map(|byte| (byte / 7 * (number + 3)) as u8).collect())
            })
            .collect();
        let writes = || top.leaves().iter().map(|leaf| leaf.stats.writes.load(Relaxed)).sum::<u64>();
        let before = writes();
        let borrowed: Vec<(u64, &[u8])> = blocks.iter().map(|(place, bytes)| (*place, bytes.as_slice())).collect();
        write_blocks(&device(&top), Class::AsyncWrite, &borrowed, 4).unwrap();
        // Each for itself they are 160 and more. What lies between two blocks is not written: so it is not one for each device.
        assert!(writes() - before < 60, "raidz{parity}: {} writes", writes() - before);
        for (place, bytes) in &blocks {
            for lost in [vec![], (0..usize::from(parity)).collect::<Vec<_>>(), (6 - usize::from(parity)..6).collect()] {
                lost.iter().for_each(|lost| disks[*lost].faults.break_reads(true));
                let mut found = vec![0; bytes.len()];
                read_range(&device(&top), *place, &mut found, 4).unwrap();
                assert!(found == *bytes, "raidz{parity}, {} bytes at {place:#x}, without {lost:?}", bytes.len());
                lost.iter().for_each(|lost| disks[*lost].faults.break_reads(false));
            }
        }
    }
}

#[test]
fn bad_new_vdevs_are_refused() {
    let small = Arc::new(MemDisk::new("small", SIZE - 1));
    let create = |tops| VdevTree::create(&RealHost, tops, 4).map(|_| ()).unwrap_err().kind();
    assert_eq!(create(vec![new_top(&[small])]), ErrorKind::Invalid);
    assert_eq!(create(vec![new_top(&[])]), ErrorKind::Invalid);
    assert_eq!(create(vec![]), ErrorKind::Invalid);
    assert_eq!(create(vec![NewTop { bias: Bias::Log, ..new_top(&disks(1)) }]), ErrorKind::Invalid);
    assert_eq!(create(vec![NewTop { ashift: Some(17), ..new_top(&disks(1)) }]), ErrorKind::Invalid);
    let of_parity = |parity, count| create(vec![NewTop { parity, ..new_top(&disks(count)) }]);
    assert_eq!([of_parity(1, 1), of_parity(3, 3), of_parity(4, 9)], [ErrorKind::Invalid; 3]);
    assert_eq!(create(vec![new_top(&disks(1)), NewTop { parity: 1, bias: Bias::Log, ..new_top(&disks(3)) }]), ErrorKind::Invalid);
    assert_eq!(create(vec![NewTop { bias: Bias::Special, ..new_top(&disks(1)) }]), ErrorKind::Invalid);
    let coarse = Arc::new(MemDisk::with_sector("coarse", SIZE, 4096));
    let tree = VdevTree::create(&RealHost, vec![NewTop { ashift: Some(9), ..new_top(&[coarse]) }], 4).unwrap();
    assert_eq!(tree.top(0).unwrap().ashift(), 12);
}

#[test]
fn data_never_touches_labels() {
    let disks = disks(1);
    let (_, top) = mirror(&disks);
    let end = top.asize();
    write_range(&device(&top), Class::AsyncWrite, 0, &[&[1; 512]], 4).unwrap();
    write_range(&device(&top), Class::AsyncWrite, end - 512, &[&[2; 512]], 4).unwrap();
    for (offset, length) in [(end - 511, 512), (end, 1), (u64::MAX, 1), (u64::MAX - 511, 512)] {
        assert!(write_range(&device(&top), Class::AsyncWrite, offset, &[&vec![3; length]], 4).is_err());
        assert!(read(&top, offset, &mut vec![3; length], 7).is_err());
    }
    let mut bytes = [0; 512];
    disks[0].read_at(&mut bytes, layout::START_BYTES).unwrap();
    assert_eq!(bytes, [1; 512]);
    disks[0].read_at(&mut bytes, SIZE - layout::END_BYTES - 512).unwrap();
    assert_eq!(bytes, [2; 512]);
    disks[0].read_at(&mut bytes, SIZE - layout::END_BYTES).unwrap();
    assert_eq!(bytes, [0; 512]);
}

/// Each side missed something that the other has. Where nothing had a checksum, old contents were read from the one that was asked first.
#[test]
fn two_sides_that_are_behind_have_everything_together() {
    let disks = disks(2);
    let (tree, top) = mirror(&disks);
    for (number, txg) in [(0_usize, 7), (1, 17)] {
        tree.set_writing_txg(txg);
        disks[number].faults.fail_write(1);
        write_range(&device(&top), Class::AsyncWrite, number as u64 * 4096, &[&[number as u8 + 1; 4096]], 4).unwrap();
    }
    assert_eq!([0, 1].map(|leaf| top.leaves()[leaf].missing_txgs()), [[(7, 11)], [(17, 21)]]);
    let mut buf = [0; 4096];
    for region in [0, 2 << 20] {
        write_range(&device(&top), Class::AsyncWrite, region + 8192, &[&[9; 4096]], 4).unwrap();
        assert_eq!(read(&top, 0, &mut buf, 7).unwrap(), 1);
        assert_eq!(buf, [1; 4096]);
        assert_eq!(read(&top, 4096, &mut buf, 17).unwrap(), 0);
        assert_eq!(buf, [2; 4096]);
        read(&top, region + 8192, &mut buf, 25).unwrap();
        assert_eq!(buf, [9; 4096]);
    }
}

#[test]
fn a_mirror_survives_a_bad_leaf() {
    let disks = disks(2);
    let (tree, top) = mirror(&disks);
    tree.set_writing_txg(7);
    write_range(&device(&top), Class::AsyncWrite, 0, &[&[1; 1024]], 4).unwrap();
    let mut buf = [0; 1024];
    disks[0].faults.break_reads(true);
    assert_eq!(read(&top, 0, &mut buf, 7).unwrap(), 1);
    assert_eq!(top.leaves()[0].stats.read_errors.load(Relaxed), 1);
    disks[0].faults.break_reads(false);
    // A leaf that misses a write is behind, and is not read any more.
    disks[0].faults.fail_write(1);
    write_range(&device(&top), Class::AsyncWrite, 0, &[&[2; 1024]], 4).unwrap();
    assert!(top.leaves()[0].is_behind() && !top.leaves()[1].is_behind());
    assert_eq!(top.leaves()[0].missing_txgs(), [(7, 11)]);
    assert_eq!((top.leaves()[0].state(), top.state()), (VdevState::Degraded, VdevState::Degraded));
    assert_eq!(read(&top, 0, &mut buf, 7).unwrap(), 1);
    assert_eq!(buf, [2; 1024]);
    top.read_leaf(side(0), Class::SyncRead, 0, &mut buf).unwrap();
    assert_eq!(buf, [1; 1024]);
    BlockDevice::note_checksum_error(&*top, side(0));
    top.write_leaf(side(0), Class::AsyncWrite, 0, &[&[2; 1024]]).unwrap();
    top.read_leaf(side(0), Class::SyncRead, 0, &mut buf).unwrap();
    assert_eq!(buf, [2; 1024]);
    assert!(top.read_leaf(side(2), Class::SyncRead, 0, &mut buf).is_err());
    let status = tree.status();
    let leaf = &status.children[0].children[0];
    assert_eq!((leaf.read_errors, leaf.write_errors, leaf.checksum_errors, leaf.is_behind), (1, 1, 1, true));
    // The other one fails too: a flush that only the stale leaf does is none.
    disks[1].faults.break_writes(true);
    assert_eq!(top.flush().unwrap_err().kind(), ErrorKind::Io);
    disks[0].faults.break_writes(true);
    assert_eq!(write_range(&device(&top), Class::AsyncWrite, 0, &[&[3; 512]], 4).unwrap_err().kind(), ErrorKind::Io);
    assert!(tree.flush_all().is_err());
}

#[test]
fn a_missing_leaf_is_noted_for_its_time_log() {
    let disks = disks(2);
    let (tree, _) = mirror(&disks);
    let guids: Vec<u64> = tree.leaves().iter().map(|leaf| leaf.guid()).collect();
    let mut devices = Devices::new();
    devices.insert(guids[1], disks[1].clone());
    let tree = VdevTree::open(&tree.config().to_label(), &devices).unwrap();
    tree.check_complete().unwrap();
    let top = tree.top(0).unwrap();
    assert_eq!(top.leaves()[0].state(), VdevState::Unavailable);
    for txg in [5, 6, 20] {
        tree.set_writing_txg(txg);
        write_range(&device(&top), Class::AsyncWrite, 0, &[&[1; 512]], 4).unwrap();
        write_range(&device(&top), Class::AsyncWrite, 512, &[&[1; 512]], 4).unwrap();
    }
    assert_eq!(top.leaves()[0].missing_txgs(), [(5, 10), (20, 24)]);
    top.flush().unwrap();
    // Without any device it is incomplete.
    let tree = VdevTree::open(&tree.config().to_label(), &Devices::new()).unwrap();
    let error = tree.check_complete().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoDevice);
    assert!(error.message().contains("d0") && error.message().contains("d1"));
}

#[test]
fn what_is_not_supported_is_named() {
    let mut config = VdevConfig::new(VdevKind::Root, 0, 1);
    let mut anyraid = NvList::new();
    anyraid.set("type", "anyraid");
    anyraid.set("guid", 5);
    config.children.push(VdevConfig::from_nvlist(&anyraid).unwrap());
    let error = VdevTree::from_config(config, &Devices::new()).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("anyraid-0"), "{error}");
}

#[test]
fn damaged_descriptions_are_refused() {
    let (tree, _) = mirror(&disks(2));
    let good = tree.config();
    let check = |change: &dyn Fn(&mut VdevConfig)| {
        let mut config = good.clone();
        change(&mut config);
        VdevTree::from_config(config, &Devices::new()).map(|_| ()).unwrap_err().kind()
    };
    assert_eq!(check(&|c| c.children[0].set(key::ASHIFT, 64)), ErrorKind::Corrupt);
    assert_eq!(check(&|c| c.children[0].set(key::ASIZE, u64::MAX)), ErrorKind::Corrupt);
    assert_eq!(check(&|c| c.children[0].set(key::METASLAB_SHIFT, 64)), ErrorKind::Corrupt);
    assert_eq!(check(&|c| c.children[0].id = 1), ErrorKind::Corrupt);
    assert_eq!(check(&|c| c.children[0].children.clear()), ErrorKind::Corrupt);
    assert_eq!(check(&|c| c.kind = VdevKind::Mirror), ErrorKind::Corrupt);
}

/// What a disk is asked for, in words.
fn words_of(request: &Request) -> String {
    let Request::Write(range) = request else { return "flush".to_owned() };
    let label = (0..4).find(|&label| {
        let start = layout::label_offset(SIZE, label);
        (start..start + layout::LABEL_BYTES).contains(&range.start)
    });
    let label = label.expect("only labels are written");
    let within = range.start - layout::label_offset(SIZE, label);
    if within >= layout::RING_OFFSET {
        format!("uberblock {} {label}", (within - layout::RING_OFFSET) / (range.end - range.start))
    } else {
        format!("config {label}")
    }
}

fn config(txg: u64) -> NvList {
    let mut list = NvList::new();
    list.set("txg", txg);
    list
}

#[test]
fn labels_are_synced_in_the_order_that_survives_crashes() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = log.clone();
    let note = move |request: Request| {
        if !matches!(request, Request::Read(_)) {
            noted.lock().push(words_of(&request));
        }
        Ok(())
    };
    let disk: DiskRef = Arc::new(WatchedDisk::new(Arc::new(MemDisk::new("r", SIZE)), note));
    let leaf = NewLeaf { disk: disk.clone(), path: "r".to_owned(), whole_disk: false };
    let new = NewTop { leaves: vec![leaf], ashift: Some(12), ..NewTop::default() };
    let tree = VdevTree::create(&RealHost, vec![new], 4).unwrap();
    init_labels(&*disk, &config(0)).unwrap();
    let fresh = DeviceLabels::read(&*disk);
    assert_eq!((fresh.configs().count(), fresh.uberblocks(12).len()), (4, 0));
    log.lock().clear();

    let top = tree.top(0).unwrap();
    top.update_config(|config| config.set(key::METASLAB_ARRAY, 1));
    assert!(top.take_config_dirty() && !top.is_config_dirty());
    let uberblock = Uberblock { txg: 33, version: 5000, ..Uberblock::empty() };
    let tops = tree.tops();
    let sync = LabelSync {
        uberblock: &uberblock,
        dirty: &tops,
        uberblock_tops: &tops,
        multihost: false,
        config: &|_, _| config(33),
    };
    sync_labels(&sync).unwrap();
    let expected = [
        "config 0", "config 2", "flush", "uberblock 1 0", "uberblock 1 1", "uberblock 1 2", "uberblock 1 3", "flush",
        "config 1", "config 3", "flush",
    ];
    assert_eq!(*log.lock(), expected);

    let labels = DeviceLabels::read(&*disk);
    assert_eq!(labels.newest_config(), Some(&config(33)));
    let found = labels.uberblocks(12);
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|f| f.slot == 1 && f.uberblock == uberblock));
    // What has grown has nothing at its new end.
    let end = layout::label_offset(SIZE, 3) + layout::RING_OFFSET;
    disk.write_at(&vec![0; layout::RING_BYTES as usize], end).unwrap();
    assert_eq!(DeviceLabels::read(&*disk).uberblocks(12).len(), 3);
    spread_uberblocks(&*disk, 12).unwrap();
    assert_eq!(DeviceLabels::read(&*disk).uberblocks(12), found);
    // A device that left shows what it was, and is none of a pool's.
    retire_labels(&*disk).unwrap();
    let left = DeviceLabels::read(&*disk);
    let txgs: Vec<_> = left.configs().map(|(_, config)| config.u64("txg")).collect();
    assert_eq!((txgs, left.uberblocks(12).len()), (vec![Some(0); 4], 0));
    assert_eq!(left.newest_config().unwrap().u64("create_txg"), Some(0));
    // What is not a label any more belongs to somebody else.
    let foreign = vec![0x5a; layout::LABEL_BYTES as usize];
    disk.write_at(&foreign, 0).unwrap();
    clear_labels(&*disk).unwrap();
    assert_eq!(DeviceLabels::read(&*disk).configs().count(), 0);
    let mut there = vec![0; layout::LABEL_BYTES as usize];
    disk.read_at(&mut there, 0).unwrap();
    assert!(there == foreign, "it was overwritten");
}

#[test]
fn a_commit_needs_one_device_of_each_vdev_and_one_uberblock() {
    let disks = disks(3);
    let tree = VdevTree::create(&RealHost, vec![new_top(&disks[..1]), new_top(&disks[1..])], 4).unwrap();
    for top in tree.tops() {
        top.update_config(|config| config.set(key::METASLAB_ARRAY, 1));
    }
    let tops = tree.tops();
    let uberblock = Uberblock { txg: 5, ..Uberblock::empty() };
    let sync = LabelSync {
        uberblock: &uberblock,
        dirty: &tops,
        uberblock_tops: &tops,
        multihost: false,
        config: &|_, _| config(5),
    };
    disks[1].faults.break_writes(true);
    sync_labels(&sync).unwrap();
    disks[0].faults.break_writes(true);
    assert_eq!(sync_labels(&sync).unwrap_err().kind(), ErrorKind::Io);
    disks[0].faults.break_writes(false);
    sync_labels(&sync).unwrap();
}

#[test]
fn damaged_labels_are_passed_over() {
    let disk = MemDisk::new("d", SIZE);
    init_labels(&disk, &config(3)).unwrap();
    for label in 0..3 {
        let labels = DeviceLabels::read(&disk);
        assert_eq!(labels.configs().map(|(l, _)| l).collect::<Vec<_>>(), (label..4).collect::<Vec<_>>());
        disk.corrupt(layout::label_offset(SIZE, label) + layout::CONFIG_OFFSET + 77_777, 1);
    }
    // A good label in the wrong place is not good.
    let mut label = vec![0; layout::LABEL_BYTES as usize];
    disk.read_at(&mut label, layout::label_offset(SIZE, 3)).unwrap();
    disk.write_at(&label, layout::label_offset(SIZE, 1)).unwrap();
    assert_eq!(DeviceLabels::read(&disk).configs().count(), 1);
    assert_eq!(DeviceLabels::read(&MemDisk::new("tiny", 1000)).configs().count(), 0);
}

#[test]
fn uberblocks_take_turns() {
    let disks = disks(5);
    let mut tops: Vec<NewTop> = disks.iter().map(|disk| new_top(std::slice::from_ref(disk))).collect();
    tops[2].bias = Bias::Log;
    let tree = VdevTree::create(&RealHost, tops, 4).unwrap();
    let ids = |txg, all| tree.uberblock_tops(txg, all).iter().map(|top| top.id()).collect::<Vec<_>>();
    // New vdevs have no metaslabs yet: an uberblock only there would not count.
    assert_eq!(ids(4, false), [0u64; 0]);
    assert_eq!(ids(4, true), [0, 1, 2, 3, 4]);
    for top in tree.tops() {
        top.update_config(|config| config.set(key::METASLAB_ARRAY, 1));
    }
    assert_eq!(ids(4, false), [0, 1, 3]);
    assert_eq!(ids(6, false), [3, 4, 0]);
}

/// A side of a mirror that takes its time, and sees whether another one is written at the same time.
struct Slow {
    /// So many sides are being written, or flushed; shared.
    inside: Arc<AtomicU64>,
    /// Another one is to come, so it is waited for; shared.
    is_not_alone: Arc<AtomicBool>,
    /// So many were, at the same time; shared.
    met: Arc<AtomicU64>,
}

impl Slow {
    fn pass(&self) {
        let inside = self.inside.fetch_add(1, Relaxed) + 1;
        self.met.fetch_max(inside, Relaxed);
        // Long enough to count as slow; and on a busy machine the other one takes long to come.
        let wait = || std::thread::sleep(std::time::Duration::from_millis(4));
        wait();
        for _ in 0..5000 {
            if !self.is_not_alone.load(Relaxed) || self.met.load(Relaxed) > 1 {
                break;
            }
            wait();
        }
        self.inside.fetch_sub(1, Relaxed);
    }
}

impl Watch for Slow {
    fn before(&self, request: Request) -> io::Result<()> {
        if matches!(request, Request::Write(_) | Request::Flush) {
            self.pass();
        }
        Ok(())
    }
}

/// A durable write to a mirror of two drives took as long as two.
#[test]
fn the_sides_of_a_slow_mirror_are_written_at_the_same_time() {
    let (inside, is_not_alone, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let leaf = |name: &str| {
        let slow = Slow { inside: inside.clone(), is_not_alone: is_not_alone.clone(), met: most.clone() };
        let disk = WatchedDisk::new(Arc::new(MemDisk::new(name, SIZE)), slow).as_block_device();
        NewLeaf { disk: Arc::new(disk), path: name.to_owned(), whole_disk: false }
    };
    let new = NewTop { leaves: ["a", "b"].map(leaf).into(), ashift: None, ..NewTop::default() };
    let tree = VdevTree::create(&RealHost, vec![new], 4).unwrap();
    let top = tree.top(0).unwrap();
    let met = || most.swap(0, Relaxed);
    met();
    write_range_durable(&device(&top), 0, &[&[1; 4096]], 4).unwrap();
    assert_eq!(met(), 1, "nothing is known of how slow they are, and nobody has threads");
    tree.set_clock(&RealHost::shared());
    tree.set_crew(&Arc::new(crate::sync::Executor::new(&RealHost::shared(), "test", 2)));
    write_range(&device(&top), Class::AsyncWrite, 0, &[&[1; 4096]], 4).unwrap();
    top.flush().unwrap();
    met();
    is_not_alone.store(true, Relaxed);
    write_range(&device(&top), Class::AsyncWrite, 0, &[&[2; 4096]], 4).unwrap();
    assert_eq!(met(), 2);
    write_range_durable(&device(&top), 4096, &[&[3; 4096]], 4).unwrap();
    assert_eq!(met(), 2);
    top.flush().unwrap();
    assert_eq!(met(), 2);
    for number in 0..2 {
        let mut bytes = [0; 8192];
        top.read_leaf(side(number), Class::SyncRead, 0, &mut bytes).unwrap();
        assert!(bytes[..4096] == [2; 4096] && bytes[4096..] == [3; 4096]);
    }
}

/// A description of RAID-Z whose numbers fit no map is damage, and so is what no expansion leaves; a kind that nobody knows is refused.
#[test]
fn descriptions_of_raidz_are_checked() {
    let tree = |parity: u64, width: u64, change: &dyn Fn(&mut VdevConfig)| {
        let mut raidz = VdevConfig::new(VdevKind::Raidz, 0, 2);
        [(key::PARITY, parity), (key::ASHIFT, 9), (key::ASIZE, 64 << 20)].into_iter().for_each(|(name, value)| raidz.set(name, value));
        raidz.children = (0..width).map(|id| VdevConfig::new(VdevKind::File, id, 10 + id)).collect();
        change(&mut raidz);
        let mut root = VdevConfig::new(VdevKind::Root, 0, 1);
        root.children.push(raidz);
        VdevTree::from_config(root, &Devices::new()).map(|_| ()).map_err(|error| error.kind())
    };
    let as_it_is = |_: &mut VdevConfig| ();
    for (parity, width) in [(1, 2), (2, 3), (3, 4), (3, 255)] {
        assert_eq!(tree(parity, width, &as_it_is), Ok(()), "{parity} of {width}");
    }
    for (parity, width) in [(0, 3), (4, 8), (1, 1), (3, 3), (1, 0), (1, 256), (u64::MAX, 3)] {
        assert_eq!(tree(parity, width, &as_it_is), Err(ErrorKind::Corrupt), "{parity} of {width}");
    }
    // A device that came takes a part in the width only when it is filled.
    assert_eq!((tree(1, 3, &|raidz| raidz.set_expanding(None)), tree(1, 2, &|raidz| raidz.set_expanding(None))), (Ok(()), Err(ErrorKind::Corrupt)));
    let expanded = |txgs: &'static [u64]| move |raidz: &mut VdevConfig| txgs.iter().for_each(|txg| raidz.set_expanding(Some(*txg)));
    assert_eq!((tree(1, 4, &expanded(&[9, 10])), tree(1, 3, &expanded(&[9, 10]))), (Ok(()), Err(ErrorKind::Corrupt)));
    assert_eq!(tree(1, 9, &expanded(&[10, 9])), Err(ErrorKind::Corrupt));
    assert_eq!(tree(1, 3, &|raidz| raidz.kind = VdevKind::Other("anyraid".to_owned())), Err(ErrorKind::Unsupported));
    let in_it = |kind: VdevKind| move |raidz: &mut VdevConfig| raidz.children[0] = VdevConfig::new(kind.clone(), 0, 50);
    assert_eq!(tree(1, 3, &in_it(VdevKind::Raidz)), Err(ErrorKind::Corrupt));
    let replacing = |raidz: &mut VdevConfig| {
        let mut replacing = VdevConfig::new(VdevKind::Replacing, 0, 50);
        replacing.children = (0..2).map(|id| VdevConfig::new(VdevKind::File, id, 60 + id)).collect();
        raidz.children[0] = replacing;
    };
    assert_eq!(tree(1, 3, &replacing), Ok(()));
}

/// The same of dRAID: its numbers have to go together, and its spares are its own.
#[test]
fn descriptions_of_draid_are_checked() {
    let tree = |[parity, data, children, spares, groups]: [u64; 5], change: &dyn Fn(&mut VdevConfig)| {
        let mut draid = VdevConfig::new(VdevKind::Draid, 0, 2);
        let numbers = [(key::PARITY, parity), (key::DRAID_DATA, data), (key::DRAID_SPARES, spares), (key::DRAID_GROUPS, groups), (key::ASHIFT, 9), (key::ASIZE, 64 << 20)];
        numbers.into_iter().for_each(|(name, value)| draid.set(name, value));
        draid.children = (0..children).map(|id| VdevConfig::new(VdevKind::File, id, 10 + id)).collect();
        change(&mut draid);
        // What nobody has checked is not worth a panic.
        let _ = (draid.leaf_bytes(), draid.group_name());
        let mut root = VdevConfig::new(VdevKind::Root, 0, 1);
        root.children.push(draid);
        VdevTree::from_config(root, &Devices::new()).map(|_| ()).map_err(|error| error.kind())
    };
    let as_it_is = |_: &mut VdevConfig| ();
    for numbers in [[2, 4, 8, 1, 7], [1, 1, 2, 0, 1], [3, 8, 255, 100, 155]] {
        assert_eq!(tree(numbers, &as_it_is), Ok(()), "{numbers:?}");
    }
    for numbers in [[2, 4, 8, 1, 3], [0, 4, 8, 1, 7], [4, 4, 9, 1, 1], [2, 4, 6, 1, 1], [1, 0, 8, 1, 7], [1, u64::MAX, 8, 1, 7], [1, 1, 300, 0, 1], [2, 4, 8, u64::MAX, 7], [1, 1, 0, 0, 1]] {
        assert_eq!(tree(numbers, &as_it_is), Err(ErrorKind::Corrupt), "{numbers:?}");
    }
    let spared = |spare: u64| move |draid: &mut VdevConfig| {
        let mut group = VdevConfig::new(VdevKind::Spare, 3, 50);
        group.children = vec![VdevConfig::new(VdevKind::File, 0, 60), VdevConfig::new(VdevKind::DraidSpare, 1, 61)];
        group.children[1].set(key::SPARE_ID, spare);
        draid.children[3] = group;
    };
    assert_eq!((tree([2, 4, 8, 1, 7], &spared(0)), tree([2, 4, 8, 1, 7], &spared(1))), (Ok(()), Err(ErrorKind::Corrupt)));
    let for_good = |draid: &mut VdevConfig| draid.children[0] = VdevConfig::new(VdevKind::DraidSpare, 0, 50);
    assert_eq!(tree([2, 4, 8, 1, 7], &for_good), Ok(()), "a spare that stays for good");
    let odd = |raidz: &mut VdevConfig| {
        for_good(raidz);
        raidz.kind = VdevKind::Raidz;
    };
    assert_eq!(tree([2, 4, 8, 1, 7], &odd), Err(ErrorKind::Corrupt), "a spare of another vdev");
}

/// A device that hung was taken out of use, and with it waited the thread that writes groups, and all that asked how the pool was.
#[test]
#[allow(clippy::disallowed_methods)] // this test is about threads
fn a_device_that_hangs_while_it_is_let_go_of_holds_nobody_up() {
    let (hangs, is_inside) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let (hanging, entered, held) = (hangs.clone(), is_inside.clone(), Mutex::new(held));
    let watch = move |request: Request| {
        if hanging.load(Relaxed) && matches!(request, Request::Read(_)) {
            entered.store(true, Relaxed);
            let _ = held.lock().recv();
        }
        Ok(())
    };
    let disk: DiskRef = Arc::new(WatchedDisk::new(Arc::new(MemDisk::new("hangs", SIZE)), watch));
    let new = NewTop { leaves: vec![NewLeaf { disk, path: "hangs".to_owned(), whole_disk: false }], ..NewTop::default() };
    let tree = VdevTree::create(&RealHost, vec![new], 4).unwrap();
    let leaf = tree.top(0).unwrap().leaves()[0].clone();
    hangs.store(true, Relaxed);
    let (reading, closing, asking) = (leaf.clone(), leaf.clone(), leaf.clone());
    let reader = std::thread::spawn(move || reading.read(Class::SyncRead, 0, &mut [0; 512]).is_ok());
    while !is_inside.load(Relaxed) {
        std::thread::yield_now();
    }
    leaf.stop(VdevState::Offline, Reason::Persistent);
    let closer = std::thread::spawn(move || closing.close());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        while asking.disk().is_some() {
            std::thread::yield_now();
        }
        let _ = tell.send((asking.is_open(), asking.device_bytes(), asking.has_write_cache()));
    });
    let answered = told.recv_timeout(std::time::Duration::from_secs(10));
    let_go.send(()).unwrap();
    assert_eq!(answered, Ok((false, 0, false)));
    assert!(reader.join().unwrap(), "what was under way ends");
    closer.join().unwrap();
}
