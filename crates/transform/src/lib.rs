//! Bytes to bytes: checksums, compression and parity, exactly as they appear on disk.
//!
//! # Theory
//! Everything here is a pure function of its arguments: no I/O, no state that outlives a call except scratch memory.
//! Algorithms are selected by the number that a block pointer carries, so that this crate needs nothing of ours.
//!
//! # Path
//! Called by the engine's zio stages (checksum, compress), by what says how blocks lie on devices (parity), by label reading, by the intent log and by send streams.

pub mod checksum;
pub mod compress;
pub mod parity;
