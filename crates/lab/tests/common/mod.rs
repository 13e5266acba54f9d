//! `fsperf` as its user has it, and what it must not leave behind.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use sim::places::skipped;

pub(crate) fn fsperf(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fsperf"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory for everyone, in which nobody may touch what is another's: a daemon takes no other. In memory, if it can be: on a disk that is busy with other things each sync takes seconds.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let scratch = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    scratch
}

pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// `tarn` beside the program that is tested, where things can be mounted.
pub(crate) fn tarn(what: &str) -> Option<std::path::PathBuf> {
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
pub(crate) fn loop_devices(directory: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.path().join("loop/backing_file"));
    let files = devices.filter_map(|file| fs::read_to_string(file).ok());
    files.filter(|file| file.starts_with(directory.to_str().unwrap())).collect()
}

#[track_caller]
pub(crate) fn assert_nothing_is_left(place: &Path) {
    let mounted: Vec<_> = lab::system::mounts().into_iter().filter(|mount| mount.mount_point.starts_with(place)).collect();
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
