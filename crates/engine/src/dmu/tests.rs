//! The dmu on a disk in memory: random changes in overlapping groups, compared with a model after every sync, after
//! reopening, and checked for leaks.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{DiskRef, MemDisk};
use ondisk::blkptr::BlkPtr;
use ondisk::object_type::ObjectType;
use ondisk::objset::{ObjsetSize, ObjsetType};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::alloc::{Allocator, ClassKind, Group, GroupConfig, LoadSpaceMap, Metaslab, RangeTree};
use crate::arc::{BlockCache, CachePolicy, Kept};
use crate::error::Result;
use crate::host::RealHost;
use crate::pool::check::{CheckOptions, Walker};
use crate::tunables::Tunables;
use crate::txg::{DirtyBytes, TxgGroups};
use crate::vdev::{Class, LeafId};
use crate::zio::{BlockDevice, BlockDevices, BlockFeatures, BlockIo, BlockThreads};

mod entries;
mod seek;
mod watched;

const METASLAB_BYTES: u64 = 16 << 20;
const METASLABS: u64 = 16;

struct MemDevice(DiskRef);

impl BlockDevice for MemDevice {
    fn read_leaf(&self, _: LeafId, _: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        Ok(self.0.read_at(buf, offset)?)
    }
    fn write_leaf(&self, _: LeafId, _: Class, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        Ok(self.0.write_vectored_at(buffers, offset)?)
    }
    fn ashift(&self) -> u32 {
        9
    }
    fn size_bytes(&self) -> u64 {
        METASLAB_BYTES * METASLABS
    }
}

struct OneDevice(Arc<MemDevice>);

impl BlockDevices for OneDevice {
    fn device(&self, vdev: u32) -> Option<Arc<dyn BlockDevice>> {
        (vdev == 0).then(|| self.0.clone() as Arc<dyn BlockDevice>)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// What the disk would call free, by metaslab.
struct FreeOnDisk(Mutex<Vec<RangeTree>>);

impl LoadSpaceMap for FreeOnDisk {
    fn load(&self, _: u32, metaslab: u64) -> Result<RangeTree> {
        Ok(self.0.lock()[metaslab as usize].clone().into_indexed())
    }
}

/// Frees at once what is killed.
struct FreesAtOnce;

impl SpaceOwner for FreesAtOnce {
    fn reserve(&self, _: u64, _: u64) -> Result<(), Refusal> {
        Ok(())
    }

    fn reserve_to_free(&self, _: u64) -> Result<(), Refusal> {
        Ok(())
    }

    fn settle(&self, _: u64, _: u64, _: u64) {}
    fn born(&self, _: &SyncTx<'_>, _: &BlkPtr) -> Result<()> {
        Ok(())
    }
    fn killed(&self, tx: &SyncTx<'_>, bp: &BlkPtr) -> Result<()> {
        tx.free(bp);
        Ok(())
    }
}

struct Rig {
    context: Arc<DmuContext>,
    group: Arc<Group>,
    free: Arc<FreeOnDisk>,
}

fn mem_disk() -> DiskRef {
    Arc::new(MemDisk::new("mem", METASLAB_BYTES * METASLABS))
}

fn rig() -> Rig {
    rig_on(mem_disk())
}

fn rig_on(disk: DiskRef) -> Rig {
    let host = RealHost::shared();
    let device = Arc::new(MemDevice(disk));
    let allocator = Arc::new(Allocator::new(2));
    let whole = |id| {
        let mut tree = RangeTree::new();
        tree.add(id * METASLAB_BYTES, METASLAB_BYTES).unwrap();
        tree
    };
    let free = Arc::new(FreeOnDisk(Mutex::new((0..METASLABS).map(whole).collect())));
    allocator.set_loader(free.clone());
    let group = Arc::new(Group::new(
        GroupConfig {
            vdev: 0,
            class: ClassKind::Normal,
            ashift: 9,
            metaslab_shift: METASLAB_BYTES.ilog2() as u8,
            data_disks: 1,
            allocation_bytes: 512,
            allocated_size: Box::new(|physical, _| physical.next_multiple_of(512)),
        },
        2,
    ));
    for id in 0..METASLABS {
        group.add_metaslab(Metaslab::new(0, id, METASLAB_BYTES, 9, None, 0));
    }
    allocator.add_group(group.clone());
    let io = BlockIo::new(&host, Arc::new(OneDevice(device)), allocator, BlockThreads { writers: 2, readers: 1 });
    io.set_features(BlockFeatures { embedded_data: true, hole_birth: true, ..BlockFeatures::default() });
    io.set_writable(true);
    let context = Arc::new(DmuContext {
        cache: Arc::new(BlockCache::new(io.clone(), 4 << 20)),
        io,
        groups: TxgGroups::new(3),
        dirty: DirtyBytes::default(),
        host,
        tunables: Tunables::default(),
        read_only: false,
    });
    Rig { context, group, free }
}

impl Rig {
    fn options(&self) -> ObjsetOptions {
        ObjsetOptions {
            context: self.context.clone(),
            dataset: 7,
            name: "rig".into(),
            owner: Arc::new(FreesAtOnce),
            settings: ObjsetSettings::dataset_default(true),
            file_owner: None,
            snapshot: false,
        }
    }

    /// Writes `txg` and returns the root.
    fn sync(&self, objset: &Objset, txg: u64) -> BlkPtr {
        let frees = Mutex::new(Vec::new());
        let tx = SyncTx::new(&self.context, txg, 1, &frees);
        objset.sync(&tx).unwrap();
        let root = objset.sync_root(&tx).unwrap();
        for bp in frees.lock().drain(..) {
            self.context.io.free(&bp, txg).unwrap();
        }
        for id in self.group.take_dirty(txg) {
            let metaslab = &self.group.metaslabs()[id as usize];
            let changes = metaslab.begin_pass(txg).unwrap();
            let free = &mut self.free.0.lock()[id as usize];
            free.remove_all(&changes.allocated).unwrap();
            free.add_all(&changes.freed).unwrap();
            let done = metaslab.sync_done(txg, (true, true), None).unwrap();
            self.group.count_sync_done(id, txg, done);
        }
        self.context.dirty.clear(txg);
        root
    }

    /// Everything below `root` reads, and is exactly what is allocated.
    fn check(&self, root: &BlkPtr) {
        let progress = |_| ();
        let mut walker = Walker::new(&self.context.io, CheckOptions { verify_data: true, ..CheckOptions::default() }, &progress);
        walker.walk_objset(root, 7, 0);
        let mut allocated = RangeTree::new();
        for (metaslab, free) in self.group.metaslabs().iter().zip(self.free.0.lock().iter()) {
            let mut used = RangeTree::new();
            used.add(metaslab.start, metaslab.size).unwrap();
            used.remove_all(free).unwrap();
            allocated.add_all(&used).unwrap();
        }
        walker.claims.compare(0, &allocated, &mut walker.report);
        assert!(walker.report.is_clean(), "{:?}", walker.report.findings);
        assert!(walker.report.verified > 0);
    }
}

/// The contents that an object should have.
#[derive(Clone, Default)]
struct Model {
    data: Vec<u8>,
    bonus: Vec<u8>,
    spill: Option<Vec<u8>>,
}

fn change(random: &mut ChaCha8Rng, objset: &Objset, tx: &Tx, model: &mut BTreeMap<u64, Model>) {
    const END: usize = 300_000;
    let pick = |random: &mut ChaCha8Rng, model: &BTreeMap<u64, Model>| {
        let keys: Vec<u64> = model.keys().copied().collect();
        (!keys.is_empty()).then(|| keys[random.random_range(0..keys.len())])
    };
    match random.random_range(0..110) {
        0..10 => {
            let size = [512, 1024, 4096, 8192, 32_768, 131_072][random.random_range(0..6)];
            let slots = [1, 1, 2, 4][random.random_range(0..4)];
            let spec = DnodeSpec { slots, indirect_shift: 12, ..DnodeSpec::new(ObjectType(19), size).with_bonus(ObjectType::SA, 100) };
            let dnode = objset.allocate(tx, &spec).unwrap();
            assert!(model.insert(dnode.object(), Model { data: vec![0; END], bonus: vec![0; 100], spill: None }).is_none());
        }
        10..16 => {
            if let Some(object) = pick(random, model) {
                objset.free(tx, object).unwrap();
                model.remove(&object);
                assert!(objset.hold(object).is_err());
            }
        }
        16..60 => {
            if let Some(object) = pick(random, model) {
                let start = random.random_range(0..END - 1);
                let length = random.random_range(1..(END - start).min(30_000) + 1).min(END - start);
                let mut bytes = vec![0; length];
                if random.random_bool(0.8) {
                    random.fill(&mut bytes[..]);
                }
                objset.hold(object).unwrap().write(tx, start as u64, &bytes).unwrap();
                model.get_mut(&object).unwrap().data[start..start + length].copy_from_slice(&bytes);
            }
        }
        60..80 => {
            if let Some(object) = pick(random, model) {
                let start = random.random_range(0..END);
                let length = if random.random_bool(0.3) { END } else { random.random_range(0..60_000) };
                let end = (start + length).min(END);
                let count = if length == END { u64::MAX } else { (end - start) as u64 };
                objset.hold(object).unwrap().free_range(tx, start as u64, count).unwrap();
                model.get_mut(&object).unwrap().data[start..end].fill(0);
            }
        }
        80..90 => {
            if let Some(object) = pick(random, model) {
                let mut bonus = vec![0; random.random_range(1..192)];
                random.fill(&mut bonus[..]);
                objset.hold(object).unwrap().set_bonus(tx, bonus.clone());
                model.get_mut(&object).unwrap().bonus = bonus;
            }
        }
        90..95 => {
            if let Some(object) = pick(random, model) {
                let spill = random.random_bool(0.6).then(|| {
                    let mut bytes = vec![0; 512 * random.random_range(1..5)];
                    random.fill(&mut bytes[..]);
                    bytes
                });
                objset.hold(object).unwrap().set_spill(tx, spill.clone());
                model.get_mut(&object).unwrap().spill = spill;
            }
        }
        95..105 => {
            if let Some(object) = pick(random, model) {
                let dnode = objset.hold(object).unwrap();
                let first = random.random_range(0..=dnode.max_block());
                for (block, pointer) in objset.write_early(&dnode, first..first + random.random_range(1..20), tx.txg()) {
                    let read = objset.context().io.read(&pointer, &dnode.bookmark(0, block)).unwrap();
                    assert!(read == dnode.block(block).unwrap(), "object {object}, block {block}: other contents were written early");
                }
            }
        }
        _ => {
            if let Some(object) = pick(random, model) {
                let mut buf = vec![1; END];
                let dnode = objset.hold(object).unwrap();
                dnode.read(0, &mut buf).unwrap();
                if dnode.max_block() < 200 {
                    assert_holes(&dnode);
                }
                assert!(buf == model[&object].data, "object {object} reads back wrong");
            }
        }
    }
}

/// The next hole, as it is found one block at a time.
fn assert_holes(dnode: &Dnode) {
    for block in 0..=dnode.max_block() + 1 {
        let slowly = (block..).find(|&at| at > dnode.max_block() || dnode.is_hole(at).unwrap());
        assert_eq!(Some(dnode.next_hole_block(block).unwrap()), slowly, "object {}, hole from block {block}", dnode.object());
    }
}

fn compare(objset: &Arc<Objset>, model: &BTreeMap<u64, Model>) {
    let mut objects = Vec::new();
    let mut at = 0;
    while let Some(object) = objset.next_object(at).unwrap() {
        objects.push(object);
        at = object;
    }
    assert_eq!(objects, model.keys().copied().collect::<Vec<_>>());
    for (&object, expected) in model {
        let dnode = objset.hold(object).unwrap();
        let mut buf = vec![1; expected.data.len()];
        dnode.read(0, &mut buf).unwrap();
        let differs = buf.iter().zip(&expected.data).position(|(a, b)| a != b);
        assert_eq!(differs, None, "object {object}: data");
        assert_eq!(*dnode.bonus(), expected.bonus, "object {object}: bonus");
        assert_eq!(dnode.spill().unwrap().map(|spill| spill.to_vec()), expected.spill, "object {object}: spill");
        let mut block = 0;
        while let Some(data) = dnode.next_data_block(block).unwrap() {
            let size = dnode.block_bytes() as usize;
            let hole = block as usize * size..(data as usize * size).min(expected.data.len());
            assert!(hole.start >= hole.end || expected.data[hole].iter().all(|byte| *byte == 0));
            block = data + 1;
        }
    }
    assert_eq!(objset.objects_used(), model.len() as u64);
}

fn random_changes(seed: u64, rounds: usize) {
    println!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let rig = rig();
    let tx = Tx::for_test(4);
    let mut objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let mut model = BTreeMap::new();
    let mut synced_model = BTreeMap::new();
    let mut unsynced: Vec<(u64, BTreeMap<u64, Model>)> = Vec::new();
    for open in (4..).take(rounds) {
        let tx = Tx::for_test(open);
        for _ in 0..random.random_range(0..25) {
            change(&mut random, &objset, &tx, &mut model);
        }
        unsynced.push((open, model.clone()));
        // Up to two closed groups wait while a third is open.
        while unsynced.len() > 2 || (!unsynced.is_empty() && random.random_bool(0.5)) {
            let (txg, then) = unsynced.remove(0);
            let root = rig.sync(&objset, txg);
            rig.check(&root);
            synced_model = then;
        }
        if random.random_bool(0.1) && unsynced.is_empty() {
            let root = objset.pointer();
            objset = Objset::open(rig.options(), root).unwrap();
            compare(&objset, &synced_model);
        }
    }
    for (txg, _) in unsynced {
        rig.sync(&objset, txg);
    }
    let root = objset.pointer();
    rig.check(&root);
    compare(&Objset::open(rig.options(), root).unwrap(), &model);
}

/// A damaged pool can have a file of 2^40 blocks, all below one and the same indirect block: a search in it must end.
#[test]
fn a_search_in_an_endless_file_ends() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec { indirect_shift: 12, ..DnodeSpec::new(ObjectType(19), 512) }).unwrap();
    for block in 0..32u64 {
        dnode.write(&tx, block * 512, &(block << 32 | 0x5eed).to_le_bytes().repeat(64)).unwrap();
    }
    rig.sync(&objset, 4);
    let levels = 8;
    let write = |data: Vec<u8>, level| {
        let request = crate::zio::WriteRequest {
            data: Arc::new(data),
            object_type: ObjectType(19),
            level,
            checksum: 7,
            compression: 2,
            compression_level: 0,
            copies: 1,
            small_bytes: 0,
            previous: BlkPtr::ZERO,
            rewrite: false,
            no_embed: true,
            bookmark: crate::zio::Bookmark::default(),
            packed: None,
            seal: crate::zio::Seal::Open,
        };
        rig.context.io.write(request, 5).unwrap()
    };
    let endless = |mut pointer: BlkPtr| {
        for level in 2..levels {
            pointer = write(pointer.as_bytes().repeat(32), level);
        }
        let mut tree = dnode.disk.write();
        (tree.levels, tree.pointers[0]) = (levels, pointer);
        tree.max_block = 1 << 35;
        dnode.state.write().header.max_block = 1 << 35;
    };
    let first = dnode.disk.read().pointers[0];
    assert_eq!(first.level(), 1);
    endless(first);
    assert_eq!(dnode.next_hole_block(5).unwrap(), (1 << 35) + 1, "nothing but data, as far as one looks");
    // The same with holes.
    endless(write(vec![0; 4096], 1));
    let error = dnode.next_data_block(5).unwrap_err();
    assert!(error.to_string().contains("without contents"), "{error}");
}

/// What is written early is written once; what changes after that is written again, and its first place is free with the group.
#[test]
fn a_block_that_is_written_early_is_not_written_again() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), 131_072)).unwrap();
    let contents: Vec<u8> = (0..1u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    dnode.write(&tx, 0, &contents).unwrap();
    let placed = objset.write_early(&dnode, 0..8, 4);
    assert_eq!(placed.iter().map(|(block, _)| *block).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    dnode.write(&tx, 3 * 131_072 + 5, b"changed").unwrap();
    let again = objset.write_early(&dnode, 2..5, 4);
    assert_eq!(again.iter().map(|(_, pointer)| placed.iter().any(|(_, old)| old == pointer)).collect::<Vec<_>>(), [true, false, true]);
    assert!(objset.write_early(&dnode, 0..8, 5).is_empty(), "the next group has changed nothing");
    dnode.write(&tx, 6 * 131_072, b"changed").unwrap();
    let root = rig.sync(&objset, 4);
    rig.check(&root);
    for (block, pointer) in placed {
        let stayed = dnode.disk.read().pointers.clone();
        let mut on_disk = Vec::new();
        let indirect = rig.context.cache.read_pointers(&stayed[0], &dnode.bookmark(1, 0)).unwrap();
        on_disk.extend_from_slice(indirect.kept());
        assert_eq!(on_disk[block as usize].same_block(&pointer), !matches!(block, 3 | 6), "block {block}");
    }
    let mut back = vec![0; 7];
    dnode.read(3 * 131_072 + 5, &mut back).unwrap();
    assert_eq!(back, b"changed");
}

/// Blocks that another thread has written are not written again when somebody asks for them, nor with the group.
#[test]
#[allow(clippy::disallowed_methods)] // another thread is waited for
fn a_block_that_is_written_soon_is_not_written_again() {
    let rig = rig();
    let txg = rig.context.groups.open_txg();
    let tx = Tx::for_test(txg);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), 131_072)).unwrap();
    let contents: Vec<u8> = (0..1u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    dnode.write(&tx, 0, &contents).unwrap();
    objset.write_soon(&dnode, 0..8, txg + 1);
    objset.write_soon(&dnode, 0..6, txg);
    let writes = || rig.context.io.counters.writes.get();
    while writes() < 6 || dnode.early_turn.try_lock().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(writes(), 6, "those of a group that is not open were written");
    dnode.write(&tx, 2 * 131_072, b"changed").unwrap();
    let placed = objset.write_early(&dnode, 0..8, txg);
    assert_eq!((placed.len(), writes()), (8, 9), "two were not written, and one was changed");
    let root = rig.sync(&objset, txg);
    rig.check(&root);
}

/// A dataset with `primarycache` set had all its blocks in the cache.
#[test]
fn what_a_dataset_excludes_is_read_again() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), 131_072)).unwrap();
    let contents: Vec<u8> = (0..1u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    dnode.write(&tx, 0, &contents).unwrap();
    rig.sync(&objset, 4);
    let reads = || rig.context.io.counters.reads.get();
    let again = || {
        let (before, mut back) = (reads(), vec![0; contents.len()]);
        dnode.read(0, &mut back).unwrap();
        assert_eq!(back, contents);
        reads() - before
    };
    let set = |primary| objset.set_settings(ObjsetSettings { cache: CachePolicy { primary, ..CachePolicy::default() }, ..objset.settings() });
    let cached = || rig.context.cache.resident_bytes();
    assert_eq!((again(), again()), (0, 0), "what was written is there");
    let before = cached();
    set(Kept::Metadata);
    assert_eq!((again(), again(), again()), (0, 8, 8), "what was there goes with its use, and nothing comes in but what leads to it");
    assert_eq!(before - cached(), 8 * (131_072 + 128));
    let before = reads();
    dnode.prefetch(0, 1 << 20);
    assert_eq!(reads(), before, "what is not kept is not read ahead");
    set(Kept::None);
    assert_eq!((again(), again()), (15, 16), "the indirect block is read for each");
    dnode.write(&Tx::for_test(5), 0, &contents).unwrap();
    rig.sync(&objset, 5);
    assert_eq!(again(), 16, "what was written is not kept");
    set(Kept::All);
    assert_eq!((again(), again()), (9, 0));
}

#[test]
fn what_was_freed_leaves_the_cache() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let cached = || rig.context.cache.stats().recent_bytes + rig.context.cache.stats().frequent_bytes;
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), 131_072)).unwrap();
    rig.sync(&objset, 4);
    // The blocks of the tree above.
    let empty = cached();
    let contents: Vec<u8> = (0..1u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    dnode.write(&Tx::for_test(5), 0, &contents).unwrap();
    rig.sync(&objset, 5);
    let full = cached();
    assert!(full > empty + (1 << 20), "{full} bytes are cached");
    dnode.write(&Tx::for_test(6), 0, &contents).unwrap();
    rig.sync(&objset, 6);
    assert!(cached() < full + (64 << 10), "what was overwritten is still cached: {} bytes, before {full}", cached());
    dnode.free_range(&Tx::for_test(7), 0, u64::MAX).unwrap();
    rig.sync(&objset, 7);
    assert!(cached() < empty + (64 << 10), "of a file that is empty {} bytes are cached, before {empty}", cached());
}

/// A reader that had a pointer and was slow to read what it leads to found one of its copies wrong, as the place had been given to somebody else, and wrote
/// over it what had been there before.
#[test]
fn a_slow_reader_leaves_places_alone_that_are_others_by_now() {
    let rig = rig();
    rig.context.io.set_writable(true);
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType::DIRECTORY_CONTENTS, 16 << 10)).unwrap();
    let noise = |seed: u32| (0..16 << 10).map(|at: u32| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 11) as u8).collect::<Vec<u8>>();
    let device = rig.context.io.devices().device(0).unwrap();
    let damage = |pointer: &BlkPtr| {
        let copies: Vec<_> = pointer.dvas().collect();
        assert_eq!(copies.len(), 2, "metadata is there twice");
        crate::zio::write_range(&device, Class::AsyncWrite, copies[0].offset, &[&[0xee; 512]], 4).unwrap();
        rig.context.cache.invalidate(pointer);
        copies[0].offset
    };
    let is_damaged = |offset| {
        let mut now = vec![0; 512];
        crate::zio::read_range(&device, offset, &mut now, 0).unwrap();
        now == [0xee; 512]
    };
    dnode.write(&tx, 0, &noise(1)).unwrap();
    rig.sync(&objset, 4);
    // What is still the object's is healed.
    let first = dnode.block_pointer(0).unwrap();
    let place = damage(&first);
    assert_eq!(*dnode.read_synced(0, &first).unwrap(), noise(1));
    assert!(!is_damaged(place));
    dnode.write(&Tx::for_test(5), 0, &noise(2)).unwrap();
    rig.sync(&objset, 5);
    let place = damage(&first);
    assert_eq!(*dnode.read_synced(0, &first).unwrap(), noise(1));
    assert!(is_damaged(place), "somebody else's block was written over");
    assert_eq!(*dnode.block(0).unwrap(), noise(2));
}

/// What was to be read ahead held the object alone: so its set could be closed and destroyed, and the place was somebody else's when it was read.
#[test]
fn what_is_read_when_its_set_is_gone_is_not_healed() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType::DIRECTORY_CONTENTS, 16 << 10)).unwrap();
    let contents = watched::noise(1, 16 << 10);
    dnode.write(&tx, 0, &contents).unwrap();
    rig.sync(&objset, 4);
    let pointer = dnode.block_pointer(0).unwrap();
    assert_eq!(pointer.dvas().count(), 2, "metadata is there twice");
    let place = pointer.first_dva().unwrap().offset;
    let device = rig.context.io.devices().device(0).unwrap();
    crate::zio::write_range(&device, Class::AsyncWrite, place, &[&[0xee; 512]], 4).unwrap();
    rig.context.cache.invalidate(&pointer);
    drop(objset);
    assert_eq!(*dnode.read_synced(0, &pointer).unwrap(), contents);
    let mut now = vec![0; 512];
    crate::zio::read_range(&device, place, &mut now, 0).unwrap();
    assert_eq!(now, [0xee; 512], "somebody else's block was written over");
    let counters = &rig.context.io.counters;
    assert_eq!((counters.healed.get(), counters.checksum_errors.get()), (0, 0));
}

#[test]
fn random_changes_in_overlapping_groups_match_the_model() {
    for seed in 0..6 {
        random_changes(seed, 60);
    }
}

#[test]
#[ignore = "long: DMU_SEED=n cargo test -p engine -- --ignored dmu"]
fn random_changes_of_one_seed() {
    let seed = std::env::var("DMU_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    random_changes(seed, 2000);
}

/// Four threads write disjoint parts of one object while groups come and go.
#[test]
fn writers_in_parallel() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), 4096)).unwrap();
    rig.context.groups.hold(); // 4 is open
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|n| {
                let (dnode, context) = (dnode.clone(), rig.context.clone());
                scope.spawn(move || {
                    for i in 0..300u64 {
                        let hold = context.groups.hold();
                        let tx = Tx::for_test(hold.txg());
                        let at = n * 100_000 + (i * 977) % 90_000;
                        dnode.write(&tx, at, &(n << 32 | i).to_le_bytes()).unwrap();
                        let mut back = [0; 8];
                        dnode.read(at, &mut back).unwrap();
                        assert_eq!(u64::from_le_bytes(back), n << 32 | i);
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let txg = rig.context.groups.quiesce();
            assert_eq!(rig.context.groups.begin_sync(), Some(txg));
            rig.sync(&objset, txg);
            rig.context.groups.end_sync(txg, Ok(()));
        }
    });
    let txg = rig.context.groups.quiesce();
    let root = rig.sync(&objset, txg);
    rig.check(&root);
}

/// What is freed up to the end of an object while somebody writes behind that: the new block was behind the object's last one then, and lost.
#[test]
fn what_is_freed_at_the_end_spares_what_is_written_behind() {
    const BLOCK: u64 = 4096;
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), BLOCK)).unwrap();
    for last in 10..3000 {
        dnode.write(&tx, 5 * BLOCK, &[1; BLOCK as usize]).unwrap();
        dnode.write(&tx, last * BLOCK, &[1]).unwrap();
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                dnode.free_range(&tx, 5 * BLOCK + 1, (last - 4) * BLOCK - 1).unwrap();
            });
            start.wait();
            dnode.write(&tx, (last + 1) * BLOCK, &[2]).unwrap();
        });
        assert_eq!(dnode.max_block(), last + 1);
    }
}

/// Files that grow within one block, write by write, as most do, took many times the memory that was counted.
#[test]
fn a_block_that_grows_counts_with_its_new_size() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), 512)).unwrap();
    let before = rig.context.dirty.total();
    dnode.write(&tx, 0, &[1; 512]).unwrap();
    for size in [4096, 65_536, 131_072] {
        dnode.set_block_bytes(&tx, size, None).unwrap();
        assert_eq!(rig.context.dirty.total() - before, size);
    }
    dnode.set_block_bytes(&tx, 65_536, None).unwrap();
    assert_eq!(rig.context.dirty.total() - before, 65_536);
    dnode.free_range(&tx, 0, u64::MAX).unwrap();
    assert_eq!(rig.context.dirty.total(), before);
}

/// A damaged pool can say of a ZAP that it has 2^40 blocks: to list it took a lifetime before the first one was read.
#[test]
fn reading_ahead_in_an_endless_object_ends() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), 512)).unwrap();
    dnode.write(&tx, 0, b"little").unwrap();
    rig.sync(&objset, 4);
    dnode.state.write().header.max_block = 1 << 40;
    dnode.prefetch(0, u64::MAX);
    dnode.prefetch(1 << 45, u64::MAX);
}

/// Numbers that were freed in the block of dnodes that was being filled were never given again, and could not be claimed.
#[test]
fn numbers_are_given_again() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let spec = DnodeSpec::new(ObjectType(19), 512);
    let allocate = |txg| (0..31).map(|_| objset.allocate(&Tx::for_test(txg), &spec).unwrap().object()).collect::<Vec<_>>();
    let first = allocate(4);
    assert_eq!(first, (1..32).collect::<Vec<_>>());
    rig.sync(&objset, 4);
    let free = |txg| first.iter().for_each(|object| objset.free(&Tx::for_test(txg), *object).unwrap());
    free(5);
    rig.sync(&objset, 5);
    objset.claim(&Tx::for_test(6), 7, &spec).unwrap();
    assert_eq!(objset.claim(&Tx::for_test(6), 7, &spec).unwrap_err().kind(), crate::error::ErrorKind::Exists);
    objset.free(&Tx::for_test(6), 7).unwrap();
    rig.sync(&objset, 6);
    assert_eq!(allocate(7), first);
    rig.sync(&objset, 7);
    free(8);
    rig.sync(&objset, 8);
    assert_eq!(allocate(9), first);
    let root = rig.sync(&objset, 9);
    rig.check(&root);
}

/// Blocks full of large dnodes seem to have room, by the number of dnodes in them: all were read for the first new object.
#[test]
fn a_set_of_large_dnodes_is_not_read_for_a_new_one() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let spec = DnodeSpec { slots: 2, ..DnodeSpec::new(ObjectType(19), 512) };
    let last = (0..100 * 16).map(|_| objset.allocate(&tx, &spec).unwrap().object()).max().unwrap();
    let root = rig.sync(&objset, 4);
    let DmuContext { io, groups, host, tunables, .. } = &*rig.context;
    let context = Arc::new(DmuContext {
        cache: Arc::new(BlockCache::new(io.clone(), 4 << 20)),
        io: io.clone(),
        groups: groups.clone(),
        dirty: DirtyBytes::default(),
        host: host.clone(),
        tunables: tunables.clone(),
        read_only: false,
    });
    let objset = Objset::open(ObjsetOptions { context, ..rig.options() }, root).unwrap();
    let reads = io.counters.reads.get();
    assert!(objset.allocate(&Tx::for_test(5), &spec).unwrap().object() > last - 64);
    assert!(io.counters.reads.get() - reads < 20, "{} blocks were read", io.counters.reads.get() - reads);
    assert!(objset.claim(&Tx::for_test(5), 32 * 200 + 31, &spec).is_err(), "it would be in two blocks of dnodes");
}

/// A file whose contents are overwritten with zeros kept the indirect blocks above them.
#[test]
fn indirect_blocks_of_nothing_are_holes() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec { indirect_shift: 12, ..DnodeSpec::new(ObjectType(19), 4096) }).unwrap();
    let noise: Vec<u8> = (0..100u32 * 4096).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    dnode.write(&tx, 0, &noise).unwrap();
    rig.sync(&objset, 4);
    assert!(dnode.info().used_bytes > 10_000);
    dnode.write(&Tx::for_test(5), 0, &vec![0; noise.len()]).unwrap();
    let root = rig.sync(&objset, 5);
    rig.check(&root);
    assert_eq!(dnode.info().used_bytes, 0);
    let roots = dnode.on_disk().pointers;
    assert!(roots.iter().all(BlkPtr::is_hole) && roots[0].logical_birth() == 5);
    // A search for what has changed since an older group finds that the contents went.
    dnode.write(&Tx::for_test(6), 50 * 4096, &noise[..4096]).unwrap();
    let root = rig.sync(&objset, 6);
    rig.check(&root);
    let pointers: Vec<BlkPtr> = [0, 49, 50, 51, 99].into_iter().map(|block| dnode.block_pointer(block).unwrap()).collect();
    assert_eq!(pointers.iter().map(BlkPtr::logical_birth).collect::<Vec<_>>(), [5, 5, 6, 5, 5]);
    let mut back = vec![1; noise.len()];
    dnode.read(0, &mut back).unwrap();
    assert!(back[50 * 4096..51 * 4096] == noise[..4096] && back.iter().filter(|byte| **byte != 0).count() <= 4096);
}

/// A file that was emptied and written again in one group had holes of that group wherever an indirect block has room, as if there had been data: the
/// indirect block took more on disk, and a stream of what has changed would have named them all.
#[test]
fn what_never_had_data_has_none_to_lose() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec { indirect_shift: 12, ..DnodeSpec::new(ObjectType(19), 4096) }).unwrap();
    let noise: Vec<u8> = (0..100u32 * 4096).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    dnode.write(&tx, 0, &noise[..10 * 4096]).unwrap();
    dnode.write(&tx, 99 * 4096, &noise[..4096]).unwrap();
    rig.sync(&objset, 4);
    let tx = Tx::for_test(5);
    dnode.free_range(&tx, 0, u64::MAX).unwrap();
    dnode.write(&tx, 0, &noise[..3 * 4096]).unwrap();
    let root = rig.sync(&objset, 5);
    rig.check(&root);
    let births = |blocks: &[u64]| blocks.iter().map(|block| dnode.block_pointer(*block).unwrap().logical_birth()).collect::<Vec<_>>();
    let is_hole = |block: u64| dnode.block_pointer(block).unwrap().is_hole();
    assert_eq!(births(&[0, 2, 3, 9, 10, 31]), [5, 5, 5, 5, 0, 0]);
    assert!(!is_hole(2) && is_hole(3) && is_hole(9));
    let mut back = vec![1; 100 * 4096];
    let length = dnode.read(0, &mut back).map(|_| back.len()).unwrap();
    assert!(back[..3 * 4096] == noise[..3 * 4096] && back[3 * 4096..length].iter().all(|byte| *byte == 0));
}
