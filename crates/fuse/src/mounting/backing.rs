//! How the kernel's page cache treats a mount: the knobs of its "backing device".
//!
//! # Theory
//! The kernel does not trust the servers of FUSE: it lets one have 1 % of what may be dirty, slows writers down to its first
//! guess of the server's speed as soon as half of that is used, and reads ahead 128 KiB. A server that root runs may change that.
//! All of it is about speed: where it cannot be changed, nothing is lost. But what one mount may hold stays bounded: the file system may
//! have to refuse it later.

use std::fs;

/// Read-ahead, in KiB: as much as one request carries.
const READ_AHEAD_KIB: &str = "1024";
/// Bytes that the kernel may collect before it hands them over, about.
pub const HELD_BYTES: u64 = 512 << 20;
/// Percentage of all dirty memory that may be of this mount, where that is less.
const DIRTY_PERCENT: &str = "40";

/// Sets the knobs of a file system, which must be served.
pub(crate) fn relax((major, minor): (u32, u32)) {
    // The device of an anonymous mount has the major number 0; behind a block device's number the kernel puts a word.
    let knobs = format!("/sys/class/bdi/{major}:{minor}{}", if major == 0 { "" } else { "-fuseblk" });
    let held = HELD_BYTES.to_string();
    for (knob, value) in [("read_ahead_kb", READ_AHEAD_KIB), ("max_ratio", DIRTY_PERCENT), ("max_bytes", &held), ("strict_limit", "1")] {
        if let Err(error) = fs::write(format!("{knobs}/{knob}"), value) {
            tracing::debug!(knob, %error, "the kernel's cache stays as it is");
        }
    }
}
