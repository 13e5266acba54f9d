//! The kernel's own file systems, on loop devices over written files.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Attempt, Setup, folder, install, is_root, missing, unmount, version_of};
use crate::interrupt;
use crate::process;
use crate::target::{self, Prepared};
use crate::undo::Undo;

/// Words for mkfs: quiet, overwrite, and no discard, which would make the image sparse again.
fn mkfs_words(name: &str, disks: usize) -> &'static [&'static str] {
    match name {
        "ext4" => &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
        "btrfs" if disks > 1 => &["-q", "-f", "-K", "-d", "raid0", "-m", "raid0"],
        _ => &["-q", "-f", "-K"],
    }
}

/// Options of mount. btrfs discards by itself what is freed, since Linux 6.2, and would make its image, and no other's, sparse again: its
/// next writes to these places would wait for the host's file system.
fn mount_options(name: &str) -> &'static str {
    if name == "btrfs" { "noatime,nodiscard" } else { "noatime" }
}

/// The options that the kernel has in force for what is mounted there.
fn options_in_force(mounts: &str, directory: &Path) -> Option<String> {
    let of = |line: &str| {
        let mut words = line.split(' ').skip(1);
        (Path::new(words.next()?) == directory).then(|| words.nth(1).map(str::to_owned)).flatten()
    };
    // The last one covers the others.
    mounts.lines().rev().find_map(of)
}

pub(super) fn prepare(name: &str, setup: &Setup) -> Result<Attempt> {
    let skipped = |reason: String| Ok(Attempt::Skipped(format!("{name}: {reason}")));
    if !is_root() {
        return skipped("mounting a loop device takes root (sudo); a directory that is there does not".to_owned());
    }
    let mkfs = format!("mkfs.{name}");
    if let Some(program) = missing(&[&mkfs, "losetup", "mount", "umount"]) {
        return skipped(install(program));
    }
    let kernel = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !kernel.split_whitespace().any(|word| word == name) && process::run("modprobe", [name]).is_err() {
        return skipped("this kernel does not have it".to_owned());
    }
    if setup.disks > 1 && name != "btrfs" {
        return skipped(format!(
            "it has one disk; {} take the kernel's md or device mapper, which fsperf does not set up",
            setup.disks
        ));
    }
    let mut undo = Undo::new();
    let folder = folder(setup, name, &mut undo)?;
    let mounted = folder.join("mounted");
    fs::create_dir(&mounted)?;
    let stand = setup.block_devices(&folder, &mut undo)?;
    interrupt::check()?;
    let words = mkfs_words(name, setup.disks);
    process::succeed(process::command(&mkfs).args(words).args(&stand.devices))?;
    let options = mount_options(name);
    let mount = ["-t", name, "-o", options];
    process::succeed(process::command("mount").args(mount).arg(&stand.devices[0]).arg(&mounted))
        .with_context(|| format!("{name}: cannot mount"))?;
    let directory = mounted.clone();
    undo.push(format!("unmount {}", mounted.display()), move || unmount(&directory));

    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let in_force = options_in_force(&mounts, &mounted).unwrap_or_else(|| "unknown".to_owned());
    let description = format!("{name} {}, {options}", stand.words);
    let files = stand.files;
    // Remounting would be the surest way, but ties the figures to how long a mount takes to warm up.
    let drop_caches = move || {
        rustix::fs::sync();
        target::drop_kernel_caches();
        files.iter().try_for_each(|file| target::forget_file(file))
    };
    let target = Prepared::new(setup.label(name), description, mounted, drop_caches, undo)
        .on_devices(stand.devices)
        .fact("version", crate::system::kernel())
        .fact("format program", version_of(&mkfs, if name == "btrfs" { &["--version"] } else { &["-V"] }))
        .fact("format options", words.join(" "))
        .fact("mount options", options)
        .fact("mount options in force", in_force);
    Ok(Attempt::Ready(Box::new(target)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_in_force_are_those_of_the_last_mount() {
        let mounts = "/dev/loop0 /a ext4 rw,noatime 0 0\n/dev/loop1 /a/b btrfs rw 0 0\n/dev/loop2 /a btrfs rw,noatime,discard=async 0 0\n";
        assert_eq!(options_in_force(mounts, Path::new("/a")).as_deref(), Some("rw,noatime,discard=async"));
        assert_eq!(options_in_force(mounts, Path::new("/c")), None);
    }

    /// btrfs freed the blocks of its image, which the other file systems kept.
    #[test]
    fn no_file_system_discards() {
        if !is_root() || !Path::new("/dev/loop-control").exists() {
            return sim::places::skipped("mount options: loop devices take root and /dev/loop-control");
        }
        let scratch = tempfile::tempdir().unwrap();
        for name in ["ext4", "xfs", "btrfs"] {
            let setup = Setup::new(scratch.path().to_owned(), 512 << 20, "tarn".into());
            let target = match prepare(name, &setup).unwrap() {
                Attempt::Ready(target) => target,
                Attempt::Skipped(why) => {
                    sim::places::skipped(&format!("mount options: {why}"));
                    continue;
                }
            };
            let fact = target.facts().iter().find(|(fact, _)| fact == "mount options in force").map(|(_, value)| value.clone()).unwrap();
            let options: Vec<&str> = fact.split(',').collect();
            assert!(options.contains(&"noatime") && !options.iter().any(|option| option.starts_with("discard")), "{name}: {fact}");
        }
    }
}
