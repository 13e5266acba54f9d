//! Verbs on lines of versions.

mod branch;
