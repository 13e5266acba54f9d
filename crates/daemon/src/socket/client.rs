//! The command's side of the control socket: connects, and starts the daemon if there is none.

use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tarnfs::control::wire::{read_message, write_message};
use tarnfs::control::{Failure, FailureKind, Reply, Request, StreamProgress};

use crate::DaemonPaths;
use crate::socket::passing::Sending;
use crate::socket::trust;

/// How long a new daemon may take to answer. A daemon that is ending must have left its paths by then too.
const START_LIMIT: Duration = Duration::from_secs(15);
/// The interval between tries.
const RETRY_EVERY: Duration = Duration::from_millis(10);

/// How long to wait for other callers to hang up.
const TURN_LIMIT: Duration = Duration::from_secs(15);
const TURN_EVERY: Duration = Duration::from_millis(20);

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
}

impl Client {
    /// Connects to a daemon that runs and answers. `None` if there is none, or only one that is ending. Nothing is sent
    /// to another user's daemon.
    #[allow(clippy::disallowed_methods)] // the real clock: a command waits in it
    pub fn connect(paths: &DaemonPaths) -> io::Result<Option<Client>> {
        let begin = Instant::now();
        loop {
            if !paths.has_socket()? {
                return Ok(None);
            }
            let stream = match UnixStream::connect(paths.socket()) {
                Ok(stream) => stream,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
                Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", paths.socket().display()))),
            };
            trust::check_peer(&stream, paths.socket())?;
            let mut client = Client { stream };
            match client.greeted() {
                Ok(Some(Reply::Done)) => return Ok(Some(client)),
                // It has too many callers. That must not look like a daemon that is not there and has no pools.
                Ok(Some(Reply::Failed(failure))) if begin.elapsed() >= TURN_LIMIT => return Err(io::Error::other(failure.message)),
                Ok(Some(Reply::Failed(_))) => std::thread::sleep(TURN_EVERY),
                _ => return Ok(None),
            }
        }
    }

    /// The daemon's answer to the call. A daemon with too many callers answers unasked and closes.
    fn greeted(&mut self) -> io::Result<Option<Reply>> {
        let asked = write_message(&mut self.stream, &Request::Ping);
        let reply = read_message(&mut self.stream);
        if asked.is_err() && !matches!(reply, Ok(Some(_))) { asked.map(|()| None) } else { reply }
    }

    /// Connects; starts `tarn daemon` (this very program) if none answers.
    pub fn connect_or_start(paths: &DaemonPaths) -> io::Result<Client> {
        let program = std::env::current_exe().map_err(|error| io::Error::new(error.kind(), format!("cannot find this program's own file: {error}")))?;
        Client::connect_or_start_with(paths, || {
            let mut command = Command::new(&program);
            command.arg("daemon");
            command
        })
    }

    /// As [`Client::connect_or_start`], with the command that starts a daemon.
    pub fn connect_or_start_with(paths: &DaemonPaths, command: impl Fn() -> Command) -> io::Result<Client> {
        paths.prepare()?;
        let mut started = None;
        for _ in 0..START_LIMIT.as_millis() / RETRY_EVERY.as_millis() {
            if let Some(client) = Client::connect(paths)? {
                return Ok(client);
            }
            let gone = match &mut started {
                None => true,
                Some(child) => std::process::Child::try_wait(child)?.is_some_and(|status| !status.success()),
            };
            if gone {
                if started.is_some() {
                    return Err(io::Error::other(format!("the daemon ended at once; see {}", paths.log().display())));
                }
                started = Some(spawn(paths, command())?);
            }
            std::thread::sleep(RETRY_EVERY);
        }
        Err(io::Error::new(ErrorKind::TimedOut, format!("the daemon does not answer; see {}", paths.log().display())))
    }

    /// Sends one request and waits for its reply, whatever time it takes.
    pub fn exchange(&mut self, request: &Request) -> io::Result<Reply> {
        write_message(&mut self.stream, request)?;
        read_message(&mut self.stream)?.ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }

    /// Sends a request about a stream, which goes through `descriptor`; `progress` hears how far it is, every second.
    pub fn call_with(&mut self, request: &Request, descriptor: BorrowedFd<'_>, progress: &mut dyn FnMut(StreamProgress)) -> Reply {
        let mut exchange = || {
            write_message(&mut Sending { stream: &self.stream, descriptor: Some(descriptor) }, request)?;
            loop {
                match read_message(&mut self.stream)? {
                    Some(Reply::Progress(so_far)) => progress(so_far),
                    Some(reply) => return Ok(reply),
                    None => return Err(ErrorKind::UnexpectedEof.into()),
                }
            }
        };
        exchange().unwrap_or_else(lost)
    }

    /// As [`Client::exchange`], with a lost connection as a failure among others.
    pub fn call(&mut self, request: &Request) -> Reply {
        self.exchange(request).unwrap_or_else(lost)
    }
}

fn lost(error: io::Error) -> Reply {
    Reply::Failed(Failure::with(FailureKind::NoDaemon, format!("the tarn daemon cannot be reached: {error}")))
}

/// The daemon makes a session of its own as its first act, so that it outlives the terminal.
fn spawn(paths: &DaemonPaths, mut command: Command) -> io::Result<std::process::Child> {
    let log = paths.open_log()?;
    command.env("TARN_SOCKET", paths.socket()).current_dir("/").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", command.get_program().display())))
}
