//! Opens, syncs and closes all of the above.
//!
//! # Theory
//! A [`Pool`] is the layers put together: vdevs, blocks, objects, datasets, space maps. It is opened from a
//! [`import::Candidate`] or made (`open`). Two threads drive its transaction groups: one closes
//! them, one writes them (`sync`). It ends with [`Pool::export`], or by being dropped, which is no different from a crash.
//!
//! ```text
//!   Pool               puts the parts together (pool.rs); what can be done with it (verbs.rs)
//!     GroupWriter      passes, commit point, threads, heartbeat (sync)
//!       Configuration  what labels and the MOS say (config)
//!       Layers         vdevs, context, DSL, space maps, shared blocks (layers.rs)
//! ```
//!
//! # Path
//! called by tarnfs; calls everything.

pub mod check;
pub mod checkpoint;
pub mod config;
mod devices;
pub mod error_log_sync;
pub mod expansion;
mod layers;
mod leaf_work;
mod maintenance;
mod open;
#[allow(clippy::module_inception)]
mod pool;
mod rebuild;
mod removal;
mod scan;
pub mod shared_blocks;
pub mod space_maps;
mod sync;
mod time_log_sync;
mod verbs;

#[cfg(test)]
mod tests;

pub use config::{prop_table, vdev_prop_table};
pub use devices::beside::attach::{Beside, Fill};
pub use devices::auxiliary;
pub use devices::removed::Removal;
pub use devices::states::Stopped;
pub use devices::vdev_properties::StoredOfVdev;
pub use leaf_work::{WorkCommand, WorkKind, WorkProgress, WorkState};
pub use open::create::{NewPool, NewVdev};
pub use open::open::{Import, OpenOptions};
pub use open::{examine, import};
pub use pool::{Pool, PoolCapacity};
pub use rebuild::RebuildProgress;
pub use scan::{ScanEvent, ScanPace, ScanProgress, ScrubOf};
pub use sync::claim::Claim;
pub use sync::heartbeat::{NO_HEARTBEAT, check_not_in_use};
