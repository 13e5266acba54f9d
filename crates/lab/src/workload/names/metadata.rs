//! Names and nothing but names: made, looked at, listed, renamed and removed by one thread and by many.
//!
//! # Theory
//!
//! As mdtest does it: each thread has a directory of its own with its share of the files, which are empty. A phase ends
//! when all threads have ended it. The numbers of threads double.
//!
//! A file is looked at with the plain `stat` that mdtest, and most programs, use. Rust's own `fs::metadata` also asks for the time at
//! which the file was made, which the kernel remembers of no FUSE file: it would cost those a request for each look, and
//! kernel file systems nothing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::interrupt;
use crate::workload::latency::Latencies;
use crate::workload::together::{Ground, together};
use crate::workload::{Figure, MOST_THREADS, Parameter, Parameters, Published, Round, Workload, described};

/// The workload.
pub struct Metadata {
    parameters: Parameters,
}

const PARAMETERS: [Parameter; 3] = [
    Parameter::scaled("files", "files, shared among the threads", 50_000, 16).at_most(1 << 32),
    Parameter::fixed("from", "threads at first", 1).at_most(MOST_THREADS),
    Parameter::fixed("to", "threads at last; they double", 16).at_most(MOST_THREADS),
];

/// A phase: what it is called, and what it does to a file; `listed` goes through whole directories instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Create,
    Stat,
    List,
    Rename,
    Remove,
}

const PHASES: [(Phase, &str); 5] = [
    (Phase::Create, "created"),
    (Phase::Stat, "looked at"),
    (Phase::List, "listed"),
    (Phase::Rename, "renamed"),
    (Phase::Remove, "removed"),
];

/// `stat`, and nothing that it does not ask for.
pub(in crate::workload) fn look_at(path: &Path) -> std::io::Result<()> {
    Ok(rustix::fs::stat(path).map(drop)?)
}

fn directory(ground: Ground<'_>, thread: u64) -> PathBuf {
    ground.directory.join(format!("t{thread}"))
}

/// Does a phase to a thread's share. Returns how many files it met, and how long each took; to list is one call for many files.
fn perform(phase: Phase, ground: Ground<'_>, thread: u64, files: u64) -> Result<(u64, Latencies)> {
    let mut latencies = Latencies::default();
    let directory = directory(ground, thread);
    let name = |prefix: &str, number: u64| directory.join(format!("{prefix}{number}"));
    if phase == Phase::List {
        let entries = fs::read_dir(&directory)?.try_fold(0, |count, entry| entry.map(|_| count + 1))?;
        ensure!(entries == files, "{} has {entries} files instead of {files}", directory.display());
        return Ok((entries, latencies));
    }
    for number in 0..files {
        interrupt::check()?;
        let (path, renamed) = (name("f", number), name("g", number));
        let outcome = latencies.time(|| match phase {
            Phase::Create => File::create_new(&path).map(drop),
            Phase::Stat => look_at(&path),
            Phase::Rename => fs::rename(&path, &renamed),
            Phase::Remove | Phase::List => fs::remove_file(&renamed),
        });
        outcome.with_context(|| format!("{phase:?} of {}", path.display()))?;
    }
    Ok((files, latencies))
}

/// What a phase with some number of threads came to.
struct Done {
    name: &'static str,
    met: u64,
    seconds: f64,
    latencies: Latencies,
}

impl Default for Metadata {
    fn default() -> Self {
        Self::new()
    }
}

impl Metadata {
    /// Fifty thousand files.
    pub fn new() -> Metadata {
        Metadata { parameters: Parameters::new(&PARAMETERS) }
    }

    fn threads(&self) -> impl Iterator<Item = u64> {
        let last = self.parameters.get("to");
        std::iter::successors(Some(self.parameters.get("from")), |threads| threads.checked_mul(2))
            .take_while(move |threads| *threads <= last)
    }

    /// All phases with so many threads.
    fn run(&self, ground: Ground<'_>, threads: u64) -> Result<Vec<Done>> {
        let share = self.parameters.get("files") / threads;
        (0..threads).try_for_each(|thread| fs::create_dir(directory(ground, thread)))?;
        let mut all = Vec::new();
        for (phase, name) in PHASES {
            let started = Instant::now();
            let done = together(threads, |thread| perform(phase, ground, thread, share))?;
            let seconds = started.elapsed().as_secs_f64().max(1e-9);
            let met: u64 = done.iter().map(|(met, _)| met).sum();
            let latencies = Latencies::all(done.iter().map(|(_, latencies)| latencies));
            all.push(Done { name, met, seconds, latencies });
        }
        (0..threads).try_for_each(|thread| fs::remove_dir(directory(ground, thread)))?;
        Ok(all)
    }
}

impl Workload for Metadata {
    described!("metadata", "empty files created, looked at, listed, renamed and removed by 1 to 16 threads");

    /// Asked for by readers of what was published; nobody has published it.
    fn published(&self) -> &'static [Published] {
        &[]
    }

    fn space_bytes(&self) -> u64 {
        self.parameters.get("files").saturating_mul(4 << 10).saturating_add(1 << 30)
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let (mut figures, mut percentiles) = (Vec::new(), Vec::new());
        for threads in self.threads() {
            for Done { name, met, seconds, latencies } in self.run(Ground::from(round), threads)? {
                let label = if threads == 1 { format!("{name}, 1 thread") } else { format!("{name}, {threads} threads") };
                percentiles.extend(latencies.figures(&label));
                figures.push(Figure::rate(label, "/s", met as f64 / seconds).on(name, "threads", threads as f64));
            }
        }
        figures.extend(percentiles);
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{HostDirectory, Target};

    #[test]
    fn each_phase_meets_each_file() {
        let mut workload = Metadata::new();
        workload.parameters_mut().set("files", 48).unwrap();
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let round = Round::new(&host, host.directory(), 0, 3);
        let phases = workload.run(Ground::from(&round), 4).unwrap();
        assert_eq!(phases.iter().map(|phase| phase.met).collect::<Vec<_>>(), [48; 5]);
        assert_eq!(phases.iter().map(|phase| phase.latencies.count()).collect::<Vec<_>>(), [48, 48, 0, 48, 48]);
        assert_eq!(fs::read_dir(host.directory()).unwrap().count(), 0);
        assert_eq!(workload.measure(&round).unwrap().len(), 25 + 5 * 4 * 4);
    }

    /// The calls that a thread makes for a file, as they leave the directory after each phase.
    #[test]
    fn phases_do_what_they_are_called() {
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let ground = Ground { directory: host.directory(), seed: 1 };
        fs::create_dir(directory(ground, 0)).unwrap();
        let names = || {
            let mut names: Vec<_> = fs::read_dir(directory(ground, 0))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        perform(Phase::Create, ground, 0, 2).unwrap();
        assert_eq!(names(), ["f0", "f1"]);
        assert!(perform(Phase::Create, ground, 0, 2).is_err(), "they are there already");
        assert!(perform(Phase::List, ground, 0, 3).is_err() && perform(Phase::Stat, ground, 0, 3).is_err(), "there are but two");
        perform(Phase::Rename, ground, 0, 2).unwrap();
        assert_eq!(names(), ["g0", "g1"]);
        perform(Phase::Remove, ground, 0, 2).unwrap();
        assert!(names().is_empty());
    }
}
