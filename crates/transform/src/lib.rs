//! Bytes to bytes: checksums, compression, parity.

pub mod checksum;
pub mod compress;
