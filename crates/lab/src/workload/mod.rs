//! What is done to a file system: one folder or file for each workload.

pub mod unit;
