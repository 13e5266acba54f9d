//! `fsperf report` and `fsperf compare`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use lab::flame;
use lab::record::{Record, write_whole};
use lab::report::verdicts::Verdicts;
use lab::report::{changes, csv, findings, html, shape, table};

#[derive(Args)]
#[command(after_long_help = "\
EXAMPLES
  fsperf report results.json                          the tables, again
  fsperf report results.json -o results.html          a page with charts, all in one file
  fsperf report new.json --before old.json -o new.html    with what changed on top
  fsperf report results.json --csv > results.csv")]
pub(crate) struct ReportArguments {
    /// What `fsperf run -o` wrote; several runs of different workloads become one
    #[arg(value_name = "FILE.json", required = true)]
    files: Vec<PathBuf>,
    /// Write a page for browsers
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// An earlier run, to show what changed since
    #[arg(long, value_name = "FILE.json", requires = "output")]
    before: Option<PathBuf>,
    /// Write all runs as one file of results
    #[arg(long, value_name = "FILE.json", conflicts_with = "output")]
    merged: Option<PathBuf>,
    /// Write results.json, index.html and a page of findings, losses first, into this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "merged"])]
    findings: Option<PathBuf>,
    /// Comma-separated values: a line for each round of each figure
    #[arg(long, conflicts_with = "output")]
    csv: bool,
    /// A table in Markdown: each workload in a line, medians, the first system beside each of the others, and which is first of all
    #[arg(long, conflicts_with_all = ["output", "csv"])]
    markdown: bool,
    /// Compare the sync-sweep of two targets, BEFORE and AFTER, with what the published rework gained; fails where it is off by more than a quarter
    #[arg(long, value_name = "BEFORE,AFTER", value_delimiter = ',', conflicts_with_all = ["output", "csv", "markdown"])]
    shape: Vec<String>,
}

#[derive(Args)]
#[command(after_long_help = "\
Figures are compared where both runs have the same workload, target and figure. Each line says whether + or - is better; \"better\" and \"WORSE\" are said only where an exact rank-sum test, corrected for all figures together, finds a difference: it takes five rounds of both runs.")]
pub(crate) struct CompareArguments {
    /// The earlier run
    #[arg(value_name = "BEFORE.json")]
    before: PathBuf,
    /// The later run
    #[arg(value_name = "AFTER.json")]
    after: PathBuf,
}

#[derive(Args)]
#[command(after_long_help = "\
EXAMPLE
  fsperf run unit07 --on tarn --tarn old/tarn --flames old-flames
  fsperf run unit07 --on tarn --tarn new/tarn --flames new-flames
  fsperf flames old-flames new-flames -o flames        then look at flames/index.html")]
pub(crate) struct FlamesArguments {
    /// What `fsperf run --flames` made with the earlier build
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The same with the later one
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Where the page and its graphs are made
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

pub(crate) fn flames(arguments: &FlamesArguments) -> Result<()> {
    let names = flame::compare(&arguments.before, &arguments.after, &arguments.output)?;
    lab::outln!("{}: {}", arguments.output.join("index.html").display(), names.join(", "));
    Ok(())
}

fn load(files: &[PathBuf]) -> Result<Record> {
    let mut all = files.iter().map(|file| Record::load(file).map(|record| (file, record)));
    let (_, mut whole) = all.next().context("no file")??;
    for next in all {
        let (file, record) = next?;
        whole.add(record).with_context(|| file.display().to_string())?;
    }
    Ok(whole)
}

pub(crate) fn report(arguments: &ReportArguments) -> Result<()> {
    let record = load(&arguments.files)?;
    let before = arguments.before.as_deref().map(Record::load).transpose()?;
    if let Some(path) = &arguments.output {
        return write_whole(path, &html::page(&record, before.as_ref())?);
    }
    if let Some(directory) = &arguments.findings {
        fs::create_dir_all(directory).with_context(|| format!("cannot write into {}", directory.display()))?;
        record.save(&directory.join("results.json"))?;
        write_whole(&directory.join("index.html"), &html::page(&record, before.as_ref())?)?;
        return write_whole(&directory.join("README.md"), &findings::markdown(&record, "results.json", "index.html"));
    }
    if let Some(path) = &arguments.merged {
        return record.save(path);
    }
    if arguments.csv {
        lab::out!("{}", csv::csv(&record)?);
        return Ok(());
    }
    let verdicts = Verdicts::of(&record);
    if arguments.markdown {
        lab::out!("{}\n{}", findings::summary(&record, &verdicts), table::score(&record, &verdicts));
        return Ok(());
    }
    if !arguments.shape.is_empty() {
        let [before, after] = arguments.shape.as_slice() else { bail!("--shape takes two names: BEFORE,AFTER") };
        let shape = shape::of(&record, before, after)?;
        lab::out!("{}", shape.text);
        ensure!(shape.off.is_empty(), "not the published shape: {}", shape.off.join(", "));
        return Ok(());
    }
    lab::outln!("{}\n{}", record.began, record.machine_words());
    record.systems.iter().for_each(|system| lab::outln!("{}: {}", system.name, system.description));
    record.left_out.iter().for_each(|left| lab::outln!("left out: {}: {}", left.what, left.why));
    for outcome in &record.workloads {
        lab::outln!("\n{}", table::table(outcome, Some(&verdicts)));
    }
    lab::outln!(
        "\n{}\n{}{}",
        table::summary(&record, &verdicts),
        table::legend(&record, &verdicts),
        table::score(&record, &verdicts)
    );
    Ok(())
}

pub(crate) fn compare(arguments: &CompareArguments) -> Result<()> {
    let (before, after) = (Record::load(&arguments.before)?, Record::load(&arguments.after)?);
    lab::out!("{}", changes::table(&before, &after));
    ensure!(
        !changes::changes(&before, &after).is_empty(),
        "the two runs have no figure in common: no workload ran on the same file system in both"
    );
    Ok(())
}
