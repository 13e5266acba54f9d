//! A directory with images, a daemon of its own, and the program. Nothing outlives it, and nothing may hang.

use std::fs::{self, File, OpenOptions};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use sim::oracle::{OracleResult, zdb_check, zdb_check_damaged};
use sim::places::skipped;

/// Longer than anything takes that does not hang, on a machine that is busy with other things too.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Rig {
    directory: tempfile::TempDir,
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    /// 128: a signal ended it.
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Is there such a program?
pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    if !found {
        skipped(&format!("{name}: there is no such program here"));
    }
    found
}

/// Runs a command in a process group of its own. `None`: it hung, and was killed.
pub(crate) fn run_for(command: &mut Command, limit: Duration) -> Option<Said> {
    let (out, err) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    command.stdin(Stdio::null()).stdout(out.reopen().unwrap()).stderr(err.reopen().unwrap()).process_group(0);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let Some(code) = wait_for(&mut child, limit) else {
        let group = Pid::from_raw(child.id().cast_signed()).unwrap();
        let _ = kill_process_group(group, Signal::KILL);
        return None;
    };
    let text = |file: &tempfile::NamedTempFile| String::from_utf8_lossy(&fs::read(file.path()).unwrap()).into_owned();
    Some(Said { code, out: text(&out), err: text(&err) })
}

/// The status of a child that ends within `limit`.
pub(crate) fn wait_for(child: &mut Child, limit: Duration) -> Option<i32> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status.code().unwrap_or(128));
        }
        if begin.elapsed() > limit {
            return None;
        }
        sleep(Duration::from_millis(2));
    }
}

/// Is it a process, and not merely one whose parent has not looked yet?
fn is_alive(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    status.is_ok_and(|text| text.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X'])))
}

impl Rig {
    /// `None`, aloud, where nothing can be mounted.
    pub(crate) fn new() -> Option<Rig> {
        let can_mount = rustix::process::geteuid().is_root() && OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
        if !can_mount {
            skipped("needs root and /dev/fuse");
            return None;
        }
        Some(Rig { directory: tempfile::Builder::new().prefix("tarn-it-").tempdir().unwrap() })
    }

    /// One with a pool `tank` on an image of so many bytes; `words` are options of `zpool create`.
    pub(crate) fn with_tank(image: &str, bytes: u64, words: &str) -> Option<Rig> {
        let rig = Rig::new()?;
        rig.image(image, bytes);
        rig.ok(&format!("zpool create {words} tank @{image}"));
        Some(rig)
    }

    /// The end of a test: a pool is exported, and judged by our checker and the real zdb.
    #[track_caller]
    pub(crate) fn finish(&self, pool: &str, images: &[&str]) {
        self.ok(&format!("zpool export {pool}"));
        self.check(pool);
        self.zdb(images);
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

    /// `tarn` with these words, for this daemon. `@name` stands for a path in the rig's directory.
    pub(crate) fn command(&self, words: &str) -> Command {
        let words = words.split_whitespace().map(|word| match word.split_once('@') {
            // A snapshot has an `@` in the middle too, after a name without `=`.
            Some((before, name)) if before.is_empty() || before.ends_with('=') => format!("{before}{}", self.text(name)),
            _ => word.to_owned(),
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_tarn"));
        command.args(words).env("TARN_SOCKET", self.path("sock")).env_remove("TARN_LOG_FILE");
        if std::env::var_os("TARN_LOG").is_none() {
            command.env("TARN_LOG", "info");
        }
        command
    }

    /// Starts `tarn` and does not wait for it.
    pub(crate) fn start(&self, words: &str) -> Child {
        self.command(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Runs `tarn`.
    #[track_caller]
    pub(crate) fn run(&self, words: &str) -> Said {
        match run_for(&mut self.command(words), LIMIT) {
            Some(said) => said,
            None => panic!("tarn {words} hangs\n{}", self.log()),
        }
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

    /// The end of what the daemons said.
    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(self.path("sock.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// The daemon's process, if there is one.
    pub(crate) fn find_daemon(&self) -> Option<Pid> {
        let stream = UnixStream::connect(self.path("sock")).ok()?;
        Some(rustix::net::sockopt::socket_peercred(&stream).ok()?.pid)
    }

    /// The daemon's process.
    #[track_caller]
    pub(crate) fn daemon(&self) -> Pid {
        self.find_daemon().expect("the daemon runs")
    }

    /// Ends the daemon as a power failure would, if there is one.
    pub(crate) fn kill(&self) {
        if let Some(daemon) = self.find_daemon() {
            let _ = kill_process(daemon, Signal::KILL);
            self.wait("the daemon's death", || !is_alive(daemon));
        }
    }

    /// Directories below ours on which something is mounted.
    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let places = table.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
        places.filter(|place| place.starts_with(self.directory.path())).collect()
    }

    /// Unmounts what a dead daemon left.
    pub(crate) fn unmount_all(&self) {
        for place in self.mounts().iter().rev() {
            let _ = unmount(place.as_path(), UnmountFlags::DETACH);
        }
    }

    pub(crate) fn is_mounted(&self, name: &str) -> bool {
        let places = ["fuse", "fuseblk"].map(|kind| format!(" {} {kind}.tarn ", self.text(name)));
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        places.iter().any(|place| table.contains(place))
    }

    /// Waits until something has come about.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, mut done: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !done() {
            assert!(begin.elapsed() < LIMIT, "{what} did not come about\n{}", self.log());
            sleep(Duration::from_millis(5));
        }
    }

    /// The judgement of our checker on images that nobody has open.
    #[track_caller]
    pub(crate) fn check(&self, pool: &str) {
        self.check_in("", pool);
    }

    /// As above, for images in a directory of their own.
    #[track_caller]
    pub(crate) fn check_in(&self, directory: &str, pool: &str) {
        let said = self.run(&format!("zdb -e -p @{directory} -bcc {pool}"));
        assert!(said.code == 0 && said.out.contains("No leaks"), "our checker: {said:?}");
    }

    /// The judgement of the real zdb on images that nobody has open. With `TARN_KEEP=DIR`, bad ones are copied there.
    #[track_caller]
    pub(crate) fn zdb(&self, images: &[&str]) {
        self.zdb_says(images, zdb_check);
    }

    /// As [`Rig::zdb`], of a pool whose daemon was killed: perhaps when two of a device's four labels were written.
    #[track_caller]
    pub(crate) fn zdb_after_kill(&self, images: &[&str]) {
        self.zdb_says(images, zdb_check_damaged);
    }

    #[track_caller]
    fn zdb_says(&self, images: &[&str], check: fn(&[&Path]) -> OracleResult) {
        let paths: Vec<PathBuf> = images.iter().map(|name| self.path(name)).collect();
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let verdict = check(&paths);
        if let (OracleResult::Wrong(_), Some(place)) = (&verdict, std::env::var_os("TARN_KEEP")) {
            let copied = Command::new("cp").arg("--sparse=always").args(&paths).arg(&place).status();
            eprintln!("images copied to {}: {copied:?}", place.display());
        }
        verdict.expect_clean("a pool of the command line");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Only after a test that failed is anything left.
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
            self.kill();
        } else if self.find_daemon().is_some() {
            let left = run_for(&mut self.command("zpool export -a -f"), LIMIT);
            if left.as_ref().is_none_or(|said| said.code != 0) {
                eprintln!("{left:?}\n{}", self.log());
                self.kill();
            }
        }
        self.unmount_all();
    }
}
