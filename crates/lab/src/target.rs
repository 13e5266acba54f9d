//! Where a workload runs: a directory, a name, and a way to empty the caches behind it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::Advice;
use tempfile::TempDir;

use crate::storage::{Host, Storage};
use crate::system;

/// A file system to measure.
pub trait Target {
    /// A word for the columns of a report.
    fn name(&self) -> &str;
    /// Where the workload may do as it likes.
    fn directory(&self) -> &Path;
    /// Afterwards neither the page cache nor the file system holds contents of files in the directory.
    fn drop_caches(&self) -> Result<()>;
    /// Waits until all earlier changes are written.
    fn settle(&self) -> Result<()> {
        rustix::fs::syncfs(&File::open(self.directory())?).context("cannot sync")
    }
    /// The file system and its storage, in one line.
    fn description(&self) -> String;
    /// The process that serves the file system, if one does.
    fn process(&self) -> Option<u32> {
        None
    }
    /// The command that prints the pool's activity each second, if there is a pool: `zpool iostat POOL 1`.
    fn pool_statistics(&self) -> Option<Command> {
        None
    }
    /// The block devices that the file system has for itself, if there are any.
    fn devices(&self) -> &[PathBuf] {
        &[]
    }
    /// What it lies on, if it has no devices for itself.
    fn beneath(&self) -> &Path {
        self.directory()
    }
    /// What else is to be known to make it again: versions, options of format and mount.
    fn facts(&self) -> &[(String, String)] {
        &[]
    }
    /// How its files are reached.
    fn storage(&self) -> &dyn Storage {
        &Host
    }
    /// Fails if the file system is not there any more: its process died, somebody unmounted it. What lies below its mount point would be
    /// measured instead.
    fn check(&self) -> Result<()> {
        Ok(())
    }
    /// Can other programs reach its files too?
    fn is_mounted(&self) -> bool {
        true
    }
}

/// Writes a file's dirty pages and drops its pages from the kernel's cache.
pub fn forget_file(path: &Path) -> Result<()> {
    let name = || format!("cannot empty the cache of {}", path.display());
    let file = File::open(path).with_context(name)?;
    file.sync_all().with_context(name)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).with_context(name)
}

/// Drops what the kernel caches, if we may. A user that may not has [`forget_file`] for the contents of files.
pub fn drop_kernel_caches() -> bool {
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

fn forget_files_below(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            forget_files_below(&entry.path())?;
        } else if kind.is_file() {
            forget_file(&entry.path())?;
        }
    }
    Ok(())
}

/// A directory on a file system that is mounted anyway.
pub struct HostDirectory {
    name: String,
    directory: TempDir,
}

impl HostDirectory {
    /// Works in a new directory inside `parent`, which goes away with this.
    pub fn new(name: impl Into<String>, parent: &Path) -> Result<HostDirectory> {
        let directory = tempfile::Builder::new().prefix(".fsperf-").tempdir_in(parent);
        let directory = directory.with_context(|| format!("cannot make a directory in {}", parent.display()))?;
        Ok(HostDirectory { name: name.into(), directory })
    }
}

impl Target for HostDirectory {
    fn name(&self) -> &str {
        &self.name
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn drop_caches(&self) -> Result<()> {
        forget_files_below(self.directory.path())?;
        drop_kernel_caches();
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        // Not the whole file system: others have work on it that is none of ours.
        File::open(self.directory.path())?.sync_all().context("cannot sync")
    }

    fn description(&self) -> String {
        match system::mount_of(self.directory.path()) {
            Some(mount) => format!("{} on {}, mounted on {}", mount.kind, mount.source, mount.mount_point.display()),
            None => self.directory.path().display().to_string(),
        }
    }
}

/// A file system that a comparator brought up, or anything else whose caches a closure empties.
pub struct Prepared {
    name: String,
    description: String,
    directory: PathBuf,
    /// What the directory lay on at first.
    mounted: Option<PathBuf>,
    drop_caches: Box<dyn Fn() -> Result<()>>,
    process: Box<dyn Fn() -> Option<u32>>,
    pool_statistics: Option<Box<dyn Fn() -> Command>>,
    devices: Vec<PathBuf>,
    /// The file that holds it, if there is one.
    file: Option<PathBuf>,
    facts: Vec<(String, String)>,
    // Taken down when this goes away.
    _undo: crate::undo::Undo,
}

impl Prepared {
    /// `drop_caches` is called with none of the directory's files open; `undo` takes everything down at the end.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        directory: PathBuf,
        drop_caches: impl Fn() -> Result<()> + 'static,
        undo: crate::undo::Undo,
    ) -> Prepared {
        Prepared {
            name: name.into(),
            description: description.into(),
            mounted: system::mount_of(&directory).map(|mount| mount.mount_point),
            directory,
            drop_caches: Box::new(drop_caches),
            process: Box::new(|| None),
            pool_statistics: None,
            devices: Vec::new(),
            file: None,
            facts: Vec::new(),
            _undo: undo,
        }
    }

    /// `process` finds the process that serves it; a comparator may start another one when it empties its caches.
    pub fn served_by(self, process: impl Fn() -> Option<u32> + 'static) -> Prepared {
        Prepared { process: Box::new(process), ..self }
    }

    /// It is a pool, and this prints its counters.
    pub fn watched_by(self, command: impl Fn() -> Command + 'static) -> Prepared {
        Prepared { pool_statistics: Some(Box::new(command)), ..self }
    }

    /// It has these block devices for itself.
    pub fn on_devices(self, devices: Vec<PathBuf>) -> Prepared {
        Prepared { devices, ..self }
    }

    /// It lies in these files, which lie on one disk.
    pub fn on_files(self, files: &[PathBuf]) -> Prepared {
        Prepared { file: files.first().cloned(), ..self }
    }

    /// Something to be recorded with the figures.
    pub fn fact(mut self, name: &str, value: impl Into<String>) -> Prepared {
        self.facts.push((name.to_owned(), value.into()));
        self
    }
}

impl Target for Prepared {
    fn name(&self) -> &str {
        &self.name
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn check(&self) -> Result<()> {
        let mounted = system::mount_of(&self.directory).map(|mount| mount.mount_point);
        ensure!(mounted == self.mounted, "{} is not mounted any more on {}", self.name, self.directory.display());
        Ok(())
    }

    fn drop_caches(&self) -> Result<()> {
        (self.drop_caches)()
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn process(&self) -> Option<u32> {
        (self.process)()
    }

    fn pool_statistics(&self) -> Option<Command> {
        self.pool_statistics.as_ref().map(|command| command())
    }

    fn devices(&self) -> &[PathBuf] {
        &self.devices
    }

    /// A mount that a process serves has a device number of its own, below which nothing is written.
    fn beneath(&self) -> &Path {
        self.file.as_deref().unwrap_or(&self.directory)
    }

    fn facts(&self) -> &[(String, String)] {
        &self.facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The disk below a pool was taken for that of its mount, which was idle.
    #[test]
    fn what_a_file_system_in_files_lies_on_is_their_disk() {
        let prepared = Prepared::new("there", "", PathBuf::from("/mounted"), || Ok(()), crate::undo::Undo::new());
        assert_eq!(prepared.beneath(), Path::new("/mounted"));
        assert_eq!(prepared.on_files(&[PathBuf::from("/disk/image"), PathBuf::from("/disk/image1")]).beneath(), Path::new("/disk/image"));
    }

    /// What lies below a mount point is not what was to be measured.
    #[test]
    fn a_mount_that_is_gone_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        let prepared = |directory: &Path| Prepared::new("there", "", directory.to_owned(), || Ok(()), crate::undo::Undo::new());
        let mut target = prepared(scratch.path());
        target.check().unwrap();
        target.mounted = Some(scratch.path().to_owned());
        let error = target.check().unwrap_err().to_string();
        assert!(error.starts_with("there is not mounted any more on "), "{error}");
    }
}
