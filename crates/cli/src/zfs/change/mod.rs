//! The verbs of `zfs` that change something.

pub(super) mod bookmark;
pub(super) mod create;
pub(super) mod delegation;
pub(super) mod destroy;
pub(super) mod hold;
pub(super) mod inherit;
pub(crate) mod mount;
pub(super) mod project;
pub(super) mod receive;
pub(super) mod rename;
pub(super) mod set;
pub(super) mod unmount;
pub(super) mod upgrade;
pub(super) mod versions;
