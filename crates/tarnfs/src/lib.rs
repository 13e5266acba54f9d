//! The library: pools, datasets, files.
