//! The library: pools, datasets, files.

pub mod control;

pub use engine::error::{Error, ErrorKind};
