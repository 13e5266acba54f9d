//! Scenarios: what programs do to a pool, done through the library, and judged.
//!
//! # Theory
//! A [`Rig`] is a pool on files in a temporary directory. An [`Actor`] does each operation twice: to a file system of
//! the pool, and to a [`Model`] of what POSIX says. [`Rig::judge`] is the court: the pool is exported, our own checker
//! reads every block and proves that what is allocated is what is referenced, the real `zdb` does the same, and after
//! the pool has been imported again each file system must be what its model says. A scenario calls it as often as it
//! likes; the fewer operations lie between two calls, the easier the culprit is found.
//!
//! # Path
//! `Rig::create` → `Rig::actor` → operations → `Rig::judge` → ...

mod actor;
mod control;
mod damage;
mod memory;
mod model;
mod random;
mod rig;
mod streams;

pub use actor::Actor;
pub use control::{found_pool, import_of};
pub use memory::{MemoryDisks, SimHost};
pub use model::{Entry, Model, Node, NodeId};
pub use random::{Mix, RandomSteps};
pub use rig::{Layout, Rig, contents, properties};
pub use streams::{encode_stream, record, stream_of, stream_records};
