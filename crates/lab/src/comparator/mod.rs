//! File systems brought up for a measurement and taken down after it.
//!
//! # Theory
//!
//! All of them but [`ceiling`] lie on as many files of the same size in the same directory ([`stand`]), written once from end to end so
//! that the host's file system does not allocate while it is measured, nor notes for each place that it is written for the first time
//! (which takes a durable write of 4 K from 70 us to 230). What a comparator needs and this machine does not have (a tool, the right to
//! mount, a kernel module) is a reason to leave it out, by name, and no error.

pub mod ceiling;
pub mod tarn;

mod embedded;
mod loopback;
mod pool;
mod stand;
mod zfs_fuse;
mod zfs_kernel;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::FallocateFlags;

use crate::aligned::Aligned;
use crate::disk::Model;
use crate::interrupt;
use crate::process;
use crate::system;
use crate::target::{self, Target};
use crate::undo::{self, Undo};
use stand::Stand;

pub use stand::{simulated, simulated_anyway};

/// The names that [`prepare`] knows.
pub const NAMES: [&str; 8] = ["tarn", "tarn-embedded", "fuse-ceiling", "ext4", "xfs", "btrfs", "zfs-fuse", "zfs"];

/// An image is written in pieces of this size.
const IMAGE_PIECE_BYTES: u64 = 4 << 20;

/// What a ZFS's file system is made with unless the user says otherwise. None of the kernel's file systems compresses, nor does zfs-fuse by
/// itself; what some workloads write compresses well, and a file system that writes less would be measured at less work.
const ORDINARY: [&str; 2] = ["atime=off", "compression=off"];

/// What all comparators of a run are made with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// A directory on the file system that carries the images.
    pub directory: PathBuf,
    /// Of all disks of a file system together.
    pub image_bytes: u64,
    /// The `tarn` program.
    pub tarn: PathBuf,
    /// How many disks each file system gets.
    pub disks: usize,
    /// Slows the disks down to those of another time or price.
    pub model: Option<Model>,
    /// What the file system is called in tables, if not by its name: there may be several of a kind.
    pub label: Option<String>,
    /// Properties of the ZFSes' file system, as `recordsize=8k`, beside and before those of [`ORDINARY`].
    pub properties: Vec<String>,
    /// Set for the `tarn` program.
    pub environment: Vec<(String, String)>,
}

/// A comparator, or why there is none.
pub enum Attempt {
    Ready(Box<dyn Target>),
    Skipped(String),
}

impl Setup {
    /// One disk for each, as fast as the machine has it.
    pub fn new(directory: PathBuf, image_bytes: u64, tarn: PathBuf) -> Setup {
        Setup {
            directory,
            image_bytes,
            tarn,
            disks: 1,
            model: None,
            label: None,
            properties: Vec::new(),
            environment: Vec::new(),
        }
    }

    fn label(&self, name: &str) -> String {
        self.label.clone().unwrap_or_else(|| name.to_owned())
    }

    /// The properties of a ZFS's file system: the user's, and the ordinary ones that the user did not name.
    fn all_properties(&self) -> Vec<&str> {
        let named = |property: &str| match property.split('=').next().unwrap_or_default() {
            // One property with two names.
            "compress" => "compression".to_owned(),
            name => name.to_owned(),
        };
        let is_given = |ordinary: &str| self.properties.iter().any(|given| named(given) == named(ordinary));
        let ordinary = ORDINARY.into_iter().filter(|ordinary| !is_given(ordinary));
        ordinary.chain(self.properties.iter().map(String::as_str)).collect()
    }

    /// The words that give a ZFS's file system its properties when its pool is made.
    fn property_words(&self) -> Vec<String> {
        self.all_properties().into_iter().flat_map(|one| ["-O".to_owned(), one.to_owned()]).collect()
    }

    /// The same for people.
    fn properties_in_words(&self) -> String {
        self.all_properties().join(", ")
    }
}

/// Brings up the file system called `name`.
pub fn prepare(name: &str, setup: &Setup) -> Result<Attempt> {
    match name {
        "tarn" => tarn::prepare(setup),
        "tarn-embedded" => embedded::prepare(setup),
        ceiling::NAME => ceiling::prepare(setup),
        "ext4" | "xfs" | "btrfs" => loopback::prepare(name, setup),
        "zfs-fuse" => zfs_fuse::prepare(setup),
        "zfs" => zfs_kernel::prepare(setup),
        _ => bail!("no comparator is called {name}; there are {}", NAMES.join(", ")),
    }
}

/// The Debian package that has a program that comparators run.
fn package(program: &str) -> &'static str {
    match program {
        "mkfs.ext4" => "e2fsprogs",
        "mkfs.xfs" => "xfsprogs",
        "mkfs.btrfs" | "btrfs" => "btrfs-progs",
        "zfs-fuse" => "zfs-fuse",
        "zpool" | "zfs" => "zfsutils-linux",
        _ => "mount",
    }
}

/// Why a comparator is left out: a program of another package is not there.
fn install(program: &str) -> String {
    format!("{program} is not installed (apt-get install {})", package(program))
}

/// The first line that a program says of its version.
fn version_of(program: &str, words: &[&str]) -> String {
    let said = process::output(process::command(program).args(words));
    let said = said.map(|output| format!("{}{}", output.stdout, output.stderr)).unwrap_or_default();
    said.lines().next().unwrap_or("unknown").trim().to_owned()
}

/// A name for a pool that no other pool of this machine has.
fn pool_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("fsperf{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Why nothing can be mounted that a program serves.
fn no_fuse() -> Option<&'static str> {
    (!Path::new("/dev/fuse").exists()).then_some("there is no /dev/fuse (modprobe fuse; a container must be given it: --device /dev/fuse)")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The first of these programs that is not installed.
fn missing<'a>(programs: &[&'a str]) -> Option<&'a str> {
    programs.iter().find(|program| process::find(program).is_none()).copied()
}

/// A folder for one comparator, removed at the end.
fn folder(setup: &Setup, name: &str, undo: &mut Undo) -> Result<PathBuf> {
    undo::scratch_directory(&setup.directory, &format!(".fsperf-{name}-"), undo)
}

/// A file whose blocks are all there, and written. The space is asked for first: where there is too little, that is said at once.
fn image(path: &Path, bytes: u64) -> Result<()> {
    let name = || format!("cannot make {} of {} MB", path.display(), bytes >> 20);
    let file = OpenOptions::new().write(true).create_new(true).open(path).with_context(name)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).with_context(name)?;
    let zeros = Aligned::new(IMAGE_PIECE_BYTES as usize);
    let mut offset = 0;
    while offset < bytes {
        interrupt::check()?;
        let length = (bytes - offset).min(IMAGE_PIECE_BYTES);
        file.write_all_at(&zeros[..length as usize], offset).with_context(name)?;
        offset += length;
    }
    file.sync_all().with_context(name)?;
    // The pages would be the first of its contents that are cached, and take memory from others.
    target::forget_file(path)
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

/// Unmounts; waits a little for processes that just look at it.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Preallocated blocks are blocks, and take the host another note when they are first written. Whether they are written only the
    /// file system knows: here, by what it tells FIEMAP, through `filefrag`, and of holes by what every file system tells.
    #[test]
    fn an_image_is_written_to_its_end() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("image");
        // Not a whole number of pieces.
        let bytes = 2 * IMAGE_PIECE_BYTES + (1 << 20);
        image(&path, bytes).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), bytes);
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap(), bytes, "it has a hole");
        let told = process::output(process::command("filefrag").arg("-v").arg(&path));
        match told.ok().filter(|told| told.code == 0) {
            Some(told) => assert!(!told.stdout.contains("unwritten"), "{}", told.stdout),
            None => sim::places::skipped("unwritten blocks of an image: filefrag is not installed, or knows no extents here"),
        }
    }

    /// TarnFS alone compressed, and wrote a part of what the others wrote.
    #[test]
    fn no_zfs_compresses_unless_the_user_says_so() {
        let with = |properties: &[&str]| {
            let properties = properties.iter().map(|one| (*one).to_owned()).collect();
            Setup { properties, ..Setup::new(PathBuf::from("/"), 1 << 30, PathBuf::from("tarn")) }
        };
        assert_eq!(with(&[]).property_words(), ["-O", "atime=off", "-O", "compression=off"]);
        assert_eq!(with(&["recordsize=8k"]).properties_in_words(), "atime=off, compression=off, recordsize=8k");
        assert_eq!(with(&["compression=lz4", "atime=on"]).properties_in_words(), "compression=lz4, atime=on");
        assert_eq!(with(&["compress=on"]).properties_in_words(), "atime=off, compress=on");
    }
}
