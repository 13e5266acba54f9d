//! `fsperf run` and `fsperf list`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lab::report::rounds as report;
use lab::system;
use lab::target::Target;
use lab::workload::rounds::{self, Plan};
use lab::workload::{self, Workload};

use crate::targets_command::TargetArguments;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Which workloads; `fsperf list` names them
    #[arg(required = true, value_name = "WORKLOAD")]
    workloads: Vec<String>,
    #[command(flatten)]
    targets: TargetArguments,
    /// Rounds of each workload on each target
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Divide the published sizes by this
    #[arg(long, value_name = "N", default_value_t = 1)]
    scale: u64,
    /// Give a parameter of a workload another value
    #[arg(long, value_name = "WORKLOAD.NAME=VALUE")]
    set: Vec<String>,
    /// Decides everything that is random
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Write every round's figures into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn chosen(arguments: &Arguments) -> Result<Vec<Box<dyn Workload>>> {
    let mut chosen = Vec::new();
    for name in &arguments.workloads {
        let Some(workload) = workload::all().into_iter().find(|workload| workload.name() == name) else {
            let names: Vec<&str> = workload::all().iter().map(|workload| workload.name()).collect();
            bail!("there is no workload {name}; there are {} (and `fsperf unit`)", names.join(", "));
        };
        chosen.push(workload);
    }
    for workload in &mut chosen {
        workload.parameters_mut().shrink(arguments.scale);
    }
    for setting in &arguments.set {
        let wrong = || format!("--set {setting}: it must be WORKLOAD.NAME=VALUE");
        let (path, value) = setting.split_once('=').with_context(wrong)?;
        let (name, parameter) = path.split_once('.').with_context(wrong)?;
        let Some(workload) = chosen.iter_mut().find(|workload| workload.name() == name) else {
            bail!("--set {setting}: {name} is not among the workloads to run");
        };
        let value = value.parse().with_context(|| format!("--set {setting}: {value} is no number"))?;
        workload.parameters_mut().set(parameter, value).with_context(|| format!("--set {setting}"))?;
    }
    Ok(chosen)
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.rounds > 0 && arguments.scale > 0, "--rounds and --scale are at least 1");
    let workloads = chosen(arguments)?;
    let space_bytes = workloads.iter().map(|workload| workload.space_bytes()).max().unwrap_or(0);
    let targets = arguments.targets.targets(space_bytes)?;
    let borrowed: Vec<&dyn Target> = targets.iter().map(AsRef::as_ref).collect();
    println!("{}", system::describe());
    for target in &borrowed {
        println!("{}: {}", target.name(), target.description());
    }
    let plan = Plan { rounds: arguments.rounds, seed: arguments.seed, scale: arguments.scale };
    let mut results = Vec::new();
    for workload in &workloads {
        if let Some(missing) = workload.missing() {
            eprintln!("skipped: {}: {missing}", workload.name());
            continue;
        }
        let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} {eta}")?);
        let outcome = rounds::run(workload.as_ref(), &borrowed, plan, &mut |progress| {
            bar.set_length(u64::from(progress.total));
            bar.set_position(u64::from(progress.done));
            bar.set_message(format!("{}: {}", progress.workload, progress.target));
        })?;
        bar.finish_and_clear();
        println!("\n{}", report::table(&outcome));
        results.push(report::to_json(&outcome));
    }
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "machine": system::describe(), "results": results }))?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Every workload with its parameters.
pub(crate) fn list() {
    println!("unit01-unit14: the fourteen data-intensive unit tests; see `fsperf unit --help`");
    for workload in workload::all() {
        println!("{}: {}", workload.name(), workload.about());
        for parameter in workload.parameters().iter() {
            println!("    {:16} {:>10}  {}", parameter.name, parameter.value, parameter.about);
        }
    }
}
