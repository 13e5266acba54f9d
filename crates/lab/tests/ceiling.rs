//! `--on fuse-ceiling`: mounted, measured, and gone, whatever happens.
#![allow(clippy::disallowed_methods)] // real processes and clocks are what is tested

mod common;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{assert_nothing_is_left, fsperf, said, scratch};
use lab::record::Record;
use rustix::process::{Pid, Signal, kill_process};
use sim::places::skipped;

fn can_mount(what: &str) -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        skipped(&format!("{what}: mounting takes root and /dev/fuse"));
    }
    can
}

const TINY: [&str; 12] = [
    "run", "unit01", "postmark", "metadata", "--on", "fuse-ceiling", "--rounds", "1", "--scale", "500", "--image", "256",
];

/// Its processor time and memory are those of its own process, and reports say that it keeps nothing.
#[test]
fn a_tiny_round_is_measured() {
    if !can_mount("a round on fuse-ceiling") {
        return;
    }
    let scratch = scratch();
    let (place, results) = (scratch.path().join("work"), scratch.path().join("results.json"));
    fs::create_dir(&place).unwrap();
    for words in ["", "writeback", "devfuse,plain", "no-opens"] {
        let output = fsperf(&TINY).arg("--in").arg(&place).arg("-o").arg(&results).env("TARN_FUSE", words).output().unwrap();
        assert!(output.status.success(), "{words}: {}", said(&output));
        let record = Record::load(&results).unwrap();
        assert!(record.systems[0].description.contains("no disk, fsync does nothing"), "{}", record.systems[0].description);
        let names: Vec<&str> = record.workloads.iter().map(|outcome| outcome.workload.as_str()).collect();
        assert_eq!(names, ["unit01", "postmark", "metadata"]);
        for outcome in &record.workloads {
            let column = &outcome.columns[0];
            assert_eq!((column.failure.as_deref(), column.samples.is_empty()), (None, false), "{words}: {}", outcome.workload);
            let cost = column.costs[0];
            assert!(cost.process_seconds.is_some() && cost.process_peak_bytes.is_some_and(|bytes| bytes > 1 << 20), "{cost:?}");
        }
        assert_nothing_is_left(&place);
    }
}

/// Its process is told by the end of a pipe: nothing else reaches it when its starter is killed.
#[test]
fn a_killed_run_leaves_no_mount() {
    if !can_mount("a killed run on fuse-ceiling") {
        return;
    }
    let scratch = scratch();
    let words = ["run", "metadata", "--on", "fuse-ceiling", "--rounds", "1000", "--scale", "100", "--in"];
    let mut run = fsperf(&words).arg(scratch.path()).process_group(0).spawn().unwrap();
    let mounts = || lab::system::mounts().into_iter().filter(|mount| mount.mount_point.starts_with(scratch.path())).count();
    let wait = |what: &str, condition: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !condition() {
            assert!(began.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait("it is not mounted", &|| mounts() == 1);
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&run), Signal::KILL).unwrap();
    run.wait().unwrap();
    wait("it stays mounted", &|| mounts() == 0);
    let serves = |entry: fs::DirEntry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(scratch.path().to_str().unwrap())
    };
    wait("its process lives on", &|| !fs::read_dir("/proc").unwrap().flatten().any(serves));
}

#[test]
fn it_has_no_disk() {
    let scratch = scratch();
    let words = ["run", "metadata", "--on", "fuse-ceiling", "--image", "64", "--disks", "2", "--in"];
    let output = fsperf(&words).arg(scratch.path()).output().unwrap();
    assert!(!output.status.success() && said(&output).contains("left out: fuse-ceiling:2: it has no disk"), "{}", said(&output));
}
