//! What the commands that measure have in common: which file systems, and where.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use lab::comparator::{self, Attempt, Place};
use lab::disk;
use lab::record::LeftOut;
use lab::system;
use lab::target::{HostDirectory, Target};

#[derive(Args)]
pub(crate) struct TargetArguments {
    /// What to measure: tarn, tarn-embedded, ext4, xfs, btrfs, zfs-fuse, zfs (each made fresh, and removed afterwards), or a directory
    ///
    /// Each of the names is made on a file of its own of the same size (kernel file systems: through a loop device, which takes root). A name that cannot be made here is left out, with a line that says why and what to install. A directory is measured as it is; write ./NAME for one that is called like a file system.
    #[arg(long, visible_alias = "compare", value_name = "LIST", value_delimiter = ',', required = true)]
    on: Vec<String>,
    /// Where the files of the file systems are made
    #[arg(long = "in", value_name = "DIR", default_value = ".")]
    place: PathBuf,
    /// Size of each file system, in MB; what the workloads need otherwise
    #[arg(long, value_name = "MB")]
    image: Option<u64>,
    /// Disks that each file system gets, which share that size
    #[arg(long, value_name = "N", default_value_t = 1)]
    disks: usize,
    /// Simulate a disk of this kind below each; `fsperf disk list` has them
    #[arg(long, value_name = "MODEL")]
    disk: Option<String>,
    /// The tarn program; the one beside this program otherwise
    #[arg(long, value_name = "PROGRAM")]
    tarn: Option<PathBuf>,
}

/// Below this some file systems have more trouble with their own bookkeeping than with the tests.
const SMALLEST_IMAGE_BYTES: u64 = 4 << 30;
const MOST_DISKS: usize = 16;

/// What is measured, and what is not.
pub(crate) struct Targets {
    pub(crate) all: Vec<Box<dyn Target>>,
    pub(crate) left_out: Vec<LeftOut>,
}

fn is_name(word: &str) -> bool {
    comparator::NAMES.contains(&word)
}

impl TargetArguments {
    fn model(&self) -> Result<Option<disk::Model>> {
        let Some(name) = &self.disk else { return Ok(None) };
        let names = || disk::PRESETS.iter().map(|model| model.name).collect::<Vec<_>>().join(", ");
        let model = disk::preset(name).with_context(|| format!("--disk {name}: there are {}", names()))?;
        Ok(Some(model.clone()))
    }

    fn place(&self, space_bytes: u64) -> Result<Place> {
        let directory = self.place.canonicalize().with_context(|| format!("--in {}", self.place.display()))?;
        let beside = || std::env::current_exe().ok().map(|program| program.with_file_name("tarn"));
        let tarn = self.tarn.clone().or_else(beside).unwrap_or_else(|| PathBuf::from("tarn"));
        ensure!((1..=MOST_DISKS).contains(&self.disks), "--disks is 1 to {MOST_DISKS}");
        let image_bytes = match self.image {
            Some(megabytes) => megabytes.checked_mul(1 << 20).context("--image is too large")?,
            None => space_bytes.max(SMALLEST_IMAGE_BYTES),
        };
        let count = self.on.iter().filter(|word| is_name(word)).count() as u64;
        let needed = image_bytes.saturating_mul(count);
        if let Some(free) = system::free_space_bytes(&directory) {
            let (needed, free) = (needed >> 20, free >> 20);
            ensure!(
                needed < free,
                "{} has {free} MB free, and {count} file systems of {} MB each would take {needed} MB; a larger --scale makes the work smaller, --image the file systems, --in puts them elsewhere",
                directory.display(),
                image_bytes >> 20
            );
        }
        Ok(Place { directory, image_bytes, tarn, disks: self.disks, model: self.model()? })
    }

    /// Refuses words that are neither names nor directories, before anything is made.
    fn check(&self) -> Result<()> {
        for word in self.on.iter().filter(|word| !is_name(word)) {
            ensure!(
                Path::new(word).is_dir(),
                "--on {word}: neither a directory nor a file system that fsperf can make; those are {}",
                comparator::NAMES.join(", ")
            );
        }
        for (index, word) in self.on.iter().enumerate() {
            ensure!(!self.on[..index].contains(word), "--on: {word} is there twice");
        }
        Ok(())
    }

    /// Brings up what was asked for. `space_bytes` is what the workloads need.
    pub(crate) fn targets(&self, space_bytes: u64) -> Result<Targets> {
        self.check()?;
        let place = self.place(space_bytes)?;
        let mut all: Vec<Box<dyn Target>> = Vec::new();
        let mut left_out = Vec::new();
        for word in &self.on {
            lab::interrupt::check()?;
            if !is_name(word) {
                all.push(Box::new(directory(word, &all)?));
                continue;
            }
            match comparator::prepare(word, &place) {
                Ok(Attempt::Ready(target)) => all.push(target),
                Ok(Attempt::Skipped(reason)) => {
                    let why = reason.strip_prefix(&format!("{word}: ")).unwrap_or(&reason).to_owned();
                    left_out.push(LeftOut { what: word.clone(), why });
                }
                Err(error) if lab::interrupt::caused(&error) => return Err(error),
                Err(error) => left_out.push(LeftOut { what: word.clone(), why: format!("{error:#}") }),
            }
        }
        for LeftOut { what, why } in &left_out {
            eprintln!("left out: {what}: {why}");
        }
        if all.is_empty() {
            bail!("nothing is left to measure");
        }
        Ok(Targets { all, left_out })
    }
}

/// A directory, called after its file system.
fn directory(word: &str, others: &[Box<dyn Target>]) -> Result<HostDirectory> {
    let path = Path::new(word);
    let kind = system::mount_of(path).map_or_else(|| "host".to_owned(), |mount| mount.kind);
    let taken = others.iter().any(|target| target.name() == kind) || is_name(&kind);
    HostDirectory::new(if taken { format!("{kind}:{word}") } else { kind }, path)
}
