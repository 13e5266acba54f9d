//! The DSL of a new pool on a disk in memory: made, changed, reopened, destroyed; with its space counted by a walk.

use std::ops::ControlFlow;
use std::sync::Arc;

use disk::{Disk, MemDisk};
use ondisk::blkptr::BlkPtr;
use ondisk::dsl::UsedKind;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::objset::{ObjsetSize, ObjsetType};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

mod accounting;
mod branch;
mod lists;
mod destroy;
mod refused;
mod room;

use super::feature::Features;
use super::*;
use crate::alloc::{Allocator, ClassKind, Group, GroupConfig, LoadSpaceMap, Metaslab, RangeTree};
use crate::arc::BlockCache;
use crate::dmu::{DmuContext, DnodeSpec, FileOwner, Membership, Objset, ObjsetOptions, ObjsetSettings, OpenTx, Refusal, SyncTx};
use crate::error::{ErrorKind, Result};
use crate::host::RealHost;
use crate::pool::check::{CheckOptions, Walker};
use crate::tunables::Tunables;
use crate::txg::{DirtyBytes, TXG_INITIAL, TxgGroups};
use crate::vdev::{Class, LeafId};
use crate::zio::{BlockDevice, BlockDevices, BlockFeatures, BlockIo, BlockThreads};

const METASLAB_BYTES: u64 = 16 << 20;
const METASLABS: u64 = 32;

struct MemDevice(MemDisk);

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
    /// What cannot be read may come back.
    fn is_whole(&self) -> bool {
        false
    }
}

struct FreeOnDisk(Mutex<Vec<RangeTree>>);

impl LoadSpaceMap for FreeOnDisk {
    fn load(&self, _: u32, metaslab: u64) -> Result<RangeTree> {
        Ok(self.0.lock()[metaslab as usize].clone().into_indexed())
    }
}

struct Rig {
    device: Arc<MemDevice>,
    context: Arc<DmuContext>,
    group: Arc<Group>,
    free: Arc<FreeOnDisk>,
    dsl: Mutex<Option<Arc<Dsl>>>,
    root: Mutex<BlkPtr>,
}

/// Every object of type 19 belongs to user 5, group 6, and project 7 if its bonus does not begin with the number of another one.
fn owner_of(bonus_type: ObjectType, bonus: &[u8]) -> Option<FileOwner> {
    let project = bonus.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (bonus_type == ObjectType::SA).then_some(FileOwner { user: 5, group: 6, project: if project == 0 { 7 } else { project } })
}

fn rig() -> Rig {
    let host = RealHost::shared();
    let device = Arc::new(MemDevice(MemDisk::new("mem", METASLAB_BYTES * METASLABS)));
    let allocator = Arc::new(Allocator::new(2));
    let whole = |id| {
        let mut tree = RangeTree::new();
        tree.add(id * METASLAB_BYTES, METASLAB_BYTES).unwrap();
        tree
    };
    let free = Arc::new(FreeOnDisk(Mutex::new((0..METASLABS).map(whole).collect())));
    allocator.set_loader(free.clone());
    let config = GroupConfig {
        vdev: 0,
        class: ClassKind::Normal,
        ashift: 9,
        metaslab_shift: METASLAB_BYTES.ilog2() as u8,
        data_disks: 1,
        allocation_bytes: 512,
            allocated_size: Box::new(|physical, _| physical.next_multiple_of(512)),
    };
    let group = Arc::new(Group::new(config, 2));
    for id in 0..METASLABS {
        group.add_metaslab(Metaslab::new(0, id, METASLAB_BYTES, 9, None, 0));
    }
    allocator.add_group(group.clone());
    let io = BlockIo::new(&host, Arc::new(OneDevice(device.clone())), allocator, BlockThreads { writers: 1, readers: 1 });
    io.set_features(BlockFeatures { embedded_data: true, hole_birth: true, ..BlockFeatures::default() });
    io.set_writable(true);
    let context = Arc::new(DmuContext {
        cache: Arc::new(BlockCache::new(io.clone(), 8 << 20)),
        io,
        groups: TxgGroups::new(TXG_INITIAL),
        dirty: DirtyBytes::default(),
        host,
        tunables: Tunables::default(),
        read_only: false,
    });
    Rig { device, context, group, free, dsl: Mutex::new(None), root: Mutex::new(BlkPtr::ZERO) }
}

fn mos_options(context: &Arc<DmuContext>, owner: &Arc<MosSpace>) -> ObjsetOptions {
    ObjsetOptions {
        context: context.clone(),
        dataset: 0,
        name: "MOS".into(),
        owner: owner.clone(),
        settings: ObjsetSettings::mos(true),
        file_owner: None,
        snapshot: false,
    }
}

/// Puts one file of 300 kB into an object set.
fn fill() -> Fill {
    Box::new(|objset, tx| {
        let spec = DnodeSpec::new(ObjectType::PLAIN_FILE_CONTENTS, 128 << 10).with_bonus(ObjectType::SA, 64);
        let file = objset.allocate(tx, &spec)?;
        let mut data = vec![0; 300_000];
        ChaCha8Rng::seed_from_u64(1).fill(&mut data[..]);
        file.write(tx, 0, &data)
    })
}

impl Rig {
    fn dsl(&self) -> Arc<Dsl> {
        self.dsl.lock().clone().unwrap()
    }

    fn create(&self) {
        self.create_with(Feature::for_new_pools().collect());
    }

    fn create_with(&self, features: Vec<Feature>) {
        let frees = Mutex::new(Vec::new());
        let tx = SyncTx::new(&self.context, TXG_INITIAL, 1, &frees);
        let owner = Arc::new(MosSpace::default());
        let mos = Objset::create(mos_options(&self.context, &owner), &tx, ObjsetType::Meta, ObjsetSize::V3);
        let meta = Meta::new(Mos(mos), Features::default(), 5000, self.context.clone());
        let new = NewTree {
            pool: "pool".into(),
            features,
            properties: vec![("atime".into(), PropertyChange::Set(PropertyValue::Number(0)))],
            fill: fill(),
        };
        let dsl = Dsl::create(meta, new, owner, Some(owner_of), &tx).unwrap();
        dsl.set_pool_space(PoolSpace { capacity: METASLABS * METASLAB_BYTES, free: METASLABS * METASLAB_BYTES, ..PoolSpace::default() });
        *self.dsl.lock() = Some(dsl);
        self.free_blocks(&frees, TXG_INITIAL);
        self.sync(TXG_INITIAL);
    }

    /// All passes of a txg.
    fn sync(&self, txg: u64) {
        self.sync_from(txg, 1);
    }

    /// Those from this one on.
    fn sync_from(&self, txg: u64, first: u32) {
        let dsl = self.dsl();
        for pass in first.. {
            assert!(pass < 20, "no end to the passes of txg {txg}");
            let frees = Mutex::new(Vec::new());
            let tx = SyncTx::new(&self.context, txg, pass, &frees);
            *self.root.lock() = dsl.sync_pass(&tx).unwrap();
            if pass == 1 {
                dsl.free_in_background(FreeBudget { blocks: 2, ns: u64::MAX }, &tx).unwrap();
            }
            self.free_blocks(&frees, txg);
            if !dsl.is_dirty(txg) {
                break;
            }
        }
        self.sync_space(txg);
        dsl.clear_in_flight(txg);
        self.context.dirty.clear(txg);
        dsl.close_idle_objsets();
    }

    fn free_blocks(&self, frees: &Mutex<Vec<BlkPtr>>, txg: u64) {
        for bp in frees.lock().drain(..) {
            self.context.io.free(&bp, txg).unwrap();
        }
    }

    fn sync_space(&self, txg: u64) {
        for id in self.group.take_dirty(txg) {
            let metaslab = &self.group.metaslabs()[id as usize];
            let changes = metaslab.begin_pass(txg).unwrap();
            let free = &mut self.free.0.lock()[id as usize];
            free.remove_all(&changes.allocated).unwrap();
            free.add_all(&changes.freed).unwrap();
            let done = metaslab.sync_done(txg, (true, true), None).unwrap();
            self.group.count_sync_done(id, txg, done);
        }
    }

    /// The open txg is closed and written.
    fn next_txg(&self) {
        let groups = &self.context.groups;
        let open = groups.open_txg();
        assert_eq!(groups.quiesce(), open);
        assert_eq!(groups.begin_sync(), Some(open));
        self.sync(open);
        groups.end_sync(open, Ok(()));
    }

    /// Runs `work`, which waits for a txg, while txgs are written.
    fn with_syncs<T: Send>(&self, work: impl FnOnce(&Arc<Dsl>) -> T + Send) -> T {
        let dsl = self.dsl();
        std::thread::scope(|scope| {
            let worker = scope.spawn(move || work(&dsl));
            while !worker.is_finished() {
                self.next_txg();
            }
            worker.join().unwrap()
        })
    }

    /// The pool as it is on disk.
    fn reopen(&self) {
        if let Some(old) = self.dsl.lock().take() {
            old.close();
        }
        let owner = Arc::new(MosSpace::default());
        let mos = Mos(Objset::open(mos_options(&self.context, &owner), *self.root.lock()).unwrap());
        let (features, unsupported) = Features::load(&mos, true).unwrap();
        assert_eq!(unsupported, []);
        let meta = Meta::new(mos, features, 5000, self.context.clone());
        let dsl = Dsl::open(meta, "pool", owner, Some(owner_of)).unwrap();
        dsl.set_pool_space(PoolSpace { capacity: METASLABS * METASLAB_BYTES, free: METASLABS * METASLAB_BYTES, ..PoolSpace::default() });
        *self.dsl.lock() = Some(dsl);
    }

    /// All that is allocated is the MOS, the datasets, and what the bptree has; and each dataset's numbers are right.
    fn check(&self) {
        let dsl = self.dsl();
        let progress = |_| ();
        let mut walker = Walker::new(&self.context.io, CheckOptions { verify_data: true, ..CheckOptions::default() }, &progress);
        walker.walk_objset(&self.root.lock(), 0, 0);
        let mut dirs = vec![dsl.root_dir().unwrap()];
        while let Some(dir) = dirs.pop() {
            for (_, value) in dsl.meta.mos.zap_entries(dir.phys().child_dirs.get()).unwrap() {
                dirs.push(dsl.dir(value.first(), None).unwrap());
            }
            self.check_dir(&dsl, &dir);
            let head = dir.phys().head_dataset.get();
            if head != 0 {
                let dataset = dsl.dataset(head).unwrap();
                self.check_dataset(&dsl, &dataset);
                walker.walk_objset(&dataset.phys().block, head, dataset.phys().prev_snapshot_txg.get());
            }
        }
        let tree = dsl.meta.mos.zap_u64(1, "bptree_obj").unwrap();
        for entry in tree.map_or_else(Vec::new, |tree| bptree::Bptree(tree).entries(&dsl.meta).unwrap()) {
            let walk = Traversal::new(&self.context, 99, entry.birth_txg.get()).children_first().resume(&entry.resume);
            walk.run(&entry.block, &mut |block| {
                walker.visit(block.pointer, &block.at);
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        }
        let mut allocated = RangeTree::new();
        for (metaslab, free) in self.group.metaslabs().iter().zip(self.free.0.lock().iter()) {
            let mut used = RangeTree::new();
            used.add(metaslab.start, metaslab.size).unwrap();
            used.remove_all(free).unwrap();
            allocated.add_all(&used).unwrap();
        }
        walker.claims.compare(0, &allocated, &mut walker.report);
        assert!(walker.report.is_clean(), "{:?}", walker.report.findings);
    }

    /// Makes all copies of a block unreadable; returns what they were.
    fn damage(&self, bp: &BlkPtr) -> Vec<Vec<u8>> {
        self.context.cache.invalidate(bp);
        let places = bp.dvas().map(|dva| {
            let mut good = vec![0; 512];
            self.device.0.read_at(&mut good, dva.offset).unwrap();
            self.device.0.write_at(&[0xab; 512], dva.offset).unwrap();
            good
        });
        places.collect()
    }

    /// They are what they were.
    fn repair(&self, bp: &BlkPtr, good: &[Vec<u8>]) {
        for (dva, good) in bp.dvas().zip(good) {
            self.device.0.write_at(good, dva.offset).unwrap();
        }
    }

    fn check_dataset(&self, dsl: &Arc<Dsl>, dataset: &Arc<Dataset>) {
        let phys = dataset.phys();
        let mut sum = Space::default();
        let walk = Traversal::new(&self.context, dataset.object, 0);
        walk.run(&phys.block, &mut |block| {
            sum.add(dsl.meta.space_of(block.pointer));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(dataset.referenced(), sum, "{}", dataset.name().unwrap());
        assert_eq!(dataset.unique_bytes(), sum.used);
        assert_eq!(dataset.dir.used_by(UsedKind::Head), sum.used);
    }

    fn check_dir(&self, dsl: &Arc<Dsl>, dir: &Arc<Dir>) {
        let phys = dir.phys();
        let sum: u64 = phys.used_breakdown.iter().map(|used| used.get()).sum();
        assert_eq!(sum, phys.used_bytes.get(), "{}", dir.full_name());
        let (mut children, mut reserved) = (0, 0);
        for (_, value) in dsl.meta.mos.zap_entries(phys.child_dirs.get()).unwrap() {
            let child = dsl.dir(value.first(), None).unwrap().phys();
            children += child.used_bytes.get();
            reserved += child.reserved.get().saturating_sub(child.used_bytes.get());
        }
        assert_eq!(dir.used_by(UsedKind::Child), children, "{}", dir.full_name());
        assert_eq!(dir.used_by(UsedKind::ChildReservation), reserved, "{}", dir.full_name());
    }
}

fn new_dataset(name: &str) -> NewDataset {
    NewDataset { name: name.into(), objset_type: ObjsetType::FileSystem, case_insensitive: false, properties: Vec::new(), fill: fill() }
}

#[test]
fn a_new_pool_reopens_as_it_was_made() {
    let rig = rig();
    rig.create();
    rig.check();
    rig.reopen();
    rig.check();
    let dsl = rig.dsl();
    let root = dsl.open_dataset("pool").unwrap();
    assert_eq!(root.property("atime").unwrap(), Some((PropertyValue::Number(0), Source::Local)));
    assert_eq!(root.property("compression").unwrap(), Some((PropertyValue::Number(1), Source::Default)));
    assert!(root.features().contains(&Feature::ProjectQuota));
    assert_eq!(dsl.meta.features.count(Feature::ProjectQuota), Some(1));
    // Its head and $ORIGIN's share the one empty list: a key each for what is before $ORIGIN@$ORIGIN.
    assert!(dsl.meta.features.is_active(Feature::EmptyBpobj));
    let objset = dsl.objset(&root).unwrap();
    let users = crate::zap::Zap::open(&objset, crate::dmu::USED_BY_USER).unwrap();
    assert_eq!(users.lookup_u64("obj-5").unwrap(), Some(1));
    assert!(users.lookup_u64("5").unwrap().unwrap() > 300_000);
    let origin = dsl.open_dataset("pool/$ORIGIN@$ORIGIN").unwrap();
    assert!(origin.is_snapshot);
    assert_eq!(origin.phys().children.get(), 2);
    assert!(origin.prev().is_none());
    let history = dsl.history.read(&dsl.meta).unwrap();
    assert!(history.iter().any(|record| record.str(history::field::EVENT) == Some("set")), "{history:?}");
}

#[test]
fn datasets_come_and_go() {
    let rig = rig();
    rig.create();
    rig.context.groups.wait_quiesced(0);
    for name in ["pool/a", "pool/a/b", "pool/c"] {
        rig.with_syncs(|dsl| dsl.create_dataset(new_dataset(name))).unwrap();
    }
    rig.check();
    let again = rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a")));
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Exists);
    let orphan = rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/x/y")));
    assert_eq!(orphan.unwrap_err().kind(), ErrorKind::NotFound);
    rig.reopen();
    let dsl = rig.dsl();
    let b = dsl.open_dataset("pool/a/b").unwrap();
    assert_eq!(b.property("atime").unwrap().unwrap().1, Source::Inherited("pool".into()));
    let names: Vec<_> = dsl.children(&dsl.root_dir().unwrap()).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "c"]);
    // A change in open context, seen after a txg.
    let objset = dsl.objset(&b).unwrap();
    let before = b.referenced();
    {
        let member = Membership::single(objset.clone());
        let tx = OpenTx::assign(&member, 1 << 20).unwrap();
        let file = objset.hold(1).unwrap();
        file.write(&tx, 1 << 20, &[7; 4096]).unwrap();
    }
    rig.next_txg();
    assert!(b.referenced().used > before.used);
    rig.check();
    drop((b, objset));
    let busy = rig.with_syncs(|dsl| dsl.destroy_dataset("pool/a"));
    assert_eq!(busy.unwrap_err().kind(), ErrorKind::Exists);
    let used = dsl.root_dir().unwrap().phys().used_bytes.get();
    drop(dsl);
    rig.with_syncs(|dsl| dsl.destroy_dataset("pool/a/b")).unwrap();
    rig.check();
    // Two blocks in each txg.
    for _ in 0..10 {
        rig.next_txg();
        rig.check();
    }
    let dsl = rig.dsl();
    assert!(!dsl.has_background_frees().unwrap());
    assert!(!dsl.meta.features.is_active(Feature::AsyncDestroy));
    assert!(dsl.root_dir().unwrap().phys().used_bytes.get() < used - 300_000);
    assert_eq!(dsl.open_dataset("pool/a/b").unwrap_err().kind(), ErrorKind::NotFound);
    drop(dsl);
    rig.reopen();
    rig.check();
}

#[test]
fn a_rename_moves_names_and_sums() {
    let rig = rig();
    rig.create();
    for name in ["pool/a", "pool/a/b", "pool/a/b/c", "pool/d"] {
        rig.with_syncs(|dsl| dsl.create_dataset(new_dataset(name))).unwrap();
    }
    let set = |name: &str, property: &str, value: u64| {
        let change = PropertyChange::Set(PropertyValue::Number(value));
        rig.with_syncs(|dsl| dsl.set_properties(name, vec![(property.into(), change)])).unwrap();
    };
    set("pool/a/b", "reservation", 20 << 20);
    set("pool/a", "recordsize", 4096);
    let rename = |from: &str, to: &str| rig.with_syncs(|dsl| dsl.rename_dataset(from, to)).map_err(|error| error.kind());
    let used = |name: &str| rig.dsl().open_dataset(name).unwrap().dir.phys().used_bytes.get();
    let (a, b, d, root) = (used("pool/a"), used("pool/a/b"), used("pool/d"), used("pool"));
    let open = rig.dsl().open_dataset("pool/a/b/c").unwrap();
    let objset = rig.dsl().objset(&open).unwrap();
    assert_eq!(open.number_property("recordsize").unwrap(), 4096);

    rename("pool/a/b", "pool/d/x").unwrap();
    assert_eq!((open.name().unwrap(), objset.name()), ("pool/d/x/c".into(), "pool/d/x/c".into()));
    assert_eq!(open.number_property("recordsize").unwrap(), 128 << 10, "what was inherited comes from elsewhere now");
    assert_eq!(rig.dsl().open_dataset("pool/a/b").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(used("pool/d/x"), b);
    assert_eq!((used("pool/a"), used("pool/d")), (a - (20 << 20), d + (20 << 20)));
    // The root pays for both; only the metadata of the pool itself changed.
    assert!(used("pool").abs_diff(root) < 1 << 20);
    rig.check();
    rename("pool/d/x", "pool/d/y").unwrap();
    rename("pool/d/y", "pool/top").unwrap();
    drop((open, objset));

    assert_eq!(rename("pool/top", "pool/d"), Err(ErrorKind::Exists));
    assert_eq!(rename("pool/top", "pool/none/x"), Err(ErrorKind::NotFound));
    assert_eq!(rename("pool/none", "pool/x"), Err(ErrorKind::NotFound));
    assert_eq!(rename("pool/top", "pool/top/c/x"), Err(ErrorKind::Invalid));
    assert_eq!(rename("pool", "pool/x"), Err(ErrorKind::Invalid));
    assert_eq!(rename("pool/top", "other/x"), Err(ErrorKind::Invalid));
    assert_eq!(rename("pool/top", &format!("pool/{}", "n".repeat(249))), Err(ErrorKind::NameTooLong), "its child");
    set("pool/d", "quota", 10 << 20);
    assert_eq!(rename("pool/top", "pool/d/x"), Err(ErrorKind::NoSpace), "its reservation is beyond that quota");
    rig.reopen();
    rig.check();
    let dsl = rig.dsl();
    assert_eq!(dsl.open_dataset("pool/top/c").unwrap().dir.parent().unwrap().full_name(), "pool/top");
    let history = dsl.history.read(&dsl.meta).unwrap();
    let details: Vec<_> = history.iter().filter(|record| record.str("internal_name") == Some("rename")).collect();
    assert_eq!(details[0].str("history internal str"), Some("-> pool/d/x"));
    assert_eq!(details[0].str("dsname"), Some("pool/a/b"));
}

/// What leaves a directory that has reserved more than it uses then does not come free above it.
#[test]
fn a_rename_does_not_take_what_a_reservation_keeps() {
    let rig = rig();
    rig.create();
    for name in ["pool/a", "pool/a/c", "pool/b", "pool/d"] {
        rig.with_syncs(|dsl| dsl.create_dataset(new_dataset(name))).unwrap();
    }
    let set = |name: &str, property: &str, value: u64| {
        let change = PropertyChange::Set(PropertyValue::Number(value));
        rig.with_syncs(|dsl| dsl.set_properties(name, vec![(property.into(), change)])).map_err(|error| error.kind())
    };
    let rename = |from: &str, to: &str| rig.with_syncs(|dsl| dsl.rename_dataset(from, to)).map_err(|error| error.kind());
    set("pool/a", "reservation", 200 << 20).unwrap();
    set("pool/a/c", "refreservation", 150 << 20).unwrap();
    set("pool/d", "refreservation", 130 << 20).unwrap();
    let available = rig.dsl().available(&rig.dsl().root_dir().unwrap(), false);
    assert!(available < 100 << 20, "{available}");
    assert_eq!(rename("pool/a/c", "pool/b/c"), Err(ErrorKind::NoSpace), "200 MiB stay reserved, 150 would be used elsewhere");
    set("pool/a", "reservation", 0).unwrap();
    rename("pool/a/c", "pool/b/c").unwrap();
    // And where a reservation waits for it, it needs nothing of those above.
    set("pool/a", "reservation", 90 << 20).unwrap();
    set("pool/b/c", "refreservation", 80 << 20).unwrap();
    set("pool/d", "refreservation", 190 << 20).unwrap();
    rename("pool/b/c", "pool/a/c").unwrap();
    rig.check();
    assert_eq!(set("pool", "reservation", 1 << 40), Err(ErrorKind::NoSpace));
    set("pool", "reservation", 300 << 20).unwrap();
    rig.reopen();
    rig.check();
}

#[test]
fn snapshots_say_when_they_were_renamed() {
    let rig = rig();
    rig.create();
    let dsl = rig.dsl();
    let changed = || dsl.open_dataset("pool/$ORIGIN").unwrap().any_property("snapshots_changed").unwrap();
    assert_eq!(changed(), None);
    rig.with_syncs(|dsl| dsl.rename_snapshot("pool/$ORIGIN", "$ORIGIN", "then", false)).unwrap();
    assert!(changed().unwrap().0.number() > 1 << 30);
    rig.check();
}

/// A dataset below itself, one in two places, and two below one another: a list of them all did not come to an end.
#[test]
fn a_hostile_tree_of_datasets_is_listed_in_bounded_time() {
    fn list(dsl: &Arc<Dsl>, dir: &Dir) -> Result<usize> {
        dsl.children(dir)?.iter().try_fold(1, |count, (_, child)| Ok(count + list(dsl, child)?))
    }
    for (above, entry, below) in [("pool/a", "self", "pool/a"), ("pool/a", "again", "pool/a/b"), ("pool/a/b", "up", "pool/a"), ("pool/c", "other", "pool/a/b")] {
        let rig = rig();
        rig.create();
        rig.context.groups.wait_quiesced(0);
        for name in ["pool/a", "pool/a/b", "pool/c"] {
            rig.with_syncs(|dsl| dsl.create_dataset(new_dataset(name))).unwrap();
        }
        rig.with_syncs(|dsl| {
            let root = dsl.root_dir()?;
            assert_eq!(list(dsl, &root)?, 4);
            let (map, object) = (dsl.dir_by_name(above)?.phys().child_dirs.get(), dsl.dir_by_name(below)?.object);
            dsl.queue_task(move |dsl, tx| dsl.meta.mos.zap_add_u64(map, entry, object, tx))?;
            dsl.wait_for_tasks()
        })
        .unwrap();
        rig.reopen();
        let dsl = rig.dsl();
        assert_eq!(list(&dsl, &dsl.root_dir().unwrap()).unwrap_err().kind(), ErrorKind::Corrupt, "{above}/{entry} is {below}");
    }
}

#[test]
fn a_volume_has_no_children() {
    let rig = rig();
    rig.create();
    let volume = NewDataset { objset_type: ObjsetType::Volume, ..new_dataset("pool/v") };
    rig.with_syncs(|dsl| dsl.create_dataset(volume)).unwrap();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
    let error = rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/v/x"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(rig.with_syncs(|dsl| dsl.rename_dataset("pool/a", "pool/v/a")).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_walk_that_stops_goes_on_where_it_stopped() {
    let rig = rig();
    rig.create();
    let dsl = rig.dsl();
    let head = dsl.open_dataset("pool").unwrap();
    let root = head.phys().block;
    let mut all = Vec::new();
    let walk = || Traversal::new(&rig.context, 1, 0).children_first();
    let done = walk().run(&root, &mut |block| {
        all.push(block.at);
        Ok(ControlFlow::Continue(()))
    });
    assert_eq!(done.unwrap(), None);
    assert!(all.len() > 8);
    assert_eq!(all.last().unwrap().level, -1);
    let mut seen = Vec::new();
    let mut resume = ondisk::bpobj::BlockBookmarkPhys::default();
    for _ in 0..all.len() {
        let mut left = 1;
        let stopped = walk().resume(&resume).run(&root, &mut |block| {
            if block.at.level == 0 && block.at.object != 0 {
                if left == 0 {
                    return Ok(ControlFlow::Break(()));
                }
                left -= 1;
            }
            seen.push(block.at);
            Ok(ControlFlow::Continue(()))
        });
        match stopped.unwrap() {
            Some(at) => resume = at,
            None => break,
        }
    }
    assert_eq!(seen, all);
}

#[test]
fn properties_are_set_inherited_and_limited() {
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
    let set = |name: &'static str, value: PropertyValue| {
        rig.with_syncs(move |dsl| dsl.set_properties("pool/a", vec![(name.into(), PropertyChange::Set(value))]))
    };
    set("compression", PropertyValue::Number(16 | 5 << 7)).unwrap();
    set("user:mine", PropertyValue::Text("hello".into())).unwrap();
    set("snapdir", PropertyValue::Number(2)).unwrap();
    let dsl = rig.dsl();
    let a = dsl.open_dataset("pool/a").unwrap();
    let settings = a.settings().unwrap();
    assert_eq!((settings.compression, settings.compression_level), (16, 5));
    assert_eq!(dsl.objset(&a).unwrap().settings().compression, 16);
    assert_eq!(a.user_properties().unwrap(), [("user:mine".into(), PropertyValue::Text("hello".into()), Source::Local)]);
    assert_eq!(a.number_property("snapdir").unwrap(), 2);
    let props = a.dir.phys().props.get();
    assert_eq!(dsl.meta.mos.zap_u64(props, "snapdir").unwrap(), Some(0));
    assert_eq!(dsl.meta.mos.zap_u64(props, "snapdir$iuv").unwrap(), Some(2));
    let used = a.dir.phys().used_bytes.get();
    assert_eq!(set("quota", PropertyValue::Number(used / 2)).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(set("guid", PropertyValue::Number(1)).unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(set("nonsense", PropertyValue::Number(1)).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(set("reservation", PropertyValue::Number(1 << 40)).unwrap_err().kind(), ErrorKind::NoSpace);
    set("reservation", PropertyValue::Number(64 << 20)).unwrap();
    set("refreservation", PropertyValue::Number(32 << 20)).unwrap();
    rig.check();
    assert_eq!(a.dir.phys().used_bytes.get(), 32 << 20);
    let root = dsl.root_dir().unwrap();
    assert_eq!(root.used_by(UsedKind::ChildReservation), 32 << 20);
    // Writing into the reservation changes nothing above.
    let above = root.phys().used_bytes.get();
    let objset = dsl.objset(&a).unwrap();
    {
        let member = Membership::single(objset.clone());
        let tx = OpenTx::assign(&member, 1 << 20).unwrap();
        objset.hold(1).unwrap().write(&tx, 1 << 20, &[7; 100_000]).unwrap();
    }
    let mos = root.used_by(UsedKind::Child);
    rig.next_txg();
    assert_eq!(a.dir.phys().used_bytes.get(), 32 << 20);
    assert_eq!(root.phys().used_bytes.get() - above, root.used_by(UsedKind::Child) - mos);
    set("quota", PropertyValue::Number(65 << 20)).unwrap();
    assert!(a.available() <= 65 << 20);
    set("refquota", PropertyValue::Number(33 << 20)).unwrap();
    let txg = rig.context.groups.open_txg();
    let reserve = |bytes| objset.owner().reserve(txg, bytes);
    assert!(reserve(40 << 20).is_ok(), "one transaction may go over");
    let next = reserve(1 << 20);
    assert!(matches!(&next, Err(Refusal::ForNow(error)) if error.kind() == ErrorKind::Quota), "the next waits until it is known: {next:?}");
    dsl.clear_in_flight(txg);
    assert!(reserve(1 << 20).is_ok());
    dsl.clear_in_flight(txg);
    drop((objset, a));
    rig.with_syncs(|dsl| dsl.set_properties("pool/a", vec![("compression".into(), PropertyChange::Inherit)])).unwrap();
    assert_eq!(dsl.open_dataset("pool/a").unwrap().property("compression").unwrap().unwrap().1, Source::Default);
    drop((dsl, root));
    rig.with_syncs(|dsl| dsl.destroy_dataset("pool/a")).unwrap();
    for _ in 0..10 {
        rig.next_txg();
    }
    rig.check();
    rig.reopen();
    rig.check();
    assert_eq!(rig.dsl().root_dir().unwrap().used_by(UsedKind::ChildReservation), 0);
}

#[test]
fn history_is_a_ring_that_keeps_the_creation() {
    let rig = rig();
    rig.create();
    let dsl = rig.dsl();
    let object = dsl.meta.mos.zap_u64(1, "history").unwrap().unwrap();
    dsl.record_command("zpool create pool mem".into(), 0).unwrap();
    rig.next_txg();
    let long = "x".repeat(3000);
    for batch in 0..20 {
        for index in 0..10 {
            dsl.record_command(format!("zfs set user:n={} {long}", batch * 10 + index), 0).unwrap();
        }
        rig.next_txg();
    }
    let records = dsl.history.read(&dsl.meta).unwrap();
    let commands: Vec<_> = records.iter().filter_map(|record| record.str(history::field::COMMAND)).collect();
    assert_eq!(commands[0], "zpool create pool mem");
    assert!(commands.last().unwrap().starts_with("zfs set user:n=199 "));
    assert!(records.len() < 60, "{}", records.len());
    // All of them need not be in memory: the first stays, then the newest come.
    let (few, short) = (dsl.history.newest(&dsl.meta, 10, 1 << 20).unwrap(), dsl.history.newest(&dsl.meta, 1000, 10_000).unwrap());
    assert_eq!(few, [&records[..1], &records[records.len() - 9..]].concat());
    assert!(short.len() < 8 && short[0] == records[0] && short.last() == records.last(), "{}", short.len());
    assert!(dsl.meta.mos.info(object).unwrap().length <= 512 << 10);
    rig.reopen();
    assert_eq!(rig.dsl().history.read(&rig.dsl().meta).unwrap().len(), records.len());
    rig.check();
}

/// ztest records thousands of events before the first command. The end of that command then lies behind the ring's, and a history
/// whose ring is shorter than nothing stopped the group, and so the pool.
#[test]
fn a_history_without_a_ring_does_not_stop_the_pool() {
    let rig = rig();
    rig.create();
    let dsl = rig.dsl();
    let object = dsl.meta.mos.zap_u64(1, "history").unwrap().unwrap();
    let count = || rig.dsl().history.read(&rig.dsl().meta).unwrap().len();
    let command = |text: &str| {
        rig.dsl().record_command(text.into(), 0).unwrap();
        rig.next_txg();
    };
    let set = |words: [u64; 5]| {
        let bonus: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        rig.dsl().queue_task(move |dsl, tx| dsl.meta.mos.set_bonus(object, &bonus, tx)).unwrap();
        rig.next_txg();
    };
    // As OpenZFS left one: the creation, limit, begin, end, lost. Records are appended, and are found.
    set([300 << 10, 128 << 10, 300 << 10, 300 << 10, 0]);
    let before = count();
    command("zfs create pool/a");
    command("zfs create pool/b");
    assert_eq!(count(), before + 2);
    // As nobody leaves one: nothing is written, and the groups go on.
    set([500, 0, 500, 500, 0]);
    command("zfs create pool/c");
    rig.check();
    // No creation is kept where the ring was full before the first command.
    set([0, 128 << 10, 400 << 10, 400 << 10, 0]);
    command("zfs create pool/d");
    command("zfs create pool/e");
    assert_eq!(count(), 2);
    assert_eq!(dsl.meta.mos.bonus(object).unwrap()[..8], [0; 8]);
    rig.check();
}

/// A pointer to a block that does not exist: only its sizes and its birth count.
fn pointer(birth: u64, sectors: u64) -> BlkPtr {
    let dva = ondisk::dva::Dva::new(0, birth << 20, sectors * 512);
    let mut data = ondisk::blkptr::DataPointer::new(&[dva], ObjectType::PLAIN_FILE_CONTENTS, 0, birth);
    data.logical_size = 128 << 10;
    data.physical_size = sectors * 512;
    data.encode()
}

fn births(list: bpobj::Bpobj, meta: &Meta) -> Vec<u64> {
    let mut births = Vec::new();
    list.for_each(meta, |bp, _| {
        births.push(bp.birth());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    births
}

#[test]
fn lists_adopt_and_drain() {
    use bpobj::Bpobj;
    let rig = rig();
    rig.create();
    let dsl = rig.dsl();
    let meta = &dsl.meta;
    let frees = Mutex::new(Vec::new());
    let tx = SyncTx::new(&rig.context, TXG_INITIAL + 1, 1, &frees);
    let objects = || {
        let (mut count, mut at) = (0, 0);
        while let Some(next) = meta.mos.0.next_object(at).unwrap() {
            (count, at) = (count + 1, next);
        }
        count
    };
    let top = Bpobj::create(meta, &tx).unwrap();
    let mut expected = Space::default();
    // Small lists are copied, large ones (more than a block of 1024 pointers) become sub-objects, and those of those move up.
    for (number, count) in [(1u64, 3u64), (2, 1500), (3, 1100), (4, 0), (5, 7)] {
        let list = Bpobj::create(meta, &tx).unwrap();
        let pointers: Vec<_> = (0..count).map(|n| pointer(number * 10_000 + n, 1 + n % 8)).collect();
        list.append(meta, &pointers, &tx).unwrap();
        if number == 3 {
            let inner = Bpobj::create(meta, &tx).unwrap();
            let pointers: Vec<_> = (0..1030).map(|n| pointer(90_000 + n, 2)).collect();
            inner.append(meta, &pointers, &tx).unwrap();
            list.adopt(meta, inner, &tx).unwrap();
        }
        expected.add(list.space(meta).unwrap());
        top.adopt(meta, list, &tx).unwrap();
        assert_eq!(top.space(meta).unwrap(), expected, "after list {number}");
    }
    let (phys, _) = top.load(meta).unwrap();
    assert_eq!((phys.count.get(), phys.sub_object_count.get()), (10, 3));
    let all = births(top, meta);
    assert_eq!(all.len(), 3 + 1500 + 1100 + 1030 + 7);
    let only = top.space_born_in(meta, 90_000, 90_002).unwrap();
    assert_eq!((only.used, only.uncompressed), (2 * 1024, 2 * (128 << 10)));
    // Drained in three parts, each seen once.
    let mut drained = Vec::new();
    for part in [5, 2000, usize::MAX] {
        let mut left = part;
        let done = top.drain(meta, &tx, |bp, _| {
            if left == 0 {
                return Ok(ControlFlow::Break(()));
            }
            left -= 1;
            drained.push(bp.birth());
            Ok(ControlFlow::Continue(()))
        });
        assert_eq!(done.unwrap(), part == usize::MAX);
        assert_eq!(births(top, meta).len(), all.len() - drained.len());
    }
    assert_eq!(drained, all);
    assert!(top.is_empty(meta).unwrap());
    assert_eq!(top.space(meta).unwrap(), Space::default());
    top.destroy(meta, &tx).unwrap();
    let before = objects();
    rig.next_txg();
    assert_eq!(objects(), before, "objects of lists are left over");
    rig.check();
}

#[test]
fn deadlists_sort_by_birth() {
    use deadlist::Deadlist;
    let rig = rig();
    rig.create();
    let dsl = rig.dsl();
    let meta = &dsl.meta;
    let shared = meta.features.count(Feature::EmptyBpobj).unwrap();
    let frees = Mutex::new(Vec::new());
    let tx = SyncTx::new(&rig.context, TXG_INITIAL + 1, 1, &frees);
    let object = Deadlist::create(meta, &tx).unwrap();
    let list = Deadlist::open(meta, object).unwrap();
    for key in [0, 10, 20] {
        list.add_key(meta, key, &tx).unwrap();
    }
    assert_eq!(meta.features.count(Feature::EmptyBpobj).unwrap(), shared + 3);
    // A block born in the txg of a key belongs to the entry before.
    list.insert(meta, &[pointer(5, 1), pointer(10, 2), pointer(11, 4), pointer(30, 8)], &tx).unwrap();
    assert_eq!(meta.features.count(Feature::EmptyBpobj).unwrap(), shared);
    let used = |after, last| list.space_born_in(meta, after, last).unwrap().used / 512;
    assert_eq!((used(0, 10), used(10, 20), used(20, u64::MAX), used(0, u64::MAX)), (3, 4, 8, 15));
    assert_eq!(list.space(meta).unwrap().used, 15 * 512);
    list.remove_key(meta, 10, &tx).unwrap();
    let again = Deadlist::open(meta, object).unwrap();
    let entries: Vec<_> = again.entries(meta).unwrap().into_iter().map(|(key, list)| (key, births(list, meta).len())).collect();
    assert_eq!(entries, [(0, 3), (20, 1)]);
    let clone = again.clone_keys(meta, 20, &|| Ok(Vec::new()), &tx).unwrap().object;
    let keys: Vec<_> = Deadlist::open(meta, clone).unwrap().entries(meta).unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [0]);
    assert_eq!(meta.features.count(Feature::EmptyBpobj).unwrap(), shared + 1);
    Deadlist::destroy(meta, clone, &tx).unwrap();
    Deadlist::destroy(meta, object, &tx).unwrap();
    assert_eq!(meta.features.count(Feature::EmptyBpobj).unwrap(), shared);
    rig.next_txg();
    rig.check();
}

/// The freeing of a destroyed dataset stopped at a block that could not be read, and went on when the next one was destroyed, which had
/// counted the use of the feature once more: it was in use for ever, and OpenZFS does not import a pool where it is and no tree is there.
#[test]
fn destroying_after_a_stall_counts_once() {
    let rig = rig();
    rig.create();
    // Large, as two blocks are freed with each group, and groups go on until the first destruction is over.
    let large: Fill = Box::new(|objset, tx| {
        let file = objset.allocate(tx, &DnodeSpec::new(ObjectType::PLAIN_FILE_CONTENTS, 16 << 10))?;
        let mut data = vec![0; 8 << 20];
        ChaCha8Rng::seed_from_u64(1).fill(&mut data[..]);
        file.write(tx, 0, &data)
    });
    rig.with_syncs(|dsl| dsl.create_dataset(NewDataset { fill: large, ..new_dataset("pool/a") })).unwrap();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/b"))).unwrap();
    rig.with_syncs(|dsl| {
        dsl.destroy_dataset("pool/a").unwrap();
        // As `stall` does.
        dsl.parts.frees.set_tree(0);
    });
    let dsl = rig.dsl();
    assert_eq!(dsl.meta.features.count(Feature::AsyncDestroy), Some(1));
    rig.with_syncs(|dsl| dsl.destroy_dataset("pool/b")).unwrap();
    while dsl.has_background_frees().unwrap() {
        rig.next_txg();
    }
    assert_eq!(dsl.meta.features.count(Feature::AsyncDestroy), Some(0));
    drop(dsl);
    rig.check();
}

/// A caller that was so slow to open an object set that it was opened, written and closed by others meanwhile put its old state, whose blocks
/// were free, in the place of the new one.
#[test]
fn an_object_set_that_was_written_meanwhile_is_opened_again() {
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
    rig.next_txg();
    let dsl = rig.dsl();
    let dataset = dsl.open_dataset("pool/a").unwrap();
    let root = dataset.phys().block;
    let open = |root| Objset::open(dataset.objset_options(None).unwrap(), root).unwrap();
    let (early, late) = (open(root), open(root));
    let kept = dsl.parts.objsets.keep(&dataset, early.clone(), &root).unwrap().unwrap();
    assert!(Arc::ptr_eq(&kept, &early) && Arc::ptr_eq(&dsl.objset(&dataset).unwrap(), &early));
    assert!(Arc::ptr_eq(&dsl.parts.objsets.keep(&dataset, open(root), &root).unwrap().unwrap(), &early));
    let member = Membership::single(early.clone());
    let tx = OpenTx::assign(&member, 1 << 20).unwrap();
    early.hold(1).unwrap().write(&tx, 0, &[7; 4096]).unwrap();
    drop(tx);
    drop((member, kept, early));
    rig.next_txg();
    rig.next_txg();
    assert_ne!(dataset.phys().block, root);
    assert!(dsl.parts.objsets.keep(&dataset, late, &root).unwrap().is_none());
    let mut byte = [0];
    dsl.objset(&dataset).unwrap().hold(1).unwrap().read(9, &mut byte).unwrap();
    assert_eq!(byte, [7]);
}

/// Everything that an open pool holds goes with it, though nobody has closed it: an object set with changes, the record of its dataset.
#[test]
fn what_is_dropped_is_gone() {
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
    let dsl = rig.dsl.lock().take().unwrap();
    let dataset = dsl.open_dataset("pool/a").unwrap();
    let objset = dsl.objset(&dataset).unwrap();
    let member = Membership::single(objset.clone());
    let tx = OpenTx::assign(&member, 1 << 20).unwrap();
    objset.hold(1).unwrap().write(&tx, 0, &[7; 4096]).unwrap();
    drop(tx);
    drop(member);
    dataset.change(|state| state.phys_mut().flags |= 0);
    let (open, kept, whole) = (Arc::downgrade(&objset), Arc::downgrade(&dataset), Arc::downgrade(&dsl));
    drop((objset, dataset));
    assert!(open.upgrade().is_some() && kept.upgrade().is_some(), "what is not on disk is kept");
    let (records, objsets) = (Arc::downgrade(&dsl.parts.records), Arc::downgrade(&dsl.parts.objsets));
    let (tree, meta) = (Arc::downgrade(&dsl.parts.tree), Arc::downgrade(&dsl.meta));
    drop(dsl);
    assert!(whole.upgrade().is_none() && records.upgrade().is_none() && objsets.upgrade().is_none());
    assert!(open.upgrade().is_none(), "its object set is held");
    assert!(kept.upgrade().is_none(), "its dataset is held");
    assert!(tree.upgrade().is_none() && meta.upgrade().is_none());
}
