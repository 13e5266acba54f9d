//! Has the targets take turns at a workload, and watches what it costs.
//!
//! # Invariants
//!
//! 1. Targets take turns, round by round, each round beginning with another target, so that the machine's noise and
//!    what a round leaves behind hit all of them alike.
//! 2. A target that fails is left out from then on; the others go on.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Better, Figure, Parameter, Published, Round, Workload};
use crate::cost::{Cost, Meter};
use crate::interrupt;
use crate::target::Target;

/// How often, and with which random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub rounds: u32,
    pub seed: u64,
    /// What all sizes were divided by, to be told in the report.
    pub scale: u64,
}

/// What a figure came to in each round of a target.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub name: Cow<'static, str>,
    pub unit: &'static str,
    pub better: Better,
    pub values: Vec<f64>,
}

/// All rounds of a workload on a target.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Column {
    pub target: String,
    pub description: String,
    pub samples: Vec<Sample>,
    pub costs: Vec<Cost>,
    /// Why there are no more.
    pub failure: Option<String>,
}

/// A workload on all targets.
pub struct Outcome {
    pub workload: &'static str,
    pub about: &'static str,
    pub parameters: Vec<Parameter>,
    pub published: &'static [Published],
    pub plan: Plan,
    pub columns: Vec<Column>,
}

/// What is about to be done, for a progress bar.
pub struct Progress<'a> {
    pub done: u32,
    pub total: u32,
    pub workload: &'static str,
    pub target: &'a str,
}

impl Column {
    /// The values of a figure.
    pub fn sample(&self, name: &str) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.name == name)
    }

    fn add(&mut self, figures: Vec<Figure>, cost: Cost) {
        for Figure { name, unit, better, value } in figures {
            match self.samples.iter_mut().find(|sample| sample.name == name) {
                Some(sample) => sample.values.push(value),
                None => self.samples.push(Sample { name, unit, better, values: vec![value] }),
            }
        }
        self.costs.push(cost);
    }
}

/// Runs all rounds. What fails on a target is in its column; an error is only an interruption.
pub fn run(workload: &dyn Workload, targets: &[&dyn Target], plan: Plan, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<Outcome> {
    let column = |target: &&dyn Target| {
        Column { target: target.name().to_owned(), description: target.description(), ..Column::default() }
    };
    let mut columns: Vec<Column> = targets.iter().map(column).collect();
    let (count, mut done) = (targets.len(), 0);
    for number in 0..plan.rounds {
        for turn in 0..count {
            let index = (turn + number as usize) % count;
            let (target, column) = (targets[index], &mut columns[index]);
            let total = plan.rounds * count as u32;
            progress(&Progress { done, total, workload: workload.name(), target: target.name() });
            done += 1;
            if column.failure.is_some() {
                continue;
            }
            match one_round(workload, target, number, plan.seed) {
                Ok((figures, cost)) => column.add(figures, cost),
                Err(error) if interrupt::caused(&error) => return Err(error),
                Err(error) => column.failure = Some(format!("{error:#}")),
            }
        }
    }
    let parameters = workload.parameters().iter().copied().collect();
    Ok(Outcome { workload: workload.name(), about: workload.about(), parameters, published: workload.published(), plan, columns })
}

fn one_round(workload: &dyn Workload, target: &dyn Target, number: u32, seed: u64) -> Result<(Vec<Figure>, Cost)> {
    let directory = target.directory().join(workload.name());
    fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    // Also after a failure: the next workload needs the room.
    let outcome = in_directory(workload, &Round { target, directory: &directory, number, seed });
    let removed = remove(&directory).and_then(|()| target.settle());
    let outcome = outcome?;
    removed?;
    Ok(outcome)
}

fn remove(directory: &Path) -> Result<()> {
    fs::remove_dir_all(directory).with_context(|| format!("cannot remove {}", directory.display()))
}

fn in_directory(workload: &dyn Workload, round: &Round<'_>) -> Result<(Vec<Figure>, Cost)> {
    interrupt::check()?;
    workload.prepare(round)?;
    round.target.settle()?;
    let meter = Meter::start(round.target);
    let figures = workload.measure(round)?;
    Ok((figures, meter.stop(round.target)))
}
