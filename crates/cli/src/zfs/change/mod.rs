//! The verbs of `zfs` that change something.

pub(super) mod allow;
pub(super) mod allow_help;
pub(super) mod create;
pub(super) mod destroy;
pub(super) mod inherit;
pub(crate) mod mount;
pub(super) mod rename;
pub(super) mod set;
pub(super) mod snapshot;
pub(super) mod unmount;
