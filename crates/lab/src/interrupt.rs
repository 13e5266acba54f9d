//! Ctrl-C as an error that unwinds, so that everything that was set up is taken down.
//!
//! # Theory
//!
//! The handler sets a flag. Whatever takes long asks [`check`] now and then and returns its error; the guards
//! ([`crate::undo::Undo`]) do the rest. Children are started in process groups of their own, so that the terminal's
//! Ctrl-C reaches us only, and we end them in the right order.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static PENDING: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(false)));

/// The user, or the system, asked us to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// From now on SIGINT, SIGTERM and SIGHUP are remembered instead of ending the process.
pub fn watch() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&PENDING))?;
    }
    Ok(())
}

/// [`watch`]es, and does the work in a thread of its own. A signal goes to the first thread that does not refuse it, and that is this one,
/// which is free to take it while the work waits, deaf to it, for a file system that does not answer.
pub fn guard<T: Send>(work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    watch()?;
    match std::thread::scope(|scope| scope.spawn(work).join()) {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Has one of them come?
pub fn pending() -> bool {
    PENDING.load(Ordering::Relaxed)
}

/// Fails if one of them has come.
pub fn check() -> Result<(), Interrupted> {
    if pending() { Err(Interrupted) } else { Ok(()) }
}

/// Is it what made `error`?
pub fn caused(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Interrupted>())
}
