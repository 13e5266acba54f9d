//! Simulated host and disks, golden pools, the oracle. Development only.
