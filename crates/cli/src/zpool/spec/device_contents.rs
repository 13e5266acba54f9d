//! What is on a device that is about to become part of a pool.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What `blkid` says of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Contents {
    /// A member of a pool. Its labels say whether the pool still is.
    PoolMember,
    /// A file system, swap, a member of an array, or whatever else `blkid` knows.
    Type(String),
}

/// Nothing about files, as in OpenZFS; nor where there is no `blkid`.
pub(super) fn of(device: &Path) -> Option<Contents> {
    if !fs::metadata(device).is_ok_and(|found| found.file_type().is_block_device()) {
        return None;
    }
    let mut blkid = Command::new("blkid");
    blkid.args(["-p", "-o", "value", "-s", "TYPE"]).arg(device).stdin(Stdio::null()).stderr(Stdio::null());
    let Output { stdout, .. } = blkid.output().ok()?;
    said(&String::from_utf8_lossy(&stdout))
}

/// What `blkid` means.
fn said(printed: &str) -> Option<Contents> {
    match printed.trim() {
        "" => None,
        "zfs_member" => Some(Contents::PoolMember),
        kind => Some(Contents::Type(kind.to_owned())),
    }
}

/// The partitions of a block device.
pub(super) fn partitions(disk: &Path) -> Vec<PathBuf> {
    if !fs::metadata(disk).is_ok_and(|found| found.file_type().is_block_device()) {
        return Vec::new();
    }
    let Some(name) = fs::canonicalize(disk).ok().and_then(|path| path.file_name().map(PathBuf::from)) else { return Vec::new() };
    let Ok(entries) = fs::read_dir(Path::new("/sys/class/block").join(name)) else { return Vec::new() };
    let partitions = entries.flatten().filter(|entry| entry.path().join("partition").exists());
    let mut partitions: Vec<PathBuf> = partitions.map(|entry| Path::new("/dev").join(entry.file_name())).collect();
    partitions.sort();
    partitions
}
