//! The laboratory: workloads, comparators, reports.
