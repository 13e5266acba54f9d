//! What `cargo xtask` does, as a library, so that its checks are tests too (`xtask/tests/tidy.rs`).

pub mod tidy;
