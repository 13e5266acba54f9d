//! What is asked of our own mounts by another process of ours.
//!
//! # Theory
//! The kernel asks the server before it ends a mount on a block device, or makes it durable, and the thread that called it
//! cannot be killed meanwhile. If that is a thread of the server, and all of the server is killed at that moment, it stays for
//! good with its descriptors, sockets and locks. So another process makes the call; the server waits for that process, which a kill ends. Then
//! the server's descriptors are closed, the kernel ends the connection, and the other process has its answer.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;

/// How the process is started: set once, by a program that calls [`run`] there.
static PROGRAM: OnceLock<fn() -> Command> = OnceLock::new();

/// From now on errands go to another process. `program` starts it: one that calls [`run`] with the arguments that are added.
pub fn enable(program: fn() -> Command) {
    let _ = PROGRAM.set(program);
}

/// Ends a mount, as root.
pub(crate) fn unmount(path: &Path, flags: UnmountFlags) -> io::Result<()> {
    match PROGRAM.get() {
        Some(program) => send(program().arg("unmount").arg(flags.bits().to_string()).arg(path)),
        None => rustix::mount::unmount(path, flags).map_err(io::Error::from),
    }
}

/// Makes what was changed in these mounts durable.
pub fn sync(places: &[PathBuf]) -> io::Result<()> {
    match PROGRAM.get() {
        Some(program) if !places.is_empty() => send(program().arg("sync").args(places)),
        Some(_) => Ok(()),
        None => sync_here(places),
    }
}

fn sync_here(places: impl IntoIterator<Item = impl AsRef<Path>>) -> io::Result<()> {
    let sync = |place: &Path| -> io::Result<()> {
        let root = rustix::fs::open(place, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(rustix::fs::syncfs(&root)?)
    };
    // Each of them, whatever becomes of another.
    places.into_iter().fold(Ok(()), |done, place| done.and(sync(place.as_ref())))
}

fn send(command: &mut Command) -> io::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other(format!("the process that was to do it was ended: {status}"))),
    }
}

/// The errand's life: what [`enable`]'s program calls with the words behind its own. The exit code is an errno, or 0.
pub fn run(words: &[impl AsRef<OsStr>]) -> ExitCode {
    let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
    let done = match words.split_first().map(|(verb, rest)| (verb.as_bytes(), rest)) {
        Some((b"unmount", [flags, path])) => {
            let flags = flags.to_str().and_then(|flags| flags.parse().ok()).and_then(UnmountFlags::from_bits);
            flags.map_or(Err(io::Error::from_raw_os_error(libc::EINVAL)), |flags| {
                rustix::mount::unmount(Path::new(path), flags).map_err(io::Error::from)
            })
        }
        Some((b"sync", places)) => sync_here(places),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    };
    let errno = done.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
    ExitCode::from(u8::try_from(errno).unwrap_or(u8::MAX))
}
