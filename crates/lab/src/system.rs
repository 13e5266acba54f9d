//! What the machine says about itself: mounts, memory, processors.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A mount, as `/proc/self/mountinfo` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    pub directory: PathBuf,
    pub kind: String,
    pub source: String,
}

fn unescape(word: &str) -> PathBuf {
    let bytes = word.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if bytes[at] == b'\\' => {
                plain.push(byte);
                at += 4;
            }
            _ => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&plain))
}

fn parse(line: &str) -> Option<MountPoint> {
    let (place, device) = line.split_once(" - ")?;
    let mut device = device.split(' ');
    Some(MountPoint {
        directory: unescape(place.split(' ').nth(4)?),
        kind: device.next()?.to_owned(),
        source: unescape(device.next()?).to_string_lossy().into_owned(),
    })
}

/// Everything that is mounted, in the order in which it was.
pub fn mounts() -> Vec<MountPoint> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

/// The mount that `path` lies on.
pub fn mount_of(path: &Path) -> Option<MountPoint> {
    let path = path.canonicalize().ok()?;
    let holding = mounts().into_iter().filter(|mount| path.starts_with(&mount.directory));
    holding.enumerate().max_by_key(|(order, mount)| (mount.directory.as_os_str().len(), *order)).map(|(_, mount)| mount)
}

/// Is something mounted right there?
pub fn is_mount_point(path: &Path) -> bool {
    mounts().iter().any(|mount| mount.directory == path)
}

fn memory(field: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Memory that could be had without swapping.
pub fn free_memory_bytes() -> Option<u64> {
    memory("MemAvailable")
}

/// All memory.
pub fn memory_bytes() -> Option<u64> {
    memory("MemTotal")
}

/// Space that we may fill on the file system of `path`.
pub fn free_space_bytes(path: &Path) -> Option<u64> {
    let space = rustix::fs::statvfs(path).ok()?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

/// The kernel's name and release.
pub fn kernel() -> String {
    format!("Linux {}", fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim())
}

/// Processors, memory and kernel in one line.
pub fn describe() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = free_memory_bytes()
        .map_or_else(String::new, |bytes| format!(", {:.1} GB of memory free", bytes as f64 / f64::from(1 << 30)));
    format!("{processors} processors{memory}, Linux {}", kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_with_a_space_in_its_name() {
        let line = "36 35 98:0 /mnt1 /mnt\\040two rw,noatime master:1 - ext3 /dev/ro\\134ot rw,errors=continue";
        let expected = MountPoint { directory: "/mnt two".into(), kind: "ext3".into(), source: "/dev/ro\\ot".into() };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("36 35 98:0 /mnt1"), None);
    }

    #[test]
    fn the_root_is_a_mount_point() {
        assert!(is_mount_point(Path::new("/")));
        assert!(mount_of(Path::new("/proc/self")).is_some_and(|mount| mount.kind == "proc"));
        assert!(free_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
