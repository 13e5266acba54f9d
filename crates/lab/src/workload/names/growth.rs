//! What one more file costs where there are many.
//!
//! # Theory
//!
//! Empty files are made, ten times as many at each step. At each step some of them, drawn at random, are looked at, removed and made
//! again, and as many names are looked up that are not there. A file system whose structures are right does that at the same
//! rate at every step, or nearly so. The files lie in one directory, or in directories of so many each.
//!
//! The kernel remembers names and attributes that it has met. The files at random were met when they were made, a while ago; a name that is not there
//! was never asked for before.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::metadata::look_at;
use crate::interrupt;
use crate::workload::latency::Latencies;
use crate::workload::together::Ground;
use crate::workload::{Figure, MOST_FILES, Parameter, Parameters, Published, Round, Workload, described};

/// The workload.
pub struct Growth {
    parameters: Parameters,
}

const PARAMETERS: [Parameter; 4] = [
    Parameter::fixed("from", "files at the first step", 1000).at_most(MOST_FILES),
    Parameter::scaled("to", "files at the last step; each has ten times as many as the one before", 1_000_000, 1000).at_most(MOST_FILES),
    Parameter::fixed("each", "files in a directory", MOST_FILES).at_most(MOST_FILES),
    Parameter::fixed("sample", "files on which a step is measured", 1000).at_most(1_000_000),
];

/// What is done at each step, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Miss,
    Stat,
    Remove,
    Create,
}

const OPERATIONS: [(Operation, &str); 4] =
    [(Operation::Miss, "not found"), (Operation::Stat, "looked at"), (Operation::Remove, "removed"), (Operation::Create, "created")];

/// The files of a round: where each of them lies.
struct Files<'a> {
    ground: Ground<'a>,
    each: u64,
}

impl Files<'_> {
    fn directory(&self, number: u64) -> PathBuf {
        self.ground.directory.join(format!("d{}", number / self.each))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory(number).join(format!("f{number}"))
    }

    /// Makes those from `first` to `end`, and returns how many that were in a second.
    fn grow(&self, first: u64, end: u64) -> Result<f64> {
        let started = Instant::now();
        for number in first..end {
            interrupt::check()?;
            if number % self.each == 0 {
                fs::create_dir(self.directory(number))?;
            }
            File::create_new(self.path(number)).with_context(|| format!("file {number} of {end}"))?;
        }
        Ok((end - first) as f64 / started.elapsed().as_secs_f64().max(1e-9))
    }

    /// Does one thing to each of these files.
    fn perform(&self, operation: Operation, sample: &BTreeSet<u64>, files: u64) -> Result<(f64, Latencies)> {
        let mut latencies = Latencies::default();
        let started = Instant::now();
        for &number in sample {
            interrupt::check()?;
            let path = self.path(number);
            let outcome = latencies.time(|| match operation {
                Operation::Miss => match look_at(&path.with_file_name(format!("n{number}-{files}"))) {
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(error),
                    Ok(()) => Err(ErrorKind::AlreadyExists.into()),
                },
                Operation::Stat => look_at(&path),
                Operation::Remove => fs::remove_file(&path),
                Operation::Create => File::create_new(&path).map(drop),
            });
            outcome.with_context(|| format!("{operation:?} of {}", path.display()))?;
        }
        Ok((sample.len() as f64 / started.elapsed().as_secs_f64().max(1e-9), latencies))
    }
}

/// So many different numbers below `files`, or all of them.
fn draw(random: &mut ChaCha8Rng, files: u64, sample: u64) -> BTreeSet<u64> {
    let mut drawn = BTreeSet::new();
    while (drawn.len() as u64) < sample.min(files) {
        drawn.insert(random.random_range(0..files));
    }
    drawn
}

impl Default for Growth {
    fn default() -> Self {
        Self::new()
    }
}

impl Growth {
    /// To a million files in one directory.
    pub fn new() -> Growth {
        Growth { parameters: Parameters::new(&PARAMETERS) }
    }

    fn steps(&self) -> impl Iterator<Item = u64> {
        let last = self.parameters.get("to");
        std::iter::successors(Some(self.parameters.get("from")), |files| files.checked_mul(10)).take_while(move |files| *files <= last)
    }
}

impl Workload for Growth {
    described!("growth", "empty files, a thousand to a million in one directory: what one more costs at each power of ten");

    /// Asked for by readers of what was published; nobody has published it.
    fn published(&self) -> &'static [Published] {
        &[]
    }

    fn space_bytes(&self) -> u64 {
        self.parameters.get("to").saturating_mul(2 << 10).saturating_add(1 << 30)
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let ground = Ground::from(round);
        let (files, mut random) = (Files { ground, each: self.parameters.get("each") }, ground.random(0));
        let (mut figures, mut percentiles, mut before) = (Vec::new(), Vec::new(), 0);
        for step in self.steps() {
            let grown = files.grow(before, step)?;
            figures.push(Figure::rate(format!("grown to {step}"), "/s", grown).on("grown", "files", step as f64));
            let sample = draw(&mut random, step, self.parameters.get("sample"));
            for (operation, name) in OPERATIONS {
                let (rate, latencies) = files.perform(operation, &sample, step)?;
                let label = format!("{name}, {step} files");
                percentiles.extend(latencies.figures(&label));
                figures.push(Figure::rate(label, "/s", rate).on(name, "files", step as f64));
            }
            before = step;
        }
        ensure!(!figures.is_empty(), "from is more than to");
        figures.extend(percentiles);
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{HostDirectory, Target};

    #[test]
    fn each_step_has_ten_times_the_files() {
        let mut workload = Growth::new();
        for (name, value) in [("from", 10), ("to", 1000), ("each", 64), ("sample", 20)] {
            workload.parameters_mut().set(name, value).unwrap();
        }
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let round = Round::new(&host, host.directory(), 0, 3);
        assert_eq!(workload.steps().collect::<Vec<_>>(), [10, 100, 1000]);
        let figures = workload.measure(&round).unwrap();
        assert_eq!(figures.len(), 3 * (1 + 4 + 4 * 4));
        assert_eq!((figures[0].name.as_ref(), figures[1].name.as_ref()), ("grown to 10", "not found, 10 files"));
        let directories: Vec<_> = fs::read_dir(host.directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(directories.len(), 16);
        let left: usize = directories.iter().map(|directory| fs::read_dir(directory).unwrap().count()).sum();
        assert_eq!(left, 1000, "what is removed is made again");
    }

    /// Each operation fails where it would measure something else.
    #[test]
    fn operations_do_what_they_are_called() {
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let files = Files { ground: Ground { directory: host.directory(), seed: 1 }, each: 10 };
        files.grow(0, 10).unwrap();
        let all = draw(&mut files.ground.random(1), 10, 30);
        assert_eq!(all.len(), 10, "there are no more");
        let may = |operation| files.perform(operation, &all, 10).map(|(_, latencies)| latencies.count()).ok();
        assert_eq!([Operation::Create, Operation::Miss, Operation::Stat, Operation::Remove].map(may), [None, Some(10), Some(10), Some(10)]);
        assert_eq!([Operation::Stat, Operation::Remove, Operation::Create, Operation::Create].map(may), [None, None, Some(10), None]);
    }
}
