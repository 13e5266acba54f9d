//! The interface of what answers requests.

use super::caller::Caller;
use super::protocol::branch::{DatasetClone, DatasetPromote, DatasetRollback};
use super::protocol::failure::{Failure, FailureKind};
use super::protocol::maintenance::{
    DatasetRename, DeleteQueue, ImportRewound, OwnerSpace, OwnerUse, PoolAdd, PoolClear, PoolDevice, PoolEvent, PoolEvents, PoolHistory,
    PoolRecord, PoolReguid, PoolRemove, PoolScrub, PoolUpgrade,
};
use super::protocol::reply::{BuildVersion, Datasets, Mount, PoolEntry, Reply, VdevProperties};
use super::protocol::request::{
    DatasetCreate, DatasetDestroy, DatasetInherit, DatasetList, DatasetMount, DatasetSet, DatasetUnmount, PoolCreate,
    PoolDestroy, PoolExport, PoolImport, PoolScan, PoolSelect, PoolSet, Request,
};
use super::protocol::rights::{DatasetAllow, DatasetGrants, Grant, Hold, SnapshotHolds};
use super::protocol::snapshots::{BookmarksCreate, RefusalsJob, SnapshotRedact, SnapshotsCreate, SnapshotsDestroy, SnapshotsSpace, SnapshotsTag};
use super::protocol::status::{FoundPool, PoolStatus};
use super::protocol::stream::{DatasetDiff, Package, PackageAsk, ReceiveAbort, SizeJob, StreamEnd, StreamJob, StreamReceive, StreamSend};
use super::protocol::transaction::{EachJob, Job, TransactionBegin, TransactionEnd, TransactionPlace};

/// Owns pools and carries out verbs on them.
///
/// Arguments have been checked as far as that is possible without the pool; a backend checks the rest and trusts none
/// of it to be well-formed, since a request may come from any program.
pub trait Backend {
    /// Which build answers.
    fn version(&mut self) -> BuildVersion {
        BuildVersion::current()
    }

    /// May the caller have this request carried out? Until the next call it is the caller's rights that count.
    ///
    /// # Errors
    /// It may not.
    fn admit(&mut self, caller: &Caller, request: &Request) -> Result<(), Failure> {
        let _ = request;
        if caller.is_superuser { Ok(()) } else { Err(Failure::new(FailureKind::Permission)) }
    }

    /// Exports every pool and arranges to end.
    fn quit(&mut self) -> Result<(), Failure>;

    /// `zpool create`
    fn pool_create(&mut self, create: PoolCreate) -> Result<(), Failure>;
    /// `zpool destroy`
    fn pool_destroy(&mut self, destroy: PoolDestroy) -> Result<(), Failure>;
    /// `zpool import`, looking
    fn pool_scan(&mut self, scan: PoolScan) -> Result<Vec<FoundPool>, Failure>;
    /// `zpool import`
    fn pool_import(&mut self, import: PoolImport) -> Result<Option<ImportRewound>, Failure>;
    /// `zpool export`
    fn pool_export(&mut self, export: PoolExport) -> Result<(), Failure>;
    /// `zpool list`: with the vdev tree
    fn pool_list(&mut self, select: PoolSelect) -> Result<Vec<PoolEntry>, Failure>;
    /// `zpool get`
    fn pool_get(&mut self, select: PoolSelect) -> Result<Vec<PoolEntry>, Failure>;
    /// `zpool status`
    fn pool_status(&mut self, select: PoolSelect) -> Result<Vec<PoolStatus>, Failure>;
    /// `zpool set`
    fn pool_set(&mut self, set: PoolSet) -> Result<(), Failure>;
    /// `zpool sync`
    fn pool_sync(&mut self, select: PoolSelect) -> Result<Job, Failure>;
    /// `zpool history`
    fn pool_history(&mut self, _: PoolSelect) -> Result<Vec<PoolHistory>, Failure> {
        not_here()
    }
    /// A command that changed a pool, for its history.
    fn pool_record(&mut self, _: PoolRecord) -> Result<(), Failure> {
        not_here()
    }
    /// `tarn arcstat`
    fn pool_cache(&mut self, _: PoolSelect) -> Result<Vec<(String, Vec<(String, u64)>)>, Failure> {
        not_here()
    }
    /// `zpool get`, of vdevs
    fn vdev_get(&mut self, _: PoolSelect) -> Result<Vec<VdevProperties>, Failure> {
        not_here()
    }
    /// `zpool reguid`
    fn pool_reguid(&mut self, _: PoolReguid) -> Result<(), Failure> {
        not_here()
    }
    /// `zpool clear`
    fn pool_clear(&mut self, _: PoolClear) -> Result<(), Failure> {
        not_here()
    }
    /// `zpool scrub`, `zpool resilver`
    fn pool_scrub(&mut self, _: PoolScrub) -> Result<(), Failure> {
        not_here()
    }
    /// `zpool add`
    fn pool_add(&mut self, _: PoolAdd) -> Result<(), Failure> {
        not_here()
    }
    /// `zpool remove`, one vdev
    fn pool_remove(&mut self, _: PoolRemove) -> Result<(), Failure> {
        not_here()
    }
    /// A verb on a device.
    fn pool_device(&mut self, _: PoolDevice) -> Result<Reply, Failure> {
        not_here()
    }
    /// `zpool upgrade`: the version
    fn pool_upgrade(&mut self, _: PoolUpgrade) -> Result<(), Failure> {
        not_here()
    }
    /// `zpool events`
    fn pool_events(&mut self, _: PoolEvents) -> Result<Vec<PoolEvent>, Failure> {
        not_here()
    }

    /// `zfs create`
    fn dataset_create(&mut self, create: DatasetCreate) -> Result<(), Failure>;
    /// `zfs snapshot`
    fn snapshots_create(&mut self, _: SnapshotsCreate) -> Result<RefusalsJob, Failure> {
        not_here()
    }
    /// `zfs destroy`, snapshots
    fn snapshots_destroy(&mut self, _: SnapshotsDestroy) -> Result<RefusalsJob, Failure> {
        not_here()
    }
    /// `zfs destroy -nv`, snapshots
    fn snapshots_space(&mut self, _: SnapshotsSpace) -> Result<u64, Failure> {
        not_here()
    }
    /// `zfs hold`
    fn snapshots_hold(&mut self, _: SnapshotsTag) -> Result<RefusalsJob, Failure> {
        not_here()
    }
    /// `zfs release`
    fn snapshots_release(&mut self, _: SnapshotsTag) -> Result<RefusalsJob, Failure> {
        not_here()
    }
    /// `zfs bookmark`
    fn bookmarks_create(&mut self, _: BookmarksCreate) -> Result<RefusalsJob, Failure> {
        not_here()
    }
    /// `zfs redact`
    fn snapshot_redact(&mut self, _: SnapshotRedact) -> Result<Job, Failure> {
        not_here()
    }
    /// `zfs destroy`
    fn dataset_destroy(&mut self, destroy: DatasetDestroy) -> Result<(), Failure>;
    /// `zfs rename`
    fn dataset_rename(&mut self, _: DatasetRename) -> Result<(), Failure> {
        not_here()
    }
    /// `zfs clone`
    fn dataset_clone(&mut self, _: DatasetClone) -> Result<(), Failure> {
        not_here()
    }
    /// `zfs promote`
    fn dataset_promote(&mut self, _: DatasetPromote) -> Result<(), Failure> {
        not_here()
    }
    /// `zfs rollback`
    fn dataset_rollback(&mut self, _: DatasetRollback) -> Result<(), Failure> {
        not_here()
    }
    /// `zfs userspace` and its like
    fn owner_space(&mut self, _: OwnerSpace) -> Result<Vec<OwnerUse>, Failure> {
        not_here()
    }
    /// `zfs holds`
    fn snapshot_holds(&mut self, _: SnapshotHolds) -> Result<Vec<Hold>, Failure> {
        not_here()
    }
    /// `zfs allow`, looking
    fn dataset_grants(&mut self, _: DatasetGrants) -> Result<Vec<Grant>, Failure> {
        not_here()
    }
    /// `zfs allow` and `zfs unallow`
    fn dataset_allow(&mut self, _: DatasetAllow) -> Result<(), Failure> {
        not_here()
    }
    /// `zfs list`
    fn dataset_list(&mut self, list: DatasetList) -> Result<Datasets, Failure>;
    /// `zfs get`
    fn dataset_get(&mut self, list: DatasetList) -> Result<Datasets, Failure> {
        self.dataset_list(list)
    }
    /// `zfs set`
    fn dataset_set(&mut self, set: DatasetSet) -> Result<(), Failure>;
    /// `zfs inherit`
    fn dataset_inherit(&mut self, inherit: DatasetInherit) -> Result<(), Failure>;
    /// `zfs mount`
    fn dataset_mount(&mut self, mount: DatasetMount) -> Result<(), Failure>;
    /// `zfs mount -a`: each for itself.
    fn datasets_mount(&mut self, mounts: Vec<DatasetMount>) -> Vec<Option<Failure>> {
        mounts.into_iter().map(|mount| self.dataset_mount(mount).err()).collect()
    }
    /// `zfs unmount`; the rest is to wait until what was changed is on disk.
    fn dataset_unmount(&mut self, unmount: DatasetUnmount) -> Result<Job, Failure>;
    /// `zfs unmount -a`: for each why it is still mounted. The rest is to wait until what was changed is on disk.
    fn datasets_unmount(&mut self, unmounts: Vec<DatasetUnmount>) -> EachJob {
        let failures: Vec<_> = unmounts.into_iter().map(|unmount| self.dataset_unmount(unmount).and_then(|job| job()).err()).collect();
        Box::new(move || failures)
    }
    /// `zfs wait -t deleteq`: how many files without a name are left.
    fn delete_queue(&mut self, _: DeleteQueue) -> Result<u64, Failure> {
        not_here()
    }
    /// What is mounted.
    fn mount_list(&mut self) -> Result<Vec<Mount>, Failure>;

    /// `zfs send -n`
    fn stream_size(&mut self, _: StreamSend) -> Result<SizeJob, Failure> {
        not_here()
    }
    /// `zfs send -R`, `-p`
    fn stream_package(&mut self, _: PackageAsk) -> Result<Package, Failure> {
        not_here()
    }
    /// `zfs send`, one snapshot
    fn stream_send(&mut self, _: StreamSend) -> Result<StreamJob, Failure> {
        not_here()
    }

    /// `zfs diff`
    fn dataset_diff(&mut self, _: DatasetDiff) -> Result<StreamJob, Failure> {
        not_here()
    }

    /// `zfs receive`, one stream
    fn stream_receive(&mut self, _: StreamReceive) -> Result<StreamJob, Failure> {
        not_here()
    }

    /// All of a stream is there: what is left of it.
    fn stream_end(&mut self, _: StreamEnd) -> Result<Reply, Failure> {
        not_here()
    }

    /// `zfs receive -A`
    fn receive_abort(&mut self, _: ReceiveAbort) -> Result<(), Failure> {
        not_here()
    }

    /// `tarn transaction begin`
    fn transaction_begin(&mut self, _: TransactionBegin) -> Result<TransactionPlace, Failure> {
        not_here()
    }
    /// `tarn transaction commit` and `abort`: what is left to be done for it.
    fn transaction_end(&mut self, _: TransactionEnd) -> Result<Job, Failure> {
        not_here()
    }
}

/// Carries out `request` on `backend`.
pub fn execute(backend: &mut impl Backend, request: Request) -> Reply {
    let outcome = match request {
        Request::Ping => Ok(Reply::Done),
        Request::Version => Ok(Reply::Version(backend.version())),
        Request::Quit => done(backend.quit()),
        Request::PoolCreate(create) => done(backend.pool_create(create)),
        Request::PoolDestroy(destroy) => done(backend.pool_destroy(destroy)),
        Request::PoolScan(scan) => backend.pool_scan(scan).map(Reply::Found),
        Request::PoolImport(import) => backend.pool_import(import).map(Reply::Imported),
        Request::PoolExport(export) => done(backend.pool_export(export)),
        Request::PoolList(select) => backend.pool_list(select).map(Reply::Pools),
        Request::PoolGet(select) => backend.pool_get(select).map(Reply::Pools),
        Request::PoolStatus(select) => backend.pool_status(select).map(Reply::Status),
        Request::PoolCache(select) => backend.pool_cache(select).map(Reply::Counters),
        Request::VdevGet(select) => backend.vdev_get(select).map(Reply::VdevProperties),
        Request::PoolSet(set) => done(backend.pool_set(set)),
        Request::PoolSync(select) => done(backend.pool_sync(select).and_then(|job| job())),
        Request::PoolHistory(select) => backend.pool_history(select).map(Reply::History),
        Request::PoolRecord(record) => done(backend.pool_record(record)),
        Request::PoolReguid(reguid) => done(backend.pool_reguid(reguid)),
        Request::PoolClear(clear) => done(backend.pool_clear(clear)),
        Request::PoolScrub(scrub) => done(backend.pool_scrub(scrub)),
        Request::PoolAdd(add) => done(backend.pool_add(add)),
        Request::PoolRemove(remove) => done(backend.pool_remove(remove)),
        Request::PoolDevice(asked) => backend.pool_device(asked),
        Request::PoolUpgrade(upgrade) => done(backend.pool_upgrade(upgrade)),
        Request::PoolEvents(events) => backend.pool_events(events).map(Reply::Events),
        Request::DatasetRename(rename) => done(backend.dataset_rename(rename)),
        Request::DatasetClone(clone) => done(backend.dataset_clone(clone)),
        Request::DatasetPromote(promote) => done(backend.dataset_promote(promote)),
        Request::DatasetRollback(rollback) => done(backend.dataset_rollback(rollback)),
        Request::OwnerSpace(space) => backend.owner_space(space).map(Reply::Owners),
        Request::SnapshotHolds(holds) => backend.snapshot_holds(holds).map(Reply::Holds),
        Request::DatasetGrants(grants) => backend.dataset_grants(grants).map(Reply::Grants),
        Request::DatasetAllow(allow) => done(backend.dataset_allow(allow)),
        Request::DatasetCreate(create) => done(backend.dataset_create(create)),
        request @ (Request::SnapshotsCreate(_)
        | Request::SnapshotsDestroy(_)
        | Request::SnapshotsHold(_)
        | Request::SnapshotsRelease(_)
        | Request::BookmarksCreate(_)) => refusable(backend, request).and_then(|job| job()).map(Reply::Refused),
        Request::SnapshotRedact(redact) => done(backend.snapshot_redact(redact).and_then(|job| job())),
        Request::SnapshotsSpace(wanted) => backend.snapshots_space(wanted).map(Reply::Space),
        Request::DatasetDestroy(destroy) => done(backend.dataset_destroy(destroy)),
        Request::DatasetList(list) => backend.dataset_list(list).map(Reply::Datasets),
        Request::DatasetGet(list) => backend.dataset_get(list).map(Reply::Datasets),
        Request::DatasetSet(set) => done(backend.dataset_set(set)),
        Request::DatasetInherit(inherit) => done(backend.dataset_inherit(inherit)),
        Request::DatasetMount(mount) => done(backend.dataset_mount(mount)),
        Request::DatasetsMount(mounts) => Ok(Reply::Mounted(backend.datasets_mount(mounts))),
        Request::DatasetUnmount(unmount) => done(backend.dataset_unmount(unmount).and_then(|job| job())),
        Request::DatasetsUnmount(unmounts) => Ok(Reply::Unmounted(backend.datasets_unmount(unmounts)())),
        Request::DeleteQueue(wanted) => backend.delete_queue(wanted).map(Reply::Count),
        Request::MountList => backend.mount_list().map(Reply::Mounts),
        Request::StreamSize(send) => backend.stream_size(send).and_then(|job| job()).map(Reply::StreamSize),
        Request::StreamPackage(ask) => backend.stream_package(ask).map(Reply::StreamPackage),
        Request::ReceiveAbort(abort) => done(backend.receive_abort(abort)),
        Request::StreamSend(_) | Request::StreamReceive(_) | Request::DatasetDiff(_) => Err(Failure::with(FailureKind::Other, "no descriptor came with the request")),
        Request::TransactionBegin(begin) => backend.transaction_begin(begin).map(Reply::Transaction),
        Request::TransactionEnd(end) => done(backend.transaction_end(end).and_then(|job| job())),
    };
    outcome.unwrap_or_else(Reply::Failed)
}

/// Checks a request about a stream on `backend`; the stream itself is the job, for which the backend is not needed.
///
/// # Errors
/// It is no request about a stream, or what it asks for cannot be.
pub fn execute_stream(backend: &mut impl Backend, request: Request) -> Result<StreamJob, Failure> {
    match request {
        Request::StreamSend(send) => backend.stream_send(send),
        Request::StreamReceive(receive) => backend.stream_receive(receive),
        Request::DatasetDiff(diff) => backend.dataset_diff(diff),
        _ => Err(Failure::with(FailureKind::Other, "a descriptor came with a request that needs none")),
    }
}

/// What a backend answers that does not look after pools.
fn not_here<T>() -> Result<T, Failure> {
    Err(Failure::new(FailureKind::PoolNotSupported))
}

/// What is to be done for a verb on several things; of other requests nothing.
///
/// # Errors
/// Those of the verb; it is none of them.
pub fn refusable(backend: &mut impl Backend, request: Request) -> Result<RefusalsJob, Failure> {
    match request {
        Request::SnapshotsCreate(create) => backend.snapshots_create(create),
        Request::SnapshotsDestroy(destroy) => backend.snapshots_destroy(destroy),
        Request::SnapshotsHold(held) => backend.snapshots_hold(held),
        Request::SnapshotsRelease(held) => backend.snapshots_release(held),
        Request::BookmarksCreate(create) => backend.bookmarks_create(create),
        _ => not_here(),
    }
}

fn done(outcome: Result<(), Failure>) -> Result<Reply, Failure> {
    outcome.map(|()| Reply::Done)
}
