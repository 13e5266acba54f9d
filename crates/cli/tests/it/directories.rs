//! A directory with very many entries: listed while others change it, and across a remount.

use std::collections::HashSet;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, open, seek};
use sim::places::say;

use crate::rig::{LIMIT, Rig, run_for};

/// Names from a position on, at most so many; and the position behind the last of them, if there are more.
fn list(directory: &Path, from: u64, most: usize) -> (Vec<String>, Option<u64>) {
    let directory = open(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    seek(&directory, SeekFrom::Start(from)).unwrap();
    let mut buffer = vec![MaybeUninit::uninit(); 32 << 10];
    let mut entries = RawDir::new(&directory, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap().to_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
        if names.len() >= most {
            return (names, Some(entry.next_entry_cookie()));
        }
    }
    (names, None)
}

/// Makes and removes other entries until `stop`.
fn disturb(directory: &Path, thread: usize, stop: &AtomicBool) {
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        drop(File::create(directory.join(format!("other-{thread}-{n}"))).unwrap());
        if n >= 100 {
            fs::remove_file(directory.join(format!("other-{thread}-{}", n - 100))).unwrap();
        }
    }
}

fn take_all(seen: &mut HashSet<String>, names: Vec<String>) {
    for name in names.into_iter().filter(|name| name.starts_with("stays")) {
        assert!(!seen.contains(&name), "{name} was listed twice");
        seen.insert(name);
    }
}

fn run(entries: usize) {
    let Some(rig) = Rig::new() else { return };
    rig.image("img", 1 << 30 | (entries as u64) << 13);
    fs::create_dir(rig.path("m")).unwrap();
    rig.ok("zpool create -m @m tank @img");
    let directory = rig.path("m/d");
    fs::create_dir(&directory).unwrap();
    let part = entries.div_ceil(10).max(1);
    for first in (0..entries).step_by(part) {
        let begin = Instant::now();
        for n in first..(first + part).min(entries) {
            drop(File::create_new(directory.join(format!("stays-{n:07}"))).unwrap());
        }
        say(&format!("directory: entries from {first}: {:.1} us each", begin.elapsed().as_secs_f64() * 1e6 / part as f64));
    }
    // Half of it, with changes all the while; then from there on after a remount.
    let mut seen = HashSet::new();
    let begin = Instant::now();
    let mut position = list_disturbed(&directory, 0, entries / 2, &mut seen);
    assert!(position.is_some(), "half of it is not all");
    rig.ok("zfs unmount tank");
    rig.ok("zfs mount tank");
    while let Some(from) = position {
        position = list_disturbed(&directory, from, entries / 4 + 1, &mut seen);
    }
    assert_eq!(seen.len(), entries, "each entry once");
    say(&format!("directory: {entries} listed in {:.1} s", begin.elapsed().as_secs_f64()));
    let begin = Instant::now();
    let mut removed = 0;
    for entry in fs::read_dir(&directory).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert!(removed >= entries, "{removed} of {entries} were seen while they were removed");
    say(&format!("directory: {removed} removed while listed: {:.1} us each", begin.elapsed().as_secs_f64() * 1e6 / removed as f64));
    fs::remove_dir(&directory).unwrap();
    let said = run_for(&mut rig.command("zpool export tank"), LIMIT.max(Duration::from_secs(300))).expect("it does not hang");
    assert_eq!(said.code, 0, "{said:?}");
    rig.zdb(&["img"]);
}

fn list_disturbed(directory: &Path, from: u64, most: usize, seen: &mut HashSet<String>) -> Option<u64> {
    let stop = AtomicBool::new(false);
    scope(|scope| {
        for thread in 0..2 {
            let stop = &stop;
            scope.spawn(move || disturb(directory, thread, stop));
        }
        let (names, position) = list(directory, from, most);
        stop.store(true, Ordering::Relaxed);
        take_all(seen, names);
        position
    })
}

#[test]
fn positions_in_a_directory_survive_changes_and_a_remount() {
    run(4000);
}

/// `ENTRIES=n`.
#[test]
#[ignore = "takes minutes: ENTRIES=n"]
fn positions_in_a_directory_of_a_million_survive_changes_and_a_remount() {
    run(std::env::var("ENTRIES").map_or(1_000_000, |text| text.parse().unwrap()));
}
