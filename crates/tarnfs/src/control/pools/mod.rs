//! The backend: pools that are imported in this process, and what the verbs do to them.
//!
//! # Theory
//! [`Pools`] is a table of imported pools by name. Each family of verbs has a file; all of them work on
//! [`crate::Pool`] and say what they did in the words of `control`. What the kernel is to show of a pool is not the
//! library's business: a [`Mounter`], which the daemon has, does that.
//!
//! Verbs take turns: the caller of a [`Backend`] has it alone. Reading and writing files does not come this way.
//!
//! # Path
//! `control::execute` → [`Pools`] → [`crate::Pool`] → `engine`

mod admission;
mod agent;
mod beside;
mod checks;
mod grants;
mod names;
mod zfs;
mod zpool;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::tunables::Tunables;
use parking_lot::Mutex;

use super::backend::Backend;
use super::caller::Caller;
use super::protocol::branch::{DatasetClone, DatasetPromote, DatasetRollback};
use super::protocol::failure::{Failure, FailureKind};
use super::protocol::maintenance::*;
use super::protocol::reply::{Datasets, Mount, PoolEntry, Reply, VdevProperties};
use super::protocol::request::*;
use super::protocol::rights::{DatasetAllow, DatasetGrants, Grant, Hold, SnapshotHolds};
use super::protocol::snapshots::{BookmarksCreate, RefusalsJob, SnapshotRedact, SnapshotsCreate, SnapshotsDestroy, SnapshotsSpace, SnapshotsTag};
use super::protocol::status::{FoundPool, PoolStatus};
use super::protocol::stream::{DatasetDiff, Package, PackageAsk, ReceiveAbort, SizeJob, StreamEnd, StreamJob, StreamReceive, StreamSend};
pub use beside::Beside;
pub use grants::check_request;
pub use zpool::cachefile::MACHINE_CACHEFILE;
use zpool::devices::auxiliary::AuxiliaryDevices;
use zpool::maintenance::{self, scrub};
use zpool::{events, export, pool_properties};
use super::protocol::transaction::{EachJob, Job, TransactionBegin, TransactionEnd, TransactionPlace};
use crate::Pool;

/// A file system that is to be mounted.
pub struct MountPlan {
    /// Its pool.
    pub pool: Arc<Pool>,
    /// Its name.
    pub dataset: String,
    /// Where.
    pub path: PathBuf,
    /// Options for this mount only (`ro`, `noatime`, ...).
    pub options: Vec<String>,
    /// Over a directory that has entries.
    pub overlay: bool,
    /// Although it is mounted elsewhere.
    pub also: bool,
    /// The place without symbolic links, where something was mounted before. Users may have put a link into its path meanwhile: it is not followed.
    pub exactly: Option<PathBuf>,
}

/// Shows file systems to the kernel.
pub trait Mounter: Send {
    /// Mounts a file system.
    ///
    /// # Errors
    /// It is mounted, the place cannot be used, the kernel refuses.
    fn mount(&mut self, plan: MountPlan) -> Result<(), Failure>;

    /// Mounts file systems, each for itself, parents before children. Of many, one that cannot be read may be mounted nevertheless: its
    /// users learn it.
    fn mount_all(&mut self, plans: Vec<MountPlan>) -> Vec<Result<(), Failure>> {
        plans.into_iter().map(|plan| self.mount(plan)).collect()
    }

    /// Whether anything can be mounted at all, so that what is not mounted is missed.
    fn can_mount(&self) -> bool {
        true
    }

    /// Has the contents of a mounted file system opened, though nobody has used them.
    fn open(&mut self, dataset: &str) {
        let _ = dataset;
    }

    /// Changes the options of a mounted file system.
    ///
    /// # Errors
    /// It is not mounted, or the kernel refuses.
    fn remount(&mut self, pool: &Arc<Pool>, dataset: &str, options: &[String]) -> Result<(), Failure>;

    /// Unmounts a dataset everywhere, and what is mounted below it, so that nobody has it any more. `force`: although it is in use.
    ///
    /// # Errors
    /// It is not mounted, or in use.
    fn unmount(&mut self, dataset: &str, force: bool) -> Result<(), Failure>;

    /// Takes a dataset out of sight, with what is mounted below it: from this place, or from the first. Another place keeps it.
    /// `end_transactions`: although some are under way.
    ///
    /// # Errors
    /// It is not mounted there, or in use.
    fn put_away(&mut self, dataset: &str, at: Option<&Path>, end_transactions: bool) -> Result<(), Failure> {
        let _ = at;
        self.unmount(dataset, end_transactions)
    }

    /// Does anybody have it mounted, in sight or not?
    fn has(&self, dataset: &str) -> bool {
        self.is_mounted(dataset)
    }

    /// Unmounts a dataset and all below it in the tree of names.
    ///
    /// # Errors
    /// Something is in use.
    fn unmount_tree(&mut self, root: &str, force: bool) -> Result<(), Failure>;

    /// May what is mounted of a dataset and those below it stay so while they are renamed?
    ///
    /// # Errors
    /// Something is under way there.
    fn check_rename(&self, from: &str) -> Result<(), Failure> {
        let _ = from;
        Ok(())
    }

    /// A dataset was renamed, and those below it with it. What is mounted of them stays where it is.
    fn renamed(&mut self, from: &str, to: &str) {
        let _ = (from, to);
    }

    /// Does `change`, which gives a file system other contents (rollback; a receive that is forced), while nobody uses it. Where it is mounted it stays
    /// mounted: calls of programs wait meanwhile, and go on in the new contents, or (`change` failed) in the old ones. A file that is not there any more is stale.
    ///
    /// # Errors
    /// That of `change`; transactions are under way, or it cannot be opened again.
    fn replace_contents(&mut self, pool: &Arc<Pool>, dataset: &str, change: &mut dyn FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        let _ = (pool, dataset);
        change()
    }

    /// May a mounted file system get other contents ([`Mounter::replace_contents`])?
    ///
    /// # Errors
    /// Transactions are under way.
    fn check_replace(&self, dataset: &str) -> Result<(), Failure> {
        let _ = dataset;
        Ok(())
    }

    /// Snapshots of these file systems are made or destroyed. To be called when that is done: listings of them are read anew.
    fn snapshots_changed(&mut self, heads: &[String]) -> Box<dyn FnOnce() + Send> {
        let _ = heads;
        Box::new(|| ())
    }

    /// A snapshot is about to be destroyed: a program that looks at it in `.zfs/snapshot` has it no more.
    fn close_snapshot(&mut self, name: &str) {
        let _ = name;
    }

    /// Is it mounted?
    fn is_mounted(&self, dataset: &str) -> bool;

    /// What was asked for when it was mounted (`ro`, `noatime`, ...).
    fn options(&self, dataset: &str) -> Vec<String> {
        let _ = dataset;
        Vec::new()
    }

    /// What was asked for when it was mounted at this place, which may not be its first.
    fn options_at(&self, dataset: &str, place: &Path) -> Vec<String> {
        let _ = place;
        self.options(dataset)
    }

    /// A place of a dataset without symbolic links, as it was when the dataset was mounted there.
    fn real_place(&self, dataset: &str, place: &Path) -> Option<PathBuf> {
        let _ = (dataset, place);
        None
    }

    /// What is mounted, in the order in which it was.
    fn list(&self) -> Vec<Mount>;

    /// Where one dataset is mounted.
    fn places(&self, dataset: &str) -> Vec<Mount> {
        self.list().into_iter().filter(|mount| mount.dataset == dataset).collect()
    }

    /// Properties of datasets of a pool changed. Returns the datasets whose mounts stay what they were for now, and why.
    fn refresh(&mut self, pool: &Arc<Pool>) -> Vec<(String, Failure)>;

    /// What has the kernel hand over what was written to the file systems of a pool and is still in its cache. That may take long,
    /// and others need not wait for it.
    fn flush(&mut self, pool: &Arc<Pool>) -> Flush {
        let _ = pool;
        Box::new(|| Box::new(|| ()))
    }

    /// What has the kernel hand over what was written to these datasets and is still in its cache.
    fn fetch(&mut self, datasets: &[String]) -> Box<dyn FnOnce() + Send> {
        let _ = datasets;
        Box::new(|| ())
    }

    /// Called now and then: forgets what somebody else unmounted, and transactions whose owner has died.
    fn tidy(&mut self) {}

    /// Shows a private view of a mounted file system.
    ///
    /// # Errors
    /// It is not mounted or read-only, the kernel refuses, there is no such process.
    fn begin_transaction(&mut self, pool: &Arc<Pool>, begin: &TransactionBegin) -> Result<TransactionPlace, Failure> {
        let _ = (pool, begin);
        Err(Failure::with(FailureKind::MountFailed, "not currently mounted"))
    }

    /// What is to be done to end a transaction, without the others waiting for it.
    ///
    /// # Errors
    /// There is none of that name.
    fn end_transaction(&mut self, end: TransactionEnd) -> Result<Job, Failure> {
        Err(no_transaction(&end.directory))
    }
}

/// There is none at that place.
pub fn no_transaction(directory: &std::path::Path) -> Failure {
    Failure::with(FailureKind::Other, format!("no transaction is at {}", directory.display()))
}

/// Where nothing can be mounted: programs that use the library alone.
#[derive(Debug, Default)]
pub struct NoMounts;

impl Mounter for NoMounts {
    fn mount(&mut self, _: MountPlan) -> Result<(), Failure> {
        Err(Failure::with(FailureKind::MountFailed, "this program does not mount"))
    }

    fn can_mount(&self) -> bool {
        false
    }

    fn remount(&mut self, _: &Arc<Pool>, _: &str, _: &[String]) -> Result<(), Failure> {
        Err(Failure::with(FailureKind::MountFailed, "not currently mounted"))
    }

    fn unmount(&mut self, _: &str, _: bool) -> Result<(), Failure> {
        Err(Failure::with(FailureKind::UnmountFailed, "not currently mounted"))
    }

    fn unmount_tree(&mut self, _: &str, _: bool) -> Result<(), Failure> {
        Ok(())
    }

    fn is_mounted(&self, _: &str) -> bool {
        false
    }

    fn list(&self) -> Vec<Mount> {
        Vec::new()
    }

    fn refresh(&mut self, _: &Arc<Pool>) -> Vec<(String, Failure)> {
        Vec::new()
    }
}

/// An imported pool, and what only this import knows of it.
pub(crate) struct Imported {
    pub(crate) pool: Arc<Pool>,
    pub(crate) altroot: Option<String>,
    pub(crate) cachefile: Mutex<Option<String>>,
    /// A number for this import.
    pub(crate) load_guid: u64,
    /// When it was imported, on the host's clock.
    pub(crate) since_ns: u64,
    /// Its hot spares and cache devices.
    pub(crate) auxiliary: Mutex<AuxiliaryDevices>,
    /// What was wrong with its devices when somebody looked last.
    watched: Mutex<BTreeMap<u64, events::Watched>>,
    /// What looks after its devices.
    agent: agent::Agent,
    /// Each stream that is sent from it or received into it has a clone.
    streams: Arc<()>,
}

impl Imported {
    fn new(pool: Arc<Pool>) -> Imported {
        let host = pool.engine().context.host.clone();
        let (load_guid, since_ns) = (host.random(), host.now_ns());
        let agent = agent::Agent::of(pool.engine());
        Imported { pool, altroot: None, cachefile: Mutex::default(), load_guid, since_ns, auxiliary: Mutex::default(), watched: Mutex::default(), agent, streams: Arc::default() }
    }
}

/// See [`Mounter::flush`].
pub type Flush = Box<dyn FnOnce() -> Settled + Send>;

/// To be called when that is on disk: the kernel forgets what it was told of the space of files that had changed.
pub type Settled = Box<dyn FnOnce() + Send>;

/// All imported pools, and their mounter.
pub struct Pools {
    pools: beside::Table,
    beside: Beside,
    mounter: Box<dyn Mounter>,
    events: events::EventLog,
    limits: Tunables,
    /// Where pools are listed that say nothing of it.
    cachefile: Option<String>,
    /// For whom the request is that has its turn.
    caller: Caller,
}

impl Default for Pools {
    fn default() -> Pools {
        Pools::new(NoMounts)
    }
}

impl Pools {
    /// No pools yet.
    pub fn new(mounter: impl Mounter + 'static) -> Pools {
        Pools {
            pools: BTreeMap::new(),
            beside: Beside::default(),
            mounter: Box::new(mounter),
            events: events::EventLog::default(),
            limits: Tunables::default(),
            cachefile: None,
            caller: Caller::default(),
        }
    }

    /// The same with other limits. That of the cache is for all pools together.
    #[must_use]
    pub fn with_limits(mut self, limits: Tunables) -> Pools {
        self.limits = limits;
        self
    }

    /// Answers some requests while another one has its turn.
    #[must_use]
    pub fn beside(&self) -> Beside {
        self.beside.clone()
    }

    /// A pool has come or gone: shows the table, and divides the cache among the pools.
    fn table_changed(&self) {
        self.beside.show(&self.pools);
        let each = self.limits.cache_bytes_max / self.pools.len().max(1) as u64;
        for imported in self.pools.values() {
            imported.pool.engine().context.cache.set_limit(each);
        }
    }

    /// Is none imported?
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// An imported pool.
    pub fn pool(&self, name: &str) -> Option<&Arc<Pool>> {
        self.pools.get(name).map(|imported| &imported.pool)
    }

    /// Forgets what somebody else unmounted, and looks what happened to the pools.
    pub fn tidy(&mut self) {
        self.mounter.tidy();
        self.watch();
    }

    fn find(&self, name: &str) -> Result<&Imported, Failure> {
        self.pools.get(name).map(|imported| &**imported).ok_or_else(|| Failure::new(FailureKind::NoSuchPool))
    }

    /// The pool that a dataset, snapshot or bookmark is in. What the pool keeps for itself is no business of a request.
    fn pool_of(&self, dataset: &str) -> Result<&Imported, Failure> {
        if dataset.contains('$') {
            return Err(Failure::with(FailureKind::InvalidName, "invalid character '$' in name"));
        }
        let pool = dataset.split(['/', '@', '#']).next().unwrap_or(dataset);
        self.pools.get(pool).map(|imported| &**imported).ok_or_else(|| Failure::new(FailureKind::NoSuchDataset))
    }

    /// Refuses what would wait for a pool that waits for its devices.
    fn check_running(&self, dataset: &str) -> Result<(), Failure> {
        if self.pool_of(dataset)?.pool.engine().vdevs.gate().failure().is_some() {
            return Err(export::suspended());
        }
        Ok(())
    }

    /// The pools that a request is about, with their names.
    fn select(&self, name: Option<&str>) -> Result<Vec<(&String, &Imported)>, Failure> {
        beside::select(&self.pools, name)
    }
}

/// What this program cannot do yet.
fn not_yet(what: &str) -> Failure {
    Failure::with(FailureKind::Unsupported, format!("{what} not yet supported by this version of tarn"))
}

impl Backend for Pools {
    fn admit(&mut self, caller: &Caller, request: &Request) -> Result<(), Failure> {
        self.caller = caller.clone();
        self.check_admitted(request)
    }

    fn quit(&mut self) -> Result<(), Failure> {
        self.export_all()
    }

    fn pool_create(&mut self, create: PoolCreate) -> Result<(), Failure> {
        let done = self.create_pool(&create);
        self.table_changed();
        done
    }

    fn pool_destroy(&mut self, destroy: PoolDestroy) -> Result<(), Failure> {
        let done = self.check_no_stream(&destroy.name).and_then(|()| self.destroy_pool(&destroy));
        self.table_changed();
        done
    }

    fn pool_scan(&mut self, scan: PoolScan) -> Result<Vec<FoundPool>, Failure> {
        Ok(self.scan(&scan))
    }

    fn pool_import(&mut self, import: PoolImport) -> Result<Option<ImportRewound>, Failure> {
        let done = self.import_pool(&import);
        self.hold_lent_spares();
        self.table_changed();
        done
    }

    fn pool_export(&mut self, export: PoolExport) -> Result<(), Failure> {
        let is_stopped = self.pools.get(&export.name).is_some_and(|imported| export::is_stopped(imported.pool.engine()));
        let free = if export.hard_force && is_stopped { Ok(()) } else { self.check_no_stream(&export.name) };
        let done = free.and_then(|()| self.export_pool(&export));
        self.table_changed();
        done
    }

    fn pool_list(&mut self, select: PoolSelect) -> Result<Vec<PoolEntry>, Failure> {
        pool_properties::entries(&self.pools, &select)
    }

    fn pool_get(&mut self, select: PoolSelect) -> Result<Vec<PoolEntry>, Failure> {
        pool_properties::entries(&self.pools, &select)
    }

    fn pool_status(&mut self, select: PoolSelect) -> Result<Vec<PoolStatus>, Failure> {
        beside::statuses(&self.pools, &select, || self.mounter.list())
    }

    fn pool_set(&mut self, set: PoolSet) -> Result<(), Failure> {
        self.set_pool_properties(&set)
    }

    fn pool_sync(&mut self, select: PoolSelect) -> Result<Job, Failure> {
        let pools: Vec<Arc<Pool>> = self.select(select.name.as_deref())?.into_iter().map(|(_, imported)| imported.pool.clone()).collect();
        let flushes: Vec<Flush> = pools.iter().map(|pool| self.mounter.flush(pool)).collect();
        // What the kernel has may be much, and if the devices fail meanwhile it waits for 'zpool clear'.
        Ok(Box::new(move || {
            for (pool, flush) in pools.into_iter().zip(flushes) {
                if pool.engine().is_read_only() {
                    return Err(Failure::new(FailureKind::PoolReadOnly));
                }
                if let Some(failure) = pool.engine().vdevs.gate().failure() {
                    return Err(Failure::about_pool(&failure));
                }
                let settled = flush();
                pool.engine().write_group().map_err(|error| Failure::about_pool(&error))?;
                settled();
            }
            Ok(())
        }))
    }

    fn pool_history(&mut self, select: PoolSelect) -> Result<Vec<PoolHistory>, Failure> {
        maintenance::histories(&self.pools, &select)
    }

    fn pool_record(&mut self, record: PoolRecord) -> Result<(), Failure> {
        self.record(&record)
    }

    fn pool_cache(&mut self, select: PoolSelect) -> Result<Vec<(String, Vec<(String, u64)>)>, Failure> {
        zpool::cache::counters(&self.pools, select.name.as_deref())
    }

    fn vdev_get(&mut self, select: PoolSelect) -> Result<Vec<VdevProperties>, Failure> {
        zpool::devices::vdev_properties::stored(&self.pools, select.name.as_deref())
    }

    fn pool_reguid(&mut self, reguid: PoolReguid) -> Result<(), Failure> {
        self.reguid(&reguid)
    }

    fn pool_clear(&mut self, clear: PoolClear) -> Result<(), Failure> {
        maintenance::clear(&self.pools, &clear)
    }

    fn pool_scrub(&mut self, scrub: PoolScrub) -> Result<(), Failure> {
        scrub::scrub(&self.pools, &scrub)
    }

    fn pool_add(&mut self, add: PoolAdd) -> Result<(), Failure> {
        self.add_vdevs(&add)
    }

    fn pool_remove(&mut self, remove: PoolRemove) -> Result<(), Failure> {
        self.remove_vdev(&remove)
    }

    fn pool_device(&mut self, asked: PoolDevice) -> Result<Reply, Failure> {
        self.device(&asked)
    }

    fn pool_upgrade(&mut self, upgrade: PoolUpgrade) -> Result<(), Failure> {
        self.upgrade(&upgrade)
    }

    fn pool_events(&mut self, events: PoolEvents) -> Result<Vec<PoolEvent>, Failure> {
        Ok(self.events(&events))
    }

    fn dataset_rename(&mut self, rename: DatasetRename) -> Result<(), Failure> {
        self.check_running(&rename.from)?;
        self.rename(&rename)
    }

    fn dataset_clone(&mut self, clone: DatasetClone) -> Result<(), Failure> {
        self.check_running(&clone.name)?;
        self.clone_snapshot(&clone)
    }

    fn dataset_promote(&mut self, promote: DatasetPromote) -> Result<(), Failure> {
        self.check_running(&promote.name)?;
        self.promote(&promote)
    }

    fn dataset_rollback(&mut self, rollback: DatasetRollback) -> Result<(), Failure> {
        self.check_running(&rollback.snapshot)?;
        self.roll_back(&rollback)
    }

    fn owner_space(&mut self, space: OwnerSpace) -> Result<Vec<OwnerUse>, Failure> {
        self.space_by_owner(&space)
    }

    fn snapshot_holds(&mut self, holds: SnapshotHolds) -> Result<Vec<Hold>, Failure> {
        self.holds(&holds)
    }

    fn dataset_grants(&mut self, grants: DatasetGrants) -> Result<Vec<Grant>, Failure> {
        self.grants(&grants)
    }

    fn dataset_allow(&mut self, allow: DatasetAllow) -> Result<(), Failure> {
        self.check_running(&allow.name)?;
        self.change_grants(&allow)
    }

    fn dataset_create(&mut self, create: DatasetCreate) -> Result<(), Failure> {
        self.check_running(&create.name)?;
        self.create_dataset(&create)
    }

    fn snapshots_create(&mut self, create: SnapshotsCreate) -> Result<RefusalsJob, Failure> {
        self.create_snapshots(create)
    }

    fn snapshots_destroy(&mut self, destroy: SnapshotsDestroy) -> Result<RefusalsJob, Failure> {
        self.destroy_snapshots(destroy)
    }

    fn snapshots_space(&mut self, wanted: SnapshotsSpace) -> Result<u64, Failure> {
        self.space_of_snapshots(&wanted)
    }

    fn snapshots_hold(&mut self, held: SnapshotsTag) -> Result<RefusalsJob, Failure> {
        self.hold_snapshots(held)
    }

    fn snapshots_release(&mut self, held: SnapshotsTag) -> Result<RefusalsJob, Failure> {
        self.release_snapshots(held)
    }

    fn snapshot_redact(&mut self, redact: SnapshotRedact) -> Result<Job, Failure> {
        self.redact(redact)
    }

    fn bookmarks_create(&mut self, create: BookmarksCreate) -> Result<RefusalsJob, Failure> {
        self.create_bookmarks(create)
    }

    fn dataset_destroy(&mut self, destroy: DatasetDestroy) -> Result<(), Failure> {
        if let Some(name) = destroy.names.first() {
            self.check_running(name)?;
        }
        self.destroy_datasets(&destroy)
    }

    fn dataset_list(&mut self, list: DatasetList) -> Result<Datasets, Failure> {
        self.list_datasets(&list)
    }

    fn dataset_set(&mut self, set: DatasetSet) -> Result<(), Failure> {
        self.check_running(&set.name)?;
        self.set_properties(&set)
    }

    fn dataset_inherit(&mut self, inherit: DatasetInherit) -> Result<(), Failure> {
        self.check_running(&inherit.name)?;
        self.inherit_property(&inherit)
    }

    fn dataset_mount(&mut self, mount: DatasetMount) -> Result<(), Failure> {
        self.mount(&mount)
    }

    fn datasets_mount(&mut self, mounts: Vec<DatasetMount>) -> Vec<Option<Failure>> {
        self.mount_each(&mounts)
    }

    fn dataset_unmount(&mut self, unmount: DatasetUnmount) -> Result<Job, Failure> {
        if unmount.unload_key {
            self.check_no_key(&unmount.name)?;
        }
        if !unmount.force {
            // The kernel would hand over what it has, and wait for the devices.
            self.check_running(&unmount.name)?;
        }
        let pool = self.pool_of(&unmount.name)?.pool.clone();
        self.unmount(&unmount, pool.engine().vdevs.gate().failure().is_some())?;
        Ok(Box::new(move || match pool.engine().wait_wanted() {
            // Nobody who forces it wants to wait for devices that are gone.
            Err(error) if !unmount.force => Err(Failure::about_pool(&error)),
            _ => Ok(()),
        }))
    }

    fn datasets_unmount(&mut self, unmounts: Vec<DatasetUnmount>) -> EachJob {
        let mut pools: BTreeMap<String, Arc<Pool>> = BTreeMap::new();
        for unmount in &unmounts {
            if let Ok(imported) = self.pool_of(&unmount.name) {
                pools.entry(imported.pool.name()).or_insert_with(|| imported.pool.clone());
            }
        }
        let is_keyless = |unmount: &DatasetUnmount| !unmount.unload_key || self.check_no_key(&unmount.name).is_ok();
        let is_plain = |unmount: &DatasetUnmount| !unmount.tree && self.check_running(&unmount.name).is_ok() && is_keyless(unmount);
        let mut failures = if unmounts.iter().all(is_plain) {
            self.unmount_each(&unmounts)
        } else {
            // Their pool is gone, or waits for its devices.
            unmounts.iter().map(|unmount| self.dataset_unmount(unmount.clone()).and_then(|job| job()).err()).collect()
        };
        Box::new(move || {
            for (name, pool) in pools {
                let Err(error) = pool.engine().wait_wanted() else { continue };
                let of_pool = unmounts.iter().zip(&mut failures).filter(|(unmount, _)| !unmount.force && unmount.name.split('/').next() == Some(&name));
                for (_, failure) in of_pool {
                    failure.get_or_insert_with(|| Failure::about_pool(&error));
                }
            }
            failures
        })
    }

    fn delete_queue(&mut self, wanted: DeleteQueue) -> Result<u64, Failure> {
        self.files_without_name(&wanted)
    }

    fn mount_list(&mut self) -> Result<Vec<Mount>, Failure> {
        self.mounter.tidy();
        Ok(self.mounter.list())
    }

    fn stream_send(&mut self, send: StreamSend) -> Result<StreamJob, Failure> {
        self.send_job(send)
    }

    fn stream_size(&mut self, send: StreamSend) -> Result<SizeJob, Failure> {
        self.size_job(&send)
    }

    fn stream_package(&mut self, ask: PackageAsk) -> Result<Package, Failure> {
        self.package(&ask)
    }

    fn stream_receive(&mut self, receive: StreamReceive) -> Result<StreamJob, Failure> {
        self.receive(receive)
    }

    fn dataset_diff(&mut self, diff: DatasetDiff) -> Result<StreamJob, Failure> {
        self.diff_job(diff)
    }

    fn stream_end(&mut self, end: StreamEnd) -> Result<Reply, Failure> {
        self.end_stream(end)
    }

    fn receive_abort(&mut self, abort: ReceiveAbort) -> Result<(), Failure> {
        self.abort_receive(&abort)
    }

    fn transaction_begin(&mut self, begin: TransactionBegin) -> Result<TransactionPlace, Failure> {
        let pool = self.pool_of(&begin.dataset)?.pool.clone();
        if let Some(failure) = pool.engine().vdevs.gate().failure() {
            return Err(Failure::about_pool(&failure));
        }
        self.mounter.begin_transaction(&pool, &begin)
    }

    fn transaction_end(&mut self, end: TransactionEnd) -> Result<Job, Failure> {
        self.mounter.end_transaction(end)
    }
}
