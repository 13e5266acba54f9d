//! What says that a device belongs to a pool, and which state of it is true.

pub mod cache_device;
pub mod feature;
pub mod label;
pub mod uberblock;
