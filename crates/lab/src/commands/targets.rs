//! What the commands that measure have in common: which file systems, and where.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use lab::comparator::{self, Attempt, Setup, ceiling};
use lab::disk;
use lab::process;
use lab::record::LeftOut;
use lab::system;
use lab::target::{HostDirectory, Target};

#[derive(Args)]
pub(crate) struct TargetArguments {
    /// What to measure: tarn, tarn-embedded, fuse-ceiling, ext4, xfs, btrfs, zfs-fuse, zfs (each made fresh, and removed afterwards), or a directory
    ///
    /// Each of the names is made on a file of its own of the same size (kernel file systems: through a loop device, which takes root). A name that cannot be made here is left out, with a line that says why and what to install. A directory is measured as it is; write ./NAME for one that is called like a file system. fuse-ceiling keeps files in memory, behind the transport that tarn is mounted through: what it loses is FUSE's part, what tarn loses to it is ours. It has no disk and its fsync does nothing, so durable and cold tests show nothing but the transport on it.
    #[arg(long, visible_alias = "compare", value_name = "LIST", value_delimiter = ',', required = true)]
    on: Vec<String>,
    /// Where the files of the file systems are made
    #[arg(long = "in", value_name = "DIR", default_value = ".")]
    place: PathBuf,
    /// Size of each file system, in MB; what the workloads need otherwise
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    image: Option<u64>,
    /// Disks that each file system gets, which share that size; of several numbers (1,2,4,8) each makes file systems of its own, called NAME:N
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    disks: Vec<usize>,
    /// One more TarnFS, under a name of its own: another program, or the same with other settings, as old=/opt/old/tarn or before=TARN_LOG_COMMITS=1
    #[arg(long, value_name = "NAME=PROGRAM|NAME=VARIABLE=VALUE")]
    variant: Vec<String>,
    /// A property of the file system on each ZFS, as recordsize=8k
    #[arg(short = 'O', long = "property", value_name = "NAME=VALUE")]
    properties: Vec<String>,
    /// Simulate a disk of this kind below each; `fsperf disk list` has them. sata-ssd:2 is one that works on 2 requests at a time
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
        disk::model(name).map(Some).map_err(|error| anyhow!("--disk {error}"))
    }

    /// All that is to be made with each number of disks.
    fn orders(&self) -> Result<Vec<Order>> {
        let mut orders: Vec<Order> = self.on.iter().map(|word| Order::plain(word)).collect();
        for variant in &self.variant {
            orders.push(Order::variant(variant)?);
        }
        for (index, order) in orders.iter().enumerate() {
            let place = Path::new(&order.word).canonicalize().ok().filter(|_| !is_name(&order.word));
            let again = |other: &Order| {
                other.label == order.label || place.is_some() && place == Path::new(&other.word).canonicalize().ok()
            };
            ensure!(!orders[..index].iter().any(again), "--on: {} is there twice", order.label);
        }
        Ok(orders)
    }

    fn setup(&self, space_bytes: u64, orders: &[Order]) -> Result<Setup> {
        let directory = self.place.canonicalize().with_context(|| format!("--in {}", self.place.display()))?;
        let beside = || std::env::current_exe().ok().map(|program| program.with_file_name("tarn"));
        let tarn = self.tarn.clone().or_else(beside).unwrap_or_else(|| PathBuf::from("tarn"));
        ensure!(self.disks.iter().all(|disks| (1..=MOST_DISKS).contains(disks)), "--disks is 1 to {MOST_DISKS}");
        for (place, disks) in self.disks.iter().enumerate() {
            ensure!(!self.disks[..place].contains(disks), "--disks: {disks} is there twice");
        }
        for property in &self.properties {
            ensure!(property.contains('='), "--property {property}: it must be NAME=VALUE");
        }
        let image_bytes = match self.image {
            Some(megabytes) => megabytes.checked_mul(1 << 20).context("--image is too large")?,
            None => space_bytes.max(SMALLEST_IMAGE_BYTES),
        };
        let count = (orders.iter().filter(|order| is_name(&order.word) && order.word != ceiling::NAME).count() * self.disks.len()) as u64;
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
        Ok(Setup { model: self.model()?, properties: self.properties.clone(), ..Setup::new(directory, image_bytes, tarn) })
    }

    /// Refuses words that are neither names nor directories, before anything is made.
    fn check(&self) -> Result<()> {
        ensure!(!self.on.iter().any(String::is_empty), "--on: there is an empty name; a comma too many?");
        for word in self.on.iter().filter(|word| !is_name(word)) {
            ensure!(
                Path::new(word).is_dir(),
                "--on {word}: neither a directory nor a file system that fsperf can make; those are {}",
                comparator::NAMES.join(", ")
            );
        }
        Ok(())
    }

    /// Refuses what changes what is measured, and would have no effect: a directory is measured as it is.
    fn expect_use(&self, orders: &[Order]) -> Result<()> {
        let given =
            [("--disk", self.disk.is_some()), ("--disks", self.disks != [1]), ("--property", !self.properties.is_empty())];
        if !orders.iter().any(|order| is_name(&order.word))
            && let Some((option, _)) = given.iter().find(|(_, given)| *given)
        {
            bail!(
                "{option} is for file systems that fsperf makes, and there are only directories here, which are measured as they are; --on takes {}",
                comparator::NAMES.join(", ")
            );
        }
        Ok(())
    }

    /// Brings up what was asked for. `space_bytes` is what the workloads need.
    pub(crate) fn targets(&self, space_bytes: u64) -> Result<Targets> {
        self.check()?;
        let orders = self.orders()?;
        self.expect_use(&orders)?;
        let setup = self.setup(space_bytes, &orders)?;
        let mut all: Vec<Box<dyn Target>> = Vec::new();
        let mut left_out = Vec::new();
        for order in &orders {
            if !is_name(&order.word) {
                all.push(Box::new(directory(&order.word, &all)?));
                continue;
            }
            for disks in &self.disks {
                lab::interrupt::check()?;
                let (setup, label) =
                    (order.setup(&setup, *disks, self.disks.len() > 1), order.label(*disks, self.disks.len() > 1));
                match comparator::prepare(&order.word, &setup) {
                    Ok(Attempt::Ready(target)) => all.push(target),
                    Ok(Attempt::Skipped(reason)) => {
                        let why = reason.strip_prefix(&format!("{}: ", order.word)).unwrap_or(&reason).to_owned();
                        left_out.push(LeftOut { what: label, why });
                    }
                    Err(error) if lab::interrupt::caused(&error) => return Err(error),
                    Err(error) => left_out.push(LeftOut { what: label, why: process::in_a_line(&format!("{error:#}")) }),
                }
            }
        }
        for LeftOut { what, why } in &left_out {
            lab::errln!("left out: {what}: {why}");
        }
        if all.is_empty() {
            bail!("nothing is left to measure");
        }
        Ok(Targets { all, left_out })
    }
}

/// One of the file systems that were asked for.
struct Order {
    label: String,
    /// What it is: a name that fsperf can make, or a directory.
    word: String,
    program: Option<PathBuf>,
    environment: Option<(String, String)>,
}

impl Order {
    fn plain(word: &str) -> Order {
        Order { label: word.to_owned(), word: word.to_owned(), program: None, environment: None }
    }

    fn variant(text: &str) -> Result<Order> {
        let wrong = || format!("--variant {text}: it must be NAME=PROGRAM or NAME=VARIABLE=VALUE");
        let (label, what) = text.split_once('=').with_context(wrong)?;
        ensure!(!label.is_empty() && !what.is_empty() && !is_name(label) && !label.contains([':', '/']), "{}", wrong());
        let (program, environment) = match what.split_once('=') {
            Some((name, value)) if !name.contains('/') => (None, Some((name.to_owned(), value.to_owned()))),
            _ => (Some(PathBuf::from(what)), None),
        };
        Ok(Order { label: label.to_owned(), word: "tarn".to_owned(), program, environment })
    }

    fn label(&self, disks: usize, several: bool) -> String {
        if several || disks > 1 { format!("{}:{disks}", self.label) } else { self.label.clone() }
    }

    fn setup(&self, setup: &Setup, disks: usize, several: bool) -> Setup {
        Setup {
            disks,
            label: Some(self.label(disks, several)),
            tarn: self.program.clone().unwrap_or_else(|| setup.tarn.clone()),
            environment: self.environment.iter().cloned().collect(),
            ..setup.clone()
        }
    }
}

/// A directory, called after its file system.
fn directory(word: &str, others: &[Box<dyn Target>]) -> Result<HostDirectory> {
    let path = Path::new(word);
    let kind = system::mount_of(path).map_or_else(|| "host".to_owned(), |mount| mount.kind);
    let taken = others.iter().any(|target| target.name() == kind) || is_name(&kind);
    HostDirectory::new(if taken { format!("{kind}:{word}") } else { kind }, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_programs_or_settings() {
        let old = Order::variant("old=/opt/a=b/tarn").unwrap();
        assert_eq!((old.label(1, false), old.program, old.environment), ("old".into(), Some("/opt/a=b/tarn".into()), None));
        let before = Order::variant("before=TARN_LOG_COMMITS=1").unwrap();
        assert_eq!(before.environment, Some(("TARN_LOG_COMMITS".into(), "1".into())));
        assert_eq!((before.label(4, false), before.label(1, true)), ("before:4".into(), "before:1".into()));
        for wrong in ["old", "old=", "=x", "ext4=/opt/tarn", "a:1=/opt/tarn"] {
            assert!(Order::variant(wrong).is_err(), "{wrong}");
        }
    }
}
