//! `cargo xtask explore`: the crash explorer, at length.

use anyhow::{Context, Result, bail, ensure};
use sim::explore::judge::Promises;
use sim::explore::state::{State, store};
use sim::explore::workload::Workload;
use sim::explore::{Explorer, Kind, Plan};
use sim::life::crash;

use crate::words::Words;

pub(crate) const HELP: &str = "\
cargo xtask explore [--seed N] [--states N] [--threads N] [--zdb EVERY]
                                     crash states of random workloads: the power goes at any write (docs/testing.md)
cargo xtask explore --short [--from N] [--states N]
                                     all sequences of one and of two operations, then those of three, at random
cargo xtask explore --removals [--seed N] [--states N] [--threads N] [--zdb EVERY]
                                     crash states of random workloads beside removals of vdevs
cargo xtask explore --verbs [--seed N] [--from K] [--states N] [--each N|cut|all]
                                     all pairs of verbs on datasets, then random ones: N states of each, one for each cut, or all;
                                     from the Kth of that order on, as a run that was ended says
cargo xtask explore --workload NAME --state CUT.VARIANT [--keep DIRECTORY]
                                     one state again, as a failure prints it; its images
";

/// States between two lines that say how far it is.
const STEP: u64 = 1_000;

/// Workloads of verbs between two such lines.
const VERB_STEP: u64 = 8;


/// Looks at one state of a workload of verbs again.
fn replay_verbs(workload: crash::Workload, state: &str) -> Result<()> {
    let state = State::parse(state).with_context(|| format!("{state} is no state"))?;
    let explorer = crash::Explorer::default();
    for (number, verb) in explorer.tell(workload, None).verbs.iter().enumerate() {
        println!("  {number}: {verb:?}");
    }
    explorer.replay(workload, state, None).map_err(anyhow::Error::msg)?;
    println!("{workload} {state}: nothing wrong");
    Ok(())
}

/// All pairs of verbs, in an order that is always the same, then random ones: from the number `from` of that order on.
fn explore_verbs(mut plan: crash::Plan, seed: u64, from: u64) -> Result<()> {
    let explorer = crash::Explorer::default();
    let (mut at, mut left, pairs) = (from, plan.states, crash::pair_count());
    while left > 0 {
        let end = if at < pairs { (at + VERB_STEP).min(pairs) } else { at + VERB_STEP };
        (plan.first, plan.numbers, plan.states) = if at < pairs {
            (crash::Workload::Pair(seed), at..end, u64::MAX)
        } else {
            (crash::Workload::Random(seed), at - pairs..end - pairs, left)
        };
        let report = explorer.explore(&plan);
        println!("{at} to {end} ({pairs} are pairs): {report}");
        for failure in &report.failures {
            println!("{failure}");
        }
        ensure!(report.failures.is_empty(), "{} states are wrong", report.failures.len());
        println!("to go on: --seed {seed} --from {end}");
        (at, left) = (end, left.saturating_sub(report.states));
    }
    Ok(())
}

fn replay(workload: &str, state: &str, keep: Option<&str>) -> Result<()> {
    if let Some(workload) = crash::Workload::parse(workload) {
        return replay_verbs(workload, state);
    }
    let workload = Workload::parse(workload).with_context(|| format!("{workload} is no workload"))?;
    let state = State::parse(state).with_context(|| format!("{state} is no state"))?;
    let (story, images) = Explorer::default().state(workload, state, None).map_err(anyhow::Error::msg)?;
    for (number, op) in story.ops.iter().enumerate() {
        println!("  {number}: {op:?}");
    }
    println!("  before event {} of {}: {:?}", state.cut, story.events.len(), Promises::at(&story, state.cut));
    if let Some(directory) = keep {
        std::fs::create_dir_all(directory)?;
        for path in store(&images, directory.as_ref())? {
            println!("  -> {}", path.display());
        }
    }
    Explorer::replay(&story, &images, workload, state).map_err(anyhow::Error::msg)?;
    println!("{workload} {state}: nothing wrong");
    Ok(())
}

/// Goes on until there were as many states as planned, or the workloads are over. Returns how many there were.
fn explore(explorer: &Explorer, mut plan: Plan, what: &str) -> Result<u64> {
    let states = plan.states;
    let mut done = 0;
    while done < states {
        plan.states = STEP.min(states - done);
        let report = explorer.explore(&plan);
        println!("{what} from {}: {report}", plan.seed);
        for failure in &report.failures {
            println!("{failure}");
        }
        ensure!(report.failures.is_empty(), "{} states are wrong", report.failures.len());
        done += report.states;
        plan.seed = plan.seed.wrapping_add(report.numbers);
        if report.workloads == 0 {
            break;
        }
    }
    Ok(done)
}

pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let (short, arguments): (Vec<&str>, Vec<&str>) = arguments.iter().copied().partition(|word| *word == "--short");
    let (removals, arguments): (Vec<&str>, Vec<&str>) = arguments.into_iter().partition(|word| *word == "--removals");
    let (verbs, arguments): (Vec<&str>, Vec<&str>) = arguments.into_iter().partition(|word| *word == "--verbs");
    let mut words = Words::new(&arguments);
    let (workload, state, keep) = (words.value("--workload")?, words.value("--state")?, words.value("--keep")?);
    let seed = words.number("--seed")?.unwrap_or(1);
    let states = words.number("--states")?.unwrap_or(100_000);
    let threads = words.number("--threads")?.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |count| count.get() as u64));
    let zdb_every = words.number("--zdb")?.unwrap_or(2000);
    let from = words.number("--from")?.unwrap_or(0);
    let each = words.value("--each")?.unwrap_or("cut");
    words.none_left()?;
    match (workload, state) {
        (Some(workload), Some(state)) => return replay(workload, state, keep),
        (None, None) => {}
        _ => bail!("--workload and --state go together"),
    }
    println!("seed {seed}, {states} states, {threads} threads");
    if !verbs.is_empty() {
        let of_each = each.parse().unwrap_or(usize::MAX);
        let one_of_each_cut = each == "cut";
        let first = crash::Workload::Pair(seed);
        let plan = crash::Plan { first, numbers: 0..0, states, of_each, one_of_each_cut, write_every: 3, zdb_every, threads: threads as usize, canary: None, step: crash::FAR };
        return explore_verbs(plan, seed, from);
    }
    let explorer = Explorer::default();
    let plan = Plan { seed, states, of_each: 100, write_every: 8, zdb_every, threads: threads as usize, canary: None, kind: Kind::Random };
    if !removals.is_empty() {
        explore(&explorer, Plan { kind: Kind::Removing, ..plan }, "removals")?;
        return Ok(());
    }
    if short.is_empty() {
        explore(&explorer, plan, "random workloads")?;
        return Ok(());
    }
    let plan = Plan { of_each: 6, ..plan };
    let mut left = states;
    for (kind, seed, what) in [(Kind::Short(1), 0, "one operation"), (Kind::Short(2), from, "two operations"), (Kind::Sample(3), seed, "three operations")] {
        left = left.saturating_sub(explore(&explorer, Plan { states: left, kind, seed, ..plan }, what)?);
    }
    Ok(())
}
