//! Calls on our own mounts that another process of ours makes.
//!
//! # Theory
//! The kernel asks the server before it ends a mount on a block device, or makes it durable, and the thread that called
//! it cannot be killed meanwhile. If that thread belongs to the server, and the whole server is killed at that moment,
//! the thread stays for good with its descriptors, sockets and locks. So another process makes the call, and the server
//! waits for that process, which a kill interrupts. Then the kernel closes the server's descriptors and ends the
//! connection, and the other process gets its answer.
//!
//! Starting a process takes longer than unmounting. So a process that has unmounted waits on a pipe for the next
//! errand, until none came for a second ([`rest`]), or until the server is gone and the pipe is closed.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;

/// How the process is started: set once, by a program that calls [`run`] there.
static PROGRAM: OnceLock<fn() -> Command> = OnceLock::new();

/// The most places that one process is told.
const PLACES: usize = 256;
/// How long a process without an errand stays.
const RESTS_AFTER: Duration = Duration::from_secs(1);
/// Longest path that a process is sent.
const PATH_MAX: usize = 1 << 16;

/// guards: processes that wait for an errand
static IDLE: Mutex<Vec<Servant>> = Mutex::new(Vec::new());

/// A process that unmounts, one thing after the other.
struct Servant {
    process: Child,
    /// `None` when it is to end.
    input: Option<ChildStdin>,
    output: ChildStdout,
    since: Instant,
}

impl Servant {
    fn start(mut command: Command) -> io::Result<Servant> {
        let mut process = command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (input, output) = (process.stdin.take(), process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        Ok(Servant { process, input, output, since: now() })
    }

    /// Sends it; the answer is an errno, or 0.
    fn unmount(&mut self, path: &Path, flags: UnmountFlags) -> io::Result<u8> {
        let path = path.as_os_str().as_bytes();
        let message = [&flags.bits().to_le_bytes()[..], &(path.len() as u32).to_le_bytes(), path].concat();
        self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(&message)?;
        let mut answer = [0];
        self.output.read_exact(&mut answer)?;
        Ok(answer[0])
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        self.input.take();
        let _ = self.process.wait();
    }
}

#[allow(clippy::disallowed_methods)] // the real clock
fn now() -> Instant {
    Instant::now()
}

fn idle() -> MutexGuard<'static, Vec<Servant>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends processes that nobody has needed for a while. To be called now and then.
pub fn rest() {
    let ending: Vec<Servant> = {
        let mut idle = idle();
        let (stays, ends) = idle.drain(..).partition(|servant: &Servant| servant.since.elapsed() < RESTS_AFTER);
        *idle = stays;
        ends
    };
    drop(ending);
}

/// From now on errands go to another process. `program` starts it: one that calls [`run`] with the arguments that are added.
pub fn enable(program: fn() -> Command) {
    let _ = PROGRAM.set(program);
}

/// Ends a mount, as root.
pub(crate) fn unmount(path: &Path, flags: UnmountFlags) -> io::Result<()> {
    match PROGRAM.get() {
        Some(program) => {
            let free = idle().pop();
            let mut servant = free.map_or_else(|| Servant::start(program()), Ok)?;
            let errno = servant.unmount(path, flags).map_err(|error| io::Error::other(format!("the process that unmounts was ended: {error}")))?;
            servant.since = now();
            idle().push(servant);
            if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno.into())) }
        }
        None => rustix::mount::unmount(path, flags).map_err(io::Error::from),
    }
}

/// Makes what was changed in these mounts durable.
pub fn sync(places: &[PathBuf]) -> io::Result<()> {
    match PROGRAM.get() {
        // A failure for one mount does not keep the others from being synced. The length of a command line is bounded.
        Some(program) => places.chunks(PLACES).map(|places| send(program().arg("sync").args(places))).fold(Ok(()), io::Result::and),
        None => sync_here(places),
    }
}

fn sync_here(places: impl IntoIterator<Item = impl AsRef<Path>>) -> io::Result<()> {
    let sync = |place: &Path| -> io::Result<()> {
        let root = rustix::fs::open(place, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(rustix::fs::syncfs(&root)?)
    };
    // A failure for one mount does not keep the others from being synced.
    places.into_iter().map(|place| sync(place.as_ref())).fold(Ok(()), io::Result::and)
}

fn send(command: &mut Command) -> io::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other(format!("the process that unmounts or syncs was ended: {status}"))),
    }
}

/// The errand's life: what [`enable`]'s program calls with the words behind its own. The exit code is an errno, or 0.
pub fn run(words: &[impl AsRef<OsStr>]) -> ExitCode {
    let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
    let done = match words.split_first().map(|(verb, rest)| (verb.as_bytes(), rest)) {
        Some((b"serve", [])) => serve(&mut io::stdin().lock(), &mut io::stdout().lock()),
        Some((b"sync", places)) => sync_here(places),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    };
    ExitCode::from(errno_of(done))
}

fn errno_of(done: io::Result<()>) -> u8 {
    let errno = done.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
    u8::try_from(errno).unwrap_or(u8::MAX)
}

/// The life of a process that unmounts: until there is no more input.
fn serve(input: &mut impl Read, output: &mut impl Write) -> io::Result<()> {
    loop {
        let mut head = [[0; 4]; 2];
        match input.read_exact(head.as_flattened_mut()) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let [flags, length] = head.map(u32::from_le_bytes);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(flags) = UnmountFlags::from_bits(flags).filter(|_| length <= PATH_MAX) else { return Err(io::ErrorKind::InvalidData.into()) };
        let mut path = vec![0; length];
        input.read_exact(&mut path)?;
        let done = rustix::mount::unmount(Path::new(OsStr::from_bytes(&path)), flags).map_err(io::Error::from);
        output.write_all(&[errno_of(done)])?;
        output.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errands_are_answered_one_after_the_other() {
        let message = |path: &[u8]| [&UnmountFlags::NOFOLLOW.bits().to_le_bytes()[..], &(path.len() as u32).to_le_bytes(), path].concat();
        let (mut input, mut output) = ([message(b"/nowhere/at all"), message(b"/proc/self/comm")].concat(), Vec::new());
        serve(&mut input.as_slice(), &mut output).unwrap();
        assert_eq!(output, [libc::ENOENT as u8, libc::EINVAL as u8]);
        input.truncate(input.len() - 1);
        assert!(serve(&mut input.as_slice(), &mut output).is_err(), "half a message");
        assert!(serve(&mut [[0xff; 8], [0; 8]].concat().as_slice(), &mut output).is_err(), "a length that nobody sends");
    }
}
