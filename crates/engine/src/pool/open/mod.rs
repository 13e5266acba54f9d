//! How a pool begins and ends: found on devices, looked at, made, opened, closed.

pub(in crate::pool) mod close;
pub(in crate::pool) mod create;
pub mod examine;
pub(in crate::pool) mod heads;
pub mod import;
#[allow(clippy::module_inception)]
pub(in crate::pool) mod open;

#[cfg(test)]
mod import_tests;
