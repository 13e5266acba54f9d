//! Workloads that imitate an application.

pub mod images;
pub mod mail;
pub mod oltp;
pub mod source_tree;
pub mod videoserver;
