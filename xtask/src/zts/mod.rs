//! `cargo xtask zts`: OpenZFS's own test suite on our commands.
//!
//! # Theory
//! The suite lies beside the project: `../shared/oracle/zts` has a runner, which gives each script a machine of its own (namespaces over the
//! root file system in which the suite is installed), and a list of scripts that test us; `xtask/zts/added` has more. What cannot apply is in
//! `xtask/zts/excluded`, what waits for a verb that is announced absent in `xtask/zts/waiting`, each with its reason. All else must pass.
//! `xtask/zts/quick` has some that are fast, for CI: they use files, and so no loop device of the machine.

mod lists;
mod suite;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::mounted::tarn;
use crate::words::Words;
use lists::Lists;
use suite::{Ended, Run, Verdict};

pub(crate) const HELP: &str = "\
cargo xtask zts [--quick] [--limit SECONDS] [--each SECONDS] [--files] [--keep DIRECTORY] [GROUP...]
                                     OpenZFS's test suite (what is in ../shared/oracle/zts/scripts and xtask/zts/added), or the groups or scripts
                                     named, or a quick part of it; a table by group; as root, with a network
";

/// Seconds for the quick part, for all, and for a script.
const QUICK_LIMIT: u64 = 300;
const LIMIT: u64 = 6 * 3600;
const EACH: u64 = 240;
const EACH_QUICK: u64 = 30;

pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let mut words = Words::new(arguments);
    let quick = words.flag("--quick");
    let files = words.flag("--files");
    let limit = words.number("--limit")?.unwrap_or(if quick { QUICK_LIMIT } else { LIMIT });
    let each = words.number("--each")?.unwrap_or(if quick { EACH_QUICK } else { EACH });
    let keep = words.value("--keep")?.map(PathBuf::from);
    let named = words.rest();
    if let Some(why) = suite::absent() {
        sim::places::skipped(&format!("OpenZFS's test suite: {why}"));
        return Ok(());
    }
    let lists = Lists::read()?;
    let chosen = lists.choose(quick, &named)?;
    ensure!(!chosen.is_empty(), "no script is left of those named: they are excluded or wait (xtask/zts)");
    let run = Run { scripts: &chosen, tarn: tarn()?, limit: Duration::from_secs(limit), each, loops: !files && !quick, keep };
    match suite::run(&run)? {
        Ended::Skipped(why) => sim::places::skipped(&format!("OpenZFS's test suite: {why}")),
        Ended::Done(verdicts) => return report(&lists, &chosen, &verdicts, &named, quick),
    }
    Ok(())
}

#[derive(Default)]
struct Row<'a> {
    passed: usize,
    declined: usize,
    failed: Vec<&'a str>,
    excluded: usize,
    waiting: usize,
}

/// The table; an error if something failed.
fn report(lists: &Lists, chosen: &[String], verdicts: &BTreeMap<String, Verdict>, named: &[&str], quick: bool) -> Result<()> {
    let mut rows: BTreeMap<&str, Row<'_>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for script in chosen {
        let (group, name) = lists::parts(script);
        let row = rows.entry(group).or_default();
        match verdicts.get(script) {
            Some(Verdict::Passed) => row.passed += 1,
            Some(Verdict::Declined) => row.declined += 1,
            Some(Verdict::Failed(why)) => {
                row.failed.push(name);
                wrong.push(format!("{script}: {why}"));
            }
            None => {
                row.failed.push(name);
                wrong.push(format!("{script}: not run: the time was over"));
            }
        }
    }
    if !quick {
        lists.left_out(named, &mut |script, waits| {
            let row = rows.entry(lists::parts(script).0).or_default();
            if waits { row.waiting += 1 } else { row.excluded += 1 }
        });
    }
    println!("{:<28} {:>6} {:>6} {:>8} {:>8} {:>7}", "group", "passed", "failed", "declined", "excluded", "waiting");
    let line = |name: &str, row: &Row<'_>| {
        let counts =
            format!("{:>6} {:>6} {:>8} {:>8} {:>7}", row.passed, row.failed.len(), row.declined, row.excluded, row.waiting);
        println!("{}", format!("{name:<28} {counts}  {}", row.failed.join(" ")).trim_end());
    };
    let mut sum = Row::default();
    for (group, row) in &rows {
        line(group, row);
        sum.passed += row.passed;
        sum.declined += row.declined;
        sum.excluded += row.excluded;
        sum.waiting += row.waiting;
        sum.failed.extend(&row.failed);
    }
    let failed = std::mem::take(&mut sum.failed).len();
    line("all", &Row { failed: Vec::new(), ..sum });
    for words in &wrong {
        println!("FAILED {words}");
    }
    println!("zts: {} of {} passed, {failed} failed", chosen.len() - failed, chosen.len());
    ensure!(failed == 0, "{failed} scripts of OpenZFS's test suite failed");
    Ok(())
}
