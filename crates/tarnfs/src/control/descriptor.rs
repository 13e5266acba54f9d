//! The caller's descriptor that a stream goes through.
//!
//! # Theory
//! A request about a stream brings the command's standard output or input with it, as the ioctl of OpenZFS does, and the bytes do not
//! go through the command. The program at the other end may be slow, or not read at all; and the command may be killed while
//! somebody still has the other end open. So a stream never waits in the kernel for longer than a moment: a pipe is opened
//! anew, without waiting (the flag belongs to an open file, and the caller's own must stay as it is), a socket is told so with each call,
//! and between two tries [`Watch::end`] is looked at.
//!
//! # Invariants
//! 1. Only pipes, sockets, files and devices are taken, and only for what the caller opened them for.
//! 2. A thread that reads or writes here holds no lock and no group.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, fstat, openat};
use rustix::net::{RecvFlags, SendFlags};
use rustix::pipe::fcntl_setpipe_size;

use super::protocol::stream::StreamProgress;

/// How long to wait for the other end before looking whether the stream is still wanted.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// What a pipe should hold, so that both ends are awake less often.
const PIPE_BYTES: usize = 1 << 20;

/// What is known of a stream while it goes, and whether it is still wanted.
#[derive(Debug, Default)]
pub struct Watch {
    bytes: AtomicU64,
    is_over: AtomicBool,
}

impl Watch {
    /// The command has gone: the stream fails at its next byte.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Has the command gone?
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// How far it is.
    pub fn progress(&self) -> StreamProgress {
        StreamProgress { bytes: self.bytes.load(Ordering::Relaxed) }
    }

    /// Bytes that did not go through the descriptor, but count: those of a dry run.
    pub fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn check(&self) -> io::Result<()> {
        if self.is_over() { Err(io::Error::new(ErrorKind::BrokenPipe, "the command has ended")) } else { Ok(()) }
    }
}

/// Which way a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the caller.
    Out,
    /// From the caller.
    In,
}

#[derive(Debug)]
enum Open {
    /// A pipe, opened by us: it does not wait.
    Pipe(File),
    Socket(OwnedFd),
    /// A file or device: it waits, but not for a reader.
    Plain(File),
}

/// A stream's way to its command.
#[derive(Debug)]
pub struct Descriptor {
    open: Open,
    watch: Arc<Watch>,
}

impl Descriptor {
    /// Takes what a caller has passed, for one way.
    ///
    /// # Errors
    /// It is a directory or the like, or was not opened for this way.
    pub fn new(given: OwnedFd, way: Way) -> io::Result<Descriptor> {
        let mode = fcntl_getfl(&given)?;
        let has = mode & OFlags::ACCMODE;
        let needs = if way == Way::Out { OFlags::WRONLY } else { OFlags::RDONLY };
        if mode.contains(OFlags::PATH) || (has != needs && has != OFlags::RDWR) {
            return Err(io::Error::new(ErrorKind::InvalidInput, if way == Way::Out { "it is not open for writing" } else { "it is not open for reading" }));
        }
        let open = match FileType::from_raw_mode(fstat(&given)?.st_mode) {
            FileType::Fifo => reopened(given, needs),
            FileType::Socket => Open::Socket(given),
            FileType::RegularFile | FileType::CharacterDevice | FileType::BlockDevice => Open::Plain(given.into()),
            _ => return Err(io::Error::new(ErrorKind::InvalidInput, "a stream goes through a pipe, a socket or a file")),
        };
        Ok(Descriptor { open, watch: Arc::default() })
    }

    /// What others may know of it, and end it by.
    pub fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// Calls `once` until it need not wait any more.
    fn repeat(&mut self, flags: PollFlags, mut once: impl FnMut(&mut Open) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            self.watch.check()?;
            match once(&mut self.open) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let open = match &self.open {
                        Open::Pipe(file) | Open::Plain(file) => file.as_fd(),
                        Open::Socket(socket) => socket.as_fd(),
                    };
                    let polled = poll(&mut [PollFd::new(&open, flags)], Some(&LOOK_EVERY)).map_err(io::Error::from);
                    polled.map(drop).or_else(|error| if error.kind() == ErrorKind::Interrupted { Ok(()) } else { Err(error) })?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(bytes) => {
                    self.watch.count(bytes as u64);
                    return Ok(bytes);
                }
            }
        }
    }
}

/// The same pipe, opened without waiting. One that cannot be opened anew, as it is another user's, is used as it is.
fn reopened(given: OwnedFd, mode: OFlags) -> Open {
    let path = format!("/proc/self/fd/{}", given.as_raw_fd());
    match openat(CWD, path, mode | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => {
            // Some have less; then it is as large as it is.
            let _ = fcntl_setpipe_size(&file, PIPE_BYTES);
            Open::Pipe(file.into())
        }
        Err(_) => Open::Plain(given.into()),
    }
}

impl Write for Descriptor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.repeat(PollFlags::OUT, |open| match open {
            Open::Pipe(file) | Open::Plain(file) => file.write(bytes),
            Open::Socket(socket) => Ok(rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Descriptor {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.repeat(PollFlags::IN, |open| match open {
            Open::Pipe(file) | Open::Plain(file) => file.read(bytes),
            Open::Socket(socket) => Ok(rustix::net::recv(socket, &mut *bytes, RecvFlags::DONTWAIT)?.1),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        pipe_with(PipeFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn only_the_way_that_a_caller_opened_is_gone() {
        let (reads, writes) = pipe();
        assert!(Descriptor::new(reads, Way::Out).is_err());
        assert!(Descriptor::new(writes, Way::In).is_err());
        let directory = tempfile::tempdir().unwrap();
        assert!(Descriptor::new(File::open(directory.path()).unwrap().into(), Way::In).is_err());
        let path_only = openat(CWD, directory.path(), OFlags::PATH, Mode::empty()).unwrap();
        assert!(Descriptor::new(path_only, Way::In).is_err());
    }

    /// What nobody reads fills the pipe, or the socket, and then waits until it is told to end. A reader that is gone is an error.
    #[test]
    fn a_stream_that_nobody_reads_can_be_ended() {
        let (reads, writes) = pipe();
        let (left, right) = UnixStream::pair().unwrap();
        for (mut reader, given) in [(File::from(reads), writes), (File::from(OwnedFd::from(left)), right.into())] {
            let before = fcntl_getfl(&given).unwrap();
            let kept = given.try_clone().unwrap();
            let mut out = Descriptor::new(given, Way::Out).unwrap();
            out.write_all(b"begin").unwrap();
            let mut got = [0; 5];
            reader.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"begin");
            let watch = out.watch().clone();
            #[allow(clippy::disallowed_methods)] // a thread of the test's
            let writing = std::thread::spawn(move || loop {
                if let Err(error) = out.write_all(&[7; 100_000]) {
                    break error;
                }
            });
            let mut last = 0;
            while watch.progress().bytes == 5 || watch.progress().bytes != std::mem::replace(&mut last, watch.progress().bytes) {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            watch.end();
            assert_eq!(writing.join().unwrap().kind(), ErrorKind::BrokenPipe);
            assert_eq!(fcntl_getfl(&kept).unwrap(), before, "the caller's open file is as it was");
            drop(reader);
            let mut again = Descriptor::new(kept, Way::Out);
            assert!(again.as_mut().map_or(true, |out| out.write_all(&[7; 100_000]).is_err()));
        }
    }
}
