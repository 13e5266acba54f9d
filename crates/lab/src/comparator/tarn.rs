//! A pool of TarnFS, made, mounted, exported and destroyed through the `tarn` command.
//!
//! # Theory
//!
//! The pool has a daemon of its own, on a socket of its own (`TARN_SOCKET`), so that no other pool on the machine is
//! touched. The daemon ends by itself with its last pool; should it not, it is found through its socket and ended, so
//! that nothing stays behind even if it hangs.
//!
//! # Invariants
//!
//! 1. Whatever happens, [`Pool`]'s end leaves no mount, no daemon and no socket.
//! 2. A second after an interruption that nobody could act on, because a call into the mounted file system does not
//!    return, the daemon is killed: then the call fails, and the rest is taken down.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use super::{Attempt, Setup, eventually, folder, no_fuse, pool_name, unmount, version_of};
use crate::interrupt;
use crate::process;
use crate::system;
use crate::target::{self, Prepared};
use crate::undo::Undo;

/// How long a call may go on after Ctrl-C before its file system is taken away.
const PATIENCE: Duration = Duration::from_secs(8);

/// The devices of a pool.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The `tarn` program.
    pub program: PathBuf,
    pub name: String,
    /// The vdevs, as `zpool create` takes them.
    pub vdevs: Vec<String>,
    /// The files among them.
    pub files: Vec<PathBuf>,
    /// Where it is mounted.
    pub mounted: PathBuf,
    /// Where the daemon listens.
    pub socket: PathBuf,
    /// Further words for `zpool create`.
    pub words: Vec<String>,
    /// Set for the program, and so for its daemon.
    pub environment: Vec<(String, String)>,
}

/// A pool that exists as long as this does.
pub struct Pool {
    layout: Layout,
    watching: Arc<AtomicBool>,
}

/// The process at the other end of the socket.
fn daemon_of(socket: &Path) -> Option<Pid> {
    let stream = UnixStream::connect(socket).ok()?;
    Some(rustix::net::sockopt::socket_peercred(&stream).ok()?.pid)
}

/// Waits until the process has ended. Asking the socket instead would keep a daemon busy that is about to end.
fn ended(process: Pid, limit: Duration) -> bool {
    let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { return true };
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    rustix::event::poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}

fn end_daemon(process: Pid) -> Result<()> {
    let patience = Duration::from_secs(5);
    if ended(process, patience) {
        return Ok(());
    }
    for signal in [Signal::TERM, Signal::KILL] {
        let _ = rustix::process::kill_process(process, signal);
        if ended(process, patience) {
            return Ok(());
        }
    }
    bail!("the daemon, process {}, does not end", process.as_raw_nonzero());
}

/// Kills the daemon if an interruption is not acted on; see invariant 2.
fn watch_over(socket: PathBuf, watching: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut since = None;
        while watching.load(Ordering::Relaxed) {
            if interrupt::pending() && since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                if let Some(process) = daemon_of(&socket) {
                    let _ = rustix::process::kill_process(process, Signal::KILL);
                }
                return;
            }
            thread::sleep(Duration::from_millis(200));
        }
    });
}

impl Pool {
    /// Makes the pool and mounts it.
    pub fn create(layout: Layout) -> Result<Pool> {
        let watching = Arc::new(AtomicBool::new(true));
        watch_over(layout.socket.clone(), Arc::clone(&watching));
        let pool = Pool { layout, watching };
        // From here on its end is seen to, also if only half of it came to be.
        process::succeed(&mut pool.create_command())?;
        pool.expect_mounted()?;
        Ok(pool)
    }

    /// The command that makes such a pool.
    pub fn create_command_of(layout: &Layout) -> Command {
        let mut command = Self::program(layout, &["zpool", "create"]);
        command.args(&layout.words).arg("-m").arg(&layout.mounted).arg(&layout.name).args(&layout.vdevs);
        command
    }

    fn create_command(&self) -> Command {
        Self::create_command_of(&self.layout)
    }

    fn program(layout: &Layout, words: &[&str]) -> Command {
        let mut command = Command::new(&layout.program);
        command.args(words).env("TARN_SOCKET", &layout.socket);
        command.envs(layout.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// `tarn` with these words, speaking to this pool's daemon.
    pub fn command(&self, words: &[&str]) -> Command {
        Self::program(&self.layout, words)
    }

    /// Its devices.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn expect_mounted(&self) -> Result<()> {
        let mounted = &self.layout.mounted;
        let there = eventually(Duration::from_secs(10), || system::is_mount_point(mounted));
        ensure!(there, "{} is not mounted on {}", self.layout.name, mounted.display());
        Ok(())
    }

    /// Where the files among the vdevs lie, for `-d` and `-p`.
    pub fn folder(&self) -> Result<&Path> {
        self.layout.files.first().and_then(|file| file.parent()).context("the pool has no file")
    }

    /// Writes everything and lets go of the pool.
    pub fn export(&self) -> Result<()> {
        process::succeed(&mut self.command(&["zpool", "export", &self.layout.name])).map(drop)
    }

    /// Takes the exported pool again, and mounts it.
    pub fn import(&self) -> Result<()> {
        let mut command = self.command(&["zpool", "import", "-d"]);
        process::succeed(command.arg(self.folder()?).arg(&self.layout.name))?;
        self.expect_mounted()
    }

    /// Empties every cache between a reader and the pool's files.
    pub fn drop_caches(&self) -> Result<()> {
        self.export()?;
        for file in &self.layout.files {
            target::forget_file(file)?;
        }
        target::drop_kernel_caches();
        self.import()
    }

    /// A property of the pool's own dataset, exact.
    pub fn get(&self, property: &str) -> Result<String> {
        let words = ["zfs", "get", "-H", "-p", "-o", "value", property, &self.layout.name];
        Ok(process::succeed(&mut self.command(&words))?.trim().to_owned())
    }

    fn tear_down(&self) -> Result<()> {
        let mut outcome = Ok(());
        if let Some(daemon) = daemon_of(&self.layout.socket) {
            outcome = process::succeed(&mut self.command(&["zpool", "destroy", "-f", &self.layout.name])).map(drop);
            if outcome.as_ref().is_err_and(|error| error.to_string().contains("no such pool")) {
                outcome = Ok(());
            }
            outcome = outcome.and(end_daemon(daemon));
        }
        self.watching.store(false, Ordering::Relaxed);
        let unmounted = unmount(&self.layout.mounted);
        let _ = fs::remove_file(&self.layout.socket);
        outcome.and(unmounted)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Err(error) = self.tear_down() {
            crate::errln!("warning: could not take down the pool {}: {error:#}", self.layout.name);
        }
    }
}

/// A comparator.
pub(super) fn prepare(setup: &Setup) -> Result<Attempt> {
    if process::find(&setup.tarn.to_string_lossy()).is_none() {
        return Ok(Attempt::Skipped(format!("tarn: there is no {} (see --tarn)", setup.tarn.display())));
    }
    if let Some(why) = no_fuse() {
        return Ok(Attempt::Skipped(format!("tarn: {why}")));
    }
    let mut undo = Undo::new();
    let folder = folder(setup, "tarn", &mut undo)?;
    let mounted = folder.join("mounted");
    fs::create_dir(&mounted)?;
    let stand = setup.stand(&folder, &mut undo)?;
    let images = stand.files;
    let words: Vec<String> = ["-f".to_owned()].into_iter().chain(setup.property_words()).collect();
    let pool = Pool::create(Layout {
        program: setup.tarn.clone(),
        name: pool_name(),
        vdevs: stand.paths.iter().map(|path| path.display().to_string()).collect(),
        files: stand.paths,
        mounted: mounted.clone(),
        socket: folder.join("socket"),
        words: words.clone(),
        environment: setup.environment.clone(),
    })?;
    let pool = Rc::new(pool);
    let dropped = Rc::clone(&pool);
    undo.push("take down the pool", move || {
        drop(pool);
        Ok(())
    });
    let socket = dropped.layout.socket.clone();
    let environment: Vec<String> = setup.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let with = if environment.is_empty() { String::new() } else { format!(" with {}", environment.join(" ")) };
    let description = format!("TarnFS{with} {}, {}", stand.words, setup.properties_in_words());
    let watched = Rc::downgrade(&dropped);
    let iostat = move || watched.upgrade().map_or_else(|| Command::new("false"), |pool| pool.command(&["zpool", "iostat", &pool.layout.name, "1"]));
    let process = move || u32::try_from(daemon_of(&socket)?.as_raw_nonzero().get()).ok();
    let target = Prepared::new(setup.label("tarn"), description, mounted, move || dropped.drop_caches(), undo)
        .served_by(process)
        .watched_by(iostat)
        .on_devices(stand.devices)
        .on_files(&images)
        .fact("version", version_of(&setup.tarn.to_string_lossy(), &["--version"]))
        .fact("format options", words.join(" "));
    Ok(Attempt::Ready(Box::new(target)))
}
