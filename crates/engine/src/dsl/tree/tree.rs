//! The tree of datasets: directories and datasets, found by name and by object.
//!
//! # Theory
//! [`Tree`] sees to it that each directory and each dataset is in memory once, as long as somebody holds it. It holds none of them
//! itself, but the root.
//!
//! # Invariants
//! 1. At most one `Dir` and one `Dataset` for one object, while somebody holds it.
//!
//! # Locks
//! `config`: readers look names up, sync tasks write. Then the tables, one at a time.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ondisk::dsl::{DatasetPhys, DirPhys, dir_field};
use ondisk::object_type::ObjectType;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::dir::Dir;
use super::known_names::KnownNames;
use super::names::{DatasetName, NESTING_MAX};
use crate::dsl::dataset::Dataset;
use crate::dsl::dataset::dataset::Links;
use crate::dsl::meta::Meta;
use crate::error::{ErrorKind, Result, Within};
use crate::sync::insert_weak;
use crate::{bail, error};

/// See the module.
pub(in crate::dsl) struct Tree {
    /// What datasets are given.
    links: Links,
    /// guards: names and links on disk; held for writing by sync tasks
    config: RwLock<()>,
    /// None before it is made, and when the pool is closed.
    root: RwLock<Option<Arc<Dir>>>,
    /// `$ORIGIN@$ORIGIN`; 0: there is none
    origin_snapshot: AtomicU64,
    dirs: Mutex<HashMap<u64, Weak<Dir>>>,
    child_names: KnownNames,
    snapshot_names: KnownNames,
    datasets: Mutex<HashMap<u64, Weak<Dataset>>>,
    /// Directories and datasets that were destroyed. guarded by: the table that had it (to raise)
    destroyed: AtomicU64,
}

impl Tree {
    /// Without a root yet.
    pub(in crate::dsl) fn new(links: Links) -> Self {
        Tree {
            links,
            config: RwLock::new(()),
            root: RwLock::default(),
            origin_snapshot: AtomicU64::new(0),
            dirs: Mutex::default(),
            child_names: KnownNames::default(),
            snapshot_names: KnownNames::default(),
            datasets: Mutex::default(),
            destroyed: AtomicU64::new(0),
        }
    }

    /// Changes when something may have left memory that was newer than what the MOS had before: noted before the MOS is read, and compared under the lock of
    /// the table that is to have what was read.
    fn departures(&self) -> u64 {
        self.destroyed.load(Ordering::Acquire) + self.links.records.upgrade().map_or(0, |records| records.flushes())
    }

    fn meta(&self) -> &Meta {
        &self.links.meta
    }

    /// This is the root.
    pub(in crate::dsl) fn set_root(&self, root: Arc<Dir>) {
        *self.root.write() = Some(root);
    }

    /// This is `$ORIGIN@$ORIGIN`.
    pub(in crate::dsl) fn set_origin_snapshot(&self, object: u64) {
        self.origin_snapshot.store(object, Ordering::Release);
    }

    /// Nothing is looked up any more.
    pub(in crate::dsl) fn close(&self) {
        *self.root.write() = None;
    }

    /// Nothing is renamed, made or destroyed while this is held.
    pub(in crate::dsl) fn lock_names(&self) -> RwLockReadGuard<'_, ()> {
        self.config.read()
    }

    /// As [`Tree::lock_names`], of a thread that perhaps holds it already.
    pub(in crate::dsl) fn lock_names_again(&self) -> RwLockReadGuard<'_, ()> {
        self.config.read_recursive()
    }

    pub(in crate::dsl) fn lock_config(&self) -> RwLockWriteGuard<'_, ()> {
        self.config.write()
    }

    /// The root directory.
    pub(in crate::dsl) fn root_dir(&self) -> Result<Arc<Dir>> {
        self.root.read().clone().ok_or_else(|| error!(Suspended, "the pool is closed"))
    }

    /// `$ORIGIN@$ORIGIN`, if the pool is new enough to have it.
    pub(in crate::dsl) fn origin_snapshot(&self) -> Option<u64> {
        Some(self.origin_snapshot.load(Ordering::Acquire)).filter(|object| *object != 0)
    }

    /// The directory in `object`; `name` saves the search for it in the parent.
    pub(in crate::dsl) fn dir(&self, object: u64, name: Option<&str>) -> Result<Arc<Dir>> {
        self.load_dir(object, name, 0)
    }

    fn load_dir(&self, object: u64, name: Option<&str>, depth: usize) -> Result<Arc<Dir>> {
        loop {
            if let Some(dir) = self.dirs.lock().get(&object).and_then(Weak::upgrade) {
                return Ok(dir);
            }
            let before = self.departures();
            let read = Arc::new(self.read_dir(object, name, depth)?);
            let mut dirs = self.dirs.lock();
            if let Some(other) = dirs.get(&object).and_then(Weak::upgrade) {
                return Ok(other);
            }
            if self.departures() == before {
                insert_weak(&mut dirs, object, &read);
                return Ok(read);
            }
        }
    }

    fn read_dir(&self, object: u64, name: Option<&str>, depth: usize) -> Result<Dir> {
        if depth > NESTING_MAX + 1 {
            bail!(Corrupt, "directory {object}: nested too deep");
        }
        let named = || format!("directory {object}");
        let info = self.meta().mos.info(object).within(named)?;
        if info.bonus_type != ObjectType::DSL_DIR {
            bail!(Corrupt, "directory {object}: the object is a {}", info.bonus_type);
        }
        let phys = DirPhys::from_bonus(&self.meta().mos.bonus(object)?).within(named)?;
        let (parent, name) = match phys.parent.get() {
            0 => (None, name.unwrap_or_default().to_owned()),
            above => {
                let parent = self.load_dir(above, None, depth + 1)?;
                let name = match name {
                    Some(name) => name.to_owned(),
                    None => self.child_names.name_of(&self.meta().mos, parent.phys().child_dirs.get(), object).within(named)?,
                };
                (Some(parent), name)
            }
        };
        let field = |name: &str| match info.object_type {
            ObjectType::ZAP_METADATA => self.meta().mos.zap_u64(object, name).map(|found| found.unwrap_or(0)),
            _ => Ok(0),
        };
        let crypto_key = field(dir_field::CRYPTO_KEY)?;
        let origin_txg = match phys.origin.get() {
            0 => 0,
            origin if Some(origin) == self.origin_snapshot() => 0,
            origin => self.dataset_record(origin)?.creation_txg.get(),
        };
        Ok(Dir::new(object, parent, name, phys, crypto_key, origin_txg))
    }

    /// The children of a directory, by name. The pool's own (`$MOS` and so on) are left out.
    ///
    /// # Errors
    /// One of them cannot be read, or is in more than one place: a walk from child to child comes to an end.
    pub(in crate::dsl) fn children(&self, dir: &Dir) -> Result<Vec<(String, Arc<Dir>)>> {
        let entries = self.meta().mos.zap_entries(dir.phys().child_dirs.get())?;
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
    pub(in crate::dsl) fn find_child(&self, dir: &Dir, name: &str) -> Result<Option<Arc<Dir>>> {
        match self.meta().mos.zap_u64(dir.phys().child_dirs.get(), name)? {
            Some(object) => self.dir(object, Some(name)).map(Some),
            None => Ok(None),
        }
    }

    pub(in crate::dsl) fn child(&self, dir: &Dir, name: &str) -> Result<Arc<Dir>> {
        let found = self.find_child(dir, name)?;
        found.ok_or_else(|| error!(NotFound, "{}/{name}: dataset does not exist", dir.full_name()))
    }

    /// The directory called `pool/a/b`. The caller holds [`Tree::lock_names`], or is a sync task.
    pub(in crate::dsl) fn dir_by_name(&self, name: &str) -> Result<Arc<Dir>> {
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

    /// The names of snapshots.
    pub(in crate::dsl) fn snapshot_names(&self) -> &KnownNames {
        &self.snapshot_names
    }

    /// The record of a dataset that is perhaps not in memory.
    pub(in crate::dsl) fn dataset_record(&self, object: u64) -> Result<DatasetPhys> {
        if let Some(dataset) = self.datasets.lock().get(&object).and_then(Weak::upgrade) {
            return Ok(dataset.phys());
        }
        let bonus = self.meta().mos.bonus(object).within(|| format!("dataset {object}"))?;
        Ok(DatasetPhys::from_bonus(&bonus)?)
    }

    /// The dataset in `object`.
    pub(in crate::dsl) fn dataset(self: &Arc<Self>, object: u64) -> Result<Arc<Dataset>> {
        loop {
            if let Some(dataset) = self.datasets.lock().get(&object).and_then(Weak::upgrade) {
                return Ok(dataset);
            }
            let before = self.departures();
            let read = Arc::new(Dataset::load(self, &self.links, object)?);
            let mut datasets = self.datasets.lock();
            if let Some(other) = datasets.get(&object).and_then(Weak::upgrade) {
                return Ok(other);
            }
            if self.departures() == before {
                insert_weak(&mut datasets, object, &read);
                return Ok(read);
            }
        }
    }

    /// The dataset called `pool/a/b` or `pool/a/b@snapshot`. The caller holds [`Tree::lock_names`], or is a sync task.
    pub(in crate::dsl) fn dataset_by_name(self: &Arc<Self>, name: &str) -> Result<Arc<Dataset>> {
        let missing = || error!(NotFound, "cannot open '{name}': dataset does not exist");
        let parsed = DatasetName::parse(name)?;
        let dir = self.dir_by_name(parsed.dir).map_err(|error| match error.kind() {
            ErrorKind::NotFound => missing(),
            _ => error,
        })?;
        let head = match dir.phys().head_dataset.get() {
            0 => return Err(missing()),
            head => self.dataset(head)?,
        };
        match parsed.snapshot {
            None => Ok(head),
            Some(snapshot) => {
                let object = head.snapshot_object(snapshot)?.ok_or_else(missing)?;
                let names = head.phys().snapshot_names.get();
                // Where case does not matter, it may be called otherwise.
                if !head.ignores_case() || self.meta().mos.zap_u64(names, snapshot)? == Some(object) {
                    self.snapshot_names.remember(names, object, snapshot);
                }
                self.dataset(object)
            }
        }
    }

    /// The dataset called `name`, from open context.
    pub(in crate::dsl) fn open_dataset(self: &Arc<Self>, name: &str) -> Result<Arc<Dataset>> {
        let _names = self.lock_names();
        self.dataset_by_name(name)
    }

    /// Whether this is the dataset of its object: it was not destroyed, and not loaded a second time.
    pub(in crate::dsl) fn is_current(&self, dataset: &Arc<Dataset>) -> bool {
        self.datasets.lock().get(&dataset.object).map(Weak::as_ptr) == Some(Arc::as_ptr(dataset))
    }

    /// A dataset is destroyed.
    pub(in crate::dsl) fn forget_dataset(&self, object: u64) {
        let mut datasets = self.datasets.lock();
        datasets.remove(&object);
        self.destroyed.fetch_add(1, Ordering::AcqRel);
    }

    /// A directory is destroyed.
    pub(in crate::dsl) fn forget_dir(&self, object: u64) {
        let mut dirs = self.dirs.lock();
        dirs.remove(&object);
        self.destroyed.fetch_add(1, Ordering::AcqRel);
    }

    /// Datasets that are in memory.
    pub(in crate::dsl) fn live_datasets(&self) -> Vec<Arc<Dataset>> {
        self.datasets.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Directories that are in memory.
    pub(in crate::dsl) fn live_dirs(&self) -> Vec<Arc<Dir>> {
        self.dirs.lock().values().filter_map(Weak::upgrade).collect()
    }
}
