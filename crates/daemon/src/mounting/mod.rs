//! The mounts of datasets, and of the views of transactions.

mod many;
pub(crate) mod mounted;
pub(crate) mod mounter;
pub(crate) mod mounts;
mod pool_snapshots;
pub(crate) mod transactions;
