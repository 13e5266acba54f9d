//! How a pool begins and ends: found on devices, looked at, made, opened, closed.

mod close;
pub(in crate::pool) mod create;
pub mod examine;
pub mod import;
#[allow(clippy::module_inception)]
pub(in crate::pool) mod open;

#[cfg(test)]
mod import_tests;
