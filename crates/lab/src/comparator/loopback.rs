//! The kernel's own file systems, on loop devices over preallocated files.

use std::fs;

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
    let mount = ["-t", name, "-o", "noatime"];
    process::succeed(process::command("mount").args(mount).arg(&stand.devices[0]).arg(&mounted))
        .with_context(|| format!("{name}: cannot mount"))?;
    let directory = mounted.clone();
    undo.push(format!("unmount {}", mounted.display()), move || unmount(&directory));

    let description = format!("{name} {}, noatime", stand.words);
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
        .fact("mount options", "noatime");
    Ok(Attempt::Ready(Box::new(target)))
}
