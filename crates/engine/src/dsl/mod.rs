//! Objects that form datasets and snapshots.

pub mod prop_table;
