//! The crash explorer: every moment at which the power can go, and every state that can be left then.
//!
//! # Theory
//! A workload of real operations is done by the real engine on disks in memory that remember every write and flush ([`disk`]). From what
//! they remember the states are made in which a loss of power could leave them: it is cut at any event; of the writes that were not
//! flushed any subset is there, torn at any sector. Each state is imported, checked, read whole and compared with a model
//! that knows the operations, not the engine ([`world`], [`judge`]); many are also imported for writing, written, cut off again in
//! that, and shown to the real `zdb` ([`state`]).
//!
//! Everything follows from the name of the workload and of the state: `random:17` and `212.6` are the same in each run, and a failure
//! prints the command that repeats it. A run is deterministic because the host of the simulation has one thread beside the group's own,
//! and no group ends by itself.
//!
//! What it does not show: threads that race (`tests/racing.rs` does), devices that reorder across a flush (that is a lie, and lies have a test of
//! their own), more than a few dozen operations.
//!
//! # Invariants
//! 1. The model is written from what POSIX and OpenZFS promise, and uses nothing of the engine.
//! 2. A bug on purpose ([`engine::canary`]) is found, each of them: `tests/explore.rs`.
//!
//! # Path
//! `cargo xtask explore`, `tests/explore.rs` → [`Explorer`] → [`run`] → [`state`] → [`judge`].

pub mod campaign;
pub mod disk;
pub mod judge;
pub mod op;
pub mod run;
pub mod state;
mod transaction;
pub mod workload;
pub mod world;

pub use campaign::{Explorer, Failure, Kind, Plan, Report};
