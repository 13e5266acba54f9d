//! What the machine, and the control groups that this process is in, say about memory.
//!
//! # Theory
//! A limit holds for a group and all below it, so each group from ours up to the root counts. Of the second version of control groups both `memory.max`, beyond which
//! processes are killed, and `memory.high`, beyond which they are slowed down, are limits; of the first one `memory.limit_in_bytes`. What a group uses includes cached files, which
//! the kernel gives up first: they do not count.

use std::fs;
use std::path::{Path, PathBuf};

/// Where all is found; tests have a directory of their own.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    root: PathBuf,
}

/// Memory that is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limited {
    /// No more than this.
    pub(crate) limit: u64,
    /// In use, and not given up by the kernel by itself.
    pub(crate) used: u64,
}

/// Limits from here on are none.
const NO_LIMIT: u64 = 1 << 60;

impl Default for Surroundings {
    fn default() -> Self {
        Surroundings { root: PathBuf::from("/") }
    }
}

impl Surroundings {
    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Self {
        Surroundings { root: root.to_owned() }
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// The groups that have a limit, ours first.
    pub(crate) fn groups(&self) -> Vec<Limited> {
        let text = self.text("proc/self/cgroup").unwrap_or_default();
        let mut found = Vec::new();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            if controllers.is_empty() {
                found.extend(self.each_above("sys/fs/cgroup", path, second_version));
                found.extend(self.each_above("sys/fs/cgroup/unified", path, second_version));
            } else if controllers.split(',').any(|controller| controller == "memory") {
                found.extend(self.each_above("sys/fs/cgroup/memory", path, first_version));
            }
        }
        found
    }

    fn each_above(&self, mount: &str, path: &str, read: fn(&Path) -> Option<Limited>) -> Vec<Limited> {
        let mount = self.root.join(mount);
        // A path that leads out of what this process sees has its limits above.
        let inner = Path::new(path.trim_start_matches('/'));
        inner.ancestors().filter(|path| path.components().all(|part| matches!(part, std::path::Component::Normal(_)))).filter_map(|path| read(&mount.join(path))).collect()
    }

    /// All memory of the machine, and how much of it is in use and not given up by the kernel by itself.
    pub(crate) fn machine(&self) -> Option<Limited> {
        let text = self.text("proc/meminfo")?;
        let of = |name: &str| Some(number_after(&text, name)? << 10);
        let (limit, available) = (of("MemTotal:")?, of("MemAvailable:")?);
        Some(Limited { limit, used: limit.saturating_sub(available) })
    }

    /// In how many hundredths of the last ten seconds every process that could have worked waited for memory.
    pub(crate) fn stalled(&self) -> u64 {
        let text = self.text("proc/pressure/memory").unwrap_or_default();
        let full = text.lines().find(|line| line.starts_with("full"));
        full.and_then(|line| line.split("avg10=").nth(1)?.split(['.', ' ']).next()?.parse().ok()).unwrap_or(0)
    }
}

/// The number behind a name at the beginning of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn files_of(group: &Path, names: [&str; 2]) -> u64 {
    let text = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    names.iter().filter_map(|name| number_after(&text, name)).sum()
}

fn second_version(group: &Path) -> Option<Limited> {
    let limits = [number_in(&group.join("memory.max")), number_in(&group.join("memory.high"))];
    let limit = limits.into_iter().flatten().min().filter(|limit| *limit < NO_LIMIT)?;
    let files = files_of(group, ["inactive_file ", "active_file "]);
    Some(Limited { limit, used: number_in(&group.join("memory.current")).unwrap_or(0).saturating_sub(files) })
}

fn first_version(group: &Path) -> Option<Limited> {
    let limit = number_in(&group.join("memory.limit_in_bytes")).filter(|limit| *limit < NO_LIMIT)?;
    let files = files_of(group, ["total_inactive_file ", "total_active_file "]);
    Some(Limited { limit, used: number_in(&group.join("memory.usage_in_bytes")).unwrap_or(0).saturating_sub(files) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn each_group_above_counts_in_both_versions() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        write(root, "proc/self/cgroup", "4:cpu,memory:/a/b\n1:cpu:/x\n0::/c\n");
        write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        write(root, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "104857600\n");
        write(root, "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "94371840\n");
        write(root, "sys/fs/cgroup/memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 10485760\ntotal_active_file 20971520\n");
        write(root, "sys/fs/cgroup/c/memory.max", "max\n");
        write(root, "sys/fs/cgroup/c/memory.high", "209715200\n");
        write(root, "sys/fs/cgroup/c/memory.current", "1048576\n");
        let found = Surroundings::at(root).groups();
        assert_eq!(found, [Limited { limit: 100 * MB, used: 60 * MB }, Limited { limit: 200 * MB, used: MB }]);
        write(root, "proc/self/cgroup", "0::/../../a\nnonsense\n4:memory\n");
        assert_eq!(Surroundings::at(root).groups(), []);
    }

    #[test]
    fn the_machine_says_what_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        write(root, "proc/meminfo", "MemTotal:       1024 kB\nMemFree: 1 kB\nMemAvailable:    24 kB\n");
        write(root, "proc/pressure/memory", "some avg10=90.00 avg60=1 avg300=1 total=1\nfull avg10=12.34 avg60=0.00 avg300=0.00 total=9\n");
        let around = Surroundings::at(root);
        assert_eq!((around.machine(), around.stalled()), (Some(Limited { limit: MB, used: 1000 << 10 }), 12));
        let none = Surroundings::at(&root.join("none"));
        assert_eq!((none.machine(), none.stalled(), none.groups()), (None, 0, Vec::new()));
        assert!(Surroundings::default().machine().unwrap().limit > 64 * MB);
    }
}
