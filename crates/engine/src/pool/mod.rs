//! Opens, syncs and closes all of the above.

pub mod config;
pub mod import;

#[cfg(test)]
mod import_tests;
