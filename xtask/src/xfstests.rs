//! `cargo xtask xfstests`: the test suite that kernel file systems are tested with, on mounts of ours.
//!
//! # Theory
//! The suite is somebody else's and lies, built, outside of the project (`--dir`). It mounts by `mount -t fuse.tarn`, which
//! runs `/sbin/mount.fuse.tarn`, a link to `tarn`; made for the run if it is not there. Two pools serve as test and scratch device.
//! Each test runs alone and with a limit. What cannot pass is in `xfstests.exclude`, each with its reason; whatever else fails is a finding.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::mounted::tarn;
use crate::words::Words;

pub(crate) const HELP: &str = "\
cargo xtask xfstests --dir XFSTESTS [--limit SECONDS] [--group NAME] [--keep DIRECTORY] [TEST...]
                                     runs built xfstests (generic, group quick) on mounts; as root
";

const EXCLUDED: &str = include_str!("../xfstests.exclude");
const HELPER: &str = "/sbin/mount.fuse.tarn";
/// The suite asks df for the type of a mount and knows `fuse` only.
const DF: &str = "#!/bin/sh\n/bin/df \"$@\" | sed 's/fuse\\.tarn /fuse      /'\n";
const POOLS: [&str; 2] = ["xfstest", "xfscratch"];
const POOL_BYTES: u64 = 6 << 30;

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    NotRun(String),
    Failed(String),
    TimedOut,
}

struct Suite {
    suite: PathBuf,
    work: PathBuf,
    tarn: PathBuf,
    limit: Duration,
    made_helper: bool,
}

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

impl Suite {
    fn path(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    fn tarn(&self, words: &[&str]) -> Result<()> {
        let output = Command::new(&self.tarn).args(words).env("TARN_SOCKET", self.path("sock")).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "tarn {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn prepare(&mut self) -> Result<()> {
        for (pool, place) in POOLS.iter().zip(["test", "scratch"]) {
            fs::create_dir_all(self.path(place))?;
            let image = self.path(&format!("{place}.img"));
            File::create(&image)?.set_len(POOL_BYTES)?;
            self.tarn(&["zpool", "create", "-f", "-O", "mountpoint=legacy", "-O", "acltype=posix", "-O", "xattr=sa", pool, &image.display().to_string()])?;
        }
        if !Path::new(HELPER).exists() {
            std::os::unix::fs::symlink(&self.tarn, HELPER).with_context(|| HELPER)?;
            self.made_helper = true;
        }
        fs::write(self.path("config"), "")?;
        fs::create_dir_all(self.path("bin"))?;
        fs::write(self.path("bin/df"), DF)?;
        fs::set_permissions(self.path("bin/df"), fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    fn run(&self, test: &str) -> Result<Verdict> {
        let results = self.path("results");
        let text = File::create(self.path("output"))?;
        let mut command = Command::new("./check");
        command.arg(test).current_dir(&self.suite).process_group(0);
        command.stdin(Stdio::null()).stdout(text.try_clone()?).stderr(text);
        command.envs([("FSTYP", "fuse"), ("FUSE_SUBTYP", ".tarn"), ("TEST_DEV", POOLS[0]), ("SCRATCH_DEV", POOLS[1]), ("MOUNT_OPTIONS", "-orw")]);
        for (name, place) in [("TEST_DIR", "test"), ("SCRATCH_MNT", "scratch"), ("RESULT_BASE", "results"), ("HOST_OPTIONS", "config"), ("TARN_SOCKET", "sock")] {
            command.env(name, self.path(place));
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        let mut child = command.spawn().context("./check cannot be run")?;
        let begin = Instant::now();
        while child.try_wait()?.is_none() {
            if begin.elapsed() > self.limit {
                let group = format!("-{}", child.id());
                let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                child.wait()?;
                self.clear_mounts();
                return Ok(Verdict::TimedOut);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let result = |kind: &str| fs::read_to_string(results.join(format!("{test}.{kind}")));
        let said = fs::read_to_string(self.path("output"))?;
        Ok(match result("notrun") {
            Ok(reason) => Verdict::NotRun(reason.trim().to_owned()),
            Err(_) if said.contains("Passed all 1 tests") => Verdict::Passed,
            Err(_) => Verdict::Failed(said),
        })
    }

    /// After a test that was killed.
    fn clear_mounts(&self) {
        for place in ["scratch", "test"] {
            let _ = Command::new("umount").arg("-l").arg(self.path(place)).stderr(Stdio::null()).status();
        }
    }
}

impl Drop for Suite {
    fn drop(&mut self) {
        self.clear_mounts();
        for pool in POOLS {
            let _ = self.tarn(&["zpool", "export", "-f", pool]);
        }
        if self.made_helper {
            let _ = fs::remove_file(HELPER);
        }
    }
}

pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let mut words = Words::new(arguments);
    let suite = PathBuf::from(words.value("--dir")?.context("--dir says where built xfstests are")?);
    let limit = Duration::from_secs(words.number("--limit")?.unwrap_or(120));
    let group = words.value("--group")?.unwrap_or("quick");
    let work = words.value("--keep")?.map_or_else(|| std::env::temp_dir().join(format!("tarn-xfstests-{}", std::process::id())), PathBuf::from);
    let mut tests: Vec<String> = words.rest().into_iter().map(str::to_owned).collect();
    let named = !tests.is_empty();
    if !named {
        tests = tests_of(&suite, group)?;
    }
    fs::create_dir_all(&work)?;
    let mut suite = Suite { suite, work, tarn: tarn()?, limit, made_helper: false };
    suite.prepare()?;
    let excluded = excluded();
    let (mut passed, mut failed) = (0, Vec::new());
    let mut not_run: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in tests {
        if let (false, Some(reason)) = (named, excluded.get(test.as_str())) {
            not_run.entry(format!("excluded: {reason}")).or_default().push(test);
            continue;
        }
        match suite.run(&test)? {
            Verdict::Passed => passed += 1,
            Verdict::NotRun(reason) => not_run.entry(reason).or_default().push(test),
            Verdict::TimedOut => {
                println!("{test}: not done in {} s", suite.limit.as_secs());
                failed.push(test);
            }
            Verdict::Failed(said) => {
                println!("{test}: failed\n{said}");
                failed.push(test);
            }
        }
    }
    for (reason, tests) in &not_run {
        println!("not run, {}: {} ({})", tests.len(), reason, tests.join(" "));
    }
    let count: usize = not_run.values().map(Vec::len).sum();
    println!("xfstests: {passed} passed, {count} not run, {} failed: {}", failed.len(), failed.join(" "));
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
