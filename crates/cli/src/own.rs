//! Verbs that OpenZFS has not.

use std::process::ExitCode;

use tikv_jemalloc_ctl::{Access, AsName};

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

/// Names jemalloc's setting that says how long an arena keeps what was freed, in milliseconds.
const KEEP_FREE: &str = "arena.0.dirty_decay_ms\0";

/// Has the allocator return what it keeps free: whoever says that nothing is kept any more has it all returned at once.
fn return_memory() {
    let arenas = Access::<u32>::read(b"arenas.narenas\0".name()).unwrap_or(0);
    for arena in 0..arenas {
        let name = KEEP_FREE.replace('0', &arena.to_string());
        let keep_free = name.as_bytes().name();
        if let Ok(before) = keep_free.update(0isize) {
            let _ = keep_free.write(before);
        }
    }
}

/// `tarn daemon`: owns pools in this process until the last one is exported.
pub(crate) fn daemon() -> ExitCode {
    daemon::run_pools(return_memory)
}
