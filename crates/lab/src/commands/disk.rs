//! `fsperf disk`: simulated disks by themselves.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Subcommand;
use lab::comparator;
use lab::disk::check::{self, Row};
use lab::disk::{self, Kind, Model, PRESETS, TOLERANCE};
use lab::interrupt;
use lab::outln;
use lab::undo::{self, Undo};

#[derive(Subcommand)]
#[command(after_long_help = "\
A simulated disk is a file that answers as late as such a disk would: seeks, turns, transfer, buffer, write cache, queue. `fsperf run --disk MODEL` puts one below each file system; `serve` gives you one for anything else.")]
pub(crate) enum Command {
    /// The kinds of disks, and what their arithmetic promises
    List,
    /// Measure a simulated disk and compare it with its arithmetic; takes root
    Check {
        /// Which; all of them otherwise
        models: Vec<String>,
        /// Where the file is made
        #[arg(long = "in", value_name = "DIR", default_value = ".")]
        place: PathBuf,
        /// Seconds for each measurement
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
    },
    /// Make a block device that behaves like the disk, until Ctrl-C; takes root
    Serve {
        model: String,
        /// The file that holds the data; made if it does not exist
        file: PathBuf,
        /// Of a new file, in MB
        #[arg(long, value_name = "MB", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..))]
        size: u64,
    },
}

/// Of a file that is a disk: the way to it is measured on it.
const SMALLEST_BYTES: u64 = 1 << 20;

fn find(name: &str) -> Result<Model> {
    disk::model(name).map_err(|error| anyhow!("there is no disk model {error}"))
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::List => {
            list();
            Ok(())
        }
        Command::Check { models, place, seconds } => check(models, place, Duration::from_secs(*seconds)),
        Command::Serve { model, file, size } => serve(&find(model)?, file, *size),
    }
}

fn list() {
    for model in &PRESETS {
        outln!("{}: {}", model.name, model.about);
        match &model.kind {
            Kind::Rotating(disk) => outln!(
                "    {:.0} rpm, seek {:.1} ms ({:.1} ms to the next track), {:.0} MB/s, buffer {} MB, write cache {} MB, queue of {}",
                disk.turns_per_minute,
                disk.average_seek.as_secs_f64() * 1e3,
                disk.shortest_seek.as_secs_f64() * 1e3,
                disk.bytes_per_second / 1e6,
                disk.buffer_bytes >> 20,
                disk.write_cache_bytes >> 20,
                disk.queue
            ),
            Kind::Flash(disk) => outln!(
                "    read {} us, write {} us, flush {} us, {} channels, {:.0} MB/s",
                disk.read.as_micros(),
                disk.write.as_micros(),
                disk.flush.as_micros(),
                disk.channels,
                disk.bytes_per_second / 1e6
            ),
        }
        let (random, sequential) = (model.random_reads_per_second(4096), model.sequential_bytes_per_second(128 << 10) / 1e6);
        outln!("    one reader: {random:.0} random 4K reads/s, {sequential:.0} MB/s in sequence (MB of 10^6 bytes)");
    }
}

fn expect_root() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "a block device takes root (sudo fsperf disk ...)");
    Ok(())
}

fn words(row: &Row) -> String {
    let told = format!("{:.1} measured, {:.1} by arithmetic ({:+.1} %)", row.measured, row.expected, row.off() * 100.0);
    match row.is_beyond() {
        true => format!("{told}; this machine cannot do more than {:.0}", row.limit),
        false => told,
    }
}

/// Measures one, and says whether it keeps its time everywhere.
fn check_one(model: &Model, place: &std::path::Path, each: Duration) -> Result<bool> {
    let mut undo = Undo::new();
    let place = place.canonicalize().with_context(|| format!("--in {}", place.display()))?;
    let folder = undo::scratch_directory(&place, ".fsperf-disk-", &mut undo)?;
    let file = folder.join("image");
    let bytes = 2 << 30;
    File::create_new(&file).and_then(|new| new.set_len(bytes)).with_context(|| format!("cannot make {}", file.display()))?;
    let (device, clock, way) = comparator::simulated_anyway(&file, model, &mut undo)?;
    let rows = check::check(model, &device, bytes, &clock, &way, each)?;
    let overload = rows.iter().find(|row| row.together).and_then(|row| model.overload(row.measured));
    let refusal = model.refusal(&way).or(overload);
    outln!(
        "{}: the way to it takes {:.0} us for 4K, {:.0} us for 128K",
        model.name,
        way.whole_small * 1e6,
        way.whole_large * 1e6
    );
    let width = rows.iter().map(|row| row.what.len()).max().unwrap_or(0) + 1;
    rows.iter().for_each(|row| outln!("    {:width$} {}", format!("{}:", row.what), words(row)));
    refusal.iter().for_each(|why| outln!("    refused: {why}"));
    Ok(refusal.is_none() && rows.iter().all(|row| row.off().abs() <= TOLERANCE))
}

fn check(names: &[String], place: &std::path::Path, each: Duration) -> Result<()> {
    expect_root()?;
    let models: Vec<Model> =
        if names.is_empty() { PRESETS.to_vec() } else { names.iter().map(|name| find(name)).collect::<Result<_>>()? };
    let mut wrong = Vec::new();
    for model in &models {
        if !check_one(model, place, each)? {
            wrong.push(model.name.as_ref());
        }
    }
    if !wrong.is_empty() {
        bail!(
            "this machine does not keep the time of {} within {:.0} % everywhere: beyond what it can do, figures on them are those of a slower disk",
            wrong.join(", "),
            TOLERANCE * 100.0
        );
    }
    Ok(())
}

fn serve(model: &Model, file: &std::path::Path, megabytes: u64) -> Result<()> {
    expect_root()?;
    if !file.exists() {
        let bytes = megabytes.checked_mul(1 << 20).context("--size is too large")?;
        File::create_new(file).and_then(|new| new.set_len(bytes)).with_context(|| format!("cannot make {}", file.display()))?;
    }
    let bytes = file.metadata().with_context(|| format!("cannot look at {}", file.display()))?.len();
    let name = file.display();
    ensure!(
        bytes >= SMALLEST_BYTES,
        "{name} has {bytes} bytes, and a disk has {SMALLEST_BYTES} at least; remove it, or name another file, and --size is that of the new one"
    );
    let mut undo = Undo::new();
    let device = comparator::simulated(&file.canonicalize()?, model, &mut undo)?;
    outln!("{} behaves like {}; Ctrl-C ends it", device.display(), model.about);
    while !interrupt::pending() {
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
