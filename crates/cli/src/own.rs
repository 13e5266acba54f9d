//! `tarn`: the programs that it is, and verbs that OpenZFS has not.

use std::process::{Command as Process, ExitCode};

use crate::command::{Action, Command, Program, Run, RunRaw};
use crate::session::{Outcome, Session, complain, say};
use crate::{arcstat, completion, fs, mount_helper, stream, transaction, try_it, zdb, zfs, zpool};

/// Called by the daemon only, with its process id.
pub(crate) const WITNESS: &str = "daemon-witness";

/// Called by the daemon only, with what is to be done.
pub(crate) const ERRAND: &str = "daemon-errand";

const fn part(name: &'static str, about: &'static str, program: &'static Program) -> Command {
    Command { name, usage: "", about, action: Action::Program(program) }
}

const fn verb(name: &'static str, usage: &'static str, about: &'static str, run: Run) -> Command {
    Command { name, usage, about, action: Action::Run(run) }
}

const fn raw(name: &'static str, usage: &'static str, about: &'static str, run: RunRaw) -> Command {
    Command { name, usage, about, action: Action::RunRaw(run) }
}

/// The program.
pub(crate) static PROGRAM: Program = Program {
    name: "tarn",
    commands: COMMANDS,
    aliases: &[("--version", "version"), ("-V", "version")],
    command_notes,
    notes: "
Called zpool, zfs or zdb, through a link, tarn is that command; called mount.tarn,
mount.fuse.tarn or mount.zfs (links in /sbin), it mounts for mount(8) and /etc/fstab.

'tarn help COMMAND' says more of each, as in: tarn help zpool create
",
    is_openzfs: false,
};

static COMMANDS: &[Command] = &[
    part("zpool", "pools: make, import, look after them", &zpool::PROGRAM),
    part("zfs", "file systems in them, and their properties", &zfs::PROGRAM),
    verb("zdb", "", "look into a pool, check every block of it", |session, words| Ok(zdb::run(session, words))),
    part("fs", "files of a pool without mounting or importing it", &fs::PROGRAM),
    part("stream", "what is in a send stream, and is it whole", &stream::PROGRAM),
    part("transaction", "several changes to files, all of them or none", &transaction::PROGRAM),
    verb("arcstat", arcstat::USAGE, "hits, misses and sizes of the caches", arcstat::run),
    verb("mount", mount_helper::USAGE_LINE, "mount a file system where one is told", |session, words| {
        Ok(mount_helper::run(session, words))
    }),
    verb("try", "", "two minutes' tour on a pool that leaves nothing behind", |_, words| Ok(try_it::run(words))),
    verb("completion", "\tcompletion bash|zsh|fish\n", "completion of commands, datasets and snapshots for a shell", completion::run),
    raw("daemon", "\tdaemon\n", "own pools in this process (it starts by itself)", daemon),
    verb("version", "\tversion\n", "which tarn this is", version),
];

/// The text after the usage of each.
fn command_notes(verb: &str) -> String {
    match verb {
        "zdb" => zdb::USAGE.to_owned(),
        "arcstat" => arcstat::NOTES.to_owned(),
        "try" => try_it::help(),
        "mount" => format!("\n{}", mount_helper::NOTES),
        "completion" => concat!(
            "\nPrints a script for the shell, which then completes the words of tarn, zfs and\n",
            "zpool: commands, pools, datasets, and the snapshots of 'zfs destroy tank/fs@'.\n",
            "\nIn ~/.bashrc or ~/.zshrc: source <(tarn completion bash)\n",
        )
        .to_owned(),
        "daemon" => concat!(
            "\nIt owns the imported pools and their mounts, and ends when the last pool is\n",
            "exported. The first command that needs it starts it, so that nobody has to.\n",
            "\nTARN_SOCKET  where it listens (and logs: the same name with .log)\n",
            "TARN_CACHE   how much memory it takes at the most, as in 4G\n",
            "TARN_AGENT   off: no spare comes in by itself, and no device is given up for errors\n",
        )
        .to_owned(),
        _ => String::new(),
    }
}

fn version(session: &mut Session<'_>, words: &[String]) -> Outcome {
    if !words.is_empty() {
        return Err(session.misuse("too many arguments"));
    }
    say!(session, "tarn {}", env!("CARGO_PKG_VERSION"));
    Ok(0)
}

/// `tarn daemon`: owns pools in this process until the last one is exported.
fn daemon(session: &mut Session<'_>, words: &[std::ffi::OsString]) -> Outcome {
    if let Some(word) = words.first() {
        complain!(session, "tarn daemon takes no arguments, but was given '{}'", word.display());
        return Err(crate::session::Stop::Usage);
    }
    fuse::witness::enable(|| this_program(&[WITNESS, &std::process::id().to_string()]));
    fuse::errand::enable(|| this_program(&[ERRAND]));
    Ok(u8::from(daemon::run_pools() != ExitCode::SUCCESS))
}

fn this_program(words: &[&str]) -> Process {
    // The program's file may have been replaced.
    let program = std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| "/proc/self/exe".into());
    let mut command = Process::new(program);
    command.args(words);
    command
}

/// The body of [`fuse::witness`]'s process. Users do not call it.
pub(crate) fn witness(words: &[String]) -> ExitCode {
    match words {
        [server] if server.parse::<u32>().is_ok() => fuse::witness::watch(server.parse().unwrap_or(0)),
        _ => ExitCode::FAILURE,
    }
}
