//! What labels and the MOS say of a pool as a whole: configuration, properties, features, version.

pub(in crate::pool) mod configuration;
pub(in crate::pool) mod pool_config;
pub mod prop_table;
pub mod vdev_prop_table;
pub(in crate::pool) mod properties;
pub(in crate::pool) mod upgrade;

pub use pool_config::{PoolConfig, PoolState, VERSION_BEFORE_FEATURES, VERSION_FEATURES};
