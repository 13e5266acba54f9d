//! Ctrl-C at any moment, on any file system, in any workload: nothing stays mounted, no loop device, no file, no process.
#![allow(clippy::disallowed_methods)] // real processes and clocks are what is tested

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{assert_nothing_is_left, names_in, scratch, tarn};
use lab::record::Record;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process, set_child_subreaper};

/// All that can be made here; `.` is a directory.
const SYSTEMS: [&str; 8] = ["tarn", "tarn-embedded", "fuse-ceiling", "ext4", "xfs", "btrfs", "zfs-fuse", "."];
/// Small, each so that a round takes a second or so.
const WORKLOADS: [(&str, &[&str]); 20] = [
    ("unit01", &[]),
    ("unit02", &[]),
    ("unit05", &["unit05.bytes=33554432"]),
    ("unit11", &["unit11.file=8388608"]),
    ("sync-sweep", &["sync-sweep.to=8", "sync-sweep.seconds=60"]),
    ("fio-mixed", &["fio-mixed.size=8388608", "fio-mixed.seconds=60"]),
    ("log-beside", &["log-beside.log=8388608", "log-beside.bulk=67108864", "log-beside.seconds=60"]),
    ("dd", &["dd.megabytes=64"]),
    ("bonnie++", &["bonnie++.megabytes=16", "bonnie++.memory=8", "bonnie++.files=1"]),
    ("postmark", &[]),
    ("varmail", &["varmail.files=50"]),
    ("fileserver", &["fileserver.files=50"]),
    ("videoserver", &["videoserver.size=1048576"]),
    ("oltp", &["oltp.size=1048576", "oltp.log=1048576"]),
    ("bringover", &["bringover.delay=1"]),
    ("nightly", &["nightly.delay=1", "nightly.trials=2"]),
    ("mail", &["mail.messages=50"]),
    ("images", &["images.files=200", "images.steps=2"]),
    ("metadata", &["metadata.files=500", "metadata.to=4"]),
    ("growth", &["growth.from=100", "growth.to=1000", "growth.sample=100"]),
];

/// Processes whose parent this is: what lost its own parent as well, as it was asked for.
fn children() -> BTreeSet<i32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<i32>>()).collect()
}

/// Waits for those that have ended, and says which have not.
fn orphans(patience: Duration) -> BTreeSet<i32> {
    let began = Instant::now();
    loop {
        while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
        let left = children();
        if left.is_empty() || began.elapsed() > patience {
            return left;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn names(processes: &BTreeSet<i32>) -> Vec<String> {
    processes.iter().map(|process| fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default()).collect()
}

/// A tree that takes some seconds to build, and can be stopped anywhere in it.
fn repository(directory: &Path) {
    fs::create_dir(directory).unwrap();
    let makefile =
        "all: 1 2 3 4\n1 2 3 4:\n\tfor i in 1 2 3 4 5 6; do head -c 100000 /dev/urandom > $@.$$i; sleep 0.1; done; touch $@\n";
    fs::write(directory.join("Makefile"), makefile).unwrap();
    let named = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"];
    for words in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "all"]] {
        lab::process::succeed(lab::process::command("git").arg("-C").arg(directory).args(named).args(words)).unwrap();
    }
}

/// Some of `all`, at least one.
fn some<T: Copy>(random: &mut ChaCha8Rng, all: &[T], most: usize) -> Vec<T> {
    let count = random.random_range(1..=most);
    all.choose_multiple(random, count).copied().collect()
}

struct Case {
    command: Command,
    words: String,
    delay: Duration,
    signal: Signal,
}

fn case(random: &mut ChaCha8Rng, place: &Path, tree: &Path, tarn: &Path) -> Case {
    let mut systems = some(random, &SYSTEMS, 3);
    if systems == ["tarn-embedded"] {
        // Without a mount most of them are left out.
        systems.push("tarn");
    }
    let workloads = some(random, &WORKLOADS, 3);
    let mut words: Vec<String> = vec!["run".to_owned()];
    words.extend(workloads.iter().map(|(name, _)| (*name).to_owned()));
    let on: Vec<String> =
        systems.iter().map(|name| if *name == "." { place.display().to_string() } else { (*name).to_owned() }).collect();
    words.extend(["--on".to_owned(), on.join(",")]);
    for setting in workloads.iter().flat_map(|(_, settings)| settings.iter()) {
        words.extend(["--set".to_owned(), (*setting).to_owned()]);
    }
    for word in ["--scale", "60", "--rounds", "50", "--image", "512", "--watch", "/dev/null", "--build", "make -s"] {
        words.push(word.to_owned());
    }
    if random.random_bool(0.25) && systems != ["."] {
        words.extend(["--disk".to_owned(), "sata-7200".to_owned()]);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_fsperf"));
    command.args(&words).arg("--in").arg(place).arg("--tree").arg(tree).arg("--tarn").arg(tarn);
    command.arg("-o").arg(place.with_file_name("results.json"));
    // Half of them while all is made and taken down, half in the midst of it.
    let most = if random.random_bool(0.5) { 2_500 } else { 15_000 };
    Case {
        command,
        words: words.join(" "),
        delay: Duration::from_millis(random.random_range(20..most)),
        signal: *[Signal::INT, Signal::INT, Signal::INT, Signal::TERM, Signal::HUP].choose(random).unwrap(),
    }
}

/// What the test below looks for can be found.
#[test]
fn a_process_that_was_left_behind_is_found() {
    set_child_subreaper(Pid::from_raw(1)).unwrap();
    Command::new("sh").args(["-c", "sleep 3 & exit"]).status().unwrap();
    assert_eq!(names(&orphans(Duration::from_millis(300))), ["sleep\n"]);
    assert_eq!(orphans(Duration::from_secs(30)), BTreeSet::new());
}

/// `INTERRUPTIONS=n SEED=s cargo test -p lab --test interruptions -- --ignored --nocapture`
#[test]
#[ignore = "minutes, as root"]
fn at_random_moments_nothing_is_left_behind() {
    let Some(tarn) = tarn("interruptions at random moments") else { return };
    let number = |name: &str, otherwise: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (count, seed) = (number("INTERRUPTIONS", 20), number("SEED", u64::from(std::process::id())));
    eprintln!("SEED={seed}");
    set_child_subreaper(Pid::from_raw(1)).unwrap();
    let scratch = scratch();
    let (place, tree) = (scratch.path().join("place"), scratch.path().join("tree"));
    repository(&tree);
    for turn in 0..count {
        let mut random = ChaCha8Rng::seed_from_u64(seed.wrapping_add(turn));
        fs::create_dir(&place).unwrap();
        let Case { mut command, words, delay, signal } = case(&mut random, &place, &tree, &tarn);
        let (stdout, stderr) = (tempfile::tempfile().unwrap(), tempfile::NamedTempFile::new().unwrap());
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr.reopen().unwrap()).process_group(0);
        let mut child = command.spawn().unwrap();
        std::thread::sleep(delay);
        let _ = kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal);
        let began = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None => {
                    assert!(began.elapsed() < Duration::from_secs(240), "SEED={} {words}: does not end", seed.wrapping_add(turn));
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let said = fs::read_to_string(stderr.path()).unwrap();
        eprintln!("{turn}: {signal:?} after {delay:?}: {status}, {:?} later: {words}", began.elapsed());
        let context = format!("SEED={} INTERRUPTIONS=1: {words}\n{said}", seed.wrapping_add(turn));
        // In its first moments it does not listen yet, and has made nothing.
        assert!(status.code().is_none_or(|code| code == 130), "{status}: {context}");
        assert!(!said.contains("warning") && !said.contains("panicked"), "{context}");
        let left = orphans(Duration::from_secs(10));
        assert!(left.is_empty(), "{:?} left: {context}", names(&left));
        assert_nothing_is_left(&place);
        let results = scratch.path().join("results.json");
        if results.exists() {
            assert!(Record::load(&results).unwrap().interrupted, "{context}");
            fs::remove_file(&results).unwrap();
        }
        assert_eq!(names_in(scratch.path()), ["place", "tree"]);
        fs::remove_dir(&place).unwrap();
    }
}
