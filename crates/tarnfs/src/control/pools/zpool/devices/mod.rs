//! The devices of pools: verbs on them, how they are shown, and what becomes of those that fail.

mod add;
pub(super) mod beside;
pub(in crate::control::pools) mod diagnosis;
pub(super) mod shown;
