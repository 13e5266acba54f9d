//! Verbs on datasets.

pub(super) mod datasets;
pub(super) mod list;
pub(super) mod mounting;
pub(super) mod owners;
pub(super) mod quotas;
pub(super) mod rename;
pub(super) mod rights;
pub(super) mod set;
pub(super) mod snapshots;
mod replaced;
mod streams;
mod upgrade;
mod versions;
