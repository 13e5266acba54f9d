//! The transactional engine: pool, vdev, zio, arc, txg, dmu, zap, dsl, zil, logged, in layer order.

pub mod error;
pub mod host;
pub mod canary;
pub mod tunables;
pub mod stats;
pub mod sync;
pub mod vdev;
pub mod alloc;
pub mod zio;
pub mod arc;
pub mod txg;
pub mod dmu;
pub mod zap;
pub mod dsl;
pub mod zil;
pub mod logged;
pub mod stream;
pub mod pool;
