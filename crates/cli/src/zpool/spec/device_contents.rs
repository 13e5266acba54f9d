//! What is on a device that is about to become part of a pool.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Where `blkid` is, also for a user whose `PATH` lacks the system's programs.
const BLKID: [&str; 3] = ["blkid", "/usr/sbin/blkid", "/sbin/blkid"];

/// What `blkid` says of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Contents {
    /// A member of a pool. Its labels say whether the pool still is.
    PoolMember,
    /// A file system, swap, a member of an array, or whatever else `blkid` knows.
    Type(String),
    /// There is more than one, and `blkid` does not say which of them is in use.
    Several,
    /// `blkid` did not say, and why not. There may be anything.
    Unknown(&'static str),
}

/// Nothing about files, as in OpenZFS.
pub(super) fn of(device: &Path) -> Option<Contents> {
    if !fs::metadata(device).is_ok_and(|found| found.file_type().is_block_device()) {
        return None;
    }
    look(device, &BLKID)
}

/// What the first of these programs that is there says of a device.
fn look(device: &Path, programs: &[&str]) -> Option<Contents> {
    let ask = |program: &&str| {
        let mut blkid = Command::new(program);
        blkid.args(["-p", "-o", "value", "-s", "TYPE"]).arg(device).stdin(Stdio::null()).stderr(Stdio::null());
        blkid.output().ok()
    };
    match programs.iter().find_map(ask) {
        Some(Output { status, stdout, .. }) => said(status.code(), &String::from_utf8_lossy(&stdout)),
        None => Some(Contents::Unknown("blkid is not installed")),
    }
}

/// What an exit code of `blkid`, and what it printed, mean. (2: it knows nothing that is there.)
fn said(code: Option<i32>, printed: &str) -> Option<Contents> {
    match (code, printed.trim()) {
        (Some(8), _) => Some(Contents::Several),
        (Some(0 | 2), "") => None,
        (_, "") => Some(Contents::Unknown("blkid failed")),
        (_, "zfs_member") => Some(Contents::PoolMember),
        (_, kind) => Some(Contents::Type(kind.to_owned())),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// That it cannot be told what is there counted as nothing.
    #[test]
    fn what_blkid_means() {
        assert_eq!(said(Some(0), "ext4\n"), Some(Contents::Type("ext4".to_owned())));
        assert_eq!(said(Some(0), "zfs_member\n"), Some(Contents::PoolMember));
        assert_eq!(said(Some(8), ""), Some(Contents::Several));
        assert_eq!(said(Some(2), ""), None);
        assert_eq!(said(Some(0), "\n"), None);
        assert_eq!(said(Some(1), ""), Some(Contents::Unknown("blkid failed")), "it does not know these options");
        assert_eq!(said(None, ""), Some(Contents::Unknown("blkid failed")), "a signal ended it");
    }

    /// Where there is no such program, every device counted as empty.
    #[test]
    fn nothing_is_known_without_blkid() {
        assert_eq!(look(Path::new("/dev/null"), &["/no/such/blkid"]), Some(Contents::Unknown("blkid is not installed")));
        // The first one that is there is asked: this one says nothing, and fails.
        assert_eq!(look(Path::new("/dev/null"), &["/no/such/blkid", "false"]), Some(Contents::Unknown("blkid failed")));
    }
}
