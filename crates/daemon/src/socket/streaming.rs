//! A stream that goes on beside its command.
//!
//! # Theory
//! While a stream goes, another thread watches the connection: every second it says how far the stream is, and when the command hangs
//! up, killed or not, it ends the stream, whatever else still has the other end of the descriptor. It ends it, too, when the caller is no longer
//! granted what it takes. The backend is not locked meanwhile, and others are served.
//!
//! # Path
//! [`ControlSocket`](crate::ControlSocket) → here → [`tarnfs::control::StreamJob`]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use tarnfs::control::wire::write_message;
use tarnfs::control::{Descriptor, Failure, FailureKind, Reply, Request, StreamJob, Streamed, Watch};

/// How often the command is told how far the stream is.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Lets the stream go through the descriptor that came with the request, as long as it is allowed, which is asked now and then.
pub(crate) fn stream(
    connection: &UnixStream,
    request: &Request,
    given: Option<OwnedFd>,
    job: StreamJob,
    is_allowed: &(dyn Fn() -> bool + Sync),
) -> Result<Streamed, Failure> {
    let other = |error: io::Error| Failure::with(FailureKind::Other, format!("the stream has no way: {error}"));
    let way = request.stream_way().ok_or_else(|| Failure::new(FailureKind::Other))?;
    let given = given.ok_or_else(|| Failure::with(FailureKind::Other, "no descriptor came with the request"))?;
    let descriptor = Descriptor::new(given, way).map_err(other)?;
    let watch = descriptor.watch().clone();
    let (over, running) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| other(error.into()))?;
    let is_revoked = AtomicBool::new(false);
    let ask = || {
        is_revoked.fetch_or(!is_allowed(), Ordering::Relaxed);
        !is_revoked.load(Ordering::Relaxed)
    };
    let done = thread::scope(|scope| {
        let told = thread::Builder::new().name("stream watch".to_owned()).spawn_scoped(scope, || attend(connection, &watch, &over, &ask));
        told.map_err(other)?;
        let _running = running;
        job(descriptor)
    });
    if is_revoked.load(Ordering::Relaxed) { Err(Failure::new(FailureKind::Permission)) } else { done }
}

/// Until the job is done, which closes the other end of `over`.
fn attend(mut connection: &UnixStream, watch: &Watch, over: &OwnedFd, is_allowed: &dyn Fn() -> bool) {
    let second = Timespec { tv_sec: TELL_EVERY.as_secs().cast_signed(), tv_nsec: 0 };
    loop {
        let mut both = [PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::RDHUP), PollFd::new(over, PollFlags::IN)];
        match poll(&mut both, Some(&second)) {
            Ok(0) => {
                if !is_allowed() {
                    watch.end();
                    return;
                }
                if write_message(&mut connection, &Reply::Progress(watch.progress())).is_err() {
                    watch.end();
                    return;
                }
            }
            Ok(_) if !both[1].revents().is_empty() => return,
            Ok(_) => {
                watch.end();
                return;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::warn!(%error, "a stream's command cannot be watched");
                return;
            }
        }
    }
}
