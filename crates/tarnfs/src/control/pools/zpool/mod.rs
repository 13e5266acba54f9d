//! Verbs on whole pools.

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
pub(super) mod vdevs;
