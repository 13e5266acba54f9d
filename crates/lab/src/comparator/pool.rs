//! What zfs-fuse and the kernel's OpenZFS have in common: `zpool` makes a pool, lets go of it, takes it again.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use std::time::Duration;

use super::{eventually, unmount};
use crate::process;
use crate::system;
use crate::target;
use crate::undo::Undo;

/// A pool of somebody else's ZFS.
pub(super) struct ForeignPool {
    name: String,
    mounted: PathBuf,
    /// Where its devices are looked for.
    folder: PathBuf,
    files: Vec<PathBuf>,
}

impl ForeignPool {
    /// The words that make it.
    pub(super) const WORDS: [&'static str; 6] = ["create", "-f", "-o", "cachefile=none", "-O", "atime=off"];

    /// Makes it; `undo` destroys it.
    pub(super) fn create(
        owner: &'static str,
        folder: &Path,
        paths: &[PathBuf],
        files: &[PathBuf],
        undo: &mut Undo,
    ) -> Result<ForeignPool> {
        let (name, mounted) = (format!("fsperf{}", std::process::id()), folder.join("mounted"));
        process::succeed(process::command("zpool").args(Self::WORDS).arg("-m").arg(&mounted).arg(&name).args(paths))?;
        let (gone, directory) = (name.clone(), mounted.clone());
        undo.push(format!("destroy {owner}'s pool {name}"), move || {
            // It answers "busy" for a moment after its last file was closed.
            let mut outcome = Ok(String::new());
            eventually(Duration::from_secs(5), || {
                outcome = process::run("zpool", ["destroy", "-f", &gone]);
                outcome.is_ok()
            });
            unmount(&directory)?;
            outcome.map(drop)
        });
        if !system::is_mount_point(&mounted) {
            bail!("{owner} made a pool but did not mount it");
        }
        let on_devices = paths.first().filter(|path| path.starts_with("/dev"));
        let folder = on_devices.and_then(|path| path.parent()).unwrap_or(folder).to_owned();
        Ok(ForeignPool { name, mounted, folder, files: files.to_vec() })
    }

    /// Where it is mounted.
    pub(super) fn mounted(&self) -> &Path {
        &self.mounted
    }

    /// Export, forget, import.
    pub(super) fn drop_caches(&self) -> Result<()> {
        process::run("zpool", ["export", &self.name])?;
        self.files.iter().try_for_each(|file| target::forget_file(file))?;
        target::drop_kernel_caches();
        process::succeed(
            process::command("zpool").args(["import", "-o", "cachefile=none", "-d"]).arg(&self.folder).arg(&self.name),
        )?;
        if !system::is_mount_point(&self.mounted) {
            bail!("not mounted again");
        }
        Ok(())
    }
}
