//! Verbs that OpenZFS has not.

use std::process::{Command, ExitCode};

use crate::session::{Session, complain, say};

/// Called by the daemon only, with its process id.
pub(crate) const WITNESS: &str = "daemon-witness";

/// Called by the daemon only, with what is to be done.
pub(crate) const ERRAND: &str = "daemon-errand";

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
    fuse::witness::enable(|| this_program(&[WITNESS, &std::process::id().to_string()]));
    fuse::errand::enable(|| this_program(&[ERRAND]));
    daemon::run_pools()
}

fn this_program(words: &[&str]) -> Command {
    // The program's file may have been replaced.
    let program = std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| "/proc/self/exe".into());
    let mut command = Command::new(program);
    command.args(words);
    command
}

/// What [`fuse::witness`] needs: nobody calls it.
pub(crate) fn witness(words: &[String]) -> ExitCode {
    match words {
        [server] if server.parse::<u32>().is_ok() => fuse::witness::watch(server.parse().unwrap_or(0)),
        _ => ExitCode::FAILURE,
    }
}
