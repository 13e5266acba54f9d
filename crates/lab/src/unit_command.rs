//! `fsperf unit`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lab::report::unit as report;
use lab::system;
use lab::target::Target;
use lab::workload::unit::{self, Settings, TESTS};

use crate::targets_command::TargetArguments;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    targets: TargetArguments,
    /// The published sizes instead of a quarter of them
    #[arg(long)]
    full: bool,
    /// Divide the published sizes by this
    #[arg(long, value_name = "N", conflicts_with = "full")]
    divisor: Option<u64>,
    /// Only these tests
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    only: Vec<u8>,
    /// Turns of each test on each target
    #[arg(long, value_name = "N")]
    repetitions: Option<u32>,
    /// Test 8's file, in MB, before the division; half of the free memory otherwise
    #[arg(long, value_name = "MB")]
    memory: Option<u64>,
    /// Decides offsets, sizes and contents
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write every turn's figures into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn settings(arguments: &Arguments) -> Result<Settings> {
    let mut settings = if arguments.full { Settings::full() } else { Settings::short() };
    settings.divisor = arguments.divisor.unwrap_or(settings.divisor);
    settings.repetitions = arguments.repetitions.unwrap_or(settings.repetitions);
    if let Some(megabytes) = arguments.memory {
        settings.half_of_memory_bytes = megabytes.checked_mul(1 << 20).context("--memory is too large")?;
    }
    if arguments.repetitions.is_some() {
        settings.enough = settings.time_limit * settings.repetitions;
    }
    for id in &arguments.only {
        ensure!(TESTS.iter().any(|test| test.id == *id), "there is no test {id}; they are 1 to 14");
    }
    settings.only.clone_from(&arguments.only);
    settings.seed = arguments.seed;
    ensure!(settings.divisor > 0 && settings.repetitions > 0, "--divisor and --repetitions are at least 1");
    Ok(settings)
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let settings = settings(arguments)?;
    let targets = arguments.targets.targets(settings.space_bytes())?;
    let borrowed: Vec<&dyn Target> = targets.iter().map(AsRef::as_ref).collect();
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}")?);
    let results = unit::run(&borrowed, &settings, &mut |progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(format!("{} {}: {}", progress.test.id, progress.test.name, progress.target));
    })?;
    bar.finish_and_clear();
    println!("{}\n{}", system::describe(), report::targets(&results));
    println!("{}\n{}{}", report::table(&results), report::legend(&results), report::verdicts(&results));
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report::to_json(&results))?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
