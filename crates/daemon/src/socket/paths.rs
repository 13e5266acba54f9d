//! The paths of the daemon's socket, lock and log.
//!
//! `TARN_SOCKET` names the socket. Otherwise root has `/run/tarn/daemon.sock` and anybody else
//! `$XDG_RUNTIME_DIR/tarn/daemon.sock`, or a directory of their own in `/tmp`; where the user's daemon does not know a pool, root's is asked. The lock and the log are beside it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::socket::trust::{self, Thing};

/// Longest path that fits a socket address.
const SOCKET_PATH_MAX: usize = 107;

/// The directory of root's daemon.
const OF_ROOT: &str = "/run/tarn";
/// The name of a socket, where nobody has chosen one.
const SOCKET_NAME: &str = "daemon.sock";

/// The paths of one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonPaths {
    socket: PathBuf,
}

impl DaemonPaths {
    /// The paths for this user.
    pub fn of_user() -> DaemonPaths {
        if let Some(socket) = std::env::var_os("TARN_SOCKET").filter(|socket| !socket.is_empty()) {
            return DaemonPaths::at(socket);
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
        DaemonPaths::at(directory.join(SOCKET_NAME))
    }

    /// The paths of root's daemon, for a user who has none of their own that knows a pool. `None`: `TARN_SOCKET` says where the daemon is, or
    /// the user is root.
    pub fn of_machine() -> Option<DaemonPaths> {
        let is_said = std::env::var_os("TARN_SOCKET").is_some_and(|socket| !socket.is_empty());
        (!is_said && !geteuid().is_root()).then(|| DaemonPaths::at(Path::new(OF_ROOT).join(SOCKET_NAME)))
    }

    /// The paths beside this socket. The daemon's working directory is not its callers', so the path becomes absolute
    /// here.
    pub fn at(socket: impl Into<PathBuf>) -> DaemonPaths {
        let socket = socket.into();
        DaemonPaths { socket: std::path::absolute(&socket).unwrap_or(socket) }
    }

    /// Whether these are the paths of root's daemon, of which there is one.
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

    /// The daemon's log, unless `TARN_LOG_FILE` names another one.
    pub fn log(&self) -> PathBuf {
        match std::env::var_os("TARN_LOG_FILE").filter(|file| !file.is_empty()) {
            Some(file) => std::path::absolute(&file).unwrap_or(file.into()),
            None => self.beside(".log"),
        }
    }

    /// Opens the log for writing. `TARN_LOG_FILE` may name anything: a terminal, a link.
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

    /// The directory in which the views of transactions are mounted.
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

    /// Makes the directory, for its owner alone. Refuses one to which another user may write, or has written.
    pub fn prepare(&self) -> io::Result<()> {
        if self.socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{}: the path of a socket has at most {SOCKET_PATH_MAX} bytes", self.socket.display())));
        }
        trust::make_directory(self.directory())?;
        if self.is_the_machines() {
            // Everybody may call the daemon; what else lies there has modes of its own.
            fs::set_permissions(self.directory(), fs::Permissions::from_mode(0o755))?;
        }
        trust::is_there(&self.socket, Thing::Socket)?;
        trust::is_there(&self.lock(), Thing::File).map(|_| ())
    }

    /// Whether there is a socket. Refuses a directory to which another user may write, or has written.
    pub(crate) fn has_socket(&self) -> io::Result<bool> {
        Ok(trust::directory(self.directory())? && trust::is_there(&self.socket, Thing::Socket)?)
    }
}
