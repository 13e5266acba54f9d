//! Snapshots: destroying them, and what else refers to them.

mod destroy_sync;
pub(in crate::dsl) mod written_sync;
