//! The library: pools, datasets, files.

pub mod control;
