//! The verbs of `zfs` that change something.

pub(super) mod allow;
mod allow_help;
pub(super) mod clone;
pub(super) mod create;
pub(super) mod destroy;
pub(super) mod inherit;
pub(crate) mod mount;
pub(super) mod promote;
pub(super) mod receive;
pub(super) mod rename;
pub(super) mod rollback;
pub(super) mod set;
pub(super) mod snapshot;
pub(super) mod unmount;
