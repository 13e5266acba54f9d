//! What is done to a file system while it is watched.
//!
//! # Theory
//!
//! The fourteen unit tests ([`unit`]) are bytes over time and have a driver of their own. Every other workload is a
//! [`Workload`]: it has a name, parameters that anyone may change, what it was published with, and a way to run one
//! round in an empty directory, which yields a few [`Figure`]s. [`rounds`] has the targets take turns.
//!
//! # Invariants
//!
//! 1. A round begins in an empty directory, with nothing of the round before left to be written.
//! 2. What a round does depends on its parameters, its seed and nothing else: each target gets the same calls.

pub mod filebench;
pub mod postmark;
pub mod rounds;
pub mod sync_sweep;
pub mod unit;

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Result, bail};

use crate::target::Target;

/// Which way a figure is meant to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

impl Figure {
    /// So many of `unit`, the more the better.
    pub fn rate(name: impl Into<Cow<'static, str>>, unit: &'static str, value: f64) -> Figure {
        Figure { name: name.into(), unit, better: Better::Higher, value }
    }

    /// A time in seconds.
    pub fn seconds(name: impl Into<Cow<'static, str>>, value: f64) -> Figure {
        Figure::time(name, "s", value)
    }

    /// A time in `unit`.
    pub fn time(name: impl Into<Cow<'static, str>>, unit: &'static str, value: f64) -> Figure {
        Figure { name: name.into(), unit, better: Better::Lower, value }
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
        parameter.value = value;
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
}

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
    /// Makes what must be there before the clock starts.
    fn prepare(&self, _round: &Round<'_>) -> Result<()> {
        Ok(())
    }
    /// Runs, with the clock running. The first figure is the one that decides who is ahead.
    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>>;
}

/// All of them, with their published parameters.
pub fn all() -> Vec<Box<dyn Workload>> {
    let mut all: Vec<Box<dyn Workload>> = vec![Box::new(sync_sweep::SyncSweep::new()), Box::new(postmark::Postmark::new())];
    all.extend(filebench::all());
    all
}
