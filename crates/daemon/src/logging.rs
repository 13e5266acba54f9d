//! Where the daemon's own words go.
//!
//! `TARN_LOG` says what is written (`info`, `debug`, `fuse=trace,daemon=debug`, ...; `warn` if it is not set); lines go
//! to standard error, which the command that started the daemon has bound to the log file beside the socket.

use tracing_subscriber::EnvFilter;

/// Once per process; later calls have no effect.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("TARN_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    // Fails only when somebody, a test for example, was faster.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).with_thread_names(true).try_init();
}
