//! Opens, syncs and closes all of the above.
//!
//! # Theory
//! A [`Pool`] is the layers put together: vdevs, blocks, objects, datasets, space maps. It is opened from a
//! [`import::Candidate`] (`open.rs`) or made (`create.rs`). Two threads drive its transaction groups: one closes
//! them, one writes them (`sync.rs`). It ends with [`Pool::export`], or by being dropped, which is no different from a crash.
//!
//! # Path
//! called by tarnfs; calls everything.

mod add;
pub mod check;
mod close;
pub mod config;
mod create;
mod maintain;
pub mod auxiliary;
pub mod checkpoint;
pub mod examine;
mod heartbeat;
pub mod import;
mod missed;
mod open;
#[allow(clippy::module_inception)]
mod pool;
pub mod prop_table;
mod properties;
mod raise;
mod remove_log;
mod removed;
pub mod shared_blocks;
pub mod space_maps;
mod sync;
mod sync_config;
mod vdev_zaps;
mod verify;

#[cfg(test)]
mod import_tests;
#[cfg(test)]
mod tests;

pub use create::{NewPool, NewVdev};
pub use heartbeat::check_not_in_use;
pub use open::OpenOptions;
pub use pool::{Pool, PoolCapacity};
pub use removed::Removal;
