//! What the commands that measure have in common: which file systems, and where.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use lab::comparator::{self, Attempt, Place};
use lab::system;
use lab::target::{HostDirectory, Target};

#[derive(Args)]
pub(crate) struct TargetArguments {
    /// Measure the file system of this directory; may be given several times
    #[arg(long, value_name = "DIR")]
    on: Vec<PathBuf>,
    /// Bring up these file systems and measure them: tarn, ext4, xfs, btrfs, zfs-fuse
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    compare: Vec<String>,
    /// Where the images of --compare are made
    #[arg(long = "in", value_name = "DIR", default_value = ".")]
    place: PathBuf,
    /// Size of the images, in MB; what the workloads need otherwise
    #[arg(long, value_name = "MB")]
    image: Option<u64>,
    /// The tarn program; the one beside this program otherwise
    #[arg(long, value_name = "PROGRAM")]
    tarn: Option<PathBuf>,
}

/// Below this some file systems have more trouble with their own bookkeeping than with the tests.
const SMALLEST_IMAGE_BYTES: u64 = 4 << 30;

impl TargetArguments {
    fn place(&self, space_bytes: u64) -> Result<Place> {
        let directory = self.place.canonicalize().with_context(|| format!("--in {}", self.place.display()))?;
        let beside = || std::env::current_exe().ok().map(|program| program.with_file_name("tarn"));
        let tarn = self.tarn.clone().or_else(beside).unwrap_or_else(|| PathBuf::from("tarn"));
        let image_bytes = match self.image {
            Some(megabytes) => megabytes.checked_mul(1 << 20).context("--image is too large")?,
            None => space_bytes.max(SMALLEST_IMAGE_BYTES),
        };
        let needed = image_bytes.saturating_mul(self.compare.len() as u64);
        if let Some(free) = system::free_space_bytes(&directory) {
            let (needed, free) = (needed >> 20, free >> 20);
            ensure!(needed < free, "{} has {free} MB free, the images would take {needed} MB; see --image and what makes the workload smaller", directory.display());
        }
        Ok(Place { directory, image_bytes, tarn })
    }

    /// Brings up what was asked for. `space_bytes` is what the workloads need.
    pub(crate) fn targets(&self, space_bytes: u64) -> Result<Vec<Box<dyn Target>>> {
        let mut targets: Vec<Box<dyn Target>> = Vec::new();
        if let Some(name) = self.compare.iter().find(|name| !comparator::NAMES.contains(&name.as_str())) {
            bail!("there is no comparator {name}; there are {}", comparator::NAMES.join(", "));
        }
        let place = self.place(space_bytes)?;
        for name in &self.compare {
            lab::interrupt::check()?;
            match comparator::prepare(name, &place) {
                Ok(Attempt::Ready(target)) => targets.push(Box::new(target)),
                Ok(Attempt::Skipped(reason)) => eprintln!("skipped: {reason}"),
                Err(error) if lab::interrupt::caused(&error) => return Err(error),
                Err(error) => eprintln!("skipped: {name}: {error:#}"),
            }
        }
        for directory in &self.on {
            let kind = system::mount_of(directory).map_or_else(|| "host".to_owned(), |mount| mount.kind);
            let taken = targets.iter().any(|target| target.name() == kind);
            let name = if taken { format!("{kind}:{}", directory.display()) } else { kind };
            targets.push(Box::new(HostDirectory::new(name, directory)?));
        }
        if targets.is_empty() {
            bail!("nothing to measure; give --on DIR or --compare NAMES");
        }
        Ok(targets)
    }
}
