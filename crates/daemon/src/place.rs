//! Where the daemon's socket, lock and log are.
//!
//! `TARN_SOCKET` names the socket. Otherwise root has `/run/tarn/daemon.sock` and anybody else
//! `$XDG_RUNTIME_DIR/tarn/daemon.sock`, or a directory of their own in `/tmp`. The lock and the log are beside it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

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
            return Place { socket: socket.into() };
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
        Place { socket: directory.join("daemon.sock") }
    }

    /// A place of one's own (tests).
    pub fn at(socket: impl Into<PathBuf>) -> Place {
        Place { socket: socket.into() }
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
            Some(file) => file.into(),
            None => self.beside(".log"),
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

    /// Makes the directory, for its owner alone, and refuses one that somebody else could have made.
    pub fn prepare(&self) -> io::Result<()> {
        if self.socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{}: the path of a socket has at most {SOCKET_PATH_MAX} bytes", self.socket.display())));
        }
        let Some(directory) = self.socket.parent().filter(|directory| !directory.as_os_str().is_empty()) else { return Ok(()) };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let owner = fs::metadata(directory)?.uid();
        if owner != geteuid().as_raw() && owner != 0 {
            return Err(io::Error::new(ErrorKind::PermissionDenied, format!("{}: belongs to user {owner}", directory.display())));
        }
        Ok(())
    }
}
