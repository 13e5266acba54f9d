//! `fsperf unit`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lab::comparator::{self, Attempt, Place};
use lab::report::unit as report;
use lab::system;
use lab::target::{HostDirectory, Target};
use lab::workload::unit::{self, Settings, TESTS};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Measure the file system of this directory; may be given several times
    #[arg(long, value_name = "DIR")]
    on: Vec<PathBuf>,
    /// Bring up these file systems and measure them: tarn, ext4, xfs, btrfs, zfs-fuse
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    compare: Vec<String>,
    /// Where the images of --compare are made
    #[arg(long = "in", value_name = "DIR", default_value = ".")]
    place: PathBuf,
    /// The published sizes instead of a quarter of them
    #[arg(long)]
    full: bool,
    /// Divide the published sizes by this
    #[arg(long, value_name = "N", conflicts_with = "full")]
    divisor: Option<u64>,
    /// Only these tests
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    only: Vec<u8>,
    /// Turns of each test on each target
    #[arg(long, value_name = "N")]
    repetitions: Option<u32>,
    /// Test 8's file, in MB, before the division; half of the free memory otherwise
    #[arg(long, value_name = "MB")]
    memory: Option<u64>,
    /// Size of the images, in MB; what the tests need otherwise
    #[arg(long, value_name = "MB")]
    image: Option<u64>,
    /// Decides offsets, sizes and contents
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write every turn's figures into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The tarn program; the one beside this program otherwise
    #[arg(long, value_name = "PROGRAM")]
    tarn: Option<PathBuf>,
}

/// Below this some file systems have more trouble with their own bookkeeping than with the tests.
const SMALLEST_IMAGE_BYTES: u64 = 4 << 30;

fn settings(arguments: &Arguments) -> Result<Settings> {
    let mut settings = if arguments.full { Settings::full() } else { Settings::short() };
    settings.divisor = arguments.divisor.unwrap_or(settings.divisor);
    settings.repetitions = arguments.repetitions.unwrap_or(settings.repetitions);
    if let Some(megabytes) = arguments.memory {
        settings.half_of_memory_bytes = megabytes.checked_mul(1 << 20).context("--memory is too large")?;
    }
    if arguments.repetitions.is_some() {
        settings.enough = settings.time_limit * settings.repetitions;
    }
    for id in &arguments.only {
        ensure!(TESTS.iter().any(|test| test.id == *id), "there is no test {id}; they are 1 to 14");
    }
    settings.only.clone_from(&arguments.only);
    settings.seed = arguments.seed;
    ensure!(settings.divisor > 0 && settings.repetitions > 0, "--divisor and --repetitions are at least 1");
    Ok(settings)
}

fn place(arguments: &Arguments, settings: &Settings) -> Result<Place> {
    let directory = arguments.place.canonicalize().with_context(|| format!("--in {}", arguments.place.display()))?;
    let beside = || std::env::current_exe().ok().map(|program| program.with_file_name("tarn"));
    let tarn = arguments.tarn.clone().or_else(beside).unwrap_or_else(|| PathBuf::from("tarn"));
    let image_bytes = match arguments.image {
        Some(megabytes) => megabytes.checked_mul(1 << 20).context("--image is too large")?,
        None => settings.space_bytes().max(SMALLEST_IMAGE_BYTES),
    };
    let needed = image_bytes.saturating_mul(arguments.compare.len() as u64);
    if let Some(free) = system::free_space_bytes(&directory) {
        let (needed, free) = (needed >> 20, free >> 20);
        ensure!(needed < free, "{} has {free} MB free, the images would take {needed} MB; see --image, --memory, --divisor", directory.display());
    }
    Ok(Place { directory, image_bytes, tarn })
}

fn expect_known(names: &[String]) -> Result<()> {
    match names.iter().find(|name| !comparator::NAMES.contains(&name.as_str())) {
        Some(name) => bail!("there is no comparator {name}; there are {}", comparator::NAMES.join(", ")),
        None => Ok(()),
    }
}

fn targets(arguments: &Arguments, settings: &Settings) -> Result<Vec<Box<dyn Target>>> {
    let mut targets: Vec<Box<dyn Target>> = Vec::new();
    expect_known(&arguments.compare)?;
    let place = place(arguments, settings)?;
    for name in &arguments.compare {
        lab::interrupt::check()?;
        match comparator::prepare(name, &place) {
            Ok(Attempt::Ready(target)) => targets.push(Box::new(target)),
            Ok(Attempt::Skipped(reason)) => eprintln!("skipped: {reason}"),
            Err(error) if lab::interrupt::caused(&error) => return Err(error),
            Err(error) => eprintln!("skipped: {name}: {error:#}"),
        }
    }
    for directory in &arguments.on {
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

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let settings = settings(arguments)?;
    let targets = targets(arguments, &settings)?;
    let borrowed: Vec<&dyn Target> = targets.iter().map(AsRef::as_ref).collect();
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}")?);
    let results = unit::run(&borrowed, &settings, &mut |progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(format!("{} {}: {}", progress.test.id, progress.test.name, progress.target));
    })?;
    bar.finish_and_clear();
    println!("{}\n{}", system::describe(), report::targets(&results));
    println!("{}\n{}{}", report::table(&results), report::legend(&results), report::verdicts(&results));
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report::to_json(&results))?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
