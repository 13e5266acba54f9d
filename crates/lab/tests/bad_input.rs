//! `fsperf` when things are not as they should be: a clear line, an exit status, and nothing left behind.
#![allow(clippy::disallowed_methods)] // real processes and clocks are what is tested

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lab::record::Record;
use sim::places::skipped;
use rustix::process::{Pid, Signal, kill_process};

fn fsperf(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fsperf"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory for everyone; in memory, if it can be: on a disk that is busy with other things each sync takes seconds.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let scratch = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    scratch
}

fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[track_caller]
fn refuses(words: &[&str], reason: &str) {
    let output = fsperf(words).output().unwrap();
    assert!(!output.status.success(), "{words:?}");
    assert!(said(&output).contains(reason), "{words:?}: {}", said(&output));
}

#[test]
fn what_is_wrong_is_said_before_anything_is_made() {
    let scratch = scratch();
    let directory = scratch.path().to_str().unwrap();
    refuses(&["run", "unit99", "--on", directory], "there is no workload unit99");
    refuses(&["run", "unit01", "--on", "minix"], "--on minix: neither a directory nor a file system that fsperf can make");
    refuses(&["run", "unit01", "--on", "tarn,tarn"], "tarn is there twice");
    refuses(&["run", "unit01", "--on", directory, "--disk", "floppy"], "--disk floppy: there are scsi-9g");
    refuses(&["run", "unit01", "--on", directory, "--set", "unit01.bytes=many"], "many is no number");
    refuses(&["run", "unit01", "--on", directory, "--in", "/no/such"], "--in /no/such");
    refuses(&["run", "unit01", "--on", "tarn", "--in", directory, "--image", "999999999"], "--scale makes the work smaller");
    refuses(
        &["run", "unit01", "--on", "tarn", "--in", directory, "--image", "64", "--tarn", "/no/such"],
        "left out: tarn: there is no /no/such",
    );
    let broken = scratch.path().join("results.json");
    fs::write(&broken, "{}").unwrap();
    refuses(&["report", broken.to_str().unwrap()], "no results of fsperf");
    fs::write(&broken, r#"{"format": "fsperf-results", "version": 2, "program": "fsperf 7"}"#).unwrap();
    refuses(
        &["compare", broken.to_str().unwrap(), broken.to_str().unwrap()],
        "results of version 2, and this fsperf reads version 1",
    );
    fs::remove_file(&broken).unwrap();
    assert_eq!(names_in(scratch.path()), Vec::<String>::new());
}

/// `fsperf list | head -1` panicked when `head` went away. Whoever prints ends quietly then; a full disk is told.
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let scratch = scratch();
    let results = scratch.path().join("results.json");
    let run = ["run", "metadata", "--on", scratch.path().to_str().unwrap(), "--rounds", "1", "--set", "metadata.to=1", "--set", "metadata.files=16", "-o"];
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let results = results.to_str().unwrap();
    let commands = [&["list"][..], &["disk", "list"], &["man"], &["completion", "bash"], &["--help"], &[&run[..], &[results]].concat(), &["report", results]];
    for words in commands {
        let output = fsperf(words).stdout(closed()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {:?}, {}", output.status, said(&output));
        assert!(!said(&output).contains("panicked"), "{words:?}: {}", said(&output));
    }
    assert_eq!(Record::load(Path::new(results)).unwrap().workloads.len(), 1, "measured all the same");
    // Neither is one of the complaints.
    let status = fsperf(&["run", "unit99", "--on", "/"]).stderr(closed()).output().unwrap().status;
    assert_eq!(status.code(), Some(1));
    for words in [&["list"][..], &["report", results]] {
        let output = fsperf(words).stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains("cannot write the output: No space left on device"), "{words:?}: {}", said(&output));
    }
}

#[test]
fn without_root_what_takes_root_is_left_out() {
    let scratch = scratch();
    let mut command =
        fsperf(&["run", "unit01", "--on", "ext4,zfs-fuse", "--image", "64", "--in", scratch.path().to_str().unwrap()]);
    if rustix::process::geteuid().is_root() {
        // The program may lie where only root may look.
        let program = scratch.path().join("fsperf");
        fs::copy(env!("CARGO_BIN_EXE_fsperf"), &program).unwrap();
        command = Command::new(program);
        command
            .args(["run", "unit01", "--on", "ext4,zfs-fuse", "--image", "64", "--in", scratch.path().to_str().unwrap()])
            .uid(65_534)
            .gid(65_534);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    let text = said(&output);
    assert!(
        text.contains("left out: ext4: mounting a loop device takes root") && text.contains("nothing is left to measure"),
        "{text}"
    );
}

#[test]
fn a_tool_that_is_not_there_is_named_with_its_package() {
    let scratch = scratch();
    // The administrator's directories are looked into in any case; where the tool is in them there is nothing to show.
    if Path::new("/usr/sbin/bonnie++").exists() {
        skipped("the message for a missing tool: bonnie++ is installed");
        return;
    }
    refuses(
        &["run", "bonnie++", "--on", scratch.path().to_str().unwrap()],
        "left out: bonnie++: bonnie++ is not installed (apt-get install bonnie++)",
    );
}

/// Ctrl-C, whenever it comes: what was made is gone, what was measured is kept.
#[test]
fn an_interruption_leaves_nothing_behind() {
    for milliseconds in [30, 400, 1500] {
        let scratch = scratch();
        let (work, results) = (scratch.path().join("work"), scratch.path().join("results.json"));
        fs::create_dir(&work).unwrap();
        let words = [
            "run",
            "unit01",
            "postmark",
            "--on",
            work.to_str().unwrap(),
            "--rounds",
            "500",
            "--scale",
            "200",
            "-o",
            results.to_str().unwrap(),
        ];
        let child = fsperf(&words).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        let process = Pid::from_raw(child.id().cast_signed()).unwrap();
        let _ = kill_process(process, Signal::INT);
        let began = Instant::now();
        let output = child.wait_with_output().unwrap();
        assert!(began.elapsed() < Duration::from_secs(60));
        // In its first moments it does not listen yet, and has made nothing.
        if output.status.code().is_some() {
            assert_eq!(output.status.code(), Some(130), "{}", said(&output));
            assert!(said(&output).contains("interrupted"), "{}", said(&output));
        }
        assert_eq!(names_in(&work), Vec::<String>::new());
        if results.exists() {
            assert!(Record::load(&results).unwrap().interrupted);
        }
    }
}

/// `tarn` beside the program that is tested, where things can be mounted.
fn tarn(what: &str) -> Option<std::path::PathBuf> {
    let tarn = Path::new(env!("CARGO_BIN_EXE_fsperf")).with_file_name("tarn");
    let why = match () {
        () if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() => "mounting takes root and /dev/fuse",
        () if !tarn.exists() => "tarn has not been built (cargo build -p cli)",
        () => return Some(tarn),
    };
    skipped(&format!("{what}: {why}"));
    None
}

/// The loop devices that lie on something below `directory`.
fn loop_devices(directory: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.path().join("loop/backing_file"));
    let files = devices.filter_map(|file| fs::read_to_string(file).ok());
    files.filter(|file| file.starts_with(directory.to_str().unwrap())).collect()
}

#[track_caller]
fn assert_nothing_is_left(place: &Path) {
    let mounted: Vec<_> = lab::system::mounts().into_iter().filter(|mount| mount.directory.starts_with(place)).collect();
    assert!(mounted.is_empty(), "{mounted:?}");
    assert_eq!(loop_devices(place), Vec::<String>::new());
    assert_eq!(names_in(place), Vec::<String>::new());
    let daemon = |entry: fs::DirEntry| {
        // Of no other process: to read its environment may take as long as somebody holds the lock of its memory, minutes even.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let environment = if name.trim() == "tarn" { fs::read(entry.path().join("environ")).unwrap_or_default() } else { Vec::new() };
        String::from_utf8_lossy(&environment).contains(place.to_str().unwrap())
    };
    let daemons = || fs::read_dir("/proc").unwrap().flatten().any(daemon);
    let began = Instant::now();
    while daemons() {
        assert!(began.elapsed() < Duration::from_secs(10), "a process with {} in its environment lives on", place.display());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The same with mounts, loop devices and a daemon, while they are made, used and taken down.
#[test]
fn an_interruption_takes_down_what_is_mounted() {
    let Some(tarn) = tarn("an interruption of a run on mounts") else { return };
    for milliseconds in [250, 1500] {
        let scratch = scratch();
        let place = scratch.path().to_str().unwrap();
        let words = ["run", "unit02", "metadata", "--on", "tarn,ext4", "--in", place, "--image", "128", "--scale", "50", "--rounds", "500"];
        let child = fsperf(&words).arg("--tarn").arg(&tarn).arg("--watch").arg("/dev/null").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        let _ = kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), Signal::INT);
        let output = child.wait_with_output().unwrap();
        if output.status.code().is_some() {
            assert_eq!(output.status.code(), Some(130), "after {milliseconds} ms: {}", said(&output));
        }
        assert_nothing_is_left(scratch.path());
    }
}

/// Its daemon is killed in the middle: a line, an exit status, figures of the others, nothing left, and never figures of what lay
/// below its mount.
#[test]
fn a_file_system_that_dies_is_told_and_the_others_go_on() {
    let Some(tarn) = tarn("a file system that dies in a run") else { return };
    let scratch = scratch();
    let (place, results) = (scratch.path().join("place"), scratch.path().join("results.json"));
    fs::create_dir(&place).unwrap();
    let words = ["run", "metadata", "unit02", "--scale", "50", "--image", "128", "--set", "metadata.to=2"];
    let mut child = fsperf(&words);
    child.args(["--rounds", "4", "--on"]).arg(format!("tarn,{}", scratch.path().display())).arg("--in").arg(&place);
    let child = child.arg("--tarn").arg(&tarn).arg("-o").arg(&results).spawn().unwrap();
    let began = Instant::now();
    let daemon = loop {
        let folders = fs::read_dir(&place).unwrap().flatten().map(|entry| entry.path());
        let at_work = folders.filter(|folder| folder.join("mounted/metadata/t0").exists());
        let streams = at_work.filter_map(|folder| std::os::unix::net::UnixStream::connect(folder.join("socket")).ok());
        let peers = streams.filter_map(|stream| rustix::net::sockopt::socket_peercred(&stream).ok());
        if let Some(peer) = peers.map(|peer| peer.pid).next() {
            break peer;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no daemon came up");
        std::thread::sleep(Duration::from_millis(5));
    };
    let _ = kill_process(daemon, Signal::KILL);
    let output = child.wait_with_output().unwrap();
    let record = Record::load(&results).unwrap_or_else(|error| panic!("{error:#}: {}", said(&output)));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("on tarn: ") && said(&output).contains("the rest was measured"), "{}", said(&output));
    assert!(!record.interrupted && record.workloads.len() == 2);
    for outcome in &record.workloads {
        let [tarn, host] = outcome.columns.as_slice() else { panic!("{outcome:?}") };
        assert_eq!((host.failure.as_ref(), host.samples[0].values.len()), (None, 4), "{}", outcome.workload);
        assert!(tarn.failure.is_some(), "{}", outcome.workload);
    }
    assert!(record.workloads[1].columns[0].samples.is_empty(), "nothing is measured on what is gone");
    assert_nothing_is_left(&place);
}

/// The whole way: run, report as table, page and comma-separated values, compare.
#[test]
fn results_go_all_the_way() {
    let scratch = scratch();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("work")).unwrap();
    let (work, results, page) = (path("work"), path("results.json"), path("page.html"));
    let run = |words: &[&str]| {
        let output = fsperf(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let table = run(&["run", "unit03", "metadata", "--on", &work, "--scale", "1000", "--set", "metadata.to=2", "-o", &results]);
    assert!(table.contains("unit03 create, 1-8K writes") && table.contains("Scaled down: 1/1000"), "{table}");
    run(&["report", &results, "-o", &page, "--before", &results]);
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("unit03") && page.contains("<svg") && page.contains("+0.0 %"));
    run(&["report", &results, "--findings", &path("findings")]);
    assert_eq!(names_in(Path::new(&path("findings"))), ["README.md", "index.html", "results.json"]);
    let csv = run(&["report", &results, "--csv"]);
    // One figure of unit03 and ten of metadata, three rounds each, and the head.
    assert_eq!(csv.lines().count(), 1 + 11 * 3, "{csv}");
    assert!(run(&["compare", &results, &results]).contains("11 figures: 0 better, 0 worse"));
    assert_eq!(names_in(Path::new(&work)), Vec::<String>::new());
}
