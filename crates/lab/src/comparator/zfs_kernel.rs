//! The kernel's OpenZFS, where its module is loaded.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::pool::ForeignPool;
use super::{Attempt, Setup, folder, install, is_root, missing};
use crate::target::Prepared;
use crate::undo::Undo;

pub(super) fn prepare(setup: &Setup) -> Result<Attempt> {
    let skipped = |reason: &str| Ok(Attempt::Skipped(format!("zfs: {reason}")));
    if !Path::new("/dev/zfs").exists() {
        return skipped("this kernel has no OpenZFS (apt-get install zfs-dkms, then modprobe zfs)");
    }
    if !is_root() {
        return skipped("making a pool takes root (sudo)");
    }
    if let Some(program) = missing(&["zpool"]) {
        return skipped(&install(program));
    }
    let mut undo = Undo::new();
    let folder = folder(setup, "zfs", &mut undo)?;
    let stand = setup.stand(&folder, &mut undo)?;
    let pool = ForeignPool::create("OpenZFS", setup, &folder, &stand, &mut undo)?;
    let version = fs::read_to_string("/sys/module/zfs/version").unwrap_or_default();
    let description = format!("OpenZFS {} {}, {}", version.trim(), stand.words, setup.properties_in_words());
    let (mounted, name, words) = (pool.mounted().to_owned(), pool.name().to_owned(), pool.words());
    let target = Prepared::new(setup.label("zfs"), description, mounted, move || pool.drop_caches(), undo)
        .watched_by(move || ForeignPool::iostat(&name))
        .on_files(&stand.files)
        .on_devices(stand.devices)
        .fact("version", version.trim())
        .fact("format options", words);
    Ok(Attempt::Ready(Box::new(target)))
}
