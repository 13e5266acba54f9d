//! The tree of datasets of one open pool.
//!
//! # Theory
//! [`Dsl`] finds directories and datasets by name and by object, and sees to it that each is in memory once. Records
//! that the sync thread changed are kept here until [`Dsl::flush`] writes them into the MOS, once per pass, however
//! many blocks were counted meanwhile.
//!
//! # Invariants
//! 1. At most one `Dir` and one `Dataset` for one object, while somebody holds it.
//! 2. An object set with unsynced changes is in `objsets`.
//!
//! # Locks
//! `config`: readers look names up, sync tasks write. Then the tables, one at a time; but under that of object sets the one of datasets
//! and a dataset's state.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::{DatasetPhys, DirPhys, dir_field};
use ondisk::object_type::ObjectType;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::bpobj::Bpobj;
use super::child_names::ChildNames;
use super::dataset::Dataset;
use super::dir::Dir;
use super::history::History;
use super::meta::{Meta, SpaceDelta, key};
use super::names::{DatasetName, NESTING_MAX};
use super::space::PoolSize;
use super::synctask::SyncTasks;
use crate::dmu::{FileOwnerOf, Objset, Refusal, SpaceOwner, SyncTx};
use crate::error::{Result, Within};
use crate::sync::insert_weak;
use crate::txg::Txg;
use crate::{bail, error};

/// The directory that the MOS's own space is counted in.
pub const MOS_DIR: &str = "$MOS";
/// The directory that space being freed in the background is counted in.
pub const FREE_DIR: &str = "$FREE";
/// The directory of the empty snapshot that every file system is a clone of.
pub const ORIGIN_DIR: &str = "$ORIGIN";
/// The directory that space lost to unreadable blocks is counted in.
pub const LEAK_DIR: &str = "$LEAK";

/// Directories and lists that every pool has.
#[derive(Debug, Default)]
pub(super) struct Special {
    pub(super) root: Option<Arc<Dir>>,
    pub(super) mos: Option<Arc<Dir>>,
    pub(super) free: Option<Arc<Dir>>,
    pub(super) free_bpobj: Option<Bpobj>,
    /// `$ORIGIN@$ORIGIN`
    pub(super) origin_snapshot: Option<u64>,
}

/// Records that are newer than the MOS's.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    pub(super) dirs: BTreeMap<u64, Arc<Dir>>,
    pub(super) datasets: BTreeMap<u64, Arc<Dataset>>,
}

/// See the module.
pub struct Dsl {
    /// The MOS, features, and layers below.
    pub meta: Meta,
    /// The pool's history.
    pub history: History,
    pub(super) mos_space: Arc<MosSpace>,
    file_owner: Option<FileOwnerOf>,
    /// guards: names and links on disk; held for writing by sync tasks
    config: RwLock<()>,
    pub(super) special: RwLock<Special>,
    dirs: Mutex<HashMap<u64, Weak<Dir>>>,
    child_names: ChildNames,
    datasets: Mutex<HashMap<u64, Weak<Dataset>>>,
    objsets: Mutex<BTreeMap<u64, (Arc<Dataset>, Arc<Objset>)>>,
    pub(super) dirty: Mutex<Dirty>,
    pub(super) bptree: AtomicU64,
    /// The list of blocks to free cannot be read: it is not tried again before the pool is next opened.
    pub(super) is_free_list_lost: AtomicBool,
    /// Space to be counted in [`LEAK_DIR`]. guarded by its lock, which is a leaf
    pub(super) leaked: Mutex<SpaceDelta>,
    pub(super) tasks: SyncTasks,
    pub(super) size: PoolSize,
}

impl fmt::Debug for Dsl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dsl").field("meta", &self.meta).finish_non_exhaustive()
    }
}

/// Who pays for the MOS's own blocks: they are summed up here while the MOS is written, and counted in [`MOS_DIR`] in the
/// next pass or txg, since counting changes the MOS.
#[derive(Debug, Default)]
pub struct MosSpace {
    delta: Mutex<SpaceDelta>,
}

impl MosSpace {
    fn count(&self, tx: &SyncTx<'_>, bp: &BlkPtr, sign: i64) {
        if bp.is_hole() || bp.is_redacted() {
            return;
        }
        let (used, compressed) = (tx.context.io.deflated_size(bp) as i64, bp.physical_size() as i64);
        self.delta.lock().add(SpaceDelta { used: sign * used, compressed: sign * compressed, uncompressed: sign * compressed });
    }

    /// What has been summed up, and starts again from nothing.
    pub(super) fn take(&self) -> SpaceDelta {
        std::mem::take(&mut self.delta.lock())
    }
}

impl SpaceOwner for MosSpace {
    fn reserve(&self, _txg: Txg, _bytes: u64) -> Result<(), Refusal> {
        Ok(())
    }

    fn reserve_to_free(&self, _: u64) -> Result<(), Refusal> {
        Ok(())
    }

    fn settle(&self, _: u64, _: u64, _: u64) {}

    fn born(&self, tx: &SyncTx<'_>, bp: &BlkPtr) -> Result<()> {
        self.count(tx, bp, 1);
        Ok(())
    }

    fn killed(&self, tx: &SyncTx<'_>, bp: &BlkPtr) -> Result<()> {
        self.count(tx, bp, -1);
        tx.free(bp);
        Ok(())
    }
}

impl Dsl {
    /// With nothing opened yet. `mos_space` is the owner that the MOS was opened with.
    pub(super) fn new(meta: Meta, mos_space: Arc<MosSpace>, file_owner: Option<FileOwnerOf>) -> Arc<Self> {
        Arc::new(Dsl {
            meta,
            history: History::default(),
            mos_space,
            file_owner,
            config: RwLock::new(()),
            special: RwLock::default(),
            dirs: Mutex::default(),
            child_names: ChildNames::default(),
            datasets: Mutex::default(),
            objsets: Mutex::default(),
            dirty: Mutex::default(),
            bptree: AtomicU64::new(0),
            is_free_list_lost: AtomicBool::new(false),
            leaked: Mutex::default(),
            tasks: SyncTasks::default(),
            size: PoolSize::default(),
        })
    }

    /// Opens the tree of a pool. `mos_space` is the owner that the MOS was opened with; `file_owner` finds the owner of a
    /// file, for the accounting of file systems.
    pub fn open(meta: Meta, pool: &str, mos_space: Arc<MosSpace>, file_owner: Option<FileOwnerOf>) -> Result<Arc<Self>> {
        let dsl = Self::new(meta, mos_space, file_owner);
        let mos = &dsl.meta.mos;
        let object = |name: &str| mos.zap_u64(key::DIRECTORY, name);
        let root = object(key::ROOT_DATASET)?.ok_or_else(|| error!(Corrupt, "{pool}: the pool has no root dataset"))?;
        let root = dsl.load_dir(root, Some(pool), 0)?;
        dsl.special.write().root = Some(root.clone());
        let mos_dir = dsl.child(&root, MOS_DIR)?;
        let free = dsl.find_child(&root, FREE_DIR)?;
        let origin = match dsl.find_child(&root, ORIGIN_DIR)? {
            Some(origin) => Some(dsl.dataset_record(origin.phys().head_dataset.get())?.prev_snapshot.get()),
            None => None,
        };
        {
            let mut special = dsl.special.write();
            special.mos = Some(mos_dir);
            special.free = free;
            special.origin_snapshot = origin.filter(|object| *object != 0);
            special.free_bpobj = object(key::FREE_BPOBJ)?.map(Bpobj);
        }
        dsl.bptree.store(object(key::BPTREE)?.unwrap_or(0), Ordering::Relaxed);
        dsl.meta.set_empty_bpobj(object(key::EMPTY_BPOBJ)?.unwrap_or(0));
        dsl.history.open(object(key::HISTORY)?.unwrap_or(0));
        Ok(dsl)
    }

    /// Lets go of everything that is held, so that the pool can be closed. Unsynced changes are lost.
    pub fn close(&self) {
        self.objsets.lock().clear();
        let dirty = std::mem::take(&mut *self.dirty.lock());
        drop(dirty);
        *self.special.write() = Special::default();
    }

    /// Nothing is renamed, made or destroyed while this is held.
    pub fn lock_names(&self) -> RwLockReadGuard<'_, ()> {
        self.config.read()
    }

    pub(super) fn lock_config(&self) -> RwLockWriteGuard<'_, ()> {
        self.config.write()
    }

    /// The root directory.
    pub fn root_dir(&self) -> Result<Arc<Dir>> {
        self.special.read().root.clone().ok_or_else(|| error!(Suspended, "the pool is closed"))
    }

    /// `$ORIGIN@$ORIGIN`, if the pool is new enough to have it.
    pub fn origin_snapshot(&self) -> Option<u64> {
        self.special.read().origin_snapshot
    }

    /// The pool's list of blocks to free in the background.
    pub fn free_bpobj(&self) -> Option<Bpobj> {
        self.special.read().free_bpobj
    }

    /// The directory in `object`; `name` saves the search for it in the parent.
    pub fn dir(&self, object: u64, name: Option<&str>) -> Result<Arc<Dir>> {
        self.load_dir(object, name, 0)
    }

    fn load_dir(&self, object: u64, name: Option<&str>, depth: usize) -> Result<Arc<Dir>> {
        if let Some(dir) = self.dirs.lock().get(&object).and_then(Weak::upgrade) {
            return Ok(dir);
        }
        if depth > NESTING_MAX + 1 {
            bail!(Corrupt, "directory {object}: nested too deep");
        }
        let named = || format!("directory {object}");
        let info = self.meta.mos.info(object).within(named)?;
        if info.bonus_type != ObjectType::DSL_DIR {
            bail!(Corrupt, "directory {object}: the object is a {}", info.bonus_type);
        }
        let phys = DirPhys::from_bonus(&self.meta.mos.bonus(object)?).within(named)?;
        let (parent, name) = match phys.parent.get() {
            0 => (None, name.unwrap_or_default().to_owned()),
            above => {
                let parent = self.load_dir(above, None, depth + 1)?;
                let name = match name {
                    Some(name) => name.to_owned(),
                    None => self.child_names.name_of(&self.meta.mos, parent.phys().child_dirs.get(), object).within(named)?,
                };
                (Some(parent), name)
            }
        };
        let field = |name: &str| match info.object_type {
            ObjectType::ZAP_METADATA => self.meta.mos.zap_u64(object, name).map(|found| found.unwrap_or(0)),
            _ => Ok(0),
        };
        let crypto_key = field(dir_field::CRYPTO_KEY)?;
        let origin_txg = match phys.origin.get() {
            0 => 0,
            origin if Some(origin) == self.origin_snapshot() => 0,
            origin => self.dataset_record(origin)?.creation_txg.get(),
        };
        let made = Arc::new(Dir::new(object, parent, name, phys, crypto_key, origin_txg));
        let mut dirs = self.dirs.lock();
        if let Some(other) = dirs.get(&object).and_then(Weak::upgrade) {
            return Ok(other);
        }
        insert_weak(&mut dirs, object, &made);
        Ok(made)
    }

    /// The children of a directory, by name. The pool's own (`$MOS` and so on) are left out.
    ///
    /// # Errors
    /// One of them cannot be read, or is in more than one place: who goes down from child to child comes to an end.
    pub fn children(&self, dir: &Dir) -> Result<Vec<(String, Arc<Dir>)>> {
        let entries = self.meta.mos.zap_entries(dir.phys().child_dirs.get())?;
        let mut children: Vec<_> = entries.into_iter().map(|(name, value)| (name, value.first())).collect();
        children.retain(|(name, _)| !name.starts_with('$'));
        children.sort();
        let mut seen = HashSet::new();
        let mut load = |(name, object): (String, u64)| {
            let child = self.dir(object, Some(&name))?;
            if child.phys().parent.get() != dir.object || !seen.insert(object) {
                bail!(Corrupt, "{}/{name}: directory {object} is in more than one place", dir.full_name());
            }
            Ok((name, child))
        };
        children.into_iter().map(&mut load).collect()
    }

    /// The child of that name.
    pub fn find_child(&self, dir: &Dir, name: &str) -> Result<Option<Arc<Dir>>> {
        match self.meta.mos.zap_u64(dir.phys().child_dirs.get(), name)? {
            Some(object) => self.dir(object, Some(name)).map(Some),
            None => Ok(None),
        }
    }

    fn child(&self, dir: &Dir, name: &str) -> Result<Arc<Dir>> {
        let found = self.find_child(dir, name)?;
        found.ok_or_else(|| error!(NotFound, "{}/{name}: dataset does not exist", dir.full_name()))
    }

    /// The directory called `pool/a/b`. The caller holds [`Dsl::lock_names`], or is a sync task.
    pub fn dir_by_name(&self, name: &str) -> Result<Arc<Dir>> {
        let parsed = DatasetName::parse(name)?;
        let mut dir = self.root_dir()?;
        if parsed.pool() != dir.name() {
            bail!(NotFound, "{name}: no such pool");
        }
        for component in parsed.below_pool() {
            let found = self.find_child(&dir, component)?;
            dir = found.ok_or_else(|| error!(NotFound, "cannot open '{name}': dataset does not exist"))?;
        }
        Ok(dir)
    }

    /// The record of a dataset that is perhaps not in memory.
    pub fn dataset_record(&self, object: u64) -> Result<DatasetPhys> {
        if let Some(dataset) = self.datasets.lock().get(&object).and_then(Weak::upgrade) {
            return Ok(dataset.phys());
        }
        let bonus = self.meta.mos.bonus(object).within(|| format!("dataset {object}"))?;
        Ok(DatasetPhys::from_bonus(&bonus)?)
    }

    /// The dataset in `object`.
    pub fn dataset(self: &Arc<Self>, object: u64) -> Result<Arc<Dataset>> {
        if let Some(dataset) = self.datasets.lock().get(&object).and_then(Weak::upgrade) {
            return Ok(dataset);
        }
        let made = Arc::new(Dataset::load(self, object)?);
        let mut datasets = self.datasets.lock();
        if let Some(other) = datasets.get(&object).and_then(Weak::upgrade) {
            return Ok(other);
        }
        insert_weak(&mut datasets, object, &made);
        Ok(made)
    }

    /// The dataset called `pool/a/b` or `pool/a/b@snapshot`. The caller holds [`Dsl::lock_names`], or is a sync task.
    pub fn dataset_by_name(self: &Arc<Self>, name: &str) -> Result<Arc<Dataset>> {
        let missing = || error!(NotFound, "cannot open '{name}': dataset does not exist");
        let parsed = DatasetName::parse(name)?;
        let dir = self.dir_by_name(parsed.dir).map_err(|error| match error.kind() {
            crate::error::ErrorKind::NotFound => missing(),
            _ => error,
        })?;
        let head = match dir.phys().head_dataset.get() {
            0 => return Err(missing()),
            head => self.dataset(head)?,
        };
        match parsed.snapshot {
            None => Ok(head),
            Some(snapshot) => self.dataset(head.snapshot_object(snapshot)?.ok_or_else(missing)?),
        }
    }

    /// The dataset called `name`, from open context.
    pub fn open_dataset(self: &Arc<Self>, name: &str) -> Result<Arc<Dataset>> {
        let _names = self.lock_names();
        self.dataset_by_name(name)
    }

    /// The object set of a dataset: opened on first use, kept while it is used or has unsynced changes.
    pub fn objset(&self, dataset: &Arc<Dataset>) -> Result<Arc<Objset>> {
        loop {
            if let Some((_, objset)) = self.objsets.lock().get(&dataset.object) {
                return Ok(objset.clone());
            }
            let root = dataset.phys().block;
            let opened = Objset::open(dataset.objset_options()?, root)?;
            if let Some(kept) = self.keep_objset(dataset, opened, &root)? {
                return Ok(kept);
            }
        }
    }

    /// The object set that was opened at `root`, or the one that another thread has opened. `None`: it was open meanwhile, was written, and
    /// is closed again, so that what was opened here is old. The dataset may be destroyed by now.
    pub(super) fn keep_objset(&self, dataset: &Arc<Dataset>, opened: Arc<Objset>, root: &BlkPtr) -> Result<Option<Arc<Objset>>> {
        let mut objsets = self.objsets.lock();
        if !objsets.contains_key(&dataset.object) {
            if self.datasets.lock().get(&dataset.object).map(Weak::as_ptr) != Some(Arc::as_ptr(dataset)) {
                bail!(NotFound, "{}: dataset does not exist", dataset.dir.full_name());
            }
            if dataset.phys().block != *root {
                return Ok(None);
            }
        }
        Ok(Some(objsets.entry(dataset.object).or_insert_with(|| (dataset.clone(), opened)).1.clone()))
    }

    /// An object set was just created for a dataset.
    pub(super) fn insert_objset(&self, dataset: &Arc<Dataset>, objset: &Arc<Objset>) {
        self.objsets.lock().insert(dataset.object, (dataset.clone(), objset.clone()));
    }

    /// A dataset is destroyed.
    pub(super) fn forget_dataset(&self, object: u64) {
        // In this order: who opens an object set looks whether the dataset lives before it is put into the table.
        self.datasets.lock().remove(&object);
        self.objsets.lock().remove(&object);
        self.dirty.lock().datasets.remove(&object);
    }

    /// A directory is destroyed.
    pub(super) fn forget_dir(&self, object: u64) {
        self.dirs.lock().remove(&object);
        self.dirty.lock().dirs.remove(&object);
    }

    /// Whether somebody uses the object set of a dataset.
    pub(super) fn is_open(&self, dataset: &Dataset) -> bool {
        self.objsets.lock().get(&dataset.object).is_some_and(|(_, objset)| Arc::strong_count(objset) > 1)
    }

    /// Datasets whose object sets are open.
    pub fn open_objsets(&self) -> Vec<(Arc<Dataset>, Arc<Objset>)> {
        self.objsets.lock().values().cloned().collect()
    }

    /// Datasets whose object sets `txg` changed.
    pub fn dirty_objsets(&self, txg: Txg) -> Vec<(Arc<Dataset>, Arc<Objset>)> {
        let mut open = self.open_objsets();
        open.retain(|(_, objset)| !objset.is_snapshot() && objset.is_dirty(txg));
        open
    }

    /// Datasets that are in memory.
    pub fn live_datasets(&self) -> Vec<Arc<Dataset>> {
        self.datasets.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Directories that are in memory.
    pub(super) fn live_dirs(&self) -> Vec<Arc<Dir>> {
        self.dirs.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Closes object sets that nobody uses and that have no unsynced changes.
    pub fn close_idle_objsets(&self) {
        let groups = &self.meta.context.groups;
        let mut objsets = self.objsets.lock();
        objsets.retain(|_, (_, objset)| {
            let living = groups.synced_txg()..=groups.open_txg();
            // One that an import has yet to replay must not be gone when it gets there, however long claiming took.
            let is_wanted = Arc::strong_count(objset) > 1 || objset.log().is_some_and(|log| log.waits_for_replay());
            is_wanted || (!objset.is_snapshot() && living.into_iter().any(|txg| objset.is_dirty(txg)))
        });
    }

    /// Finds the owner of a file.
    pub(super) fn file_owner(&self) -> Option<FileOwnerOf> {
        self.file_owner
    }
}
