//! What a vdev is called, and how wide a tree of them is.

use tarnfs::control::scan::{strip_directory, strip_partition};
use tarnfs::control::{AllocationClass, PoolStatus, VdevKind, VdevStatus};

/// How to call vdevs. The default is what the environment says, as for all that uses OpenZFS's library.
#[derive(Debug, Clone, Copy)]
pub(in crate::zpool) struct Naming {
    /// `-g`: by guid
    pub(in crate::zpool) guid: bool,
    /// `-L`: where links lead
    pub(in crate::zpool) follow: bool,
    /// `-P`: by whole path
    pub(in crate::zpool) path: bool,
}

impl Default for Naming {
    fn default() -> Naming {
        let is_on = |name: &str| std::env::var(name).is_ok_and(|value| is_yes(&value));
        Naming { guid: is_on("ZPOOL_VDEV_NAME_GUID"), follow: is_on("ZPOOL_VDEV_NAME_FOLLOW_LINKS"), path: is_on("ZPOOL_VDEV_NAME_PATH") }
    }
}

/// `yes`, `on`, or a number that is not 0.
fn is_yes(value: &str) -> bool {
    let (digits, radix) = value.strip_prefix("0x").map_or((value, 10), |digits| (digits, 16));
    let lower = value.to_ascii_lowercase();
    lower == "yes" || lower == "on" || digits.chars().take_while(|digit| digit.is_digit(radix)).any(|digit| digit != '0')
}

impl Naming {
    /// The name of a vdev; the root is called like the pool.
    pub(in crate::zpool) fn name(self, vdev: &VdevStatus, pool: &str) -> String {
        if vdev.kind == VdevKind::Root {
            return pool.to_owned();
        }
        if vdev.not_present || self.guid {
            return vdev.guid.to_string();
        }
        let Some(path) = &vdev.path else { return group_name(vdev) };
        let real = if self.follow { std::fs::canonicalize(path).ok().map(|real| real.to_string_lossy().into_owned()) } else { None };
        let path = real.as_deref().unwrap_or(path);
        if self.path || vdev.kind != VdevKind::Disk {
            return path.to_owned();
        }
        let short = strip_directory(path);
        if vdev.whole_disk { strip_partition(short).to_owned() } else { short.to_owned() }
    }

    /// Width of the name column: every name with its depth.
    pub(in crate::zpool) fn width(self, status: &PoolStatus, pool: &str) -> usize {
        let root = self.width_of(&status.root, pool, 0);
        let others = status.caches.iter().chain(&status.spares).map(|vdev| self.width_of(vdev, pool, 2));
        others.fold(root, usize::max)
    }

    fn width_of(self, vdev: &VdevStatus, pool: &str, depth: usize) -> usize {
        let own = self.name(vdev, pool).len() + depth;
        vdev.children.iter().map(|child| self.width_of(child, pool, depth + 2)).fold(own, usize::max)
    }
}

/// `mirror-0`, `raidz2-1`, `draid1:4d:9c:1s-0`.
fn group_name(vdev: &VdevStatus) -> String {
    let kind = match vdev.kind {
        VdevKind::Raidz { parity } => format!("raidz{parity}"),
        VdevKind::Draid { parity, data, children, spares } => format!("draid{parity}:{data}d:{children}c:{spares}s"),
        kind => type_word(kind).to_owned(),
    };
    format!("{kind}-{}", vdev.id)
}

/// The word for a kind of vdev in the format.
pub(in crate::zpool) fn type_word(kind: VdevKind) -> &'static str {
    match kind {
        VdevKind::Root => "root",
        VdevKind::Disk => "disk",
        VdevKind::File => "file",
        VdevKind::Mirror => "mirror",
        VdevKind::Raidz { .. } => "raidz",
        VdevKind::Draid { .. } => "draid",
        VdevKind::Replacing => "replacing",
        VdevKind::Spare => "spare",
        VdevKind::DraidSpare => "dspare",
        VdevKind::Hole => "hole",
        VdevKind::Indirect => "indirect",
        VdevKind::Missing => "missing",
    }
}

/// The word for a class in the format; normal vdevs have one only in JSON.
pub(in crate::zpool) fn class_word(class: AllocationClass) -> &'static str {
    match class {
        AllocationClass::Normal => "normal",
        AllocationClass::Log => "log",
        AllocationClass::Special => "special",
        AllocationClass::Dedup => "dedup",
        AllocationClass::Cache => "l2cache",
        AllocationClass::Spare => "spare",
    }
}

/// The classes that are listed apart, in order, with their headings.
pub(in crate::zpool) const CLASSES: [(AllocationClass, &str); 3] =
    [(AllocationClass::Dedup, "dedup"), (AllocationClass::Special, "special"), (AllocationClass::Log, "logs")];

#[cfg(test)]
mod tests {
    use super::*;

    /// The variables of the environment were not heeded.
    #[test]
    fn a_variable_is_set_as_openzfs_reads_it() {
        for (value, expected) in [("1", true), ("YES", true), ("on", true), ("0x10", true), ("2 ", true), ("0", false), ("no", false), ("", false), ("0x0", false), ("true", false)] {
            assert_eq!(is_yes(value), expected, "{value}");
        }
    }
}
