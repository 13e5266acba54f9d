//! `zpool`: pools.

mod change;
mod show;
pub(crate) mod spec;
mod usage;

pub(crate) use usage::PROGRAM;
