//! A process that sees to it that a server can die.
//!
//! # Theory
//! A thread of ours may itself ask for something in a file system that we serve: it makes the directory on which one mount lies within
//! another, or looks at a path. If all of us are killed at that moment, nobody answers any more, and the kernel does not let go
//! of the thread before it has an answer, or the connection has ended. The connection ends when the last descriptor of it is closed;
//! but they are closed when the last thread has gone. So the process stays for good, with its sockets and locks, until somebody
//! writes into `/sys/fs/fuse/connections`. (Seen once in a thousand kills.)
//!
//! So there is one more process, which is told of each connection through a pipe, its standard input. While it can read nothing there,
//! it looks now and then whether the server is dead, that is whether its first thread is. If it is, and the pipe is not closed nevertheless, it ends
//! the connections. When the pipe is closed, all others are gone, and it ends.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Where the kernel lists connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// How often it is looked whether the server lives.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// How the process is started: set once, by a program that calls [`watch`] there.
static PROGRAM: OnceLock<fn() -> Command> = OnceLock::new();
/// guards: the process, and the connections that it is told of
static WITNESS: Mutex<Witness> = Mutex::new(Witness { process: None, connections: BTreeSet::new() });

struct Witness {
    process: Option<Child>,
    connections: BTreeSet<u32>,
}

/// From now on each session of this process has a witness. `program` starts one: a process that calls [`watch`] with our id.
pub fn enable(program: fn() -> Command) {
    let _ = PROGRAM.set(program);
}

/// A connection of which the witness knows, until this is dropped.
#[derive(Debug)]
pub(crate) struct Watched(u32);

impl Watched {
    /// Begins watching the connection that `stat` shows as the device `major`, `minor`. `None`: there is no witness.
    pub(crate) fn begin(device: Option<(u32, u32)>) -> Option<Watched> {
        PROGRAM.get()?;
        // As the kernel numbers devices inside.
        let (major, minor) = device?;
        let number = major << 20 | minor;
        let mut witness = WITNESS.lock().unwrap_or_else(PoisonError::into_inner);
        witness.connections.insert(number);
        witness.tell('+', number);
        Some(Watched(number))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut witness = WITNESS.lock().unwrap_or_else(PoisonError::into_inner);
        witness.connections.remove(&self.0);
        witness.tell('-', self.0);
    }
}

impl Witness {
    fn tell(&mut self, sign: char, number: u32) {
        let told = self.process.as_mut().is_some_and(|process| process.stdin.as_mut().is_some_and(|pipe| writeln!(pipe, "{sign}{number}").is_ok()));
        if told || self.connections.is_empty() {
            return;
        }
        if let Some(mut ended) = self.process.take() {
            let _ = ended.kill();
            let _ = ended.wait();
        }
        let all: String = self.connections.iter().map(|number| format!("+{number}\n")).collect();
        let Some(mut program) = PROGRAM.get().map(|program| program()) else { return };
        match program.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(mut process) => {
                let _ = process.stdin.as_mut().map(|pipe| pipe.write_all(all.as_bytes()));
                self.process = Some(process);
            }
            Err(error) => tracing::warn!(%error, "no witness process: if this process is killed while it uses its own mounts, it stays"),
        }
    }
}

/// The witness's life: watches `server` (a process id) until it is gone.
pub fn watch(server: u32) -> ExitCode {
    let _ = rustix::thread::set_name(c"tarn-witness");
    let (input, mut text) = (io::stdin(), Vec::new());
    let mut connections = BTreeSet::new();
    loop {
        let mut fds = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut fds, Some(&LOOK_EVERY)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return ExitCode::FAILURE,
            Ok(0) if is_dead(server) => connections.iter().for_each(|number| end(*number)),
            Ok(0) => {}
            Ok(_) => {
                let mut bytes = [0; 4096];
                // Not through the buffer of `stdin`: nobody would be told of what lies there.
                match rustix::io::read(&input, &mut bytes) {
                    Ok(0) => return ExitCode::SUCCESS,
                    Ok(count) => note(&mut text, &bytes[..count], &mut connections),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return ExitCode::FAILURE,
                }
            }
        }
    }
}

/// Reads the lines that have come.
fn note(text: &mut Vec<u8>, bytes: &[u8], connections: &mut BTreeSet<u32>) {
    text.extend_from_slice(bytes);
    while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
        let line: Vec<u8> = text.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line);
        let number = line.get(1..).and_then(|number| number.trim_end().parse().ok());
        match (line.as_bytes().first(), number) {
            (Some(b'+'), Some(number)) => drop(connections.insert(number)),
            (Some(b'-'), Some(number)) => drop(connections.remove(&number)),
            _ => {}
        }
    }
}

/// The first thread has ended, and so all others were told to.
fn is_dead(server: u32) -> bool {
    let Ok(line) = std::fs::read_to_string(format!("/proc/{server}/stat")) else { return false };
    // The name is in brackets, and may be anything.
    line.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Ends a connection of ours: callers that wait for an answer get an error.
fn end(number: u32) {
    let switch = format!("{CONNECTIONS}/{number}/abort");
    // In a container nobody may have mounted it.
    let is_ours = !Path::new(&switch).exists() && mount("fusectl", CONNECTIONS, "fusectl", MountFlags::empty(), None).is_ok();
    let _ = std::fs::write(switch, "1");
    if is_ours {
        let _ = unmount(CONNECTIONS, UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_pieces() {
        let (mut text, mut connections) = (Vec::new(), BTreeSet::new());
        for piece in ["+12\n+", "3", "4\n-12\n+x\n\n+7"] {
            note(&mut text, piece.as_bytes(), &mut connections);
        }
        assert_eq!(connections, BTreeSet::from([34]));
    }

    #[test]
    fn the_living_are_not_dead() {
        assert!(!is_dead(std::process::id()) && !is_dead(u32::MAX));
    }
}
