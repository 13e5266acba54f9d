//! The datasets of one open pool, as other layers use them.
//!
//! # Theory
//! [`Dsl`] puts the parts together and has no state of its own. Each part has private fields, and knows those before it in [`Parts`] at
//! the most. What changes several parts is given [`Parts`] (or fewer) and a transaction, and is no part of any. Datasets have
//! their [`Links`] instead, so that [`Dsl`] holds them and they do not hold it: when it is dropped, all of it goes.

use std::fmt;
use std::sync::Arc;

use ondisk::dsl::DatasetPhys;
use parking_lot::RwLockReadGuard;

use super::dataset::Dataset;
use super::dataset::dataset::Links;
use super::dataset::objsets::OpenObjsets;
use super::dead::bpobj::Bpobj;
use super::dead::frees_sync::Frees;
use super::meta::{Meta, key};
use super::received::Receives;
use super::space::ledger_sync::Ledger;
use super::space::mos_space::MosSpace;
use super::space::room::{PoolSpace, Room, SpaceCheck};
use super::tasks::actor::{act_as, actor};
use super::tasks::answer::Answer;
use super::tasks::history::{History, event_record};
use super::tasks::sync_tasks::SyncTasks;
use super::tree::dir::Dir;
use super::tree::records::Records;
use super::tree::tree::Tree;
use super::{FREE_DIR, MOS_DIR, ORIGIN_DIR};
use crate::dmu::{FileOwnerOf, Objset, SyncTx, ask_for_room};
use crate::{bail, error};
use crate::error::Result;
use crate::txg::Txg;

/// The parts of the DSL, lowest first.
pub(super) struct Parts {
    /// The MOS, features, and layers below.
    pub(super) meta: Arc<Meta>,
    /// Records that are newer than the MOS's.
    pub(super) records: Arc<Records>,
    /// What is used.
    pub(super) ledger: Arc<Ledger>,
    /// What is still to be freed.
    pub(super) frees: Arc<Frees>,
    /// What may still be used.
    pub(super) room: Arc<Room>,
    /// Open object sets.
    pub(super) objsets: Arc<OpenObjsets>,
    /// Directories and datasets.
    pub(super) tree: Arc<Tree>,
    /// What was done.
    pub(super) history: Arc<History>,
    /// Streams that are being received.
    pub(super) receives: Arc<Receives>,
    /// Redaction lists that streams are being sent by.
    pub(super) sent_lists: Arc<Receives>,
}

impl Parts {
    /// With nothing opened yet. `mos_space` is the owner that the MOS was opened with.
    fn new(meta: Meta, mos_space: Arc<MosSpace>, file_owner: Option<FileOwnerOf>) -> Self {
        let meta = Arc::new(meta);
        let records = Arc::new(Records::default());
        let ledger = Arc::new(Ledger::new(meta.clone(), Arc::downgrade(&records), mos_space));
        let frees = Arc::new(Frees::new(meta.clone(), ledger.clone()));
        let room = Arc::new(Room::new(meta.clone(), frees.clone()));
        let objsets = Arc::new(OpenObjsets::new(file_owner));
        let tree = Arc::new(Tree::new(Links {
            meta: meta.clone(),
            ledger: ledger.clone(),
            room: room.clone(),
            records: Arc::downgrade(&records),
            objsets: Arc::downgrade(&objsets),
        }));
        Parts { meta, records, ledger, frees, room, objsets, tree, history: Arc::default(), receives: Arc::default(), sent_lists: Arc::default() }
    }

    /// Finds what a pool has.
    fn open(&self, pool: &str) -> Result<()> {
        let (mos, tree) = (&self.meta.mos, &self.tree);
        let object = |name: &str| mos.zap_u64(key::DIRECTORY, name);
        let root = object(key::ROOT_DATASET)?.ok_or_else(|| error!(Corrupt, "{pool}: the pool has no root dataset"))?;
        let root = tree.dir(root, Some(pool))?;
        tree.set_root(root.clone());
        let mos_dir = tree.child(&root, MOS_DIR)?;
        let free = tree.find_child(&root, FREE_DIR)?;
        if let Some(origin) = tree.find_child(&root, ORIGIN_DIR)? {
            tree.set_origin_snapshot(tree.dataset_record(origin.phys().head_dataset.get())?.prev_snapshot.get());
        }
        self.ledger.set_mos_dir(mos_dir);
        if let Some(free) = free {
            self.frees.set_dir(free);
        }
        if let Some(list) = object(key::FREE_BPOBJ)? {
            self.frees.set_list(Bpobj(list));
        }
        self.frees.set_tree(object(key::BPTREE)?.unwrap_or(0));
        self.frees.set_obsolete(object(key::OBSOLETE_BPOBJ)?.unwrap_or(0));
        self.frees.deleted_clones().set(object(key::DELETED_CLONES)?.unwrap_or(0));
        self.meta.set_empty_bpobj(object(key::EMPTY_BPOBJ)?.unwrap_or(0));
        self.history.open(object(key::HISTORY)?.unwrap_or(0));
        Ok(())
    }

    /// A dataset is destroyed.
    pub(super) fn forget_dataset(&self, object: u64) {
        // In this order: before an opened object set is put into the table, it is looked whether the dataset lives.
        self.tree.forget_dataset(object);
        self.objsets.forget(object);
        self.records.forget_dataset(object);
    }

    /// A directory is destroyed.
    pub(super) fn forget_dir(&self, object: u64) {
        self.tree.forget_dir(object);
        self.records.forget_dir(object);
    }

    /// Records what happened to the pool.
    pub(super) fn record_event(&self, event: &str, details: &str, tx: &SyncTx<'_>) -> Result<()> {
        let record = event_record(event, details, None, tx.txg(), &*self.meta.context.host);
        self.history.append(&self.meta, self.room.usable_space(SpaceCheck::None), &record, tx)
    }

    /// Records what happened to a dataset.
    pub(super) fn record_dataset_event(&self, dataset: &Dataset, event: &str, details: &str, tx: &SyncTx<'_>) -> Result<()> {
        let record = event_record(event, details, Some((dataset.name()?, dataset.object)), tx.txg(), &*self.meta.context.host);
        self.history.append(&self.meta, self.room.usable_space(SpaceCheck::None), &record, tx)
    }
}

/// See the module.
pub struct Dsl {
    /// The MOS, features, and layers below.
    pub meta: Arc<Meta>,
    /// The pool's history.
    pub history: Arc<History>,
    pub(super) parts: Parts,
    pub(super) tasks: SyncTasks<Arc<Dsl>>,
}

impl fmt::Debug for Dsl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dsl").field("meta", &self.meta).finish_non_exhaustive()
    }
}

impl Dsl {
    /// With nothing opened yet. `mos_space` is the owner that the MOS was opened with.
    pub(super) fn new(meta: Meta, mos_space: Arc<MosSpace>, file_owner: Option<FileOwnerOf>) -> Arc<Self> {
        let parts = Parts::new(meta, mos_space, file_owner);
        Arc::new(Dsl { meta: parts.meta.clone(), history: parts.history.clone(), parts, tasks: SyncTasks::default() })
    }

    /// Opens the tree of a pool. `mos_space` is the owner that the MOS was opened with; `file_owner` finds the owner of a
    /// file, for the accounting of file systems.
    ///
    /// # Errors
    /// The MOS cannot be read, or makes no sense.
    pub fn open(meta: Meta, pool: &str, mos_space: Arc<MosSpace>, file_owner: Option<FileOwnerOf>) -> Result<Arc<Self>> {
        let dsl = Self::new(meta, mos_space, file_owner);
        dsl.parts.open(pool)?;
        Ok(dsl)
    }

    /// The pool is closed, whatever parts of it are still held: nothing is found any more, and unsynced changes are lost.
    pub fn close(&self) {
        self.parts.objsets.clear();
        self.parts.records.clear();
        self.parts.tree.close();
    }

    /// Nothing is renamed, made or destroyed while this is held.
    pub fn lock_names(&self) -> RwLockReadGuard<'_, ()> {
        self.parts.tree.lock_names()
    }

    /// The root directory.
    ///
    /// # Errors
    /// The pool is closed.
    pub fn root_dir(&self) -> Result<Arc<Dir>> {
        self.parts.tree.root_dir()
    }

    /// `$ORIGIN@$ORIGIN`, if the pool is new enough to have it.
    pub fn origin_snapshot(&self) -> Option<u64> {
        self.parts.tree.origin_snapshot()
    }

    /// The directory in `object`; `name` saves the search for it in the parent.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn dir(&self, object: u64, name: Option<&str>) -> Result<Arc<Dir>> {
        self.parts.tree.dir(object, name)
    }

    /// The children of a directory, by name. The pool's own (`$MOS` and so on) are left out.
    ///
    /// # Errors
    /// One of them cannot be read, or is in more than one place.
    pub fn children(&self, dir: &Dir) -> Result<Vec<(String, Arc<Dir>)>> {
        self.parts.tree.children(dir)
    }

    /// The child of that name.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn find_child(&self, dir: &Dir, name: &str) -> Result<Option<Arc<Dir>>> {
        self.parts.tree.find_child(dir, name)
    }

    /// The directory called `pool/a/b`. The caller holds [`Dsl::lock_names`], or is a sync task.
    ///
    /// # Errors
    /// `NotFound`; or it cannot be read.
    pub fn dir_by_name(&self, name: &str) -> Result<Arc<Dir>> {
        self.parts.tree.dir_by_name(name)
    }

    /// The record of a dataset that is perhaps not in memory.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn dataset_record(&self, object: u64) -> Result<DatasetPhys> {
        self.parts.tree.dataset_record(object)
    }

    /// The dataset in `object`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn dataset(&self, object: u64) -> Result<Arc<Dataset>> {
        self.parts.tree.dataset(object)
    }

    /// The dataset called `pool/a/b` or `pool/a/b@snapshot`. The caller holds [`Dsl::lock_names`], or is a sync task.
    ///
    /// # Errors
    /// `NotFound`; or it cannot be read.
    pub fn dataset_by_name(&self, name: &str) -> Result<Arc<Dataset>> {
        self.parts.tree.dataset_by_name(name)
    }

    /// The dataset called `name`, from open context.
    ///
    /// # Errors
    /// As for [`Dsl::dataset_by_name`].
    pub fn open_dataset(&self, name: &str) -> Result<Arc<Dataset>> {
        self.parts.tree.open_dataset(name)
    }

    /// The object set of a dataset: opened on first use, kept while it is used or has unsynced changes.
    ///
    /// # Errors
    /// It cannot be read, or the dataset was destroyed.
    pub fn objset(&self, dataset: &Arc<Dataset>) -> Result<Arc<Objset>> {
        // A change that nobody may look on is made in one step with the question whether anybody does. The caller may hold the names already.
        let _names = self.parts.tree.lock_names_again();
        if !self.parts.tree.is_current(dataset) {
            bail!(NotFound, "{}: dataset does not exist", dataset.dir.full_name());
        }
        self.parts.objsets.objset(dataset)
    }

    /// Datasets whose object sets are open.
    pub fn open_objsets(&self) -> Vec<(Arc<Dataset>, Arc<Objset>)> {
        self.parts.objsets.all()
    }

    /// A group is on disk: object sets forget objects that nobody uses, and logs what the group has.
    pub fn trim_objsets(&self, txg: Txg) {
        let objsets = &self.parts.objsets;
        for objset in objsets.heads() {
            objset.trim(txg);
            if let Some(log) = objset.log() {
                log.synced(txg);
            }
        }
        let is_crowded = self.meta.context.cache.is_crowded();
        objsets.snapshots_of_turn(txg, is_crowded).iter().for_each(|objset| objset.trim(txg));
    }

    /// Closes object sets that nobody uses and that have no unsynced changes.
    pub fn close_idle_objsets(&self) {
        self.parts.objsets.close_idle(&self.meta.context.groups);
    }

    /// The pool's size changed. Called when the pool is opened and after each txg.
    pub fn set_pool_space(&self, space: PoolSpace) {
        self.parts.room.set_pool_space(space);
    }

    /// What a directory may still use. With `on_disk_only`, promises are not counted.
    pub fn available(&self, dir: &Arc<Dir>, on_disk_only: bool) -> u64 {
        self.parts.room.available(dir, on_disk_only)
    }

    /// Whether something is left to free in the background: the pool should go on syncing.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn has_background_frees(&self) -> Result<bool> {
        self.parts.frees.has_any()
    }

    /// Does an administrative change, and waits until it is on disk. `check` runs in open context and again in the sync
    /// thread, where `change` follows it. `blocks` is how many blocks it modifies, about.
    ///
    /// # Errors
    /// Those of `check`; that of `change`, which also stops the pool; `NoSpace`; `ReadOnly`. `Suspended`: the pool waits for an administrator; the change is not made
    /// then, now or later, unless it has begun, which the error says ([`Error::goes_on`](crate::error::Error::goes_on)).
    pub fn run_task<T, C, S>(self: &Arc<Self>, blocks: u64, space: SpaceCheck, check: C, change: S) -> Result<T>
    where
        T: Send + 'static,
        C: Fn(&Arc<Dsl>) -> Result<()> + Send + 'static,
        S: FnOnce(&Arc<Dsl>, &SyncTx<'_>) -> Result<T> + Send + 'static,
    {
        self.run_refusable_task(blocks, space, check, move |dsl, tx| change(dsl, tx).map(Ok))
    }

    /// As [`Dsl::run_task`]; the inner error of `change` is a refusal, which has changed nothing.
    ///
    /// # Errors
    /// As for [`Dsl::run_task`], and refusals.
    pub fn run_refusable_task<T, C, S>(self: &Arc<Self>, blocks: u64, space: SpaceCheck, check: C, change: S) -> Result<T>
    where
        T: Send + 'static,
        C: Fn(&Arc<Dsl>) -> Result<()> + Send + 'static,
        S: FnOnce(&Arc<Dsl>, &SyncTx<'_>) -> Result<Result<T>> + Send + 'static,
    {
        let context = &self.meta.context;
        if context.read_only {
            crate::bail!(ReadOnly, "the pool is read-only");
        }
        ask_for_room(&context.groups, || {
            let _names = self.lock_names();
            check(self)?;
            match space {
                SpaceCheck::None => Ok(()),
                space => self.parts.room.check_change(&*self.root_dir()?, blocks, space),
            }
        })?;
        let answer = Arc::new(Answer::of((check, change)));
        let (put, user) = (answer.clone(), actor());
        let work = move |dsl: &Arc<Dsl>, tx: &SyncTx<'_>| {
            let _acting = act_as(user);
            put.make(|(check, change)| match check(dsl) {
                Ok(()) => change(dsl, tx),
                Err(refused) => Ok(Err(refused)),
            })
        };
        let txg = self.tasks.queue(context, Box::new(work))?;
        match context.groups.wait_synced_unless(txg, &|| context.io.devices().suspension()) {
            Ok(()) => answer.take(),
            Err(why) => Err(answer.give_up(why)),
        }
    }

    /// Queues a change that cannot be refused, and does not wait for it.
    ///
    /// # Errors
    /// The pool is read-only or has stopped.
    pub fn queue_task<S>(&self, change: S) -> Result<Txg>
    where
        S: FnOnce(&Arc<Dsl>, &SyncTx<'_>) -> Result<()> + Send + 'static,
    {
        self.tasks.queue(&self.meta.context, Box::new(change))
    }

    /// Waits until what has been queued is done and on disk.
    ///
    /// # Errors
    /// What stopped the pool, or what it waits for.
    pub fn wait_for_tasks(&self) -> Result<()> {
        self.tasks.wait(&self.meta.context)
    }
}
