//! The laboratory: workloads, comparators, reports.
//!
//! # Theory
//!
//! A *workload* does one thing to a directory and says how long it took. A *comparator* brings up a file system to do
//! it on, takes it down again whatever happens, and knows how to empty its caches; the two meet in [`target::Target`].
//! Figures are only worth comparing inside one run, on one machine, on the same kind of device, so a run takes its
//! targets in turn, repetition by repetition, and its report prints ratios beside the absolute figures.
//!
//! # Path
//!
//! `fsperf` and `tarn try` → [`comparator`] → [`workload`] → [`report`].

#![allow(clippy::disallowed_methods, reason = "measures real time")]

pub mod aligned;
pub mod comparator;
pub mod disk;
pub mod interrupt;
mod measure;
pub mod out;
pub mod process;
pub mod record;
pub mod report;
pub mod statistics;
pub mod storage;
pub mod system;
pub mod target;
pub mod undo;
pub mod workload;

pub use measure::{cost, flame, pool_watch, watch};
