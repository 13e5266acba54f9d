//! What the workloads ask of the kernel, as strace sees it: calls, sizes, and what is made stable.
#![allow(clippy::disallowed_methods)] // real processes are what is tested

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sim::places::skipped;

/// One system call on a file of the workload.
struct Call {
    name: String,
    /// All between the brackets; a descriptor has its path behind it.
    words: String,
    result: i64,
    thread: usize,
}

impl Call {
    fn parse(thread: usize, line: &str) -> Option<Call> {
        let (call, result) = line.rsplit_once(" = ")?;
        let (name, words) = call.split_once('(')?;
        let result = result.split(['<', ' ']).next()?.parse().ok()?;
        Some(Call { name: name.to_owned(), words: words.trim_end().trim_end_matches(')').to_owned(), result, thread })
    }

    fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.name.as_str())
    }
}

const READS: [&str; 2] = ["read", "pread64"];
const WRITES: [&str; 2] = ["write", "pwrite64"];

const WHAT: &str = "file,desc,sync,syncfs,fsync,fdatasync";

/// The calls of a workload's one round that succeeded on its own directory. `None`, aloud, if strace or the tool is not here.
fn calls(workload: &str, settings: &[&str]) -> Option<Vec<Call>> {
    traced(WHAT, workload, settings)
}

fn traced(what: &str, workload: &str, settings: &[&str]) -> Option<Vec<Call>> {
    traced_with(what, workload, settings, &[])
}

/// `words` are for fsperf.
fn traced_with(what: &str, workload: &str, settings: &[&str], words: &[&str]) -> Option<Vec<Call>> {
    // In memory, if it can be: on a busy disk each sync takes seconds.
    let memory = Path::new("/dev/shm");
    let scratch = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let (work, trace, here) = (scratch.path().join("work"), scratch.path().join("trace"), scratch.path().join("here"));
    fs::create_dir(&work).unwrap();
    fs::create_dir(&here).unwrap();
    let mut command = Command::new("strace");
    // A file for each thread: no call is cut in two by another one's.
    command.args(["-ff", "-y", "-qq", "-s", "0", "-f", "--seccomp-bpf", "-e", "signal=none", "-e"]);
    command.arg(format!("trace={what}")).arg("-o").arg(&trace).arg(env!("CARGO_BIN_EXE_fsperf")).args(["run", workload, "--rounds", "1", "--on"]).arg(&work);
    for setting in settings {
        command.arg("--set").arg(format!("{workload}.{setting}"));
    }
    command.args(words);
    // The traces name the directory in which a program runs, too. What the tests look for may be in the name of the checkout: in one whose
    // name begins with an f, each call was taken for one on a file `/f...`, and a test failed. So it runs elsewhere.
    let Ok(output) = command.current_dir(&here).stdin(Stdio::null()).output() else {
        skipped(&format!("the system calls of {workload}: strace is not installed"));
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("is not installed") || said.contains("PTRACE") {
        skipped(&format!("the system calls of {workload}: {}", said.lines().next().unwrap_or_default()));
        return None;
    }
    assert!(output.status.success(), "{said}");
    let own = format!("/{workload}");
    let traces = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path()).filter(|path: &PathBuf| path.is_file());
    // Only calls within the workload's directory count. What the tests look for must not be in the name of the temporary directory, either.
    let (within, place) = (work.display().to_string(), scratch.path().display().to_string());
    let texts = traces.map(|path| fs::read_to_string(path).unwrap());
    let of_thread = |(thread, text): (usize, String)| {
        let lines = text.lines().filter(|line| line.contains(&within)).map(|line| line.replace(&place, ""));
        let calls = lines.filter(|line| line.contains(&own)).filter_map(|line| Call::parse(thread, &line));
        calls.filter(|call| call.result >= 0).collect::<Vec<_>>()
    };
    Some(texts.enumerate().flat_map(of_thread).collect())
}

/// What a personality's threads do with files, a letter for each call: Create, Open, Write, End (a read of nothing), Y (sync), X (close),
/// Delete, Stat. Of threads that make or append to none, nothing.
fn loops(calls: &[Call]) -> Vec<String> {
    let letter = |call: &Call| match call.name.as_str() {
        "openat" if call.words.contains("O_EXCL") => Some('C'),
        "openat" if call.words.contains("O_APPEND") && !call.words.contains("/log\"") => Some('O'),
        "write" => Some('W'),
        "read" if call.result == 0 => Some('E'),
        "fsync" => Some('Y'),
        "close" => Some('X'),
        "unlink" => Some('D'),
        "stat" | "newfstatat" => Some('S'),
        _ => None,
    };
    let last = calls.iter().map(|call| call.thread).max().unwrap_or(0);
    let texts = (0..=last).map(|thread| calls.iter().filter(|call| call.thread == thread).filter_map(letter).collect::<String>());
    texts.filter(|text| text.contains(['C', 'O'])).collect()
}

/// How often the threads went through `steps`, each without a deviation, the last time perhaps not to the end.
#[track_caller]
fn times(calls: &[Call], threads: usize, steps: &str) -> usize {
    let loops = loops(calls);
    assert_eq!(loops.len(), threads);
    for done in &loops {
        let expected = steps.repeat(done.len() / steps.len() + 1);
        let same = done.bytes().zip(expected.bytes()).take_while(|(one, other)| one == other).count();
        // The file that a thread had open at the end is closed.
        let done = if same + 1 == done.len() { done.strip_suffix('X').unwrap_or(done) } else { done };
        assert_eq!(same, done.len(), "...{} instead of {steps}", &done[same.saturating_sub(20)..(same + 10).min(done.len())]);
    }
    loops.iter().map(|done| done.len() / steps.len()).sum()
}

fn count(calls: &[Call], names: &[&str], word: &str) -> usize {
    calls.iter().filter(|call| call.is(names) && call.words.contains(word)).count()
}

/// How many bytes each of the calls moved.
fn sizes(calls: &[Call], names: &[&str], word: &str) -> Vec<i64> {
    calls.iter().filter(|call| call.is(names) && call.words.contains(word)).map(|call| call.result).collect()
}

/// Each message: itself, its envelope, its copy and its mailbox are made stable, in files that nobody had before.
#[test]
fn mail_is_stable_at_each_stage() {
    let Some(calls) = calls("mail", &["messages=30", "boxes=3", "deliverers=2", "readers=1"]) else { return };
    // With the box: all of it may lie below a `tmp`.
    let in_boxes = |part: &'static str| (0..3).map(move |number| format!("/box{number}/{part}"));
    let stable = |word: &str| count(&calls, &["fsync"], word);
    let stable_in_boxes = |part| in_boxes(part).map(|word| stable(&word)).sum::<usize>();
    assert_eq!((stable("/queue/m"), stable("/queue/e"), stable_in_boxes("tmp/"), stable_in_boxes("new>")), (30, 30, 30, 30));
    let made = |word: &str| calls.iter().filter(|call| call.is(&["openat"]) && call.words.contains(word) && call.words.contains("O_CREAT")).count();
    assert_eq!((made("/queue/m"), made("/queue/e"), in_boxes("tmp/").map(|word| made(&word)).sum()), (30, 30, 30));
    let renamed = |word: &str| count(&calls, &["rename", "renameat", "renameat2"], word);
    assert_eq!(in_boxes("tmp/").map(|word| renamed(&word)).sum::<usize>(), 30);
    assert!(sizes(&calls, &WRITES, "/queue/m").iter().all(|bytes| (500..=4000).contains(bytes)));
}

/// Each write of the log is of its size; the large file is written once, and made stable.
#[test]
fn a_log_is_written_beside_a_large_file() {
    let Some(calls) = calls("log-beside", &["log=2097152", "bulk=8388608", "seconds=1"]) else { return };
    let logged: Vec<i64> = sizes(&calls, &WRITES, "/log>").into_iter().filter(|bytes| *bytes == 2048).collect();
    assert!(logged.len() > 10, "{}", logged.len());
    assert_eq!(sizes(&calls, &WRITES, "/bulk>"), [1 << 20; 8]);
    assert_eq!((count(&calls, &["fsync"], "/bulk>"), count(&calls, &["fsync"], "/log>")), (1, 1));
}

#[test]
fn varmail_makes_each_append_stable() {
    let settings = ["files=40", "threads=2", "seconds=1", "size=3000"];
    let Some(calls) = calls("varmail", &settings) else { return };
    assert!(times(&calls, 2, "DCWYXOEWYXOEX") > 2);
    assert!(count(&calls, &["fsync"], "/varmail/f") > 4);
}

#[test]
fn web_servers_read_whole_files_and_append_to_the_log() {
    let settings = ["files=20", "threads=2", "seconds=1", "size=3000"];
    let Some(calls) = calls("webserver", &settings) else { return };
    assert!(times(&calls, 2, "OEXOEXOEXOEXOEXOEXOEXOEXOEXOEXW") > 2);
    let logged = sizes(&calls, &WRITES, "/log>");
    assert!(logged.len() > 2 && logged.iter().all(|bytes| (1..=16 << 10).contains(bytes)), "{logged:?}");
    assert_eq!(count(&calls, &["fsync", "fdatasync"], "/webserver/f"), 0);
}

/// Deletes one, makes one and appends to it, reads five others to their ends; nothing is made stable.
#[test]
fn a_web_proxy_replaces_one_file_for_five_that_it_reads() {
    let Some(calls) = calls("webproxy", &["files=40", "threads=2", "seconds=1", "size=3000", "append=5000"]) else { return };
    assert!(times(&calls, 2, "DCWXOEXOEXOEXOEXOEX") > 2);
    let (prepared, own) = prepared_and_own(&calls);
    assert_eq!(prepared.len(), 32);
    assert!(own.iter().all(|call| !call.is(&WRITES) || (1..=5000).contains(&call.result)));
}

/// The calls of the threads; and before that, for each file that is there at the beginning, how many bytes were written.
fn prepared_and_own(calls: &[Call]) -> (HashMap<String, i64>, Vec<&Call>) {
    let name = |call: &Call| call.words.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
    let workers: HashSet<usize> = calls.iter().filter(|call| call.words.contains("O_EXCL")).map(|call| call.thread).collect();
    let mut prepared = HashMap::new();
    for call in calls.iter().filter(|call| !workers.contains(&call.thread) && call.is(&WRITES)) {
        *prepared.entry(name(call)).or_insert(0) += call.result;
    }
    (prepared, calls.iter().filter(|call| workers.contains(&call.thread)).collect())
}

/// Makes a file in its full size, appends to another one, reads a third to its end, deletes one, looks at one.
#[test]
fn a_file_server_makes_extends_reads_and_deletes() {
    let Some(calls) = calls("fileserver", &["files=40", "threads=2", "seconds=1", "size=3000", "append=5000"]) else { return };
    assert!(times(&calls, 2, "CWXOWXOEXDS") > 2);
    assert_eq!(count(&calls, &["fsync", "fdatasync", "sync"], "/fileserver/d"), 0);
    let (prepared, own) = prepared_and_own(&calls);
    assert_eq!(prepared.len(), 32);
    let (mut whole, mut created) = (0, false);
    for call in own {
        created = call.words.contains("O_EXCL") || created && !call.is(&["openat"]);
        if !call.is(&WRITES) {
            continue;
        }
        let path = call.words.split(['<', '>']).nth(1).unwrap_or_default();
        match (created, prepared.get(path)) {
            // Made anew, it has the size that it had.
            (true, Some(bytes)) => {
                assert_eq!(call.result, *bytes, "{path}");
                whole += 1;
            }
            (true, None) => {}
            (false, _) => assert!((1..=5000).contains(&call.result), "{path}: {}", call.result),
        }
    }
    assert!(whole > 2, "{whole}");
}

#[test]
fn the_database_reads_2k_and_writes_through() {
    let settings = ["shadows=4", "writers=2", "files=2", "size=1048576", "log=1048576", "seconds=2", "hog=0"];
    let Some(calls) = calls("oltp", &settings) else { return };
    let reads = sizes(&calls, &READS, "/data");
    assert!(reads.len() > 1000 && reads.iter().all(|bytes| *bytes == 2048), "{}", reads.len());
    let written = calls.iter().filter(|call| call.is(&["pwrite64"]) && call.words.contains("/data") && call.result == 2048);
    assert!(written.count() >= 100);
    let synchronous = calls.iter().filter(|call| call.is(&["openat"]) && call.words.contains("O_DSYNC"));
    // Each of the writers opens both files, the log writer the log.
    assert_eq!(synchronous.count(), 2 * 2 + 1);
    let aligned = |call: &&Call| call.words.rsplit(", ").next().and_then(|place| place.parse::<u64>().ok()).is_some_and(|place| place % 2048 == 0);
    let preads = calls.iter().filter(|call| call.is(&["pread64"]));
    assert_eq!(preads.clone().count(), preads.filter(aligned).count());
}

#[test]
fn videos_are_read_256k_at_a_time() {
    let settings = ["size=2097152", "threads=2", "seconds=1", "interval=0"];
    let Some(calls) = calls("videoserver", &settings) else { return };
    let reads = sizes(&calls, &READS, "/active");
    assert!(reads.len() > 8 && reads.iter().all(|bytes| [0, 256 << 10].contains(bytes)), "{reads:?}");
    let written = sizes(&calls, &WRITES, "/passive");
    assert!(!written.is_empty() && written.iter().all(|bytes| *bytes == 1 << 20), "{written:?}");
    assert!(count(&calls, &["unlink", "unlinkat"], "/passive") > 0);
}

#[test]
fn postmark_syncs_twice_and_forgets_nothing() {
    let Some(calls) = calls("postmark", &["files=30", "transactions=100"]) else { return };
    // After the creation and after the transactions; the laboratory itself syncs single files and directories only.
    assert_eq!(count(&calls, &["syncfs"], "/postmark"), 2);
    let created = calls.iter().filter(|call| call.is(&["openat"]) && call.words.contains("O_CREAT") && call.words.contains("O_TRUNC")).count();
    let removed = count(&calls, &["unlink", "unlinkat"], "/postmark/");
    assert!(created > 60 && removed == created, "{created} created, {removed} removed");
    assert_eq!(count(&calls, &["fsync", "fdatasync"], "/postmark/"), 0);
    // A third of the requests to a FUSE file system were for the time at which each opened file was made, which nobody wanted to know.
    assert_eq!(count(&calls, &["statx"], "/postmark/"), 0);
    assert!(count(&calls, &["fstat", "newfstatat"], "/postmark/") >= created, "its preferred block");
}

#[test]
fn metadata_is_one_call_for_each_name() {
    let Some(calls) = calls("metadata", &["files=64", "from=2", "to=2"]) else { return };
    let created = calls.iter().filter(|call| call.is(&["openat"]) && call.words.contains("O_EXCL")).count();
    let renamed = count(&calls, &["rename", "renameat", "renameat2"], "/metadata/");
    // Not statx, which would ask FUSE file systems for the time at which the file was made.
    let looked_at = count(&calls, &["stat", "newfstatat"], "/f");
    assert_eq!(count(&calls, &["statx"], "/f"), 0);
    let removed = count(&calls, &["unlink", "unlinkat"], "/g");
    assert_eq!((created, looked_at, renamed, removed), (64, 64, 64, 64));
    assert_eq!(sizes(&calls, &WRITES, "/metadata/"), Vec::<i64>::new(), "the files are empty");
}

#[test]
fn growth_makes_each_file_once_and_a_sample_again() {
    let Some(calls) = calls("growth", &["from=100", "to=1000", "sample=50", "each=100"]) else { return };
    let created = calls.iter().filter(|call| call.is(&["openat"]) && call.words.contains("O_EXCL")).count();
    let removed = count(&calls, &["unlink", "unlinkat"], "/growth/");
    let looked_at = count(&calls, &["stat", "newfstatat"], "/f");
    // All go at the end of the round. What is not found is no call that was done.
    assert_eq!((created, removed, looked_at), (1000 + 100, 100 + 1000, 100));
    assert_eq!(count(&calls, &["mkdir", "mkdirat"], "/growth/"), 10);
}

#[test]
fn dd_moves_megabytes_and_makes_them_stable_once() {
    let Some(calls) = calls("dd", &["megabytes=4"]) else { return };
    assert_eq!(sizes(&calls, &["write"], "/file>"), [1 << 20; 4]);
    assert_eq!(count(&calls, &["fdatasync"], "/file>"), 1);
    assert_eq!(sizes(&calls, &["read"], "/file>"), [1 << 20, 1 << 20, 1 << 20, 1 << 20, 0]);
}

#[test]
fn images_are_written_once_and_read_whole() {
    let Some(calls) = calls("images", &["files=100", "steps=2", "purges=1"]) else { return };
    // A hundred, and the fifth that was deleted.
    let written = sizes(&calls, &WRITES, ".jpg>");
    assert_eq!(written.len(), 120);
    assert!(written.iter().all(|bytes| (10 << 10..=150 << 10).contains(bytes)));
    // Those, and all at the end, by the laboratory.
    assert_eq!(count(&calls, &["unlink", "unlinkat"], ".jpg"), 20 + 100);
    let read = sizes(&calls, &READS, ".jpg>").into_iter().filter(|bytes| *bytes > 0).collect::<Vec<_>>();
    // Half as many as were written, at each step and after the purge.
    assert_eq!(read.len(), 60);
    assert!(read.iter().all(|bytes| written.contains(bytes)), "whole files");
}

#[test]
fn bonnie_makes_its_files_and_flushes_the_large_one() {
    // Its characters are a call each: no trace of a million of those.
    let Some(calls) = traced("openat,fsync", "bonnie++", &["megabytes=16", "memory=8", "characters=1", "files=1"]) else {
        return;
    };
    let made = calls.iter().filter(|call| call.words.contains("O_CREAT"));
    let (large, small): (Vec<&Call>, Vec<&Call>) = made.partition(|call| call.words.contains("\"./Bonnie."));
    // With characters and with blocks; then in sequence and at random.
    assert_eq!((large.len(), small.len()), (2, 2 * 1024));
    // After each of the phases on the large file.
    assert!(count(&calls, &["fsync"], "/Bonnie.") >= 5, "{}", count(&calls, &["fsync"], "/Bonnie."));
}

/// A repository of two files, 1.5 MB in all, checked out three times: once alone, twice at once; then built.
#[test]
fn a_tree_is_checked_out_three_times_and_built_in_each() {
    if ["git", "make"].iter().any(|program| lab::process::find(program).is_none()) {
        skipped("the system calls of bringover and nightly: git or make is not installed");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a.txt"), vec![b'a'; 1 << 20]).unwrap();
    fs::write(tree.join("Makefile"), "made: a.txt\n\ttr a b < a.txt > made\n").unwrap();
    let named = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"];
    for words in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "all"]] {
        lab::process::succeed(lab::process::command("git").arg("-C").arg(&tree).args(named).args(words)).unwrap();
    }
    let tree = tree.to_str().unwrap();
    for (workload, settings) in [("bringover", &["delay=1"][..]), ("nightly", &["delay=1", "trials=2"])] {
        let Some(calls) = traced_with(WHAT, workload, settings, &["--tree", tree, "--build", "make -s"]) else { return };
        for name in ["alone", "first", "second"] {
            let written = |file: &str| sizes(&calls, &WRITES, &format!("/{name}/{file}>")).iter().sum::<i64>();
            assert_eq!(written("a.txt"), 1 << 20, "{workload}: {name}");
            // The second trial removes what the first has made, and makes it again.
            let builds = if workload == "bringover" { 0 } else if name == "alone" { 2 } else { 1 };
            assert_eq!(written("made"), builds << 20, "{workload}: {name}");
        }
    }
}

/// A new workload has to be looked at too: here, or where it is.
#[test]
fn no_workload_is_left_unwatched() {
    let own = include_str!("system_calls.rs");
    let elsewhere = [
        ("sync-sweep", include_str!("../src/workload/sync_sweep.rs"), "what_fio_does_with_the_job"),
        ("fio-mixed", include_str!("../src/workload/fio_mixed.rs"), "what_fio_does"),
    ];
    let units = include_str!("../src/workload/unit/calls_tests.rs");
    for workload in lab::workload::all() {
        let name = workload.name();
        let watched = match (name.strip_prefix("unit"), elsewhere.iter().find(|(other, ..)| *other == name)) {
            // Their numbers stand alone or in lists there.
            (Some(number), _) => {
                let number = number.trim_start_matches('0');
                [format!("calls({number},"), format!("{number}]"), format!("[{number},"), format!("({number},")].iter().any(|word| units.contains(word.as_str()))
            }
            (None, Some((_, text, test))) => text.contains(&format!("fn {test}()")),
            (None, None) => [format!("calls(\"{name}\","), format!("traced(\"openat,fsync\", \"{name}\""), format!("[(\"{name}\","), format!(" (\"{name}\",")]
                .iter()
                .any(|word| own.contains(word.as_str())),
        };
        assert!(watched, "nothing looks at what {name} does");
    }
}
