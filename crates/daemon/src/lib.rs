//! The daemon: owns pools, serves mounts and the control socket.
//!
//! # Theory
//! While a pool is imported, one process has it open: the daemon of the user that imported it. The commands reach it
//! through a Unix socket ([`Client`]), and start it when it is not there; it ends when the last pool is exported. Each
//! mounted dataset is a FUSE session, whose operations ([`ops`]) call `tarnfs::FileSystem`.
//!
//! A daemon that is told to end exports its pools. One that is killed leaves pools as a power failure would, and the
//! on-disk format survives that.
//!
//! # Path
//! `cli` → [`Client`] → [`ControlSocket`] → `tarnfs::control::execute` → [`Backend`](tarnfs::control::Backend);
//! kernel → `fuse` → [`ops`] → `tarnfs::FileSystem`

mod errno;
mod limits;
mod logging;
mod memory;
mod mounting;
mod parameters;
pub mod ops;
mod socket;

#[cfg(test)]
mod tests;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use tarnfs::control::{Beside, MACHINE_CACHEFILE, Pools};

pub use socket::client::Client;
pub use socket::control_socket::{ControlSocket, Service, Switch};
pub use errno::errno;
pub use mounting::mounter::FuseMounter;
pub use mounting::mounts::{MountHow, Mounts};
pub use socket::paths::DaemonPaths;

impl Service for Pools {
    fn is_needed(&self) -> bool {
        !self.is_empty()
    }

    fn tidy(&mut self) {
        Pools::tidy(self);
    }

    fn beside(&self) -> Option<Beside> {
        Some(Pools::beside(self))
    }
}

/// `tarn daemon`: owns pools and their mounts until the last pool is exported.
pub fn run_pools() -> ExitCode {
    limits::raise();
    let (limits, memory_bytes) = match limits::of_environment() {
        Ok(limits) => limits,
        Err(words) => {
            eprintln!("tarn daemon: {words}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = memory::watch(memory_bytes, &limits) {
        eprintln!("tarn daemon: {error}");
        return ExitCode::FAILURE;
    }
    logging::start();
    if let Err(words) = parameters::watch(&limits) {
        eprintln!("tarn daemon: {words}");
        return ExitCode::FAILURE;
    }
    let paths = DaemonPaths::of_user();
    let cachefile = paths.is_the_machines().then_some(MACHINE_CACHEFILE);
    run(&paths, || Pools::new(FuseMounter::new().with_transactions_at(paths.transactions())).with_limits(limits).with_cachefile(cachefile))
}

/// Runs a daemon in this process until it is not needed. `make` is called once the paths are ours.
pub fn run<S: Service>(paths: &DaemonPaths, make: impl FnOnce() -> S) -> ExitCode {
    logging::start();
    // Fails when we lead a process group already, as under a supervisor; then we stay in its session.
    let _ = rustix::process::setsid();
    match serve(paths, make) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the daemon ends");
            ExitCode::FAILURE
        }
    }
}

fn serve<S: Service>(paths: &DaemonPaths, make: impl FnOnce() -> S) -> io::Result<()> {
    let Some(socket) = ControlSocket::claim(paths)? else {
        tracing::info!(socket = %paths.socket().display(), "another daemon is here already");
        return Ok(());
    };
    let switch = Arc::new(Switch::default());
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let told = Arc::clone(&switch);
    // A limit on the size of files that could not be raised: the write fails, and that is enough.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            tracing::info!(signal, "told to end");
            told.end();
        }
    })?;
    tracing::info!(socket = %paths.socket().display(), "serving");
    let backend = Arc::new(Mutex::new(make()));
    socket.serve(&backend, &switch).map_err(|failure| io::Error::other(failure.to_string()))
}
