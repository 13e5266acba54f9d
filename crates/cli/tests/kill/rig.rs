//! A daemon of one's own in a temporary directory: its socket, its images, its mounts. Nothing outlives it.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Longer than anything takes that does not hang, on a machine that is busy with other things too.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Can this machine mount?
pub(crate) fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        sim::places::skipped("mounts: they need root and /dev/fuse");
    }
    can
}

/// Is there such a program?
pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    if !found {
        sim::places::skipped(&format!("{name}: there is no such program here"));
    }
    found
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    /// `None`: it took too long and was killed.
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn is_ok(&self) -> bool {
        self.status == Some(0)
    }
}

/// Runs a command in a process group of its own, for at most `limit`.
pub(crate) fn run_for(command: &mut Command, limit: Duration) -> Ran {
    let (out, err) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    command.stdin(Stdio::null()).stdout(out.reopen().unwrap()).stderr(err.reopen().unwrap()).process_group(0);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let status = wait_for(&mut child, limit);
    if status.is_none() {
        let _ = kill_process_group(pid_of(&child), Signal::KILL);
    }
    let text = |file: &tempfile::NamedTempFile| String::from_utf8_lossy(&fs::read(file.path()).unwrap()).into_owned();
    Ran { status, out: text(&out), err: text(&err) }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed()).expect("a child has a number")
}

/// The status of a child that ends within `limit`; 128 for one that a signal ended.
pub(crate) fn wait_for(child: &mut Child, limit: Duration) -> Option<i32> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status.code().unwrap_or(128));
        }
        if begin.elapsed() > limit {
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what}: not after {LIMIT:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The place of one daemon.
pub(crate) struct Rig {
    directory: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        Rig { directory: tempfile::Builder::new().prefix("tarn-it-").tempdir().unwrap() }
    }

    /// A path below the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("socket")
    }

    /// A sparse image file.
    pub(crate) fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    /// `tarn` with these words, for this daemon.
    pub(crate) fn command<W: AsRef<OsStr>>(&self, words: &[W]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tarn"));
        command.args(words).env("TARN_SOCKET", self.socket()).env_remove("TARN_LOG_FILE");
        if std::env::var_os("TARN_LOG").is_none() {
            command.env("TARN_LOG", "info");
        }
        command
    }

    /// Runs `tarn`, which must not hang.
    #[track_caller]
    pub(crate) fn tarn(&self, words: &[&str]) -> Ran {
        let ran = run_for(&mut self.command(words), LIMIT);
        assert!(ran.status.is_some(), "tarn {words:?} hangs: {ran:?}\n{}", self.log());
        ran
    }

    /// Runs `tarn`, which must succeed. What it prints.
    #[track_caller]
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let ran = self.tarn(words);
        assert!(ran.is_ok(), "tarn {words:?}: {ran:?}\n{}", self.log());
        ran.out
    }

    /// Runs `tarn`, which must fail and say `reason`.
    #[track_caller]
    /// A pool on images, mounted on `mnt`.
    pub(crate) fn create(&self, pool: &str, options: &[&str], images: &[&Path]) {
        let mount = self.path("mnt").display().to_string();
        let mut words = vec!["zpool", "create", "-m", &mount];
        words.extend(options);
        words.push(pool);
        words.extend(images.iter().map(|image| image.to_str().unwrap()));
        self.ok(&words);
    }

    /// What the daemon said, its end.
    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(self.path("socket.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// The process that answers at the socket.
    pub(crate) fn daemon(&self) -> Option<Pid> {
        let stream = UnixStream::connect(self.socket()).ok()?;
        Some(rustix::net::sockopt::socket_peercred(&stream).ok()?.pid)
    }

    /// Kills the daemon as a power failure would.
    pub(crate) fn kill(&self) {
        if let Some(daemon) = self.daemon() {
            let _ = kill_process(daemon, Signal::KILL);
            until("the daemon is dead", || !is_alive(daemon));
        }
    }

    /// Waits until no daemon is here.
    #[track_caller]
    /// Directories below ours on which something is mounted.
    pub(crate) fn mounted(&self) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let paths = table.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
        paths.filter(|path| path.starts_with(self.directory.path())).collect()
    }

    /// Unmounts what a dead daemon left.
    pub(crate) fn unmount_all(&self) {
        for path in self.mounted().iter().rev() {
            let _ = unmount(path.as_path(), UnmountFlags::DETACH);
        }
    }

    /// Our checker on the images, which no daemon has.
    #[track_caller]
    pub(crate) fn check(&self, pool: &str) {
        let directory = self.directory.path().display().to_string();
        let ran = self.tarn(&["zdb", "-e", "-p", &directory, "-bcc", pool]);
        assert!(ran.is_ok() && ran.out.contains("No leaks"), "our checker: {ran:?}");
    }

    /// The real zdb on them.
    #[track_caller]
    pub(crate) fn zdb(&self, images: &[&Path], what: &str) {
        let verdict = sim::oracle::zdb_check(images);
        if matches!(verdict, sim::oracle::OracleResult::Wrong(_)) {
            self.keep(images, what);
        }
        verdict.expect_clean(what);
    }

    /// With `TARN_KEEP=DIR`, images that were found bad are copied there.
    pub(crate) fn keep(&self, images: &[&Path], what: &str) {
        let Some(place) = std::env::var_os("TARN_KEEP") else { return };
        let place = PathBuf::from(place).join(what.replace(['/', ' '], "_"));
        fs::create_dir_all(&place).unwrap();
        let copied = Command::new("cp").arg("--sparse=always").args(images).arg(&place).status();
        eprintln!("{what}: images in {}: {copied:?}", place.display());
    }
}

/// Is it a process, and not merely one whose parent has not looked yet?
fn is_alive(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    status.is_ok_and(|text| text.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X'])))
}

impl Drop for Rig {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
        self.kill();
        self.unmount_all();
    }
}
