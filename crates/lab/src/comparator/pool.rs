//! What zfs-fuse and the kernel's OpenZFS have in common: `zpool` makes a pool, lets go of it, takes it again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::stand::Stand;
use super::{Setup, eventually, pool_name, unmount};
use crate::process;
use crate::system;
use crate::target;
use crate::undo::Undo;

/// A pool of another ZFS.
pub(super) struct ForeignPool {
    name: String,
    mounted: PathBuf,
    /// Where its devices are looked for.
    folder: PathBuf,
    files: Vec<PathBuf>,
    words: Vec<String>,
}

impl ForeignPool {
    /// Makes it on the stand in `folder`; `undo` destroys it.
    pub(super) fn create(owner: &'static str, setup: &Setup, folder: &Path, stand: &Stand, undo: &mut Undo) -> Result<ForeignPool> {
        let Stand { paths, files, .. } = stand;
        let (name, mounted) = (pool_name(), folder.join("mounted"));
        let mut words = ["create", "-f", "-o", "cachefile=none"].map(str::to_owned).to_vec();
        words.extend(setup.property_words());
        process::succeed(process::command("zpool").args(&words).arg("-m").arg(&mounted).arg(&name).args(paths))?;
        let (gone, directory) = (name.clone(), mounted.clone());
        undo.push(format!("destroy {owner}'s pool {name}"), move || {
            // It answers "busy" for a moment after its last file was closed.
            let mut outcome = Ok(String::new());
            // A daemon that died has left nothing but files, which go away with their directory.
            let is_dead = |error: &anyhow::Error| error.to_string().contains("Connection refused");
            eventually(Duration::from_secs(5), || {
                outcome = process::run("zpool", ["destroy", "-f", &gone]);
                outcome.as_ref().map_or_else(is_dead, |_| true)
            });
            unmount(&directory)?;
            outcome.map(drop).or_else(|error| if is_dead(&error) { Ok(()) } else { Err(error) })
        });
        if !system::is_mount_point(&mounted) {
            bail!("{owner} made a pool but did not mount it");
        }
        let on_devices = paths.first().filter(|path| path.starts_with("/dev"));
        let folder = on_devices.and_then(|path| path.parent()).unwrap_or(folder).to_owned();
        Ok(ForeignPool { name, mounted, folder, files: files.clone(), words })
    }

    /// The words that made it.
    pub(super) fn words(&self) -> String {
        self.words.join(" ")
    }

    /// The command that prints the pool's counters each second.
    pub(super) fn iostat(name: &str) -> Command {
        let mut command = process::command("zpool");
        command.args(["iostat", name, "1"]);
        command
    }

    pub(super) fn name(&self) -> &str {
        &self.name
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
