//! What the machine says about itself: mounts, memory, processors.

use std::fs;
use std::path::Path;

use fuse::mount_table::MountEntry;

/// Everything that is mounted, in the order in which it was.
pub fn mounts() -> Vec<MountEntry> {
    fuse::mount_table::own().unwrap_or_default()
}

/// The mount that `path` lies on.
pub fn mount_of(path: &Path) -> Option<MountEntry> {
    let path = path.canonicalize().ok()?;
    let holding = mounts().into_iter().filter(|mount| path.starts_with(&mount.mount_point));
    holding.enumerate().max_by_key(|(order, mount)| (mount.mount_point.as_os_str().len(), *order)).map(|(_, mount)| mount)
}

/// Is something mounted right there?
pub fn is_mount_point(path: &Path) -> bool {
    mounts().iter().any(|mount| mount.mount_point == path)
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
    let memory = free_memory_bytes()
        .map_or_else(String::new, |bytes| format!(", {:.1} GB of memory free", bytes as f64 / f64::from(1 << 30)));
    format!("{processors} processors{memory}, {}", kernel())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_a_mount_point() {
        assert!(is_mount_point(Path::new("/")));
        assert!(mount_of(Path::new("/proc/self")).is_some_and(|mount| mount.kind == "proc"));
        assert!(free_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
