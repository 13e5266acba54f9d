//! `cargo xtask pjdfstest`: the POSIX test suite on a fresh pool and on a fresh ext4, and what they differ in.
//!
//! # Theory
//! The suite (`cargo install pjdfstest`) has some four hundred small tests and knows nothing of file systems. What it expects
//! is not always what Linux does; so ext4 on the same kernel is the measure, and what is asked of us is that every test that
//! passes there passes here. It runs as root and slips into two users, for which any two that every system has will do.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use lab::comparator::{Attempt, Setup, prepare};
use lab::process;

const IMAGE_BYTES: u64 = 512 << 20;
/// Linux has no `chflags` and `stat` no birth time; NFSv4 lists are not what the mount offers.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = true
[dummy_auth]
entries = [["nobody", "nogroup"], ["games", "games"]]
"#;
/// The suite remounts with `mount`, which for our mounts would look for a helper program; the kernel can do it alone.
const MOUNT_WITHOUT_HELPER: &str = "#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin exec mount -i \"$@\"\n";

/// Outcome by test: `ok`, `FAILED`, `skipped`, and what was said.
type Outcomes = BTreeMap<String, (String, String)>;

/// Runs the suite on the file systems named, and compares the first with the second.
pub(crate) fn run(only: Option<&str>) -> Result<()> {
    let suite = suite()?;
    let names: Vec<&str> = match only {
        Some(name) => vec![name],
        None => vec!["tarn", "ext4"],
    };
    let mut all = Vec::new();
    for name in names {
        let outcomes = run_on(name, &suite)?;
        let count = |wanted: &str| outcomes.values().filter(|(outcome, _)| outcome == wanted).count();
        println!("{name}: {} passed, {} failed, {} skipped", count("ok"), count("FAILED"), count("skipped"));
        all.push(outcomes);
    }
    match all.as_slice() {
        [ours, theirs] => compare(ours, theirs),
        [one] => {
            for (test, (outcome, said)) in one.iter().filter(|(_, (outcome, _))| outcome != "ok") {
                println!("{test}: {outcome}: {said}");
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn suite() -> Result<PathBuf> {
    let asked = std::env::var_os("PJDFSTEST").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo/bin/pjdfstest")).filter(|path| path.is_file());
    let found = asked.or_else(|| process::find("pjdfstest")).or(home);
    found.context("there is no pjdfstest: run `cargo install pjdfstest`, or say where it is with PJDFSTEST=PATH")
}

fn run_on(name: &str, suite: &Path) -> Result<Outcomes> {
    let scratch = tempfile::Builder::new().prefix("tarn-pjdfstest-").tempdir()?;
    let tarn = crate::mounted::tarn()?;
    // Not in the scratch directory: a socket's path may have a hundred bytes only, and the suite needs most of them.
    let setup = Setup::new(std::env::temp_dir(), IMAGE_BYTES, tarn);
    let mounted = match prepare(name, &setup)? {
        Attempt::Ready(mounted) => mounted,
        Attempt::Skipped(reason) => bail!("{name} cannot be tested: {reason}"),
    };
    // The suite's users must get in.
    let root = mounted.directory();
    let parent = root.parent().context("a mount point has a parent")?;
    fs::set_permissions(parent, Permissions::from_mode(0o755))?;
    fs::set_permissions(root, Permissions::from_mode(0o1777))?;
    let elsewhere = Path::new("/dev/shm");
    let (configuration, mount) = (scratch.path().join("pjdfstest.toml"), scratch.path().join("mount"));
    fs::write(&configuration, CONFIGURATION)?;
    fs::write(&mount, MOUNT_WITHOUT_HELPER)?;
    fs::set_permissions(&mount, Permissions::from_mode(0o755))?;
    let path = format!("{}:{}", scratch.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(suite);
    command.arg("-c").arg(&configuration).arg("-p").arg(root).env("PATH", path).env("RUST_BACKTRACE", "0");
    if lab::system::is_mount_point(elsewhere) {
        command.arg("-s").arg(elsewhere);
    }
    let output = process::output(&mut command)?;
    let outcomes = parse(&output.stdout);
    ensure!(outcomes.len() > 300, "pjdfstest ran {} tests only: {}{}", outcomes.len(), output.stdout, output.stderr);
    Ok(outcomes)
}

/// Each test is a line with its name and its outcome; what it has to say follows, indented.
fn parse(said: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let mut last: Option<String> = None;
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words.as_slice(), line.starts_with(char::is_whitespace)) {
            ([test, outcome], false) if test.contains("::") => {
                outcomes.insert((*test).to_owned(), ((*outcome).to_owned(), String::new()));
                last = Some((*test).to_owned());
            }
            (_, true) => {
                if let Some((_, said)) = last.as_ref().and_then(|test| outcomes.get_mut(test))
                    && said.is_empty()
                {
                    line.trim().clone_into(said);
                }
            }
            _ => {}
        }
    }
    outcomes
}

fn compare(ours: &Outcomes, theirs: &Outcomes) -> Result<()> {
    let missing = (String::from("not run"), String::new());
    let mut worse = 0;
    for (test, (theirs, their_words)) in theirs {
        let (ours, our_words) = ours.get(test).unwrap_or(&missing);
        if ours != theirs {
            println!("{test}: tarn {ours} ({our_words}), ext4 {theirs} ({their_words})");
        } else if ours != "ok" {
            println!("{test}: both {ours} ({our_words})");
        }
        worse += usize::from(theirs == "ok" && ours == "FAILED");
    }
    ensure!(worse == 0, "{worse} tests pass on ext4 and fail here");
    Ok(())
}
