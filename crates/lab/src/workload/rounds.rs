//! Has the targets take turns at a workload, and watches what it costs.
//!
//! # Invariants
//!
//! 1. Targets take turns, round by round, each round beginning with another target, so that the machine's noise and
//!    what a round leaves behind hit all of them alike.
//! 2. A target that fails is left out from then on; the others go on.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::latency;
use super::{Better, Figure, Percentile, Point, Round, Workload};
use crate::cost::{Cost, Meter};
use crate::interrupt;
use crate::pool_watch;
use crate::process;
use crate::statistics;
use crate::target::Target;
use crate::watch::{self, DeviceUse};

/// Unless told otherwise: of seven rounds one may go wrong without hiding a difference.
pub const ROUNDS: u32 = 7;

/// How often, and with which random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub rounds: u32,
    /// Rounds before these, which are not counted.
    pub warm_up: u32,
    pub seed: u64,
    /// What all sizes were divided by, to be told in the report.
    pub scale: u64,
    /// No further round of a workload on a target once its rounds took so many milliseconds.
    pub enough_milliseconds: Option<u64>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { rounds: ROUNDS, warm_up: 0, seed: 42, scale: 1, enough_milliseconds: None }
    }
}

/// What a figure came to in each round of a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub name: Cow<'static, str>,
    pub unit: Cow<'static, str>,
    pub better: Better,
    pub values: Vec<f64>,
    /// Where it stands on a curve, if it is one of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// What it is of the times of single operations, if it is one of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentile: Option<Percentile>,
}

impl Sample {
    /// The middle of its rounds.
    pub fn median(&self) -> Option<f64> {
        statistics::median(&self.values)
    }

    /// Half the spread between the extremes, in percent of the median; nothing of a single round.
    pub fn spread_percent(&self) -> Option<f64> {
        statistics::spread(&self.values).filter(|_| self.values.len() > 1).map(|spread| spread * 50.0)
    }
}

/// All rounds of a workload on a target.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Column {
    pub target: String,
    pub description: String,
    pub samples: Vec<Sample>,
    pub costs: Vec<Cost>,
    /// What its devices did, on average, in each round.
    pub devices: Vec<Vec<DeviceUse>>,
    pub remarks: Vec<String>,
    /// Why there are no more.
    pub failure: Option<String>,
}

/// A parameter as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub name: String,
    pub value: u64,
    pub about: String,
}

/// A figure that somebody else published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Published {
    pub figure: String,
    pub system: String,
    pub value: f64,
}

/// A workload on all targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub workload: String,
    pub about: String,
    pub parameters: Vec<Setting>,
    pub published: Vec<Published>,
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

/// An observer of a run.
pub trait Observer: Sync {
    /// A turn begins.
    fn turn(&self, _progress: &Progress<'_>) {}
    /// The clock is about to run; `process` serves the file system, if one does,
    fn begin(&self, _workload: &'static str, _target: &str, _process: Option<u32>) {}
    /// and has stopped.
    fn end(&self) {}
    /// What the target's devices did in the last second.
    fn sample(&self, _sample: &[DeviceUse]) {}
    /// Does it want the lines of `zpool iostat`?
    fn wants_pool_lines(&self) -> bool {
        false
    }
    /// One of them.
    fn pool_line(&self, _line: &str) {}
}

/// Nobody.
impl Observer for () {}

impl Column {
    /// The values of a figure.
    pub fn sample(&self, name: &str) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.name == name)
    }

    /// The percentiles of the operations called `of`, each with its name, in their order.
    pub fn percentiles(&self, of: &str) -> Vec<(&str, &Sample)> {
        let all = self.samples.iter().filter_map(|sample| Some((sample.percentile.as_ref()?, sample)));
        all.filter(|(percentile, _)| percentile.of == of).map(|(percentile, sample)| (percentile.name.as_ref(), sample)).collect()
    }

    /// Has the figure a value of every round? One that went too fast to give a number has none, and the others would speak for it.
    pub fn has_every_round(&self, sample: &Sample) -> bool {
        sample.values.len() >= self.costs.len()
    }

    fn add(&mut self, measured: Measured) {
        self.costs.push(measured.cost);
        self.devices.push(measured.devices);
        let (mut remarks, rounds) = (measured.remarks, self.costs.len());
        for Figure { name, unit, better, value, point, percentile } in measured.figures {
            // Kept as JSON, which has no such numbers; a round that has none is said.
            let value = Some(value).filter(|value| value.is_finite());
            if value.is_none() {
                remarks.push(format!("{name}: a round came to no number"));
            }
            match self.samples.iter_mut().find(|sample| sample.name == name) {
                Some(sample) => sample.values.extend(value),
                None => {
                    let values = value.into_iter().collect();
                    self.samples.push(Sample { name, unit: unit.into(), better, values, point, percentile });
                }
            }
        }
        for sample in self.samples.iter_mut().filter(|sample| sample.values.len() < rounds) {
            sample.values.clear();
            remarks.push(format!("{}: no figure, as not every round has one", sample.name));
        }
        for remark in remarks {
            if !self.remarks.contains(&remark) {
                self.remarks.push(remark);
            }
        }
    }
}

impl Outcome {
    /// A sample of each figure, in the order in which the first target that has it measured it.
    pub fn figures(&self) -> Vec<&Sample> {
        let mut all: Vec<&Sample> = Vec::new();
        for sample in self.columns.iter().flat_map(|column| &column.samples) {
            if !all.iter().any(|seen| seen.name == sample.name) {
                all.push(sample);
            }
        }
        all
    }

    /// The figures that have a row of their own: all but the times of single operations.
    pub fn rates(&self) -> Vec<&Sample> {
        self.figures().into_iter().filter(|sample| sample.percentile.is_none()).collect()
    }

    /// The operations that were timed one by one; of each, the percentile that is compared.
    pub fn timed(&self) -> Vec<(&Percentile, &Sample)> {
        let all = self.figures().into_iter().filter_map(|sample| Some((sample.percentile.as_ref()?, sample)));
        all.filter(|(percentile, _)| percentile.name == latency::COMPARED).collect()
    }

    /// The figure that decides who is ahead: the first.
    pub fn deciding(&self) -> Option<&Sample> {
        self.columns.iter().find_map(|column| column.samples.first())
    }

    /// What a target came to.
    pub fn column(&self, target: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.target == target)
    }

    /// A figure of a target.
    pub fn sample(&self, target: &str, name: &str) -> Option<&Sample> {
        self.column(target)?.sample(name)
    }

    /// Nothing measured yet, on those of the targets that the workload can run on.
    pub fn begin(workload: &dyn Workload, targets: &[&dyn Target], plan: Plan) -> Outcome {
        let targets = usable(workload, targets);
        let column = |target: &&dyn Target| Column {
            target: target.name().to_owned(),
            description: target.description(),
            ..Column::default()
        };
        let setting = |parameter: &super::Parameter| Setting {
            name: parameter.name.to_owned(),
            value: parameter.value,
            about: parameter.about.to_owned(),
        };
        let published = |published: &super::Published| Published {
            figure: published.figure.to_owned(),
            system: published.system.to_owned(),
            value: published.value,
        };
        Outcome {
            workload: workload.name().to_owned(),
            about: workload.about().to_owned(),
            parameters: workload.parameters().iter().map(setting).collect(),
            published: workload.published().iter().map(published).collect(),
            plan,
            columns: targets.iter().map(column).collect(),
        }
    }
}

/// Of one round.
struct Measured {
    figures: Vec<Figure>,
    cost: Cost,
    devices: Vec<DeviceUse>,
    remarks: Vec<String>,
}

fn usable<'a>(workload: &dyn Workload, targets: &[&'a dyn Target]) -> Vec<&'a dyn Target> {
    targets.iter().copied().filter(|target| target.is_mounted() || !workload.needs_mount()).collect()
}

/// Runs all rounds. What fails on a target is in its column; an error is only an interruption.
pub fn run(workload: &dyn Workload, targets: &[&dyn Target], plan: Plan, observer: &dyn Observer) -> Result<Outcome> {
    let mut outcome = Outcome::begin(workload, targets, plan);
    run_into(&mut outcome, workload, targets, observer)?;
    Ok(outcome)
}

/// [`run`] for what [`Outcome::begin`] made. After an interruption it holds the rounds until then.
pub fn run_into(outcome: &mut Outcome, workload: &dyn Workload, targets: &[&dyn Target], observer: &dyn Observer) -> Result<()> {
    let (plan, targets) = (outcome.plan, usable(workload, targets));
    let (count, mut done) = (targets.len(), 0);
    let mut spent = vec![Duration::ZERO; count];
    let enough = plan.enough_milliseconds.map(Duration::from_millis);
    for number in 0..plan.warm_up + plan.rounds {
        for turn in 0..count {
            let index = (turn + number as usize) % count;
            let (target, column) = (targets[index], &mut outcome.columns[index]);
            let total = (plan.warm_up + plan.rounds) * count as u32;
            observer.turn(&Progress { done, total, workload: workload.name(), target: target.name() });
            done += 1;
            if column.failure.is_some() || (!column.costs.is_empty() && enough.is_some_and(|enough| spent[index] > enough)) {
                continue;
            }
            let started = Instant::now();
            match one_round(workload, target, number, plan.seed, observer) {
                Ok(_) if number < plan.warm_up => {}
                Ok(measured) => column.add(measured),
                Err(error) if interrupt::caused(&error) => return Err(error),
                Err(error) => column.failure = Some(told(&error)),
            }
            spent[index] += started.elapsed();
        }
    }
    Ok(())
}

/// What failed, and what to do where that is known.
fn told(error: &anyhow::Error) -> String {
    let is_full = |cause: &std::io::Error| matches!(cause.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    let full = error.chain().filter_map(|cause| cause.downcast_ref()).any(is_full);
    let hint = if full { "; a larger --scale makes the work smaller, --image the file system larger" } else { "" };
    process::in_a_line(&format!("{error:#}{hint}"))
}

fn one_round(workload: &dyn Workload, target: &dyn Target, number: u32, seed: u64, observer: &dyn Observer) -> Result<Measured> {
    let directory = target.directory().join(workload.name());
    target.check()?;
    target.storage().make_directory(&directory)?;
    // Also after a failure: the next workload needs the room.
    let outcome = in_directory(workload, &Round::new(target, &directory, number, seed), observer);
    // Not what lies below a mount that is gone.
    let removed = target.check().and_then(|()| target.storage().remove_directory(&directory)).and_then(|()| target.settle());
    let outcome = outcome?;
    removed?;
    Ok(outcome)
}

fn in_directory(workload: &dyn Workload, round: &Round<'_>, observer: &dyn Observer) -> Result<Measured> {
    interrupt::check()?;
    workload.prepare(round)?;
    round.target.settle()?;
    observer.begin(workload.name(), round.target.name(), round.target.process());
    let meter = Meter::start(round.target);
    let watched = || watch::during(&watch::devices(round.target), &|sample| observer.sample(sample), || workload.measure(round));
    let (figures, devices) = match round.target.pool_statistics().filter(|_| observer.wants_pool_lines()) {
        Some(command) => pool_watch::during(&command, round.target.directory(), &|line| observer.pool_line(line), watched),
        None => watched(),
    };
    observer.end();
    let figures = figures?;
    round.target.check()?;
    // What is written later was caused now.
    round.target.settle()?;
    let cost = meter.stop(round.target);
    Ok(Measured { figures, cost, devices, remarks: round.remarks() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(figures: Vec<Figure>) -> Measured {
        Measured { figures, cost: Cost::default(), devices: Vec::new(), remarks: Vec::new() }
    }

    /// Its other rounds are the slow ones.
    #[test]
    fn a_figure_that_a_round_has_not_is_none() {
        let both = |seeks: f64| round(vec![Figure::rate("seeks", "/s", seeks), Figure::rate("input", "MB/s", 2.0)]);
        let mut column = Column::default();
        for seeks in [7.0, f64::INFINITY, 8.0, 9.0] {
            column.add(both(seeks));
        }
        let values = |column: &Column, name: &str| column.sample(name).unwrap().values.clone();
        assert_eq!((values(&column, "seeks"), values(&column, "input")), (vec![], vec![2.0; 4]));
        assert!(!column.has_every_round(&column.samples[0]) && column.has_every_round(&column.samples[1]));
        assert_eq!(
            column.remarks,
            ["seeks: a round came to no number", "seeks: no figure, as not every round has one"]
        );
        // One that is missing altogether, and one that comes later.
        column.add(round(vec![Figure::rate("late", "/s", 1.0)]));
        assert_eq!((values(&column, "input"), values(&column, "late")), (vec![], vec![]));
    }
}
