//! What labels and the MOS say of a pool as a whole: configuration, properties, features, version.

pub(in crate::pool) mod config_sync;
pub(in crate::pool) mod pool_config;
pub mod prop_table;
mod properties;
mod upgrade;

pub use pool_config::{PoolConfig, PoolState, VERSION_BEFORE_FEATURES, VERSION_FEATURES};
