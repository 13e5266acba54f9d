//! The verbs of `zpool` that change something.

pub(super) mod create;
pub(super) mod destroy;
pub(super) mod devices;
pub(super) mod export;
pub(super) mod found;
pub(super) mod import;
pub(super) mod labelclear;
pub(super) mod set;
pub(super) mod sync;
pub(super) mod upgrade;
pub(super) mod upkeep;
