//! Transactions of programs over a mount, as requests. What they are: `docs/transactions.md`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::failure::Failure;

/// `tarn transaction begin`: a private view of a mounted dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionBegin {
    /// The file system. It must be mounted.
    pub dataset: String,
    /// A process. When it ends before the transaction does, that is forgotten.
    pub owner: i32,
}

/// Where a transaction is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionPlace {
    /// The view is mounted here. The transaction goes by this name.
    pub directory: PathBuf,
    /// The dataset itself is mounted here.
    pub mountpoint: PathBuf,
}

/// What becomes of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransactionFate {
    /// All its changes are done. `durable`: and are on disk, before the answer.
    Commit {
        /// See there.
        durable: bool,
    },
    /// None of them. The answer is a failure of the kind `Conflict` if that is what it had met.
    Abort,
}

/// `tarn transaction commit`, `tarn transaction abort`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionEnd {
    /// Where its view is.
    pub directory: PathBuf,
    /// What becomes of it.
    pub fate: TransactionFate,
}

/// The rest of a request, which may wait for the pool: to be done when nobody waits for the one who answers, since the next request
/// may be what the pool waits for.
pub type Job = Box<dyn FnOnce() -> Result<(), Failure> + Send>;

/// The same of a request about several: for each, in its order, what went wrong.
pub type EachJob = Box<dyn FnOnce() -> Vec<Option<Failure>> + Send>;
