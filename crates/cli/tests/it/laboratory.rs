//! The laboratory's own comparator when it goes wrong: a daemon that dies in the middle of a run.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use lab::comparator::{Attempt, Setup, prepare};
use lab::workload::rounds::{self, Plan};
use lab::workload::{Figure, Parameters, Published, Round, Workload};
use rustix::process::{Pid, Signal, kill_process};
use sim::places::skipped;

/// In its second round it kills what serves the files.
struct Murder(Parameters);

impl Workload for Murder {
    fn name(&self) -> &'static str {
        "murder"
    }

    fn about(&self) -> &'static str {
        "kills what serves the files"
    }

    fn parameters(&self) -> &Parameters {
        &self.0
    }

    fn parameters_mut(&mut self) -> &mut Parameters {
        &mut self.0
    }

    fn published(&self) -> &'static [Published] {
        &[]
    }

    fn space_bytes(&self) -> u64 {
        0
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        fs::write(round.directory.join("file"), "text")?;
        if round.number == 1 {
            let process = round.target.process().and_then(|process| Pid::from_raw(i32::try_from(process).ok()?)).context("nobody to kill")?;
            kill_process(process, Signal::KILL)?;
            while Path::new(&format!("/proc/{}/fd", process.as_raw_nonzero())).exists() && fs::read(round.directory.join("file")).is_ok() {
                std::thread::yield_now();
            }
        }
        fs::read(round.directory.join("file"))?;
        Ok(vec![Figure::seconds("time", 1.0)])
    }
}

/// The rounds before it count, the failure is told, and neither a mount nor a file stays.
#[test]
fn a_comparator_that_dies_in_a_run_is_told_and_taken_down() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        skipped("a comparator that dies: mounting takes root and /dev/fuse");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let setup = Setup::new(scratch.path().to_owned(), 128 << 20, env!("CARGO_BIN_EXE_tarn").into());
    let Attempt::Ready(target) = prepare("tarn", &setup).unwrap() else { panic!("left out") };
    let outcome = rounds::run(&Murder(Parameters::new(&[])), &[target.as_ref()], Plan::default(), &()).unwrap();
    let column = &outcome.columns[0];
    assert_eq!(column.samples[0].values, [1.0], "only the round before it");
    assert!(column.failure.is_some(), "the failure is told");
    drop(target);
    assert!(!lab::system::mounts().iter().any(|mount| mount.mount_point.starts_with(scratch.path())), "it stays mounted");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "files stay");
}
