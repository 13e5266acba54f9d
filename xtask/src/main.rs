//! `cargo xtask`: everything that CI and developers run.

fn main() {}
