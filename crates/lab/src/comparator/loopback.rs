//! The kernel's own file systems, on a loop device over a preallocated file.

use std::fs;

use anyhow::{Context, Result};

use super::{Attempt, Place, folder, image, is_root, missing, unmount};
use crate::process;
use crate::target::{self, Prepared};
use crate::undo::Undo;

/// Words for mkfs: quiet, overwrite, and no discard, which would make the image sparse again.
fn mkfs_words(name: &str) -> &'static [&'static str] {
    match name {
        "ext4" => &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
        "xfs" => &["-q", "-f", "-K"],
        _ => &["-q", "-f", "-K"],
    }
}

pub(super) fn prepare(name: &str, place: &Place) -> Result<Attempt> {
    if !is_root() {
        return Ok(Attempt::Skipped(format!("{name}: mounting a loop device takes root")));
    }
    let mkfs = format!("mkfs.{name}");
    if let Some(program) = missing(&[&mkfs, "losetup", "mount", "umount"]) {
        return Ok(Attempt::Skipped(format!("{name}: {program} is not installed")));
    }
    let kernel = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !kernel.split_whitespace().any(|word| word == name) && process::run("modprobe", [name]).is_err() {
        return Ok(Attempt::Skipped(format!("{name}: this kernel does not have it")));
    }
    let mut undo = Undo::new();
    let folder = folder(place, name, &mut undo)?;
    let (file, mounted) = (folder.join("image"), folder.join("mounted"));
    fs::create_dir(&mounted)?;
    image(&file, place.image_bytes)?;
    process::succeed(process::command(&mkfs).args(mkfs_words(name)).arg(&file))?;

    let device = process::succeed(process::command("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&file));
    let device = match device {
        Ok(device) => device.trim().to_owned(),
        Err(error) => return Ok(Attempt::Skipped(format!("{name}: no loop device: {error:#}"))),
    };
    let detached = device.clone();
    undo.push(format!("detach {device}"), move || process::run("losetup", ["--detach", &detached]).map(drop));
    let words = ["-t", name, "-o", "noatime", &device];
    process::succeed(process::command("mount").args(words).arg(&mounted)).with_context(|| format!("{name}: cannot mount"))?;
    let directory = mounted.clone();
    undo.push(format!("unmount {}", mounted.display()), move || unmount(&directory));

    let description = format!("{name} on a loop device over a preallocated file of {} MB, noatime", place.image_bytes >> 20);
    // Remounting would be the surest way, but ties the figures to how long a mount takes to warm up.
    let drop_caches = move || {
        rustix::fs::sync();
        target::drop_kernel_caches();
        target::forget_file(&file)
    };
    let target = Prepared::new(name, description, mounted, drop_caches, undo);
    Ok(Attempt::Ready(target.on_device(device.into())))
}
