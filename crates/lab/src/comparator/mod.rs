//! File systems brought up for a measurement and taken down after it.
//!
//! # Theory
//!
//! All of them lie on a file of the same size in the same directory, preallocated so that the host's file system does
//! not allocate while it is measured. What a comparator needs and this machine does not have (a tool, the right to
//! mount, a kernel module) is a reason to leave it out, by name, and no error.

pub mod tarn;

mod loopback;
mod zfs_fuse;

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::FallocateFlags;

use crate::process;
use crate::system;
use crate::target::Prepared;
use crate::undo::{self, Undo};

/// The names that [`prepare`] knows.
pub const NAMES: [&str; 5] = ["tarn", "ext4", "xfs", "btrfs", "zfs-fuse"];

/// Where comparators put what they need.
#[derive(Debug, Clone)]
pub struct Place {
    /// A directory on the file system that carries the images.
    pub directory: PathBuf,
    pub image_bytes: u64,
    /// The `tarn` program.
    pub tarn: PathBuf,
}

/// A comparator, or why there is none.
pub enum Attempt {
    Ready(Prepared),
    Skipped(String),
}

/// Brings up the file system called `name`.
pub fn prepare(name: &str, place: &Place) -> Result<Attempt> {
    match name {
        "tarn" => tarn::prepare(place),
        "ext4" | "xfs" | "btrfs" => loopback::prepare(name, place),
        "zfs-fuse" => zfs_fuse::prepare(place),
        _ => bail!("no comparator is called {name}; there are {}", NAMES.join(", ")),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The first of these programs that is not installed.
fn missing<'a>(programs: &[&'a str]) -> Option<&'a str> {
    programs.iter().find(|program| process::find(program).is_none()).copied()
}

/// A folder for one comparator, removed at the end.
fn folder(place: &Place, name: &str, undo: &mut Undo) -> Result<PathBuf> {
    undo::scratch_directory(&place.directory, &format!(".fsperf-{name}-"), undo)
}

/// A file whose blocks are all there.
fn image(path: &Path, bytes: u64) -> Result<()> {
    let name = || format!("cannot make {} of {} MB", path.display(), bytes >> 20);
    let file = OpenOptions::new().write(true).create_new(true).open(path).with_context(name)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).with_context(name)?;
    file.sync_all().with_context(name)
}

/// Waits for `condition`, at most `limit`.
fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while !condition() {
        if started.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Unmounts, with patience for whoever just looks at it.
fn unmount(directory: &Path) -> Result<()> {
    let mut last = None;
    for _ in 0..20 {
        if !system::is_mount_point(directory) {
            return Ok(());
        }
        let outcome = match rustix::process::geteuid().is_root() {
            true => process::succeed(process::command("umount").arg(directory)),
            false => process::succeed(process::command("fusermount3").arg("-u").arg(directory)),
        };
        match outcome {
            Ok(_) => return Ok(()),
            Err(error) => last = Some(error),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(last.unwrap_or_else(|| anyhow::anyhow!("{} stays mounted", directory.display())))
}
