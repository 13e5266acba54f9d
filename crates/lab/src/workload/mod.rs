//! What is done to a file system while it is watched.
//!
//! # Theory
//!
//! A [`Workload`] has a name, parameters that anyone may change, what it was published with, and a way to run one
//! round in an empty directory, which yields a few [`Figure`]s. [`rounds`] has the targets take turns.
//!
//! # Invariants
//!
//! 1. A round begins in an empty directory, with nothing of the round before left to be written.
//! 2. What a round does depends on its parameters, its seed and nothing else: each target gets the same calls.

mod applications;
pub mod bonnie;
pub mod dd;
pub mod filebench;
pub mod fio_mixed;
pub mod latency;
pub mod log_beside;
pub mod postmark;
pub mod rounds;
pub mod sync_sweep;
pub mod unit;

mod contents;
mod fio;
mod names;
mod together;

pub use applications::{images, mail, oltp, source_tree, videoserver};
pub use names::{growth, metadata};

use std::borrow::Cow;
use std::cell::RefCell;
use std::path::Path;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::target::Target;

/// Which way a figure is meant to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

/// One thing that a round measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub name: Cow<'static, str>,
    /// What it is counted in, as one writes it behind the number.
    pub unit: &'static str,
    pub better: Better,
    pub value: f64,
    /// Where it stands on a curve, if it is one of several.
    pub point: Option<Point>,
    /// What it is of the times of single operations, if it is one of those.
    pub percentile: Option<Percentile>,
}

/// One of the times of single operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentile {
    /// Of which operations.
    pub of: Cow<'static, str>,
    /// `p50`, `p99`, `p99.9` or `max`.
    pub name: Cow<'static, str>,
}

/// A place on a curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What the curve shows.
    pub curve: Cow<'static, str>,
    /// What it is drawn over.
    pub axis: Cow<'static, str>,
    pub at: f64,
}

impl Figure {
    /// A point of the curve `curve` over `axis`.
    pub fn on(self, curve: &'static str, axis: &'static str, at: f64) -> Figure {
        Figure { point: Some(Point { curve: curve.into(), axis: axis.into(), at }), ..self }
    }

    /// So many of `unit`, the more the better.
    pub fn rate(name: impl Into<Cow<'static, str>>, unit: &'static str, value: f64) -> Figure {
        Figure { name: name.into(), unit, better: Better::Higher, value, point: None, percentile: None }
    }

    /// A time in seconds.
    pub fn seconds(name: impl Into<Cow<'static, str>>, value: f64) -> Figure {
        Figure::time(name, "s", value)
    }

    /// That percentile of the times of the operations called `of`.
    pub fn percentile(of: &str, name: &'static str, microseconds: f64) -> Figure {
        let percentile = Some(Percentile { of: of.to_owned().into(), name: name.into() });
        Figure { percentile, ..Figure::time(format!("{of}, {name}"), "us", microseconds) }
    }

    /// A time in `unit`.
    pub fn time(name: impl Into<Cow<'static, str>>, unit: &'static str, value: f64) -> Figure {
        Figure { name: name.into(), unit, better: Better::Lower, value, point: None, percentile: None }
    }
}

/// A figure that somebody else published.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    pub figure: &'static str,
    /// The file system, and how it was set up.
    pub system: &'static str,
    pub value: f64,
}

/// A number that decides what a workload does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    pub name: &'static str,
    pub about: &'static str,
    pub value: u64,
    /// Does a smaller scale make it smaller?
    pub scales: bool,
    pub smallest: u64,
    pub largest: u64,
}

/// Whatever is counted in bytes or numbers ends somewhere: a petabyte.
const LARGEST: u64 = 1 << 50;
/// What lies in memory, for each thread.
pub(crate) const LONGEST_CALL: u64 = 64 << 20;
/// Of files that are known by their names all the while.
pub(crate) const MOST_FILES: u64 = 20_000_000;
/// Of what runs so long: ten years.
pub(crate) const MOST_SECONDS: u64 = 10 * 366 * 86_400;
/// A machine has not many more threads than that.
pub(crate) const MOST_THREADS: u64 = 4096;

impl Parameter {
    /// One that a scale does not change.
    pub const fn fixed(name: &'static str, about: &'static str, value: u64) -> Parameter {
        Parameter { name, about, value, scales: false, smallest: 1, largest: LARGEST }
    }

    /// One that a scale divides, down to `smallest`.
    pub const fn scaled(name: &'static str, about: &'static str, value: u64, smallest: u64) -> Parameter {
        Parameter { name, about, value, scales: true, smallest, largest: LARGEST }
    }

    /// With that as its largest value.
    pub const fn at_most(self, largest: u64) -> Parameter {
        Parameter { largest, ..self }
    }

    /// With that as its smallest value.
    pub const fn at_least(self, smallest: u64) -> Parameter {
        Parameter { smallest, ..self }
    }
}

/// The parameters of a workload, in the order in which they are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters(Vec<Parameter>);

impl Parameters {
    /// The published ones.
    pub fn new(all: &[Parameter]) -> Parameters {
        Parameters(all.to_vec())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Parameter> {
        self.0.iter()
    }

    /// # Panics
    ///
    /// If the workload asks for a parameter that it does not have.
    pub fn get(&self, name: &str) -> u64 {
        self.0.iter().find(|parameter| parameter.name == name).unwrap_or_else(|| panic!("no parameter {name}")).value
    }

    /// Gives the parameter another value.
    pub fn set(&mut self, name: &str, value: u64) -> Result<()> {
        let names = self.0.iter().map(|parameter| parameter.name).collect::<Vec<_>>().join(", ");
        let Some(parameter) = self.0.iter_mut().find(|parameter| parameter.name == name) else {
            bail!("there is no parameter {name}; there are {names}");
        };
        if value < parameter.smallest {
            bail!("{name} is at least {}", parameter.smallest);
        }
        if value > parameter.largest {
            bail!("{name} is at most {}", parameter.largest);
        }
        parameter.value = value;
        Ok(())
    }

    /// Fails if one end of a range lies beyond the other one.
    pub fn check(&self) -> Result<()> {
        for (low, high) in [("smallest", "largest"), ("from", "to")] {
            let value = |name: &str| self.0.iter().find(|parameter| parameter.name == name).map(|parameter| parameter.value);
            if let (Some(from), Some(to)) = (value(low), value(high))
                && from > to
            {
                bail!("{low} is {from} and {high} is {to}");
            }
        }
        Ok(())
    }

    /// Divides what is meant to shrink.
    pub fn shrink(&mut self, divisor: u64) {
        for parameter in self.0.iter_mut().filter(|parameter| parameter.scales) {
            parameter.value = (parameter.value / divisor.max(1)).max(parameter.smallest);
        }
    }
}

/// One turn of a workload on a target.
pub struct Round<'a> {
    pub target: &'a dyn Target,
    /// Empty when the round begins.
    pub directory: &'a Path,
    pub number: u32,
    pub seed: u64,
    remarks: RefCell<Vec<String>>,
}

impl<'a> Round<'a> {
    /// A round in that directory.
    pub fn new(target: &'a dyn Target, directory: &'a Path, number: u32, seed: u64) -> Round<'a> {
        Round { target, directory, number, seed, remarks: RefCell::default() }
    }

    /// Something that a reader of the figures must know.
    pub fn remark(&self, remark: String) {
        self.remarks.borrow_mut().push(remark);
    }

    /// What was remarked.
    pub fn remarks(&self) -> Vec<String> {
        self.remarks.borrow().clone()
    }
}

/// What a workload says of itself and how its parameters are reached, the same for all of them.
macro_rules! described {
    ($name:literal, $about:literal) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn about(&self) -> &'static str {
            $about
        }

        fn parameters(&self) -> &Parameters {
            &self.parameters
        }

        fn parameters_mut(&mut self) -> &mut Parameters {
            &mut self.parameters
        }
    };
}

pub(crate) use described;

/// Something that people do to file systems.
pub trait Workload {
    /// As it stands on the command line.
    fn name(&self) -> &'static str;
    /// What it does, in a line.
    fn about(&self) -> &'static str;
    fn parameters(&self) -> &Parameters;
    fn parameters_mut(&mut self) -> &mut Parameters;
    /// What it was published with, at its default parameters.
    fn published(&self) -> &'static [Published];
    /// Room that a target must have for it.
    fn space_bytes(&self) -> u64;
    /// What this machine has not and it needs, with what to install.
    fn missing(&self) -> Option<String> {
        None
    }
    /// Does it use system calls or other programs, so that a library without a mount will not do?
    fn needs_mount(&self) -> bool {
        true
    }
    /// Makes what must be there before the clock starts.
    fn prepare(&self, _round: &Round<'_>) -> Result<()> {
        Ok(())
    }
    /// Runs, with the clock running. The first figure is the one that decides who is ahead.
    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>>;
}

/// All of them, with their published parameters.
pub fn all() -> Vec<Box<dyn Workload>> {
    let mut all: Vec<Box<dyn Workload>> = Vec::new();
    all.extend(unit::all().into_iter().map(|unit| Box::new(unit) as Box<dyn Workload>));
    all.push(Box::new(sync_sweep::SyncSweep::new()));
    all.push(Box::new(fio_mixed::FioMixed::new()));
    all.push(Box::new(log_beside::LogBeside::new()));
    all.push(Box::new(dd::Dd::new()));
    all.push(Box::new(bonnie::Bonnie::new()));
    all.push(Box::new(postmark::Postmark::new()));
    all.extend(filebench::all());
    all.push(Box::new(videoserver::Videoserver::new()));
    all.push(Box::new(oltp::Oltp::new()));
    all.push(Box::new(source_tree::Bringover::new()));
    all.push(Box::new(source_tree::Nightly::new()));
    all.push(Box::new(mail::Mail::new()));
    all.push(Box::new(images::Images::new()));
    all.push(Box::new(metadata::Metadata::new()));
    all.push(Box::new(growth::Growth::new()));
    all
}
