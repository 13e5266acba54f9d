//! Opens, syncs and closes all of the above.

pub mod check;
pub mod config;
pub mod import;
pub mod prop_table;
pub mod space_maps;

#[cfg(test)]
mod import_tests;
