//! The kernel's table of mounts, as a process sees it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of `/proc/PID/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The kernel's number of the mount.
    pub id: u64,
    /// Device number of the file system.
    pub device: (u32, u32),
    /// The directory of the file system that is mounted; `/` for all of it.
    pub root: PathBuf,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Type of the file system.
    pub kind: String,
    /// The device, or what the file system calls its source.
    pub source: String,
}

/// All mounts that this process sees, in the order in which they were made.
pub fn own() -> io::Result<Vec<MountEntry>> {
    read(Path::new("/proc/self/mountinfo"))
}

/// The mount points of all FUSE file systems at one moment: the table is read once and asked for many mounts.
#[derive(Debug)]
pub struct MountPoints(Option<HashMap<(u32, u32), Vec<PathBuf>>>);

impl MountPoints {
    /// Those that this process sees now.
    pub fn now() -> MountPoints {
        let mut points: HashMap<(u32, u32), Vec<PathBuf>> = HashMap::new();
        let whole = |entry: &MountEntry| entry.kind.starts_with("fuse") && entry.root == Path::new("/");
        let Ok(table) = own() else { return MountPoints(None) };
        for entry in table.into_iter().filter(whole) {
            points.entry(entry.device).or_default().push(entry.mount_point);
        }
        MountPoints(Some(points))
    }

    /// The mount points of one file system; `None` if the table could not be read.
    pub(crate) fn of(&self, device: (u32, u32)) -> Option<&[PathBuf]> {
        self.0.as_ref().map(|points| points.get(&device).map_or(&[][..], Vec::as_slice))
    }
}

/// The mounts in a file such as `/proc/PID/mountinfo`.
pub(crate) fn read(file: &Path) -> io::Result<Vec<MountEntry>> {
    Ok(std::fs::read(file)?.split(|byte| *byte == b'\n').filter_map(entry).collect())
}

fn entry(line: &[u8]) -> Option<MountEntry> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let text = |at: usize| words.get(at).and_then(|word| std::str::from_utf8(word).ok());
    let path = |at: usize| words.get(at).map(|word| PathBuf::from(OsString::from_vec(unescape(word))));
    let (major, minor) = text(2)?.split_once(':')?;
    // A dash ends the optional fields.
    let dash = words.iter().skip(6).position(|word| *word == b"-")? + 6;
    Some(MountEntry {
        id: text(0)?.parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: path(3)?,
        mount_point: path(4)?,
        kind: text(dash + 1)?.to_owned(),
        source: path(dash + 2)?.to_string_lossy().into_owned(),
    })
}

/// The kernel writes white space and backslashes as three octal digits.
fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits =
            (bytes[at] == b'\\').then(|| bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok())).flatten();
        let octal = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(octal.unwrap_or(bytes[at]));
        at += if octal.is_some() { 4 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        assert_eq!(unescape(br"/a\040b\134c\"), br"/a b\c\");
        let text = br"36 35 0:53 / /mnt\040x rw,nosuid shared:1 master:2 - fuse.tarn tank/a\134b rw,user_id=0";
        let (root, mount_point) = ("/".into(), "/mnt x".into());
        let (kind, source) = ("fuse.tarn".to_owned(), r"tank/a\b".to_owned());
        assert_eq!(entry(text), Some(MountEntry { id: 36, device: (0, 53), root, mount_point, kind, source }));
        for broken in [&b""[..], b"x", b"36 35 053 / /mnt rw - fuse x", b"36 35 0:53 / /mnt rw fuse.tarn", b"36 35 0:53 / /mnt rw - fuse"] {
            assert_eq!(entry(broken), None);
        }
        assert!(own().unwrap().iter().any(|entry| entry.mount_point == Path::new("/proc")));
    }
}
