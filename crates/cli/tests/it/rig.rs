//! A directory with images, a daemon of its own, and the program.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sim::oracle::zdb_check;

pub(crate) struct Rig {
    directory: tempfile::TempDir,
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Rig {
    /// `None`, aloud, where nothing can be mounted.
    pub(crate) fn new() -> Option<Rig> {
        let can_mount = rustix::process::geteuid().is_root() && OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
        if !can_mount {
            eprintln!("SKIPPED: needs root and /dev/fuse");
            return None;
        }
        Some(Rig { directory: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn image(&self, name: &str, bytes: u64) -> String {
        File::create_new(self.path(name)).unwrap().set_len(bytes).unwrap();
        self.text(name)
    }

    /// Runs `tarn` with these words. `@name` stands for a path in the rig's directory.
    pub(crate) fn run(&self, words: &str) -> Said {
        let words = words.split_whitespace().map(|word| match word.split_once('@') {
            // A snapshot has an `@` in the middle too, after a name without `=`.
            Some((before, name)) if before.is_empty() || before.ends_with('=') => format!("{before}{}", self.text(name)),
            _ => word.to_owned(),
        });
        let Output { status, stdout, stderr } =
            Command::new(env!("CARGO_BIN_EXE_tarn")).args(words).env("TARN_SOCKET", self.path("sock")).env("TARN_LOG", "info").output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
    }

    /// Runs a command that must succeed, and returns what it printed.
    #[track_caller]
    pub(crate) fn ok(&self, words: &str) -> String {
        let said = self.run(words);
        assert!(said.code == 0 && said.err.is_empty(), "tarn {words}: {said:?}\n{}", self.log());
        said.out
    }

    /// Runs a command that must fail with these words.
    #[track_caller]
    pub(crate) fn refused(&self, words: &str, message: &str) {
        let said = self.run(words);
        assert!(said.code != 0 && said.err.contains(message), "tarn {words}: {said:?}\n{}", self.log());
    }

    /// One property's value.
    #[track_caller]
    pub(crate) fn get(&self, dataset: &str, property: &str) -> String {
        self.ok(&format!("zfs get -Hp -o value {property} {dataset}")).trim_end().to_owned()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("sock.log")).unwrap_or_default()
    }

    /// The daemon's process, found by the file that it holds locked.
    pub(crate) fn daemon(&self) -> rustix::process::Pid {
        let lock = fs::canonicalize(self.path("sock.lock")).unwrap();
        let holds = |process: &Path| {
            let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
            descriptors.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == lock))
        };
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let number = |path: &Path| path.file_name().unwrap().to_str().and_then(|name| name.parse().ok());
        let mut daemons = processes.filter(|process| holds(process)).filter_map(|process| number(&process));
        rustix::process::Pid::from_raw(daemons.next().expect("the daemon runs")).unwrap()
    }

    pub(crate) fn is_mounted(&self, name: &str) -> bool {
        let place = format!(" {} fuse.tarn ", self.text(name));
        fs::read_to_string("/proc/self/mounts").unwrap().contains(&place)
    }

    /// Waits until something has come about.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, done: impl Fn() -> bool) {
        let begin = Instant::now();
        while !done() {
            assert!(begin.elapsed() < Duration::from_secs(30), "{what} did not come about\n{}", self.log());
            sleep(Duration::from_millis(20));
        }
    }

    /// The judgement of the real zdb on images that nobody has open.
    #[track_caller]
    pub(crate) fn zdb(&self, images: &[&str]) {
        let paths: Vec<PathBuf> = images.iter().map(|name| self.path(name)).collect();
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        zdb_check(&paths).expect_clean("a pool of the command line");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Only after a test that failed is anything left.
        let left = self.run("zpool export -a -f");
        if left.code != 0 {
            eprintln!("{left:?}\n{}", self.log());
        }
    }
}
