//! Feature flags: one table.
