//! Workloads of names and nothing but names.

pub mod growth;
pub mod metadata;
