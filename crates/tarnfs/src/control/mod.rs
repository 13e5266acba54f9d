//! Every administrative verb as data: what can be asked of the pools, and what comes back.
//!
//! # Theory
//!
//! `zpool` and `zfs` do not call the engine. They build a [`Request`], and somebody answers it with a [`Reply`]: the
//! daemon, when it owns the pool, over its socket ([`wire`]); a [`Backend`] in the same process otherwise. [`execute`]
//! is the only place that maps one onto the other, so both ways behave alike, and a test of a verb is plain data.
//!
//! A reply is never text for the user's eyes. It has raw numbers, words and sources ([`PropertyValue`]); whether
//! `1610612736` is printed as `1.50G` is the command line's business. Failures carry a kind to decide by and the phrase
//! that OpenZFS uses ([`Failure`]); the command puts `cannot open 'tank': ` before it.
//!
//! Verbs on many datasets (`destroy -r`, `mount -a`, `inherit -r`) are taken apart by the command into one request
//! each, in the order in which OpenZFS's own commands do it, so that each failure has a name.
//!
//! # Path
//!
//! `cli` builds requests; `daemon::control_socket` and `tarnfs::Pool` answer them.

mod auxiliary;
mod backend;
mod caller;
pub mod compatibility;
mod descriptor;
pub mod mountpoint;
pub mod permission;
mod pools;
mod protocol;
pub mod scan;
mod size;
pub mod wire;

#[cfg(test)]
mod tests;

pub use backend::{Backend, execute, execute_stream, refusable};
pub use caller::Caller;
pub use descriptor::{Descriptor, Watch, Way};
pub use protocol::branch::{DatasetClone, DatasetPromote, DatasetRollback};
pub use protocol::failure::{Failure, FailureKind, SAME_DEVICE, plain_words};
pub use protocol::maintenance::{
    CommandLine, DatasetRename, DeleteQueue, DeviceAttach, DeviceVerb, EventValue, HistoryRecord, HistoryWhat, ImportRewound, LeafWork, LeafWorkCommand, LeafWorkKind, OwnerKind, OwnerSpace, OwnerUse, PoolAdd, PoolClear, PoolDevice, PoolEvent,
    PoolEvents, PoolHistory, PoolRecord, PoolReguid, PoolRemove, PoolScrub, PoolSplit, PoolUpgrade, ScrubCommand,
};
pub use pools::{Beside, Flush, MACHINE_CACHEFILE, MountPlan, Mounter, NoMounts, Pools, Settled, check_request, no_transaction};
pub use protocol::property::{PropertyValue, Setting, Source, Value, Wanted};
pub use protocol::reply::{BuildVersion, DatasetEntry, DatasetKind, DatasetKinds, Datasets, Mount, PoolEntry, Reply, VdevProperties};
pub use protocol::request::{
    AllocationClass, DatasetCreate, DatasetDestroy, DatasetInherit, DatasetList, DatasetMount, DatasetSet, DatasetUnmount, FeatureChoice,
    DAMAGED_FILES, DEDUP_TABLES, PoolCreate, PoolDestroy, PoolExport, PoolImport, PoolScan, PoolSelect, PoolSet, Request, VdevKind, VdevSpec,
};
pub use protocol::rights::{DatasetAllow, DatasetGrants, Grant, GrantEdit, Grantee, Hold, Reach, SnapshotHolds};
pub use protocol::snapshots::{BookmarksCreate, Refusal, RefusalsJob, SnapshotRedact, SnapshotsCreate, SnapshotsDestroy, SnapshotsSpace, SnapshotsTag};
pub use protocol::transaction::{EachJob, Job, TransactionBegin, TransactionEnd, TransactionFate, TransactionPlace};
pub use protocol::stream::{
    DatasetDiff, DiffLine, Package, PackageAsk, PackageDataset, ReceiveAbort, Received, ReplaceContents, SizeJob, StreamEnd, StreamJob, StreamProgress, StreamReceive,
    StreamSend, Streamed,
};
pub use size::parse_size;
pub use protocol::status::{
    CheckpointState, CheckpointStatus, Compatibility, DedupStatus, ErrorScrubStatus, ExpansionStatus, FoundPool, LeafWorkState, LeafWorkStatus, PoolState, PoolStatus, RebuildState, RebuildStatus, RemovalStatus, Requests, ScanFunction, ScanState, ScanStatus, Suspension,
    UnsupportedFeature, VdevAux, VdevState, VdevStats, VdevStatus,
};
