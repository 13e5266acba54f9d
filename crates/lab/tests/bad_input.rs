//! `fsperf` when things are not as they should be: a clear line, an exit status, and nothing left behind.
#![allow(clippy::disallowed_methods)] // real processes and clocks are what is tested

mod common;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{assert_nothing_is_left, fsperf, names_in, said, scratch, tarn};
use lab::record::Record;
use rustix::process::{Pid, Signal, kill_process};

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
    let same = format!("{directory},{directory}/../{}", scratch.path().file_name().unwrap().to_str().unwrap());
    refuses(&["run", "unit01", "--on", &same], "is there twice");
    for (scale, reason) in
        [("0", "--scale is at least 1"), ("3/0", "invalid value '3/0'"), ("-2", "'-2'"), ("1.5", "invalid value '1.5'")]
    {
        refuses(&["run", "unit01", "--on", directory, "--scale", scale], reason);
    }
    // More rounds than 32 bits count, times two, were a panic, or in a release build hardly any rounds.
    for (option, number, reason) in [
        ("--rounds", "0", "0 is not in 1..=100000"),
        ("--rounds", "4294967295", "4294967295 is not in 1..=100000"),
        ("--warm-up", "4294967295", "4294967295 is not in 0..=100000"),
        ("--disks", "2,2", "--disks: 2 is there twice"),
    ] {
        refuses(&["run", "unit01", "--on", "tarn", "--in", directory, "--image", "64", option, number], reason);
    }
    // What has no effect was taken without a word: no disk is simulated below a directory.
    for (option, value) in [("--disk", "sata-7200"), ("--disks", "2"), ("-O", "recordsize=8k")] {
        refuses(
            &["run", "unit01", "--on", directory, option, value],
            "is for file systems that fsperf makes, and there are only directories here",
        );
    }
    refuses(&["run", "unit01", "--on", &format!("{directory},")], "--on: there is an empty name; a comma too many?");
    refuses(&["run", "unit01", "--on", "tarn", "--in", directory, "--image", "0"], "invalid value '0' for '--image <MB>'");
    refuses(&["unit", "--only", "8", "--on", directory, "--memory", "0"], "invalid value '0' for '--memory <MB>'");
    refuses(&["man", "/proc/version/man"], "cannot write into /proc/version/man: Not a directory");
    refuses(&["run", "unit01", "--on", "/proc"], "cannot make a directory in /proc");
    refuses(&["run", "nightly", "--on", directory, "--tree", directory], "is no git repository");
    refuses(
        &["run", "unit01", "--on", "tarn", "--in", directory, "--image", "64", "--disk", "floppy"],
        "--disk floppy: there are scsi-9g",
    );
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
    for (contents, reason) in [("", "no JSON, or not all of it"), ("{\"format\": \"fsperf-res", "no JSON, or not all of it")] {
        fs::write(&broken, contents).unwrap();
        refuses(&["report", broken.to_str().unwrap()], reason);
        refuses(&["compare", broken.to_str().unwrap(), broken.to_str().unwrap()], reason);
    }
    refuses(&["report", directory], "Is a directory");
    refuses(&["report", "/no/such.json"], "cannot read /no/such.json: No such file");
    fs::remove_file(&broken).unwrap();
    // Before a night of measuring, not after it.
    refuses(&["run", "all", "--on", directory, "-o", "/no/such/results.json"], "cannot write /no/such/results.json");
    refuses(&["run", "all", "--on", directory, "-o", directory], "it is a directory");
    assert_eq!(names_in(scratch.path()), Vec::<String>::new());
}

/// These said "No such file or directory" of nothing in particular, "failed to fill whole buffer" of an empty file, and 0.0 of a measurement of 0 s.
#[test]
fn what_is_wrong_with_a_simulated_disk_is_named() {
    if !rustix::process::geteuid().is_root() {
        sim::places::skipped("simulated disks: they take root");
        return;
    }
    let scratch = scratch();
    let empty = scratch.path().join("empty");
    fs::write(&empty, "").unwrap();
    let empty = empty.to_str().unwrap();
    refuses(&["disk", "serve", "nvme", "/no/such/file"], "cannot make /no/such/file: No such file");
    refuses(&["disk", "serve", "nvme", empty], &format!("{empty} has 0 bytes, and a disk has 1048576 at least"));
    refuses(&["disk", "serve", "nvme", "/no/such/file", "--size", "0"], "invalid value '0' for '--size <MB>'");
    refuses(&["disk", "check", "nvme", "--in", "/no/such"], "--in /no/such: No such file");
    refuses(&["disk", "check", "nvme", "--seconds", "0"], "invalid value '0' for '--seconds <SECONDS>'");
}

/// `fsperf list | head -1` panicked when `head` went away. A program that prints ends quietly then; a full disk is reported.
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let scratch = scratch();
    let results = scratch.path().join("results.json");
    let run = [
        "run",
        "metadata",
        "--on",
        scratch.path().to_str().unwrap(),
        "--rounds",
        "1",
        "--set",
        "metadata.to=1",
        "--set",
        "metadata.files=16",
        "-o",
    ];
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let results = results.to_str().unwrap();
    let commands = [
        &["list"][..],
        &["disk", "list"],
        &["man"],
        &["completion", "bash"],
        &["--help"],
        &[&run[..], &[results]].concat(),
        &["report", results],
    ];
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

/// fsperf where `prepare` has been done to the mounts, of which it has its own.
fn elsewhere(prepare: &str, words: &[&str]) -> Output {
    // Mounts of other tests would live on in here.
    let others = r#"awk '$5 ~ /^\/(dev\/shm|tmp|var\/tmp)\//{print $5}' /proc/self/mountinfo | while read it; do umount -l "$it" 2> /dev/null; done"#;
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &format!("{others}\n{prepare}\nexec \"$@\""), "sh", env!("CARGO_BIN_EXE_fsperf")])
        .args(words);
    command.stdin(Stdio::null()).output().unwrap()
}

/// What has to be installed for it is said; what does not need it is measured.
#[test]
fn a_tool_that_is_not_there_is_named_with_its_package() {
    if tarn("tools that are missing").is_none() || lab::process::find("unshare").is_none() {
        return;
    }
    let scratch = scratch();
    let work = scratch.path().join("work");
    fs::create_dir(&work).unwrap();
    let (place, work) = (scratch.path().to_str().unwrap(), work.to_str().unwrap());
    for (tool, run, package) in [
        ("fio", &["sync-sweep", "unit02", "--on", work][..], "left out: sync-sweep: fio is not installed (apt-get install fio)"),
        ("fio", &["fio-mixed", "unit02", "--on", work], "left out: fio-mixed: fio is not installed (apt-get install fio)"),
        (
            "bonnie++",
            &["bonnie++", "unit02", "--on", work],
            "left out: bonnie++: bonnie++ is not installed (apt-get install bonnie++)",
        ),
        ("git", &["nightly", "unit02", "--on", work], "left out: nightly: git is not installed (apt-get install git)"),
        (
            "mkfs.xfs",
            &["unit02", "--on", "xfs", "--on", work],
            "left out: xfs: mkfs.xfs is not installed (apt-get install xfsprogs)",
        ),
        (
            "mkfs.btrfs",
            &["unit02", "--on", "btrfs", "--on", work],
            "left out: btrfs: mkfs.btrfs is not installed (apt-get install btrfs-progs)",
        ),
        (
            "zfs-fuse",
            &["unit02", "--on", "zfs-fuse", "--on", work],
            "left out: zfs-fuse: zfs-fuse is not installed (apt-get install zfs-fuse)",
        ),
    ] {
        let words = ["run", "--rounds", "1", "--scale", "1000", "--image", "350", "--in", place, "--csv"];
        let hide = lab::process::find(tool).map_or_else(String::new, |path| format!("mount --bind /dev/null {}", path.display()));
        let output = elsewhere(&hide, &[&words[..], run].concat());
        assert!(output.status.success(), "{tool}: {}", said(&output));
        assert_eq!(said(&output).trim(), package);
        let csv = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(csv.lines().count() == 6 && csv.contains("unit02,") && csv.contains("p99.9"), "figures alone: {csv}");
        assert_nothing_is_left(scratch.path().join("work").as_path());
        assert_eq!(names_in(scratch.path()), ["work"]);
    }
}

/// As in a container that was given neither loop devices nor FUSE: a line for each, and what can be measured is.
#[test]
fn without_devices_what_takes_them_is_left_out() {
    let Some(tarn) = tarn("a machine without devices") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().to_str().unwrap();
    let words =
        ["run", "unit02", "--rounds", "1", "--scale", "1000", "--image", "128", "--in", place, "--tarn", tarn.to_str().unwrap()];
    let on = format!("ext4,tarn,fuse-ceiling,zfs-fuse,tarn-embedded,{place}");
    let output = elsewhere("mount -t tmpfs none /dev; mknod /dev/null c 1 3", &[&words[..], &["--on", &on]].concat());
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for (left_out, why) in
        [("ext4", "no loop device (modprobe loop; "), ("tarn", "there is no /dev/fuse (modprobe fuse; "), ("fuse-ceiling", "there is no /dev/fuse (modprobe fuse; "), ("zfs-fuse", "")]
    {
        let lines = text.lines().filter(|line| line.starts_with(&format!("left out: {left_out}: {why}")));
        assert_eq!(lines.count(), 1, "{left_out}: {text}");
    }
    assert_eq!(text.lines().count(), 4, "{text}");
    assert_eq!(names_in(scratch.path()), Vec::<String>::new());
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

/// The same with mounts, loop devices and a daemon, while they are made, used and taken down.
#[test]
fn an_interruption_takes_down_what_is_mounted() {
    let Some(tarn) = tarn("an interruption of a run on mounts") else { return };
    for milliseconds in [250, 1500] {
        let scratch = scratch();
        let place = scratch.path().to_str().unwrap();
        let words = [
            "run",
            "unit02",
            "metadata",
            "--on",
            "tarn,ext4",
            "--in",
            place,
            "--image",
            "128",
            "--scale",
            "50",
            "--rounds",
            "500",
        ];
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
    // One figure of unit03 and ten of metadata, four percentiles of a call and of each of eight phases, seven rounds of all, and the head.
    assert_eq!(csv.lines().count(), 1 + (11 + 4 * 9) * 7, "{csv}");
    assert!(run(&["compare", &results, &results]).contains("20 figures: 0 better, 0 worse"));
    let other = path("other.json");
    run(&["run", "unit02", "--on", &work, "--scale", "1000", "-o", &other]);
    refuses(&["compare", &results, &other], "the two runs have no figure in common");
    assert_eq!(names_in(Path::new(&work)), Vec::<String>::new());
}

/// A report on a full disk left an empty page where a good one had been; a run lost its results; what --watch could not keep was not told.
#[test]
fn a_full_disk_costs_nothing_that_was_there() {
    if !rustix::process::geteuid().is_root() || lab::process::find("unshare").is_none() {
        sim::places::skipped("a full disk: a file system of its own takes root and unshare");
        return;
    }
    let scratch = scratch();
    let script = r#"
        set -e; cd "$2"; mkdir full work temporary; mount -t tmpfs -o size=256k none full; export TMPDIR=$2/temporary
        run() { "$1" run metadata --on work --rounds 1 --set metadata.files=16 --set metadata.to=1 $2; }
        run "$1" "-o results.json" > /dev/null
        echo good > full/page.html; head -c 1M /dev/zero > full/rest 2> /dev/null || true
        "$1" report results.json -o full/page.html && exit 9
        cat full/page.html
        : > full/rest; run "$1" "-o full/new.json --watch /dev/full" > /dev/null
        head -c 1M /dev/zero > full/rest 2> /dev/null || true
        : > full/one; run "$1" "-o full/new2.json" > /dev/null && exit 9
        ls temporary"#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_fsperf")]).arg(scratch.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (text, told) = (String::from_utf8_lossy(&output.stdout).into_owned(), said(&output));
    assert!(output.status.success(), "{}: {text}{told}", output.status);
    assert!(told.contains("cannot write full/page.html: No space left on device"), "{told}");
    assert!(told.contains("--watch: nothing more is kept: No space left on device"), "{told}");
    let [good, kept] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}{told}") };
    assert!(good == "good" && kept.starts_with("fsperf-") && kept.ends_with(".json"), "{text}");
    let kept = scratch.path().join("temporary").join(kept);
    assert!(told.contains(&format!("the results are in {}", kept.display())), "{told}");
    assert_eq!(Record::load(&kept).unwrap().workloads.len(), 1);
}

/// It ended as if all were well, with nothing said and nothing measured.
#[test]
fn what_takes_a_mount_is_left_out_aloud_where_there_is_none() {
    let scratch = scratch();
    let place = scratch.path().to_str().unwrap();
    refuses(
        &["run", "metadata", "--on", "tarn-embedded", "--in", place, "--image", "128"],
        "left out: metadata on tarn-embedded: it takes a mount",
    );
    refuses(&["run", "metadata", "--on", "tarn-embedded", "--in", place, "--image", "128"], "nothing was measured");
    assert_eq!(names_in(scratch.path()), Vec::<String>::new());
}
