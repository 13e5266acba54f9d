//! Where the daemon's socket, lock and log are.
//!
//! `TARN_SOCKET` names the socket. Otherwise root has `/run/tarn/daemon.sock` and anybody else
//! `$XDG_RUNTIME_DIR/tarn/daemon.sock`, or a directory of their own in `/tmp`. The lock and the log are beside it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::trust::{self, Thing};

/// Longest path that fits a socket address.
const SOCKET_PATH_MAX: usize = 107;

/// Where root's daemon is.
const OF_ROOT: &str = "/run/tarn";

/// The places of one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    socket: PathBuf,
}

impl Place {
    /// The place for this user.
    pub fn of_user() -> Place {
        if let Some(socket) = std::env::var_os("TARN_SOCKET").filter(|socket| !socket.is_empty()) {
            return Place::at(socket);
        }
        let uid = geteuid();
        let directory = if uid.is_root() {
            PathBuf::from(OF_ROOT)
        } else {
            match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
                Some(directory) => PathBuf::from(directory).join("tarn"),
                None => PathBuf::from(format!("/tmp/tarn-{}", uid.as_raw())),
            }
        };
        Place::at(directory.join("daemon.sock"))
    }

    /// The place with this socket. The daemon works in another directory than its callers: a path from here is one from the root from now on.
    pub fn at(socket: impl Into<PathBuf>) -> Place {
        let socket = socket.into();
        Place { socket: std::path::absolute(&socket).unwrap_or(socket) }
    }

    /// Is it where root's daemon is, of which there is one?
    pub fn is_the_machines(&self) -> bool {
        geteuid().is_root() && self.socket.parent() == Some(Path::new(OF_ROOT))
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Locked while a daemon lives.
    pub fn lock(&self) -> PathBuf {
        self.beside(".lock")
    }

    /// What the daemon has to say, unless `TARN_LOG_FILE` says otherwise.
    pub fn log(&self) -> PathBuf {
        match std::env::var_os("TARN_LOG_FILE").filter(|file| !file.is_empty()) {
            Some(file) => std::path::absolute(&file).unwrap_or(file.into()),
            None => self.beside(".log"),
        }
    }

    /// The log, to write to. What `TARN_LOG_FILE` names may be anything: a terminal, a link.
    pub(crate) fn open_log(&self) -> io::Result<File> {
        let log = self.log();
        let mut options = OpenOptions::new();
        options.append(true);
        if log == self.beside(".log") {
            trust::open_file(&log, &mut options)
        } else {
            options.create(true).mode(0o600).open(&log).map_err(trust::named(&log))
        }
    }

    /// Where the views of transactions are mounted.
    pub fn transactions(&self) -> PathBuf {
        self.beside(".transactions")
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(self.socket.as_os_str());
        name.push(suffix);
        name.into()
    }

    /// The directory of all of these.
    fn directory(&self) -> &Path {
        self.socket.parent().unwrap_or(Path::new("/"))
    }

    /// Makes the directory, for its owner alone; refuses a place to which somebody else may write, or has.
    pub fn prepare(&self) -> io::Result<()> {
        if self.socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{}: the path of a socket has at most {SOCKET_PATH_MAX} bytes", self.socket.display())));
        }
        trust::make_directory(self.directory())?;
        trust::is_there(&self.socket, Thing::Socket)?;
        trust::is_there(&self.lock(), Thing::File).map(|_| ())
    }

    /// Is there a socket? Refuses a place to which somebody else may write, or has.
    pub(crate) fn has_socket(&self) -> io::Result<bool> {
        Ok(trust::directory(self.directory())? && trust::is_there(&self.socket, Thing::Socket)?)
    }
}
