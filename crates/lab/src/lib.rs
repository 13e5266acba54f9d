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
pub mod cost;
pub mod disk;
pub mod flame;
pub mod interrupt;
pub mod out;
pub mod pool_watch;
pub mod process;
pub mod record;
pub mod report;
pub mod statistics;
pub mod storage;
pub mod system;
pub mod target;
pub mod undo;
pub mod watch;
pub mod workload;
