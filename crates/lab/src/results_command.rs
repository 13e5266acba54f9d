//! `fsperf report` and `fsperf compare`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use lab::record::Record;
use lab::report::{changes, csv, html, table};

#[derive(Args)]
#[command(after_long_help = "\
EXAMPLES
  fsperf report results.json                          the tables, again
  fsperf report results.json -o results.html          a page with charts, all in one file
  fsperf report new.json --before old.json -o new.html    with what changed on top
  fsperf report results.json --csv > results.csv")]
pub(crate) struct ReportArguments {
    /// What `fsperf run -o` wrote
    #[arg(value_name = "FILE.json")]
    file: PathBuf,
    /// Write a page for browsers
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// An earlier run, to show what changed since
    #[arg(long, value_name = "FILE.json", requires = "output")]
    before: Option<PathBuf>,
    /// Comma-separated values: a line for each round of each figure
    #[arg(long, conflicts_with = "output")]
    csv: bool,
}

#[derive(Args)]
#[command(after_long_help = "\
Figures are compared where both runs have the same workload, target and figure. Each line says whether + or - is better; \"better\" and \"WORSE\" are said only outside of the noise of the rounds.")]
pub(crate) struct CompareArguments {
    /// The earlier run
    #[arg(value_name = "BEFORE.json")]
    before: PathBuf,
    /// The later run
    #[arg(value_name = "AFTER.json")]
    after: PathBuf,
}

pub(crate) fn report(arguments: &ReportArguments) -> Result<()> {
    let record = Record::load(&arguments.file)?;
    let before = arguments.before.as_deref().map(Record::load).transpose()?;
    if let Some(path) = &arguments.output {
        return fs::write(path, html::page(&record, before.as_ref())?)
            .with_context(|| format!("cannot write {}", path.display()));
    }
    if arguments.csv {
        print!("{}", csv::csv(&record)?);
        return Ok(());
    }
    println!("{}\n{}", record.began, record.machine_words());
    record.systems.iter().for_each(|system| println!("{}: {}", system.name, system.description));
    record.left_out.iter().for_each(|left| println!("left out: {}: {}", left.what, left.why));
    for outcome in &record.workloads {
        println!("\n{}", table::table(outcome));
    }
    println!("\n{}\n{}{}", table::summary(&record), table::legend(&record), table::score(&record));
    Ok(())
}

pub(crate) fn compare(arguments: &CompareArguments) -> Result<()> {
    let (before, after) = (Record::load(&arguments.before)?, Record::load(&arguments.after)?);
    print!("{}", changes::table(&before, &after));
    Ok(())
}
