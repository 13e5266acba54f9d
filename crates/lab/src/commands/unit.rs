//! `fsperf unit`: short for `fsperf run unit`.

use anyhow::{Result, ensure};
use clap::Args;
use lab::workload::rounds;

use crate::commands::run::{self, CommonArguments, Order};
use crate::commands::targets::TargetArguments;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    targets: TargetArguments,
    #[command(flatten)]
    common: CommonArguments,
    /// The published sizes instead of a quarter of them
    #[arg(long, conflicts_with = "divisor")]
    full: bool,
    /// Divide the published sizes by this
    #[arg(long, visible_alias = "scale", value_name = "N", default_value_t = 4)]
    divisor: u64,
    /// Only these tests
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    only: Vec<u8>,
    /// Rounds of each test on each target; of fewer than 5 there are no verdicts
    #[arg(long, visible_alias = "rounds", value_name = "N", default_value_t = rounds::ROUNDS, value_parser = run::rounds_parser())]
    repetitions: u32,
    /// Test 8's file, in MB, before the division; half of the free memory otherwise
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    memory: Option<u64>,
    /// Cut a measurement short after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 8)]
    limit: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let scale = if arguments.full { 1 } else { arguments.divisor };
    ensure!(scale > 0, "--divisor is at least 1");
    if let Some(id) = arguments.only.iter().find(|id| !(1..=14).contains(*id)) {
        anyhow::bail!("there is no test {id}; they are 1 to 14");
    }
    let ids: Vec<u8> = if arguments.only.is_empty() { (1..=14).collect() } else { arguments.only.clone() };
    let words: Vec<String> = ids.iter().map(|id| format!("unit{id:02}")).collect();
    let mut settings: Vec<String> = words.iter().map(|word| format!("{word}.limit={}", arguments.limit)).collect();
    if let Some(megabytes) = arguments.memory.filter(|_| ids.contains(&8)) {
        settings.push(format!("unit08.bytes={}", (megabytes.saturating_mul(1 << 20) / scale).max(1 << 20)));
    }
    let Arguments { targets, common, repetitions, .. } = arguments;
    run::carry_out(&Order { words: &words, scale, settings: &settings, rounds: *repetitions, targets, common })
}
