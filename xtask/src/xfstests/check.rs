//! One run of the suite's `check`, watched: which test it is at, for how long, and what it says of each.

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::suite::Suite;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    NotRun(String),
    Failed(String),
    TimedOut,
}

impl Verdict {
    /// For the table: a word, and what is to be said to it on one line.
    pub(super) fn words(&self) -> (&'static str, String) {
        match self {
            Verdict::Passed => ("passed", String::new()),
            Verdict::NotRun(reason) => ("declined", reason.clone()),
            Verdict::Failed(said) => ("failed", said.split_whitespace().take(12).collect::<Vec<_>>().join(" ")),
            Verdict::TimedOut => ("not done", String::new()),
        }
    }

    /// What `check` said of a test, without the test's name: `8s`, `[not run] reason`, or anything else.
    fn of(said: &str) -> Verdict {
        // "12s ... " is how long it took the last time.
        let said = said.split_once("s ... ").filter(|(last, _)| last.trim().parse::<u64>().is_ok()).map_or(said, |(_, said)| said).trim();
        let seconds = said.strip_suffix('s').is_some_and(|number| number.parse::<u64>().is_ok());
        match said.split_once("[not run] ") {
            Some((_, reason)) => Verdict::NotRun(reason.split_whitespace().collect::<Vec<_>>().join(" ")),
            None if seconds => Verdict::Passed,
            None => Verdict::Failed(said.to_owned()),
        }
    }
}

/// The tests that `check` has begun, each with what it said so far. What comes before the first and after the last belongs to none.
fn parts(output: &str) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in output.lines() {
        if ["Ran: ", "Passed all ", "Failures: ", "Not run: "].iter().any(|word| line.starts_with(word)) {
            break;
        }
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if first.strip_prefix("generic/").is_some_and(|number| number.parse::<u32>().is_ok()) {
            parts.push((first.to_owned(), rest.to_owned()));
        } else if let Some((_, said)) = parts.last_mut() {
            said.push('\n');
            said.push_str(line);
        }
    }
    parts
}

/// Runs tests one after the other until one is not done within the limit, or all are. `done` hears of each, with its time.
/// What was not begun is returned.
pub(super) fn run(
    suite: &Suite,
    tests: &[String],
    limit: Duration,
    done: &mut dyn FnMut(&str, Verdict, Duration) -> Result<()>,
) -> Result<Vec<String>> {
    let path = suite.path("output");
    let text = File::create(&path)?;
    let mut command = suite.check();
    command.arg("--exact-order").args(tests).stdout(text.try_clone()?).stderr(text);
    let mut child = command.spawn().context("./check cannot be run")?;
    let (mut heard, mut begin) = (0, Instant::now());
    loop {
        let ended = child.try_wait()?.is_some();
        let output = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        let parts = parts(&output);
        let complete = if ended { parts.len() } else { parts.len().saturating_sub(1) };
        for (test, said) in &parts[heard..complete] {
            done(test, Verdict::of(said), begin.elapsed())?;
            begin = Instant::now();
        }
        heard = complete;
        if ended {
            return rest(tests, parts.last().map(|(test, _)| test), &output, done);
        }
        if begin.elapsed() > limit {
            // What a test leaves in the background has process groups of its own, but not a session.
            let _ = Command::new("pkill").args(["-KILL", "-s", &child.id().to_string()]).status();
            child.wait()?;
            suite.clear_mounts();
            let test = parts.get(heard).map_or(&tests[0], |(test, _)| test);
            done(test, Verdict::TimedOut, begin.elapsed())?;
            return rest(tests, Some(test), "", done);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The tests behind the last that was begun. If none was, the first has failed by what `check` said.
fn rest(
    tests: &[String],
    last: Option<&String>,
    output: &str,
    done: &mut dyn FnMut(&str, Verdict, Duration) -> Result<()>,
) -> Result<Vec<String>> {
    let last = match last {
        Some(last) => last,
        None => {
            done(&tests[0], Verdict::Failed(output.to_owned()), Duration::ZERO)?;
            &tests[0]
        }
    };
    let place = tests.iter().position(|test| test == last).context("check runs tests that it was not given")?;
    Ok(tests[place + 1..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_check_prints_is_understood() {
        let output = "FSTYP         -- fuse\n\
            MKFS_OPTIONS  -- xfscratch\n\n\
            generic/001 12s ...  5s\n\
            generic/002        7s\n\
            generic/003       [not run] disk quotas not supported\n by this\n\
            generic/004        [failed, exit status 1]- output mismatch (see it)\n    --- a\n    +generic/005 3s\n\
            generic/006 3s ... [not run] no\n\
            generic/007        umount: target is busy\n 4s\n\
            Ran: generic/001\nFailures: generic/004\n";
        let parts = parts(output);
        let verdicts: Vec<_> = parts.iter().map(|(test, said)| (test.as_str(), Verdict::of(said).words())).collect();
        let expected = [
            ("generic/001", ("passed", String::new())),
            ("generic/002", ("passed", String::new())),
            ("generic/003", ("declined", "disk quotas not supported by this".to_owned())),
            ("generic/004", ("failed", "[failed, exit status 1]- output mismatch (see it) --- a +generic/005 3s".to_owned())),
            ("generic/006", ("declined", "no".to_owned())),
            ("generic/007", ("failed", "umount: target is busy 4s".to_owned())),
        ];
        assert_eq!(verdicts, expected);
    }
}
