//! A pool of one object set (the MOS) on memory: every block that is reachable is in use, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ondisk::blkptr::BlkPtr;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::objset::{ObjsetSize, ObjsetType};
use ondisk::space_map::{Action, Area, BLOCK_BYTES_DIRECT};
use parking_lot::Mutex;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::map::SpaceMap;
use super::open::{LOG_TABLE, MOS_DIRECTORY};
use super::*;
use crate::alloc::{Allocator, ClassKind, GroupConfig, RangeTree};
use crate::arc::BlockCache;
use crate::dmu::{DmuContext, Dnode, DnodeSpec, Objset, ObjsetOptions, ObjsetSettings, Refusal, SpaceOwner, SyncTx};
use crate::error::{ErrorKind, Result};
use crate::host::{HostRef, RealHost};
use crate::pool::check::{CheckOptions, Walker};
use crate::tunables::Tunables;
use crate::txg::{DirtyBytes, Txg, TxgGroups};
use crate::zap::{Zap, ZapSpec};
use crate::vdev::{Class, LeafId};
use crate::zio::{BlockDevice, BlockDevices, BlockIo, BlockThreads};

const METASLAB_SHIFT: u8 = 20;
const METASLABS: u64 = 24;
const VDEVS: u32 = 2;

struct Memory {
    bytes: Mutex<Vec<u8>>,
}

impl BlockDevice for Memory {
    fn read_leaf(&self, _: LeafId, _: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.copy_from_slice(&self.bytes.lock()[offset as usize..][..buf.len()]);
        Ok(())
    }
    fn write_leaf(&self, _: LeafId, _: Class, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        let data = buffers.concat();
        self.bytes.lock()[offset as usize..][..data.len()].copy_from_slice(&data);
        Ok(())
    }
    fn ashift(&self) -> u32 {
        9
    }
    fn size_bytes(&self) -> u64 {
        METASLABS << METASLAB_SHIFT
    }
}

struct Vdevs(Vec<Arc<Memory>>);

impl BlockDevices for Vdevs {
    fn device(&self, vdev: u32) -> Option<Arc<dyn BlockDevice>> {
        self.0.get(vdev as usize).map(|device| Arc::clone(device) as Arc<dyn BlockDevice>)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// Features, kept in memory.
pub(super) struct Features {
    logged: AtomicBool,
    histogram: AtomicBool,
    counts: Mutex<BTreeMap<Feature, i64>>,
}

impl Features {
    pub(super) fn new(logged: bool, histogram: bool) -> Self {
        let (logged, histogram) = (AtomicBool::new(logged), AtomicBool::new(histogram));
        Self { logged, histogram, counts: Mutex::default() }
    }
}

impl FeatureCounts for Features {
    fn is_enabled(&self, feature: Feature) -> bool {
        match feature {
            Feature::LogSpacemap => self.logged.load(Ordering::Relaxed),
            Feature::SpacemapHistogram => self.histogram.load(Ordering::Relaxed),
            Feature::SpacemapV2 => true,
            _ => false,
        }
    }
    fn is_active(&self, feature: Feature) -> bool {
        feature == Feature::SpacemapV2 || self.counts.lock().get(&feature).is_some_and(|count| *count > 0)
    }
    fn add(&self, _tx: &SyncTx<'_>, feature: Feature, change: i64) -> Result<()> {
        let mut counts = self.counts.lock();
        let count = counts.entry(feature).or_default();
        *count += change;
        assert!(*count >= 0, "{feature:?} was counted below zero");
        Ok(())
    }
}

/// The MOS pays for nothing; what it no longer needs is free.
struct Mos;

impl SpaceOwner for Mos {
    fn reserve(&self, _txg: Txg, _bytes: u64) -> Result<(), Refusal> {
        Ok(())
    }

    fn reserve_to_free(&self, _: u64) -> Result<(), Refusal> {
        Ok(())
    }

    fn settle(&self, _: u64, _: u64, _: u64) {}
    fn born(&self, _tx: &SyncTx<'_>, _bp: &BlkPtr) -> Result<()> {
        Ok(())
    }
    fn killed(&self, tx: &SyncTx<'_>, bp: &BlkPtr) -> Result<()> {
        tx.free(bp);
        Ok(())
    }
}

struct Pool {
    disks: Arc<Vdevs>,
    features: Arc<Features>,
    context: Arc<DmuContext>,
    mos: Arc<Objset>,
    space_maps: Arc<SpaceMaps>,
    top_zaps: Vec<u64>,
    data: Arc<Dnode>,
    root: BlkPtr,
    txg: u64,
}

fn context(disks: &Arc<Vdevs>, synced: u64) -> Arc<DmuContext> {
    context_on(Arc::clone(disks) as Arc<dyn BlockDevices>, synced)
}

pub(super) fn context_on(devices: Arc<dyn BlockDevices>, synced: u64) -> Arc<DmuContext> {
    let host: HostRef = RealHost::shared();
    let allocator = Arc::new(Allocator::new(2));
    let threads = BlockThreads { writers: 2, readers: 1 };
    let io = BlockIo::new(&host, devices, allocator, threads);
    Arc::new(DmuContext {
        cache: Arc::new(BlockCache::new(Arc::clone(&io), 8 << 20)),
        io,
        groups: TxgGroups::new(synced),
        dirty: DirtyBytes::default(),
        host,
        tunables: Tunables::default(),
        read_only: false,
    })
}

pub(super) fn mos_options(context: &Arc<DmuContext>) -> ObjsetOptions {
    ObjsetOptions {
        context: Arc::clone(context),
        dataset: 0,
        name: "mos".to_owned(),
        owner: Arc::new(Mos),
        settings: ObjsetSettings::mos(true),
        file_owner: None,
        snapshot: false,
    }
}

fn vdev_space(vdev: u32, metaslab_array: u64, top_zap: u64) -> VdevSpace {
    let group = GroupConfig {
        vdev,
        class: ClassKind::Normal,
        ashift: 9,
        metaslab_shift: METASLAB_SHIFT,
        data_disks: 1,
        allocation_bytes: 512,
            allocated_size: Box::new(|physical, _| physical.next_multiple_of(512)),
    };
    VdevSpace { group, bytes: (METASLABS << METASLAB_SHIFT) + 4096, metaslab_array, top_zap, is_closed: false }
}

impl Pool {
    fn create(logged: bool, histogram: bool) -> Self {
        let memory = || Arc::new(Memory { bytes: Mutex::new(vec![0; (METASLABS << METASLAB_SHIFT) as usize]) });
        let disks = Arc::new(Vdevs((0..VDEVS).map(|_| memory()).collect()));
        let features = Arc::new(Features::new(logged, histogram));
        let (txg, context) = (4, context(&disks, 3));
        let frees = Mutex::default();
        let tx = SyncTx::new(&context, txg, 1, &frees);
        let mos = Objset::create(mos_options(&context), &tx, ObjsetType::Meta, ObjsetSize::V1);
        Zap::create_at(&mos, &tx, MOS_DIRECTORY, &ZapSpec::new(ObjectType::OBJECT_DIRECTORY)).unwrap();
        let zap = || Zap::create(&mos, &tx, &ZapSpec::new(ObjectType::ZAP_METADATA)).unwrap().object();
        let top_zaps: Vec<u64> = (0..VDEVS).map(|_| zap()).collect();
        let data = mos.allocate(&tx, &DnodeSpec::new(ObjectType::UINT64_METADATA, 4096)).unwrap();
        let vdevs = (0..VDEVS).map(|vdev| vdev_space(vdev, 0, top_zaps[vdev as usize])).collect();
        let space_maps = Self::open_maps(&context, &mos, &features, vdevs);
        assert!(space_maps.make_arrays(&tx).unwrap() && !space_maps.make_arrays(&tx).unwrap());
        Self { disks, features, context, mos, space_maps, top_zaps, data, root: BlkPtr::ZERO, txg }
    }

    fn open_maps(
        context: &Arc<DmuContext>,
        mos: &Arc<Objset>,
        features: &Arc<Features>,
        vdevs: Vec<VdevSpace>,
    ) -> Arc<SpaceMaps> {
        SpaceMaps::open(SpaceMapsOptions {
            mos: Arc::clone(mos),
            allocator: Arc::clone(context.io.allocator()),
            features: Arc::clone(features) as Arc<dyn FeatureCounts>,
            vdevs,
            top_level_vdevs: VDEVS,
        })
        .unwrap()
    }

    /// The same pool, opened anew from what is on its disks.
    fn reopen(&self) -> Self {
        let context = context(&self.disks, self.txg - 1);
        let mos = Objset::open(mos_options(&context), self.root).unwrap();
        let space = |vdev| vdev_space(vdev, self.space_maps.metaslab_array(vdev), self.top_zaps[vdev as usize]);
        let space_maps = Self::open_maps(&context, &mos, &self.features, (0..VDEVS).map(space).collect());
        let data = mos.hold(self.data.object()).unwrap();
        Self {
            disks: Arc::clone(&self.disks),
            features: Arc::clone(&self.features),
            context,
            mos,
            space_maps,
            top_zaps: self.top_zaps.clone(),
            data,
            root: self.root,
            txg: self.txg,
        }
    }

    fn change(&self, rng: &mut ChaCha8Rng, blocks: u64, writes: u64) {
        let frees = Mutex::default();
        let tx = SyncTx::new(&self.context, self.txg, 1, &frees);
        for _ in 0..rng.random_range(0..=writes) {
            let block = rng.random_range(0..blocks);
            if rng.random_ratio(1, 3) {
                let count = rng.random_range(1..20);
                self.data.free_range(&tx, block * 4096, count * 4096).unwrap();
            } else {
                let mut contents = vec![0; 4096];
                rng.fill_bytes(&mut contents);
                self.data.write_block(&tx, block, contents).unwrap();
            }
        }
    }

    /// Syncs the txg as `pool/sync` does; returns the number of passes.
    fn sync(&mut self) -> u32 {
        let frees = Mutex::default();
        let mut pass = 1;
        loop {
            let tx = SyncTx::new(&self.context, self.txg, pass, &frees);
            self.mos.sync(&tx).unwrap();
            self.root = self.mos.sync_root(&tx).unwrap();
            for bp in std::mem::take(&mut *frees.lock()) {
                self.context.io.free(&bp, self.txg).unwrap();
            }
            self.space_maps.sync_pass(&tx).unwrap();
            if !self.mos.is_dirty(self.txg) {
                break;
            }
            pass += 1;
            assert!(pass < 30, "txg {} does not converge", self.txg);
        }
        self.space_maps.sync_done(self.txg, true, true).unwrap();
        self.txg += 1;
        pass
    }

    /// What is reachable from the root is in use, and nothing else.
    fn check(&self) {
        let mut walker = Walker::new(&self.context.io, CheckOptions { verify_data: true, ..CheckOptions::default() }, &|_| ());
        walker.walk_objset(&self.root, 0, 0);
        let Walker { mut claims, mut report, .. } = walker;
        for vdev in 0..VDEVS {
            let allocated = self.space_maps.allocated_ranges(vdev).unwrap();
            let space = self.context.io.allocator().group(vdev).unwrap().space_use();
            assert_eq!(space.allocated - space.deferred, allocated.bytes());
            claims.compare(vdev, &allocated, &mut report);
        }
        claims.finish(&mut report);
        assert!(report.is_clean(), "txg {}: {:#?}", self.txg - 1, report.findings);
        assert!(report.allocated_bytes > 100 << 10, "nothing is in use");
    }

    fn logs(&self) -> u64 {
        let table = Zap::open(&self.mos, MOS_DIRECTORY).unwrap().lookup_u64(LOG_TABLE).unwrap();
        table.map_or(0, |table| Zap::open(&self.mos, table).unwrap().len().unwrap())
    }
}

fn run(seed: u64, logged: bool, histogram: bool) {
    println!("seed {seed}, logged {logged}, histogram {histogram}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut pool = Pool::create(logged, histogram);
    for round in 0..60 {
        pool.change(&mut rng, 2500, if round % 10 == 9 { 0 } else { 400 });
        pool.sync();
        if rng.random_ratio(1, 4) {
            pool.check();
        }
        if rng.random_ratio(1, 6) {
            pool = pool.reopen();
            pool.check();
        }
    }
    let histograms = pool.features.counts.lock().get(&Feature::SpacemapHistogram).copied().unwrap_or(0);
    assert_eq!(histograms > 0, histogram);
    pool.check();
    assert_eq!(logged, pool.logs() > 1);
    if logged {
        pool.space_maps.request_flush_all();
        pool.sync();
        pool.check();
        assert_eq!(pool.logs(), 1, "everything was flushed: the log of the last txg is enough");
        pool.reopen().check();
    }
}

#[test]
fn changes_go_to_each_space_map() {
    run(1, false, true);
    run(2, false, false);
}

#[test]
fn changes_go_through_logs() {
    (10..14).for_each(|seed| run(seed, true, true));
}

#[test]
fn an_old_pool_takes_up_new_features() {
    let mut rng = ChaCha8Rng::seed_from_u64(21);
    let mut pool = Pool::create(false, false);
    for _ in 0..12 {
        pool.change(&mut rng, 2500, 400);
        pool.sync();
    }
    pool.features.logged.store(true, Ordering::Relaxed);
    pool.features.histogram.store(true, Ordering::Relaxed);
    for round in 0..40 {
        if round % 10 == 0 {
            pool = pool.reopen();
        }
        pool.change(&mut rng, 2500, 400);
        let passes = pool.sync();
        assert!(passes < 8, "{passes} passes");
        pool.check();
    }
    pool.space_maps.request_flush_all();
    pool.sync();
    pool.check();
    pool.reopen().check();
    let histograms = pool.features.counts.lock()[&Feature::SpacemapHistogram];
    assert!(histograms > 1 + pool.logs().cast_signed(), "only logs have histograms: {histograms}");
}

/// The free space that a space map says.
fn replayed(map: &SpaceMap, area: Area) -> RangeTree {
    let mut free = RangeTree::indexed();
    free.add(area.start, area.size).unwrap();
    map.replay(map.length(), |entry| match entry.action {
        Action::Allocate => Ok(free.remove(entry.offset, entry.size)?),
        Action::Free => Ok(free.add(entry.offset, entry.size)?),
    })
    .unwrap();
    assert_eq!(map.header.allocated.cast_unsigned(), area.size - free.bytes());
    free
}

#[test]
fn long_space_maps_are_condensed() {
    let pool = Pool::create(false, true);
    let features = pool.features.as_ref();
    let frees = Mutex::default();
    let tx = SyncTx::new(&pool.context, pool.txg, 1, &frees);
    let area = Area { start: 1 << 24, size: 1 << 24, shift: 9 };
    let mut map = SpaceMap::create(&pool.mos, &tx, features, area, BLOCK_BYTES_DIRECT).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut condensed = 0;
    for _ in 0..120 {
        let free = replayed(&map, area);
        let (mut allocate, mut release) = (RangeTree::new(), RangeTree::new());
        for _ in 0..600 {
            let (offset, size) = (area.start + rng.random_range(0..1_u64 << 15) * 512, rng.random_range(1..5) * 512);
            if offset + size > area.start + area.size {
                continue;
            }
            if free.contains(offset, size) {
                let _ = allocate.add(offset, size);
            } else if !free.overlaps(offset, size) {
                let _ = release.add(offset, size);
            }
        }
        map.append(&tx, features, None, &allocate, &release).unwrap();
        let free = replayed(&map, area);
        if map.should_condense(&free.class_counts(), features) {
            let length = map.length();
            map.rewrite(&tx, features, &free).unwrap();
            assert!(map.length() <= length / 2, "{length} bytes became {}", map.length());
            assert!(replayed(&map, area).segments().eq(free.segments()));
            condensed += 1;
        }
    }
    assert!(condensed > 1, "condensed {condensed} times");
}

#[test]
fn a_txg_without_changes_writes_nothing() {
    let mut pool = Pool::create(true, true);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    pool.change(&mut rng, 100, 100);
    assert!(pool.sync() > 1);
    let root = pool.root;
    for _ in 0..5 {
        assert_eq!(pool.sync(), 1);
    }
    assert!(pool.root.same_block(&root));
    assert_eq!(pool.context.io.allocator().space_use(ClassKind::Normal).deferred, 0);
    pool.check();
}

#[test]
fn nonsense_on_disk_is_refused() {
    let mut pool = Pool::create(true, true);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    pool.change(&mut rng, 100, 100);
    pool.sync();
    let array = pool.mos.hold(pool.space_maps.metaslab_array(0)).unwrap();
    let frees = Mutex::default();
    let tx = SyncTx::new(&pool.context, pool.txg, 1, &frees);
    // The number of an object that is no space map.
    array.write(&tx, 0, &MOS_DIRECTORY.to_le_bytes()).unwrap();
    let open = |shift: u8, array: u64| {
        let mut space = vdev_space(0, array, pool.top_zaps[0]);
        space.group.metaslab_shift = shift;
        SpaceMaps::open(SpaceMapsOptions {
            mos: Arc::clone(&pool.mos),
            allocator: Arc::new(Allocator::new(1)),
            features: Arc::clone(&pool.features) as Arc<dyn FeatureCounts>,
            vdevs: vec![space],
            top_level_vdevs: VDEVS,
        })
        .map(|_| ())
    };
    let error = open(METASLAB_SHIFT, array.object()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    // Metaslabs larger than they are: the ranges in the logs end up in the wrong ones, or cross them.
    assert!(open(9, array.object()).is_err());
    assert!(open(70, array.object()).is_err());
}

/// OpenZFS gives the vdevs of such a pool ZAPs when it imports it; until then there is no place for what logs need.
#[test]
fn an_old_pool_whose_vdevs_have_no_zaps_does_not_log() {
    let mut rng = ChaCha8Rng::seed_from_u64(22);
    let mut pool = Pool::create(false, true);
    pool.change(&mut rng, 2500, 400);
    pool.sync();
    pool.top_zaps = vec![0; VDEVS as usize];
    pool = pool.reopen();
    pool.features.logged.store(true, Ordering::Relaxed);
    for _ in 0..5 {
        pool.change(&mut rng, 2500, 400);
        pool.sync();
        pool.check();
        pool = pool.reopen();
    }
    assert_eq!(pool.logs(), 0);
}

/// The real `zdb` takes it that each log has a histogram, and calls a pool damaged whose feature for those is off.
#[test]
fn a_pool_without_histograms_does_not_begin_to_log() {
    let mut rng = ChaCha8Rng::seed_from_u64(23);
    let mut pool = Pool::create(false, false);
    pool.features.logged.store(true, Ordering::Relaxed);
    for _ in 0..5 {
        pool.change(&mut rng, 2500, 400);
        pool.sync();
        pool.check();
        pool = pool.reopen();
    }
    assert_eq!(pool.logs(), 0);
    // With them it does.
    pool.features.histogram.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        pool.change(&mut rng, 2500, 400);
        pool.sync();
        pool.check();
    }
    assert!(pool.logs() > 0);
}
