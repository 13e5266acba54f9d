//! How one block gets there and back.
