//! What is on a device that is about to become part of a pool.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// File systems, swap, members of arrays and whatever else `blkid` knows, on a block device and on its partitions: where, and of what type.
/// Nothing about files, as in OpenZFS; nor where there is no `blkid`.
pub(in crate::zpool) fn of(path: &Path) -> Vec<(PathBuf, String)> {
    if !fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
        return Vec::new();
    }
    let all = [path.to_owned()].into_iter().chain(partitions(path));
    all.filter_map(|device| type_of(&device).map(|kind| (device, kind))).collect()
}

/// A member of a pool is told by its labels, which say whether the pool still is.
fn type_of(device: &Path) -> Option<String> {
    let mut blkid = Command::new("blkid");
    blkid.args(["-p", "-o", "value", "-s", "TYPE"]).arg(device).stdin(Stdio::null()).stderr(Stdio::null());
    let kind = String::from_utf8(blkid.output().ok()?.stdout).ok()?.trim().to_owned();
    (!kind.is_empty() && kind != "zfs_member").then_some(kind)
}

fn partitions(disk: &Path) -> Vec<PathBuf> {
    let Some(name) = fs::canonicalize(disk).ok().and_then(|path| path.file_name().map(PathBuf::from)) else { return Vec::new() };
    let Ok(entries) = fs::read_dir(Path::new("/sys/class/block").join(name)) else { return Vec::new() };
    let partitions = entries.flatten().filter(|entry| entry.path().join("partition").exists());
    partitions.map(|entry| Path::new("/dev").join(entry.file_name())).collect()
}
