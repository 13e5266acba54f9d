//! Objects that form datasets and snapshots.
