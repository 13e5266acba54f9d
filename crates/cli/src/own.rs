//! Verbs that OpenZFS has not.

use std::process::ExitCode;

use crate::session::{Session, complain, say};

const USAGE: &str = "usage: tarn command args ...
where 'command' is one of the following:

\tzpool ...
\tzfs ...
\tzdb ...
\tfs ...
\ttransaction ...
\tdaemon
\tmount [-fnrsvw] [-o options] <filesystem> <directory>
\ttry
\tversion

Called zpool, zfs or zdb, through a link, tarn is that command; called mount.tarn,
mount.fuse.tarn or mount.zfs (links in /sbin), it mounts for mount(8) and /etc/fstab.
";

/// Runs one of them.
pub(crate) fn run(session: &mut Session<'_>, verb: &str, words: &[String]) -> u8 {
    match verb {
        "help" | "--help" | "-h" | "-?" => {
            session.print(format_args!("{USAGE}"));
            0
        }
        "version" | "--version" | "-V" if words.is_empty() => {
            say!(session, "tarn {}", env!("CARGO_PKG_VERSION"));
            0
        }
        _ => {
            complain!(session, "unrecognized command '{verb}'");
            complain!(session, "{}", USAGE.trim_end());
            2
        }
    }
}

/// `tarn daemon`: owns pools in this process until the last one is exported.
pub(crate) fn daemon() -> ExitCode {
    daemon::run_pools()
}
