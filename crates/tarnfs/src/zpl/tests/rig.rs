//! A file system on a disk in memory, without a pool around it: one object set, whose groups are written on demand.

use std::sync::Arc;

use disk::{Disk, MemDisk};
use engine::alloc::{Allocator, ClassKind, Group, GroupConfig, LoadSpaceMap, Metaslab, RangeTree};
use engine::arc::BlockCache;
use engine::dmu::{DmuContext, Objset, ObjsetOptions, ObjsetSettings, Refusal, SpaceOwner, SyncTx};
use engine::error::Result;
use engine::host::RealHost;
use engine::pool::check::{CheckOptions, Walker};
use engine::tunables::Tunables;
use engine::txg::{DirtyBytes, TxgGroups};
use engine::vdev::{Class, LeafId};
use engine::zio::{BlockDevice, BlockDevices, BlockFeatures, BlockIo, BlockThreads};
use ondisk::blkptr::BlkPtr;
use ondisk::objset::{ObjsetSize, ObjsetType};
use parking_lot::Mutex;

use crate::zpl::{FileSystem, MountOptions, NewFileSystem, file_owner, initialize};

const METASLAB_BYTES: u64 = 16 << 20;
const METASLABS: u64 = 16;

struct MemDevice(Arc<MemDisk>);

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

struct FreeOnDisk(Mutex<Vec<RangeTree>>);

impl LoadSpaceMap for FreeOnDisk {
    fn load(&self, _: u32, metaslab: u64) -> Result<RangeTree> {
        Ok(self.0.lock()[metaslab as usize].clone().into_indexed())
    }
}

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

pub(in crate::zpl) struct Rig {
    pub(super) context: Arc<DmuContext>,
    pub(super) disk: Arc<MemDisk>,
    group: Arc<Group>,
    free: Arc<FreeOnDisk>,
    settings: ObjsetSettings,
    root: Mutex<BlkPtr>,
}

impl Rig {
    /// A disk, and a new file system on it.
    pub(in crate::zpl) fn new(new: &NewFileSystem, settings: ObjsetSettings) -> (Rig, FileSystem) {
        let host = RealHost::shared();
        let disk = Arc::new(MemDisk::new("mem", METASLAB_BYTES * METASLABS));
        let device = Arc::new(MemDevice(disk.clone()));
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
        let rig = Rig { context, disk, group, free, settings, root: Mutex::new(BlkPtr::ZERO) };
        let frees = Mutex::new(Vec::new());
        let objset = {
            let tx = SyncTx::new(&rig.context, 4, 1, &frees);
            let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
            initialize(&objset, &tx, new).unwrap();
            objset
        };
        rig.sync(&objset);
        let fs = FileSystem::open(objset, MountOptions::default(), || (1 << 20, 1 << 30)).unwrap();
        (rig, fs)
    }

    fn options(&self) -> ObjsetOptions {
        ObjsetOptions {
            context: self.context.clone(),
            dataset: 7,
            name: "rig".into(),
            owner: Arc::new(FreesAtOnce),
            settings: self.settings,
            file_owner: Some(file_owner),
            snapshot: false,
        }
    }

    /// From now on whole inodes are given up as soon as nobody uses them.
    pub(in crate::zpl) fn crowd(&self) {
        std::mem::forget(self.context.cache.hold(1 << 40));
    }

    /// Writes the open group.
    pub(in crate::zpl) fn sync(&self, objset: &Objset) {
        let groups = &self.context.groups;
        let txg = groups.quiesce();
        assert_eq!(groups.begin_sync(), Some(txg));
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
        *self.root.lock() = root;
        groups.end_sync(txg, Ok(()));
    }

    /// The file system, read anew from the disk.
    pub(super) fn reopen(&self) -> FileSystem {
        let objset = Objset::open(self.options(), *self.root.lock()).unwrap();
        FileSystem::open(objset, MountOptions::default(), || (1 << 20, 1 << 30)).unwrap()
    }

    /// The same, with all that was changed.
    pub(super) fn reopen_synced(&self, fs: &FileSystem) -> FileSystem {
        self.sync(fs.objset());
        self.reopen()
    }

    /// Everything reads, and is exactly what is allocated.
    pub(in crate::zpl) fn check(&self) {
        let progress = |_| ();
        let mut walker = Walker::new(&self.context.io, CheckOptions { verify_data: true, ..CheckOptions::default() }, &progress);
        walker.walk_objset(&self.root.lock(), 7, 0);
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
}
