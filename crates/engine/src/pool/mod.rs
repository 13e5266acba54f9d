//! Opens, syncs and closes all of the above.
//!
//! # Theory
//! A [`Pool`] is the layers put together: vdevs, blocks, objects, datasets, space maps. It is opened from a
//! [`import::Candidate`] (`open.rs`) or made (`create.rs`). Two threads drive its transaction groups: one closes
//! them, one writes them (`sync.rs`). It ends with [`Pool::export`], or by being dropped, which is no different from a crash.
//!
//! # Path
//! called by tarnfs; calls everything.

pub mod check;
pub mod checkpoint;
pub mod config;
mod devices;
mod maintenance;
mod open;
#[allow(clippy::module_inception)]
mod pool;
pub mod shared_blocks;
pub mod space_maps;
mod sync;

#[cfg(test)]
mod tests;

pub use config::prop_table;
pub use devices::auxiliary;
pub use devices::removed::Removal;
pub use open::create::{NewPool, NewVdev};
pub use open::open::OpenOptions;
pub use open::{examine, import};
pub use pool::{Pool, PoolCapacity};
pub use sync::heartbeat::check_not_in_use;
