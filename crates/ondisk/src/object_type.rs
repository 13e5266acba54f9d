//! Object types: one table.
