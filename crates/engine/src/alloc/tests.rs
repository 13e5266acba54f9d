use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ondisk::dva::Dva;
use ondisk::space_map::SpaceMapHeader;
use parking_lot::Mutex;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::error::{ErrorKind, Within};

const UNIT: u64 = 4096;
const METASLAB_SHIFT: u8 = 20;

/// What the space maps would say: the ranges in use of each metaslab, as of the last synced txg.
struct Disk {
    metaslab_shift: u8,
    in_use: Mutex<BTreeMap<(u32, u64), RangeTree>>,
}

impl LoadSpaceMap for Disk {
    fn load(&self, vdev: u32, metaslab: u64) -> Result<RangeTree> {
        let mut free = RangeTree::new();
        free.add(metaslab << self.metaslab_shift, 1 << self.metaslab_shift)?;
        if let Some(in_use) = self.in_use.lock().get(&(vdev, metaslab)) {
            free.remove_all(in_use)?;
        }
        Ok(free)
    }
}

fn add_group(allocator: &Allocator, vdev: u32, class: ClassKind, metaslabs: u64) -> Arc<Group> {
    add_group_with(allocator, vdev, class, metaslabs, METASLAB_SHIFT)
}

fn add_group_with(allocator: &Allocator, vdev: u32, class: ClassKind, metaslabs: u64, metaslab_shift: u8) -> Arc<Group> {
    let config = GroupConfig {
        vdev,
        class,
        ashift: 12,
        metaslab_shift,
        data_disks: 1,
        allocation_bytes: 512,
            allocated_size: Box::new(|physical, _| physical.next_multiple_of(UNIT)),
    };
    let group = Arc::new(Group::new(config, allocator.streams()));
    for id in 0..metaslabs {
        group.add_metaslab(Metaslab::new(vdev, id, 1 << metaslab_shift, 12, None, 0));
    }
    group.set_log_area();
    allocator.add_group(Arc::clone(&group));
    group
}

/// The sync side, as `pool/space_maps` does it, with `disk` for the space maps.
struct Pool {
    allocator: Arc<Allocator>,
    disk: Arc<Disk>,
    touched: BTreeSet<(u32, u64)>,
    changes: Vec<((u32, u64), Changes)>,
}

impl Pool {
    fn new(streams: usize) -> Self {
        Self::with_metaslabs(streams, METASLAB_SHIFT)
    }

    fn with_metaslabs(streams: usize, metaslab_shift: u8) -> Self {
        let disk = Arc::new(Disk { metaslab_shift, in_use: Mutex::default() });
        let allocator = Arc::new(Allocator::new(streams));
        allocator.set_loader(Arc::clone(&disk) as Arc<dyn LoadSpaceMap>);
        Self { allocator, disk, touched: BTreeSet::new(), changes: Vec::new() }
    }

    fn pass(&mut self, txg: u64) {
        for group in self.allocator.groups() {
            let vdev = group.config().vdev;
            for id in group.take_dirty(txg) {
                let changes = group.metaslabs()[id as usize].begin_pass(txg).unwrap();
                self.touched.insert((vdev, id));
                self.changes.push(((vdev, id), changes));
            }
        }
    }

    fn sync_done(&mut self, txg: u64, may_defer: bool) {
        let mut in_use = self.disk.in_use.lock();
        for (key, changes) in self.changes.drain(..) {
            let tree = in_use.entry(key).or_default();
            tree.add_all(&changes.allocated).unwrap();
            tree.remove_all(&changes.freed).unwrap();
        }
        drop(in_use);
        for (vdev, id) in std::mem::take(&mut self.touched) {
            let group = self.allocator.group(vdev).unwrap();
            let metaslab = &group.metaslabs()[id as usize];
            let _excluded = metaslab.exclude_load();
            let done = metaslab.sync_done(txg, (true, may_defer), None).unwrap();
            group.count_sync_done(id, txg, done);
        }
        self.allocator.rebalance();
    }

    /// Everything is on disk and nothing waits: counts, trees and disk agree.
    fn check_settled(&self, in_use: &BTreeSet<(u32, u64)>) {
        for group in self.allocator.groups() {
            let vdev = group.config().vdev;
            let expected = in_use.iter().filter(|unit| unit.0 == vdev).count() as u64 * UNIT;
            let space = group.space_use();
            assert_eq!((space.allocated, space.deferred), (expected, 0));
            assert_eq!(group.metaslabs().iter().map(|metaslab| metaslab.allocated()).sum::<u64>(), expected);
            for metaslab in group.metaslabs() {
                let on_disk = self.disk.load(vdev, metaslab.id).unwrap();
                if let Some(free) = metaslab.free_on_disk().unwrap() {
                    assert!(free.segments().eq(on_disk.segments()));
                }
            }
        }
    }
}

fn units(dva: Dva) -> impl Iterator<Item = (u32, u64)> {
    (dva.offset..dva.offset + dva.allocated).step_by(UNIT as usize).map(move |at| (dva.vdev, at))
}

struct Model {
    /// Blocks with their txgs.
    blocks: Vec<(u64, Vec<Dva>)>,
    in_use: BTreeSet<(u32, u64)>,
    /// Units that were freed, by the txg that did it.
    waiting: BTreeMap<(u32, u64), u64>,
}

impl Model {
    /// `usable` is the last txg whose frees may be used again.
    fn born(&mut self, txg: u64, dvas: Vec<Dva>, usable: u64) {
        for unit in dvas.iter().copied().flat_map(units) {
            assert!(self.in_use.insert(unit), "{unit:?} allocated twice");
            if let Some(freed) = self.waiting.remove(&unit) {
                assert!(freed <= usable, "{unit:?} freed in txg {freed}, used again when only {usable} may be");
            }
        }
        self.blocks.push((txg, dvas));
    }
}

fn run(seed: u64) {
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut pool = Pool::new(rng.random_range(1..4));
    let vdevs = rng.random_range(1..4);
    (0..vdevs).for_each(|vdev| drop(add_group(&pool.allocator, vdev, ClassKind::Normal, 6)));
    let mut model = Model { blocks: Vec::new(), in_use: BTreeSet::new(), waiting: BTreeMap::new() };
    let mut refused = 0;
    for txg in 1..150 {
        // Space grows for a while, then shrinks: the pool runs full, and empties.
        let (births, deaths) = if (txg / 25) % 2 == 0 { (60, 20) } else { (20, 60) };
        for _pass in 0..2 {
            for _ in 0..rng.random_range(0..births) {
                let request = Request {
                    stream: rng.random_range(0..5),
                    must_succeed: rng.random(),
                    ..Request::new(
                        ClassKind::Normal,
                        rng.random_range(1..=64 << 10),
                        rng.random_range(1..=3),
                        txg + rng.random_range(0..2),
                    )
                };
                match pool.allocator.allocate(&request) {
                    Ok(dvas) => {
                        assert_eq!(dvas.len(), request.copies);
                        if rng.random_ratio(1, 20) {
                            dvas.iter().for_each(|dva| pool.allocator.unallocate(*dva, request.txg).unwrap());
                        } else {
                            model.born(request.txg, dvas, txg.saturating_sub(3));
                        }
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoSpace);
                        refused += 1;
                    }
                }
            }
            pool.pass(txg);
            for _ in 0..rng.random_range(0..deaths).min(model.blocks.len()) {
                let chosen = rng.random_range(0..model.blocks.len());
                if model.blocks[chosen].0 > txg {
                    continue; // not in use yet
                }
                for dva in model.blocks.swap_remove(chosen).1 {
                    pool.allocator.free(dva, txg).unwrap();
                    for unit in units(dva) {
                        model.in_use.remove(&unit);
                        model.waiting.insert(unit, txg);
                    }
                }
            }
        }
        pool.pass(txg);
        pool.sync_done(txg, true);
    }
    assert!(refused > 0, "the pool never ran full");
    for txg in 150..154 {
        pool.pass(txg);
        pool.sync_done(txg, true);
    }
    pool.check_settled(&model.in_use);
}

#[test]
fn ranges_are_used_once_and_rest_two_txgs() {
    (0..12).for_each(run);
}

#[test]
fn what_is_not_in_use_cannot_be_freed() {
    let mut pool = Pool::new(1);
    add_group(&pool.allocator, 0, ClassKind::Normal, 2);
    let dva = pool.allocator.allocate(&Request::new(ClassKind::Normal, 10_000, 1, 1)).unwrap()[0];
    assert_eq!(dva.allocated, 3 * UNIT);
    pool.pass(1);
    pool.sync_done(1, true);
    pool.allocator.free(dva, 2).unwrap();
    assert_eq!(pool.allocator.free(dva, 2).unwrap_err().kind(), ErrorKind::Corrupt);
    pool.pass(2);
    assert_eq!(pool.allocator.free(dva, 2).unwrap_err().kind(), ErrorKind::Corrupt);
    pool.sync_done(2, true);
    assert_eq!(pool.allocator.free(dva, 3).unwrap_err().kind(), ErrorKind::Corrupt);
    for bad in [Dva::new(0, 100, UNIT), Dva::new(0, 0, 0), Dva::new(0, 1 << 40, UNIT), Dva::new(9, 0, UNIT)] {
        assert_eq!(pool.allocator.free(bad, 3).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let beyond = Dva::new(0, (1 << METASLAB_SHIFT) - UNIT, 2 * UNIT);
    assert_eq!(pool.allocator.free(beyond, 3).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn nothing_waits_when_space_is_short() {
    let mut pool = Pool::new(1);
    add_group(&pool.allocator, 0, ClassKind::Normal, 1);
    let whole = Request { must_succeed: true, ..Request::new(ClassKind::Normal, 1 << 20, 1, 1) };
    let dva = pool.allocator.allocate(&whole).unwrap()[0];
    pool.pass(1);
    pool.sync_done(1, true);
    assert_eq!(pool.allocator.space_use(ClassKind::Normal).free(), 0);
    pool.allocator.free(dva, 2).unwrap();
    pool.pass(2);
    pool.sync_done(2, false);
    assert_eq!(pool.allocator.space_use(ClassKind::Normal).free(), 1 << 20);
    assert_eq!(pool.allocator.allocate(&Request { txg: 3, ..whole }).unwrap(), [dva]);
}

#[test]
fn copies_are_kept_apart() {
    let pool = Pool::new(1);
    add_group(&pool.allocator, 0, ClassKind::Normal, 8);
    let dvas = pool.allocator.allocate(&Request::new(ClassKind::Normal, 8192, 3, 1)).unwrap();
    let metaslabs: BTreeSet<u64> = dvas.iter().map(|dva| dva.offset >> METASLAB_SHIFT).collect();
    assert_eq!(metaslabs.len(), 3);
    (1..4).for_each(|vdev| drop(add_group(&pool.allocator, vdev, ClassKind::Normal, 8)));
    let dvas = pool.allocator.allocate(&Request::new(ClassKind::Normal, 8192, 3, 1)).unwrap();
    assert_eq!(dvas.iter().map(|dva| dva.vdev).collect::<BTreeSet<_>>().len(), 3);
    let near = dvas[2];
    let request = Request { near: &[near], ..Request::new(ClassKind::Normal, 8192, 1, 1) };
    assert_eq!(pool.allocator.allocate(&request).unwrap()[0].vdev, near.vdev);
}

#[test]
fn writing_is_sequential_and_striped() {
    let pool = Pool::new(1);
    (0..2).for_each(|vdev| drop(add_group(&pool.allocator, vdev, ClassKind::Normal, 64)));
    let mut ends = BTreeMap::new();
    let mut bytes = [0_u64; 2];
    let mut jumps = 0;
    for _ in 0..400 {
        let dva = pool.allocator.allocate(&Request::new(ClassKind::Normal, 128 << 10, 1, 1)).unwrap()[0];
        let end = ends.insert(dva.vdev, dva.offset + dva.allocated);
        jumps += u64::from(end.is_some_and(|end| end != dva.offset));
        bytes[dva.vdev as usize] += dva.allocated;
    }
    assert!(jumps <= 100, "{jumps} jumps"); // metaslabs of 1 MiB: 50 at least
    assert!(bytes[0].abs_diff(bytes[1]) <= 4 << 20, "{bytes:?}");
}

#[test]
fn emptier_vdevs_get_more() {
    let mut pool = Pool::new(1);
    add_group(&pool.allocator, 0, ClassKind::Normal, 64);
    for _ in 0..400 {
        pool.allocator.allocate(&Request::new(ClassKind::Normal, 128 << 10, 1, 1)).unwrap();
    }
    pool.pass(1);
    pool.sync_done(1, true);
    add_group(&pool.allocator, 1, ClassKind::Normal, 64);
    pool.allocator.rebalance();
    let mut bytes = [0_u64; 2];
    for _ in 0..200 {
        let dva = pool.allocator.allocate(&Request::new(ClassKind::Normal, 32 << 10, 1, 2)).unwrap()[0];
        bytes[dva.vdev as usize] += dva.allocated;
    }
    assert!(bytes[1] > 2 * bytes[0], "{bytes:?}");
}

#[test]
fn a_full_class_passes_on() {
    let pool = Pool::new(1);
    add_group(&pool.allocator, 0, ClassKind::Normal, 8);
    add_group(&pool.allocator, 1, ClassKind::Special, 1);
    let request = Request::new(ClassKind::Special, 256 << 10, 1, 1);
    let vdevs: Vec<u32> = (0..6).map(|_| pool.allocator.allocate(&request).unwrap()[0].vdev).collect();
    assert_eq!(vdevs, [1, 1, 1, 1, 0, 0]);
    assert_eq!(pool.allocator.allocate(&Request { class: ClassKind::Log, ..request }).unwrap()[0].vdev, 0);
}

#[test]
fn the_log_has_its_own_metaslab() {
    let pool = Pool::new(1);
    let group = add_group(&pool.allocator, 0, ClassKind::Normal, 80);
    assert_eq!(group.embedded_log_bytes(), 1 << 20);
    let log = Request { for_log: true, ..Request::new(ClassKind::Normal, 4096, 1, 1) };
    let home = pool.allocator.allocate(&log).unwrap()[0].offset >> METASLAB_SHIFT;
    for _ in 0..300 {
        let dva = pool.allocator.allocate(&Request::new(ClassKind::Normal, 100 << 10, 1, 1)).unwrap()[0];
        assert_ne!(dva.offset >> METASLAB_SHIFT, home);
    }
    assert_eq!(pool.allocator.allocate(&log).unwrap()[0].offset >> METASLAB_SHIFT, home);
}

#[test]
fn places_of_the_log_come_round_and_what_lies_ahead_is_prepared_by_nobody_else() {
    let pool = Pool::new(1);
    let group = add_group(&pool.allocator, 0, ClassKind::Normal, 80);
    let area = group.log_area().expect("a vdev with many metaslabs has one");
    let (start, size) = (area.metaslab().start, area.metaslab().size);
    let log = Request { for_log: true, ..Request::new(ClassKind::Normal, 4096, 1, 1) };
    let first = pool.allocator.allocate(&log).unwrap()[0];
    assert_eq!(first.offset, start);
    let second = pool.allocator.allocate(&log).unwrap()[0];
    pool.allocator.unallocate(first, 1).unwrap();
    assert_eq!(pool.allocator.allocate(&log).unwrap()[0].offset, start, "the lowest room, not the next");
    assert!(!area.begin_preparing(start + 2 * size), "another metaslab");
    assert!(area.begin_preparing(second.offset + 4096) && !area.begin_preparing(second.offset + 4096), "one at a time");
    let (mut end, mut pieces) = (second.offset + 4096, 0);
    while let Some(piece) = area.take_piece(1) {
        assert_eq!(piece.offset, end, "what is in use is left out");
        let beside = pool.allocator.allocate(&log).unwrap()[0];
        assert!(!(piece.offset..piece.offset + piece.size).contains(&beside.offset), "it is nobody's meanwhile");
        pool.allocator.unallocate(beside, 1).unwrap();
        pool.allocator.unallocate(Dva::new(0, piece.offset, piece.size), 1).unwrap();
        area.piece_prepared(piece);
        (end, pieces) = (piece.offset + piece.size, pieces + 1);
        if end == start + size {
            break;
        }
    }
    assert!(end == start + size && pieces >= 8, "{pieces} pieces to {end:#x}");
    assert!(area.take_piece(1).is_none());
    area.end_preparing(true);
    assert!(!area.begin_preparing(end));
    // A group in which the log has taken much of it ought to be written, if that is not too soon.
    let second = 1_000_000_000;
    assert!(!area.note_taken(1, size / 10, second) && !area.note_taken(1, size / 9, 2 * second));
    assert!(area.note_taken(1, 4096, 3 * second) && !area.note_taken(2, 4096, 3 * second));
    assert!(!area.note_taken(3, 4096, 3 * second) && !area.note_taken(3, 4096, 30 * second), "little was taken");
}

/// A block of the log that was allocated while a piece was out was not the first of its txg, and nobody came by to write it down.
#[test]
fn what_is_allocated_beside_a_piece_is_written_down() {
    let pool = Pool::new(1);
    let group = add_group(&pool.allocator, 0, ClassKind::Normal, 80);
    let area = group.log_area().expect("a vdev with many metaslabs has one");
    let log = |txg| Request { for_log: true, ..Request::new(ClassKind::Normal, 4096, 1, txg) };
    pool.allocator.allocate(&log(1)).unwrap();
    let piece = group.take_log_piece(&area, 2).expect("there is one");
    pool.allocator.allocate(&log(2)).unwrap();
    pool.allocator.unallocate(Dva::new(0, piece.offset, piece.size), 2).unwrap();
    assert!(group.take_dirty(2).contains(&area.metaslab().id));
}

#[test]
fn a_small_vdev_shares_the_metaslab_of_its_log_before_it_is_full() {
    let pool = Pool::with_metaslabs(1, 23);
    let group = add_group_with(&pool.allocator, 0, ClassKind::Normal, 8, 23);
    assert_eq!(group.embedded_log_bytes(), 0, "users are told of all space");
    let home = group.log_area().expect("it has one").metaslab().id;
    let request = Request::new(ClassKind::Normal, 1 << 20, 1, 1);
    let places: Vec<u64> = std::iter::from_fn(|| pool.allocator.allocate(&request).ok()).map(|dvas| dvas[0].offset >> 23).collect();
    assert_eq!(places.len(), 64, "all of it can be had");
    assert!(places.iter().position(|place| *place == home) >= Some(56), "last of all: {places:?}");
}

#[test]
fn claims_take_free_space_only() {
    let mut pool = Pool::new(1);
    add_group(&pool.allocator, 0, ClassKind::Normal, 8);
    let dva = Dva::new(0, 5 << METASLAB_SHIFT, 8192);
    assert!(pool.allocator.is_free(dva).unwrap());
    pool.allocator.claim(dva, 7).unwrap();
    assert_eq!(pool.allocator.claim(dva, 7).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!pool.allocator.is_free(dva).unwrap());
    pool.pass(7);
    pool.sync_done(7, true);
    assert_eq!(pool.allocator.space_use(ClassKind::Normal).allocated, 8192);
}

#[test]
fn histogram_counts_all_that_the_disk_calls_free() {
    let mut pool = Pool::new(1);
    let group = add_group(&pool.allocator, 0, ClassKind::Normal, 1);
    let metaslab = Arc::clone(&group.metaslabs()[0]);
    let dvas: Vec<Dva> = (0..8)
        .map(|_| pool.allocator.allocate(&Request::new(ClassKind::Normal, UNIT, 1, 1)).unwrap()[0])
        .collect();
    pool.pass(1);
    pool.sync_done(1, true);
    for dva in dvas.choose_multiple(&mut ChaCha8Rng::seed_from_u64(3), 8).filter(|dva| dva.offset % 8192 == 0) {
        pool.allocator.free(*dva, 2).unwrap();
    }
    let changes = metaslab.begin_pass(2).unwrap();
    let mut header = SpaceMapHeader::empty(1, true);
    metaslab.update_histogram(&mut header, &changes.freed);
    let histogram = header.histogram.unwrap();
    // Four single units, and the rest of the metaslab, of 248 units.
    assert_eq!((histogram[0], histogram[7], histogram.iter().sum::<u64>()), (4, 1, 5));
    assert!(metaslab.fragmentation() > 0);
}

#[test]
fn streams_use_metaslabs_of_their_own() {
    let pool = Arc::new(Pool::new(4));
    add_group(&pool.allocator, 0, ClassKind::Normal, 32);
    let blocks = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for stream in 0..4 {
            let (pool, blocks) = (&pool, &blocks);
            scope.spawn(move || {
                for _ in 0..200 {
                    let request = Request { stream, ..Request::new(ClassKind::Normal, 16 << 10, 2, 1) };
                    blocks.lock().extend(pool.allocator.allocate(&request).unwrap());
                }
            });
        }
    });
    let mut seen = BTreeSet::new();
    for unit in blocks.into_inner().into_iter().flat_map(units) {
        assert!(seen.insert(unit), "{unit:?} allocated twice");
    }
}

/// Of some metaslabs the space map cannot be read.
struct Damaged(std::ops::Range<u64>);

impl LoadSpaceMap for Damaged {
    fn load(&self, _: u32, metaslab: u64) -> Result<RangeTree> {
        if self.0.contains(&metaslab) {
            crate::bail!(Checksum, "the space map of metaslab {metaslab}");
        }
        let mut free = RangeTree::new();
        free.add(metaslab << METASLAB_SHIFT, 1 << METASLAB_SHIFT)?;
        Ok(free)
    }
}

/// One damaged space map made a pool read-only for ever: each allocation that came by it failed, and all are tried in turn.
#[test]
fn metaslabs_whose_space_map_is_damaged_are_passed_over() {
    let allocator = Allocator::new(1);
    allocator.set_loader(Arc::new(Damaged(0..3)));
    let group = add_group(&allocator, 0, ClassKind::Normal, 5);
    for _ in 0..2 << (METASLAB_SHIFT - 12) {
        let dva = allocator.allocate(&Request::new(ClassKind::Normal, UNIT, 1, 4)).unwrap()[0];
        assert!(dva.offset >> METASLAB_SHIFT >= 3);
    }
    let full = allocator.allocate(&Request::new(ClassKind::Normal, UNIT, 1, 4)).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::NoSpace);
    assert!(!group.metaslabs()[0].is_loaded());
}

fn overlaps(dvas: &[Dva], held: &Withheld) -> bool {
    dvas.iter().any(|dva| held.ranges().overlaps(dva.offset, dva.allocated))
}

#[test]
fn what_is_withheld_is_not_given_out_until_nobody_holds_it() {
    let mut pool = Pool::new(1);
    add_group(&pool.allocator, 0, ClassKind::Normal, 1);
    let request = Request::new(ClassKind::Normal, UNIT, 1, 1);
    let used = pool.allocator.allocate(&request).unwrap();
    let half = 1 << (METASLAB_SHIFT - 1);
    let first = pool.allocator.withhold(0, 0..half).unwrap();
    let second = pool.allocator.withhold(0, half / 2..half + UNIT).unwrap();
    assert_eq!((first.ranges().bytes(), second.ranges().bytes()), (half - UNIT, half / 2 + UNIT));
    assert!(!overlaps(&used, &first) && pool.allocator.is_free(Dva::new(0, half / 2, UNIT)).unwrap());
    let mut taken = BTreeSet::new();
    let mut take = |allowed: &dyn Fn(&[Dva]) -> bool, count: u64| {
        for _ in 0..count {
            let dvas = pool.allocator.allocate(&request).unwrap();
            assert!(allowed(&dvas) && dvas.iter().copied().flat_map(units).all(|unit| taken.insert(unit)));
        }
    };
    take(&|dvas| !overlaps(dvas, &first) && !overlaps(dvas, &second), (half - UNIT) / UNIT);
    drop(first);
    take(&|dvas| !overlaps(dvas, &second), half / 2 / UNIT - 1);
    drop(second);
    take(&|_| true, half / 2 / UNIT + 1);
    assert_eq!(pool.allocator.allocate(&request).unwrap_err().kind(), ErrorKind::NoSpace);
    pool.pass(1);
    pool.sync_done(1, true);
    let in_use = (0..1 << METASLAB_SHIFT).step_by(UNIT as usize).map(|at| (0, at)).collect();
    pool.check_settled(&in_use);
}

#[test]
fn an_allocation_waits_for_what_is_withheld() {
    let pool = Pool::new(1);
    add_group(&pool.allocator, 0, ClassKind::Normal, 1);
    let held = pool.allocator.withhold(0, 0..1 << METASLAB_SHIFT).unwrap();
    let allocator = pool.allocator.clone();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || allocator.allocate(&Request::new(ClassKind::Normal, UNIT, 1, 1)).unwrap());
        while pool.allocator.withholding.starving() == 0 {
            std::thread::yield_now();
        }
        assert!(!waiting.is_finished());
        drop(held);
        assert_eq!(waiting.join().unwrap()[0].allocated, UNIT);
    });
}

/// All was given back between a search that did not find it and the look whether any is withheld; or what the search had found was noted when it was true no more.
#[test]
fn an_allocation_finds_what_is_given_back_meanwhile() {
    #[cfg(debug_assertions)]
    let _pauses = parking_lot::counting::pause(2);
    let pool = Pool::new(1);
    add_group(&pool.allocator, 0, ClassKind::Normal, 1);
    let whole = Request { must_succeed: true, ..Request::new(ClassKind::Normal, 1 << METASLAB_SHIFT, 1, 1) };
    let is_over = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(pool.allocator.withhold(0, 0..1 << METASLAB_SHIFT).unwrap());
            }
        });
        let found = (0..1000).try_for_each(|round| {
            let dvas = pool.allocator.allocate(&whole).within(|| format!("round {round}"))?;
            dvas.iter().try_for_each(|dva| pool.allocator.unallocate(*dva, 1))
        });
        is_over.store(true, Ordering::Relaxed);
        found
    });
    found.unwrap();
}

#[test]
fn what_came_free_lately_is_told_once() {
    let mut pool = Pool::new(1);
    add_group(&pool.allocator, 0, ClassKind::Normal, 1);
    pool.allocator.note_frees(true);
    let metaslab = pool.allocator.metaslab(0, 0).unwrap();
    let whole = Request::new(ClassKind::Normal, 16 * UNIT, 1, 1);
    let dva = pool.allocator.allocate(&whole).unwrap()[0];
    pool.pass(1);
    pool.sync_done(1, true);
    pool.allocator.free(dva, 2).unwrap();
    for txg in 2..4 {
        pool.pass(txg);
        pool.sync_done(txg, true);
        pool.allocator.groups()[0].mark_dirty(0, txg + 1);
        assert!(pool.allocator.withhold_lately_freed(0, &metaslab).unwrap().is_none(), "it waits for txg {}", txg + 1);
    }
    pool.pass(4);
    pool.sync_done(4, true);
    // A part of it was used again.
    let again = pool.allocator.allocate(&Request { physical: UNIT, txg: 5, ..whole }).unwrap()[0];
    let held = pool.allocator.withhold_lately_freed(0, &metaslab).unwrap().unwrap();
    let expected = if (dva.offset..dva.offset + dva.allocated).contains(&again.offset) { 15 } else { 16 };
    assert_eq!(held.ranges().bytes(), expected * UNIT);
    assert!(!overlaps(&[again], &held));
    drop(held);
    assert!(pool.allocator.withhold_lately_freed(0, &metaslab).unwrap().is_none());
}

/// A small block takes a whole stripe on dRAID, which is much more than it would without parity; on other vdevs blocks are counted by their size.
#[test]
fn small_blocks_count_what_they_take_with_parity() {
    const STRIPE: u64 = 8 * UNIT;
    let pool = Pool::new(1);
    add_group(&pool.allocator, 0, ClassKind::Normal, 4);
    let shares = |blocks: [u64; 5]| blocks.map(|block| pool.allocator.worst_data_share(block));
    let blocks = [512, UNIT, 5 * UNIT, STRIPE, 4 * STRIPE];
    assert_eq!(shares(blocks), [UNIT, UNIT, 5 * UNIT, STRIPE, 4 * STRIPE]);
    assert_eq!(pool.allocator.with_parity(10 << 20), 10 << 20);
    let config = GroupConfig {
        vdev: 1,
        class: ClassKind::Normal,
        ashift: 12,
        metaslab_shift: METASLAB_SHIFT,
        data_disks: 8,
        allocation_bytes: 9 * UNIT,
        allocated_size: Box::new(|physical, _| physical.div_ceil(STRIPE).max(1) * 9 * UNIT),
    };
    pool.allocator.add_group(Arc::new(Group::new(config, pool.allocator.streams())));
    for (block, share) in blocks.into_iter().zip(shares(blocks)) {
        let stripes = block.next_multiple_of(STRIPE);
        assert!((stripes - stripes / 1000..=stripes).contains(&share), "{block}: {share}");
    }
    assert_eq!(pool.allocator.with_parity(8 << 20), 9 << 20);
    pool.allocator.remove_group(1);
    assert_eq!(pool.allocator.worst_data_share(UNIT), UNIT);
}
