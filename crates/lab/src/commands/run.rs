//! `fsperf run` and `fsperf list`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use lab::record::{LeftOut, Record, System};
use lab::report::verdicts::Verdicts;
use lab::report::{csv, table};
use lab::target::Target;
use lab::workload::rounds::{self, Outcome, Plan};
use lab::workload::{self, Workload, source_tree};

use crate::commands::looking_on::LookingOn;
use crate::commands::targets::{TargetArguments, Targets};

/// Nobody waits for more; their product with the number of file systems is counted in 32 bits.
const MOST_ROUNDS: u32 = 100_000;

pub(crate) fn rounds_parser() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(MOST_ROUNDS))
}

/// How one asks for several workloads at once.
const GROUPS: [(&str, &[&str]); 3] = [
    (
        "unit",
        &[
            "unit01", "unit02", "unit03", "unit04", "unit05", "unit06", "unit07", "unit08", "unit09", "unit10", "unit11",
            "unit12", "unit13", "unit14",
        ],
    ),
    ("filebench", &["fileserver", "varmail", "webserver", "webproxy", "videoserver", "oltp"]),
    ("all", &[]),
];

#[derive(Args)]
#[command(after_long_help = "\
EXAMPLES
  The fourteen unit tests on a directory of your own disk, a sixteenth of the published sizes:
      fsperf run unit --on /srv --scale 16
  TarnFS beside the kernel's file systems, results for later:
      sudo fsperf run unit postmark sync-sweep --on tarn,ext4,xfs,btrfs --scale 8 -o results.json
      fsperf report results.json -o results.html
  What of a loss is FUSE's, and what is TarnFS's own (fuse-ceiling: files in memory, no disk, fsync does nothing):
      sudo fsperf run unit postmark metadata --on tarn,fuse-ceiling,ext4 --scale 8
  Synchronous writers on a simulated 7,200 rpm drive:
      sudo fsperf run sync-sweep --on tarn,ext4 --disk sata-7200 --set sync-sweep.to=64 --set sync-sweep.seconds=5

  Before and after a change, on one and on four such drives, in one table and one chart:
      sudo fsperf run sync-sweep --on tarn --variant before=old/tarn --disk sata-7200 --disks 1,4 -O recordsize=8k -O checksum=edonr -o sweep.json

Each round begins in an empty directory; the file systems take turns, round by round. Ctrl-C takes everything down; what was measured until then is kept.")]
pub(crate) struct Arguments {
    /// Which workloads: names of `fsperf list`, or the groups unit, filebench, all
    #[arg(required = true, value_name = "WORKLOAD")]
    workloads: Vec<String>,
    #[command(flatten)]
    targets: TargetArguments,
    #[command(flatten)]
    common: CommonArguments,
    /// Divide the published sizes by this
    #[arg(long, value_name = "N", default_value_t = 1)]
    scale: u64,
    /// Give a parameter of a workload another value, after the scale
    #[arg(long, value_name = "WORKLOAD.NAME=VALUE")]
    set: Vec<String>,
    /// Rounds of each workload on each target; of fewer than 5 there are no verdicts
    #[arg(long, value_name = "N", default_value_t = rounds::ROUNDS, value_parser = rounds_parser())]
    rounds: u32,
}

/// Of `run` and of its short form.
#[derive(Args)]
pub(crate) struct CommonArguments {
    /// Rounds before those, which do not count
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=i64::from(MOST_ROUNDS)))]
    warm_up: u32,
    /// Decides everything that is random
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Keep every round's figures in this file, as JSON
    #[arg(short, long, visible_alias = "json", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the results as comma-separated values
    #[arg(long)]
    csv: bool,
    /// The git repository that bringover and nightly use; the one that fsperf was built from otherwise
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// The command that nightly builds it with
    #[arg(long, value_name = "COMMAND")]
    build: Option<String>,
    /// Write what the disks do each second (columns of `iostat -xn`) into this file; - for the terminal
    #[arg(long, value_name = "FILE")]
    watch: Option<PathBuf>,
    /// Make on-CPU flame graphs of the whole machine in this directory, one for each workload and target (perf); they cost some speed
    #[arg(long, value_name = "DIR")]
    flames: Option<PathBuf>,
}

fn names_of(word: &str) -> Result<Vec<&'static str>> {
    let all = || workload::all().iter().map(|workload| workload.name()).collect::<Vec<_>>();
    match GROUPS.iter().find(|(group, _)| *group == word) {
        Some(("all", _)) => Ok(all()),
        Some((_, names)) => Ok(names.to_vec()),
        None => match all().into_iter().find(|name| *name == word) {
            Some(name) => Ok(vec![name]),
            None => bail!(
                "there is no workload {word}; there are unit (unit01 to unit14), filebench, all, {}",
                all()[14..].join(", ")
            ),
        },
    }
}

fn chosen(words: &[String], scale: u64, settings: &[String]) -> Result<Vec<Box<dyn Workload>>> {
    let mut chosen: Vec<Box<dyn Workload>> = Vec::new();
    for word in words {
        for name in names_of(word)? {
            if !chosen.iter().any(|workload| workload.name() == name) {
                chosen.extend(workload::all().into_iter().find(|workload| workload.name() == name));
            }
        }
    }
    for workload in &mut chosen {
        workload.parameters_mut().shrink(scale);
    }
    for setting in settings {
        let wrong = || format!("--set {setting}: it must be WORKLOAD.NAME=VALUE");
        let (path, value) = setting.split_once('=').with_context(wrong)?;
        let (name, parameter) = path.split_once('.').with_context(wrong)?;
        let Some(workload) = chosen.iter_mut().find(|workload| workload.name() == name) else {
            bail!("--set {setting}: {name} is not among the workloads to run");
        };
        let value = value.parse().with_context(|| format!("--set {setting}: {value} is no number"))?;
        workload.parameters_mut().set(parameter, value).with_context(|| format!("--set {setting}"))?;
    }
    for workload in &chosen {
        workload.parameters().check().with_context(|| workload.name().to_owned())?;
    }
    Ok(chosen)
}

/// What to run, how often, on what.
pub(crate) struct Order<'a> {
    pub(crate) words: &'a [String],
    pub(crate) scale: u64,
    pub(crate) settings: &'a [String],
    pub(crate) rounds: u32,
    pub(crate) targets: &'a TargetArguments,
    pub(crate) common: &'a CommonArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { workloads, targets, common, scale, set, rounds } = arguments;
    carry_out(&Order { words: workloads, scale: *scale, settings: set, rounds: *rounds, targets, common })
}

pub(crate) fn carry_out(order: &Order<'_>) -> Result<()> {
    ensure!(order.scale > 0, "--scale is at least 1");
    if let Some(tree) = &order.common.tree {
        source_tree::set_tree(tree.clone());
    }
    if let Some(command) = &order.common.build {
        source_tree::set_build(command.clone());
    }
    order.common.output.as_deref().map_or(Ok(()), Record::expect_writable)?;
    let workloads = chosen(order.words, order.scale, order.settings)?;
    let space_bytes = workloads.iter().map(|workload| workload.space_bytes()).max().unwrap_or(0);
    let looking_on = LookingOn::new(order.common.watch.as_deref(), order.common.flames.as_deref(), workloads.len())?;
    let Targets { all: targets, left_out } = order.targets.targets(space_bytes)?;
    let plan = Plan {
        rounds: order.rounds,
        warm_up: order.common.warm_up,
        seed: order.common.seed,
        scale: order.scale,
        enough_milliseconds: None,
    };
    let mut record = Record::begin(plan);
    record.left_out = left_out;
    let borrowed: Vec<&dyn Target> = targets.iter().map(AsRef::as_ref).collect();
    record.systems = borrowed.iter().map(|target| system(*target)).collect();
    if !order.common.csv {
        lab::outln!("{}", record.machine_words());
        record.systems.iter().for_each(|system| lab::outln!("{}: {}", system.name, system.description));
    }
    let outcome = measure(&workloads, &borrowed, plan, &mut record, &looking_on, order.common.csv);
    looking_on.over();
    record.interrupted = outcome.is_err();
    let saved = order.common.output.as_deref().map_or(Ok(()), |path| save(&record, path));
    if record.workloads.is_empty() && outcome.is_ok() {
        bail!("nothing was measured");
    }
    match order.common.csv {
        true => lab::out!("{}", csv::csv(&record)?),
        false => say_results(&record),
    }
    saved?;
    outcome?;
    let failures = record.failures();
    ensure!(failures.is_empty(), "failed: {}; the rest was measured", failures.join("; "));
    Ok(())
}

/// Where it was asked for, or, so that a night is not lost, among the temporary files.
fn save(record: &Record, path: &Path) -> Result<()> {
    let Err(error) = record.save(path) else { return Ok(()) };
    let elsewhere = std::env::temp_dir().join(format!("fsperf-{}.json", std::process::id()));
    match record.save(&elsewhere) {
        Ok(()) => Err(error.context(format!("the results are in {}, as they could not be kept where they were to be", elsewhere.display()))),
        Err(_) => Err(error),
    }
}

fn say_results(record: &Record) {
    let verdicts = Verdicts::of(record);
    lab::outln!(
        "\n{}\n{}{}",
        table::summary(record, &verdicts),
        table::legend(record, &verdicts),
        table::score(record, &verdicts)
    );
}

fn system(target: &dyn Target) -> System {
    System { name: target.name().to_owned(), description: target.description(), facts: target.facts().to_vec() }
}

fn measure(
    workloads: &[Box<dyn Workload>],
    targets: &[&dyn Target],
    plan: Plan,
    record: &mut Record,
    looking_on: &LookingOn,
    quiet: bool,
) -> Result<()> {
    for (number, workload) in workloads.iter().enumerate() {
        looking_on.workload(number);
        let unmounted: Vec<_> = targets.iter().filter(|target| !target.is_mounted() && workload.needs_mount()).collect();
        for target in &unmounted {
            let (what, why) = (format!("{} on {}", workload.name(), target.name()), "it takes a mount".to_owned());
            looking_on.complain(&format!("left out: {what}: {why}"));
            record.left_out.push(LeftOut { what, why });
        }
        if unmounted.len() == targets.len() {
            continue;
        }
        if let Some(missing) = workload.missing() {
            looking_on.complain(&format!("left out: {}: {missing}", workload.name()));
            record.left_out.push(LeftOut { what: workload.name().to_owned(), why: missing });
            continue;
        }
        let mut outcome = Outcome::begin(workload.as_ref(), targets, plan);
        let ended = rounds::run_into(&mut outcome, workload.as_ref(), targets, looking_on);
        let one_figure = outcome.rates().len() <= 1;
        if !quiet && !one_figure {
            looking_on.say(&format!("\n{}", table::table(&outcome, None)));
        }
        record.workloads.push(outcome);
        ended?;
    }
    Ok(())
}

/// Every workload with its parameters.
pub(crate) fn list() {
    for workload in workload::all() {
        lab::outln!("{}: {}", workload.name(), workload.about());
        if let Some(missing) = workload.missing() {
            lab::outln!("    not on this machine: {missing}");
        }
        for parameter in workload.parameters().iter() {
            lab::outln!("    {:16} {:>12}  {}", parameter.name, parameter.value, parameter.about);
        }
        for published in workload.published() {
            lab::outln!("    published: {} {}: {}", published.system, published.figure, published.value);
        }
    }
    lab::outln!("groups: unit (unit01 to unit14), filebench, all");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_name_workloads_that_exist() {
        for (group, names) in GROUPS {
            assert_eq!(names_of(group).unwrap().len(), if group == "all" { workload::all().len() } else { names.len() });
            names.iter().for_each(|name| assert!(names_of(name).is_ok(), "{name}"));
        }
        assert!(names_of("unit15").unwrap_err().to_string().starts_with("there is no workload unit15"));
    }

    #[test]
    fn settings_come_after_the_scale_and_are_checked() {
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let workloads = chosen(&words(&["unit", "unit04", "postmark"]), 8, &words(&["postmark.files=7"])).unwrap();
        assert_eq!(workloads.len(), 15);
        assert_eq!((workloads[14].parameters().get("files"), workloads[3].parameters().get("bytes")), (7, 128 << 20));
        for wrong in [
            "postmark.files",
            "postmark=3",
            "unit01.bytes=3",
            "postmark.files=x",
            "postmark.files=0",
            "postmark.bias-read=11",
            "postmark.largest=499",
        ] {
            assert!(chosen(&words(&["postmark"]), 1, &words(&[wrong])).is_err(), "{wrong}");
        }
    }
}
