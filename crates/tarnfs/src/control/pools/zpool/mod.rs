//! Verbs on whole pools.

pub(in crate::control::pools) mod cache;
pub(super) mod cachefile;
pub(super) mod create;
pub(super) mod devices;
pub(super) mod error_log;
pub(super) mod events;
pub(super) mod export;
pub(super) mod import;
pub(super) mod inspect;
pub(super) mod maintenance;
pub(super) mod pool_properties;
