//! `cargo xtask xfstests`: the test suite that kernel file systems are tested with, on mounts of ours.
//!
//! # Theory
//! The suite is somebody else's and lies, built, outside of the project (`--dir`). It mounts by `mount -t fuse.tarn`, which
//! runs `/sbin/mount.fuse.tarn`, a link to `tarn`; made for the run if it is not there. Two pools serve as test and scratch device.
//! To the suite, FUSE is somebody else's disk: it cannot be made anew, checked, or lose the power. A pool can, so pieces of ours
//! (`xtask/xfstests/rc`, `dmflakey`) stand in for those of the suite: the real zdb judges the scratch pool after each test, and
//! where the suite drops what is written to a disk, the daemon is killed.
//! Each test has a limit. What cannot pass is in `xtask/xfstests/excluded`, each with its reason; whatever else fails is a finding.

mod check;
mod suite;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::mounted::tarn;
use crate::words::Words;
use check::Verdict;
use suite::Suite;

pub(crate) const HELP: &str = "\
cargo xtask xfstests --dir XFSTESTS [--limit SECONDS] [--group NAME] [--keep DIRECTORY] [--table FILE] [TEST...]
                                     runs built xfstests (generic, group quick) on mounts, a line for each
                                     to the end of the table; zdb judges both pools; as root
";

const EXCLUDED: &str = include_str!("../../xfstests/excluded");

/// Tests of `generic` in a group, from the list that the suite's build made.
fn tests_of(suite: &Path, group: &str) -> Result<Vec<String>> {
    let list = suite.join("tests/generic/group.list");
    let text = fs::read_to_string(&list).with_context(|| format!("{}: is it built?", list.display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let chosen = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let number = words.next()?;
        (group == "all" || words.any(|word| word == group)).then(|| format!("generic/{number}"))
    });
    Ok(chosen.collect())
}

/// The committed list: test, then why not.
fn excluded() -> BTreeMap<&'static str, &'static str> {
    let lines = EXCLUDED.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(char::is_whitespace)).map(|(test, reason)| (test, reason.trim())).collect()
}

pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let mut words = Words::new(arguments);
    let dir = PathBuf::from(words.value("--dir")?.context("--dir says where built xfstests are")?);
    let limit = Duration::from_secs(words.number("--limit")?.unwrap_or(120));
    let group = words.value("--group")?.unwrap_or("quick");
    let work = words.value("--keep")?.map_or_else(|| std::env::temp_dir().join(format!("tarn-xfstests-{}", std::process::id())), PathBuf::from);
    let mut table = words.value("--table")?.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
    let mut tests: Vec<String> = words.rest().into_iter().map(str::to_owned).collect();
    let named = !tests.is_empty();
    if !named {
        tests = tests_of(&dir, group)?;
    }
    let suite = Suite::new(&dir, &work, tarn()?)?;
    let excluded = excluded();
    let (mut passed, mut failed) = (0, Vec::new());
    let mut not_run: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut done = |test: &str, verdict: Verdict, time: Duration| -> Result<()> {
        if let Some(table) = &mut table {
            let (word, more) = verdict.words();
            writeln!(table, "{test}\t{word}\t{}\t{more}", time.as_secs())?;
        }
        match verdict {
            Verdict::Passed => passed += 1,
            Verdict::NotRun(reason) => not_run.entry(reason).or_default().push(test.to_owned()),
            Verdict::TimedOut => {
                println!("{test}: not done in {} s", limit.as_secs());
                failed.push(test.to_owned());
            }
            Verdict::Failed(said) => {
                println!("{test}: failed\n{said}");
                failed.push(test.to_owned());
            }
        }
        Ok(())
    };
    let (out, mut tests): (Vec<String>, Vec<String>) = tests.into_iter().partition(|test| !named && excluded.contains_key(test.as_str()));
    for test in out {
        done(&test, Verdict::NotRun(format!("excluded: {}", excluded[test.as_str()])), Duration::ZERO)?;
    }
    while !tests.is_empty() {
        tests = check::run(&suite, &tests, limit, &mut done)?;
    }
    for (reason, tests) in &not_run {
        println!("not run, {}: {} ({})", tests.len(), reason, tests.join(" "));
    }
    let count: usize = not_run.values().map(Vec::len).sum();
    println!("xfstests: {passed} passed, {count} not run, {} failed: {}", failed.len(), failed.join(" "));
    suite.finish()?;
    if !failed.is_empty() {
        bail!("{} tests failed", failed.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exclusion_has_a_reason() {
        let lines = EXCLUDED.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
        let excluded = excluded();
        assert_eq!(excluded.len(), lines, "each line is a test, white space and a reason, and no test is there twice");
        assert!(excluded.iter().all(|(test, reason)| test.starts_with("generic/") && reason.len() > 10), "{excluded:?}");
    }
}
