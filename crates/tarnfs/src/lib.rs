//! The library: pools, datasets, files.

pub mod control;
pub mod zpl;
