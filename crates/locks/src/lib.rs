//! Mutexes and read-write locks, which a benchmark can count.
//!
//! # Theory
//! All crates use `parking_lot` under its own name, which the workspace's manifest turns into this crate. It is `parking_lot`, re-exported,
//! and costs nothing. With the feature `count`, and in builds with debug assertions, `Mutex` and `RwLock` are wrappers that note each acquisition, where it is in the source and
//! which lock it takes, for the thread that asked for that ([`counting::record`]).
//!
//! # Path
//! `crates/tarnfs/benches/costs.rs`; [docs/performance.md](../../../docs/performance.md).

#[cfg(any(feature = "count", debug_assertions))]
pub mod counting;

#[cfg(any(feature = "count", debug_assertions))]
pub use counting::{Mutex, RwLock};
pub use parking_lot::{Condvar, MutexGuard, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
#[cfg(not(any(feature = "count", debug_assertions)))]
pub use parking_lot::{Mutex, RwLock};
