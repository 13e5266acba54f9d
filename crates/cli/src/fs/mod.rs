//! `tarn fs`: files of a pool without a mount.
//!
//! # Theory
//!
//! A place is a path on this system, or `POOL/DATASET[@SNAPSHOT]:/PATH`. Both are a [`tree::Tree`], so that a copy goes from any to
//! any. A pool that is not imported is opened for the time of the command, read-only unless something is written to it; of
//! one that the daemon has, the files are reached through its mount.

mod copy;
mod host;
mod list;
mod operand;
pub(crate) mod past;
mod pool;
mod tree;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

use crate::command::{Action, Command, Program, RunRaw};
use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::{Long, Options};

/// The program.
pub(crate) static PROGRAM: Program = Program {
    name: "tarn fs",
    commands: COMMANDS,
    aliases: &[],
    command_notes: |_| NOTES.to_owned(),
    notes: NOTES,
    is_openzfs: false,
};

const fn verb(name: &'static str, usage: &'static str, run: RunRaw) -> Command {
    Command { name, usage, about: "", action: Action::RunRaw(run) }
}

static COMMANDS: &[Command] = &[
    verb("ls", "\tls [-alR] [-d dir|device] ... [-f] <place> ...\n", |session, words| on_places(session, "ls", words, list::ls)),
    verb("cat", "\tcat [-d dir|device] ... [-f] <place> ...\n", |session, words| on_places(session, "cat", words, list::cat)),
    verb("stat", "\tstat [-d dir|device] ... [-f] <place> ...\n", |session, words| on_places(session, "stat", words, list::stat)),
    verb("find", "\tfind [-d dir|device] ... [-f] <place> ...\n", |session, words| on_places(session, "find", words, list::find)),
    verb("cp", "\tcp [-apr] [-d dir|device] ... [-f] <place> ... <place>\n", |session, words| on_places(session, "cp", words, copy::run)),
    verb("history", "\thistory [-Hj] [-d dir|device] ... <file> ...\n", past::history::run),
    verb("undelete", "\tundelete [-Hj] [-d dir|device] ... <file|directory> [directory]\n", past::undelete::run),
    verb("at", "\tat [-d dir|device] ... <moment> <file> [place]\n", past::at::run),
    verb("diff", "\tdiff [-FHjth] [-d dir|device] ... <pool/dataset>@<moment> [pool/dataset]@<moment>\n", past::changes::run),
    verb("mkdir", "\tmkdir [-d dir|device] ... [-f] <place> ...\n", |session, words| on_places(session, "mkdir", words, copy::mkdir)),
];

const NOTES: &str = "
A place is a path on this system, or <pool/dataset>[@<snapshot>]:/<path> in a pool,
as in 'tarn fs cp -r -d /images tank/home:/joe /tmp'. The pool need not be imported:
-d (--pool-dir) says where its devices are; without it they are looked for in /dev.
-f opens a pool that another system used last.

    ls:  -a  hidden names too   -l  long lines     -R  what is below, too
    cp:  -r  directories        -p  owners, modes, times, attributes   -a  all of it, links too

history, undelete, at and diff look at what files were: in snapshots, and in the
transaction groups of the last minutes, of which the space is not yet used again.
They write nothing to the pool, imported or not. A file is named by its path where
it is mounted, or as pool/dataset:/path. A moment is 'now', a snapshot (@name), a
TXG, a time ('2026-11-25 14:30', 14:30) or an age (10m, 2h, 3d).

    tarn fs history ~/thesis.txt           every version, and who still has it
    tarn fs at 10m ~/thesis.txt old.txt    copies one out
    tarn fs undelete ~ [directory]         what was deleted [and copies it there]
    tarn fs diff tank/home@monday @now     what has changed
";

const LONG: &[Long] = &[
    ("pool-dir", 'd'),
    ("force", 'f'),
    ("all", 'a'),
    ("recursive", 'r'),
    ("preserve", 'p'),
    ("archive", 'a'),
];

/// The options.
#[derive(Debug, Default)]
struct Flags {
    pool_paths: Vec<PathBuf>,
    force: bool,
    all: bool,
    long: bool,
    recursive: bool,
    preserve: bool,
    /// Files with several names have them in the copy, too.
    links: bool,
    /// Names go to a terminal: bytes that are no text are escaped. A program gets them as they are.
    escape: bool,
}

fn parse(session: &mut Session<'_>, verb: &str, given: &[OsString]) -> Result<(Flags, Vec<OsString>), Stop> {
    // A long option with an argument, which the others have not.
    let mut plain: Vec<OsString> = Vec::new();
    let mut words = given.iter();
    while let Some(word) = words.next() {
        let directory = word.to_str().and_then(|word| word.strip_prefix("--pool-dir="));
        if word == "--pool-dir" {
            let directory = words.next().ok_or_else(|| session.misuse("missing argument for '--pool-dir' option"))?;
            plain.extend(["-d".into(), directory.clone()]);
        } else if let Some(directory) = directory {
            plain.extend(["-d".into(), directory.into()]);
        } else {
            plain.push(word.clone());
        }
    }
    let mut flags = Flags { escape: std::io::stdout().is_terminal(), ..Flags::default() };
    let words = crate::texts(&plain);
    let mut options = Options::new(&words, "d:falRrp", LONG);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match letter {
            'd' => flags.pool_paths.push(argument.unwrap_or_default().into()),
            'f' => flags.force = true,
            'a' if verb == "cp" => (flags.recursive, flags.preserve, flags.links) = (true, true, true),
            'a' => flags.all = true,
            'l' => flags.long = true,
            'p' => flags.preserve = true,
            _ => flags.recursive = true,
        }
    }
    Ok((flags, options.places().into_iter().map(|place| plain[place].clone()).collect()))
}

/// A verb on trees.
type OnTrees = fn(&mut Session<'_>, &Flags, &mut operand::OpenTrees<'_>, &[OsString]) -> Outcome;

/// Runs a verb, and lets go of the pools that it used.
fn on_places(session: &mut Session<'_>, verb: &str, words: &[OsString], run: OnTrees) -> Outcome {
    let (flags, operands) = parse(session, verb, words)?;
    if operands.is_empty() {
        return Err(session.misuse("missing place"));
    }
    let mut trees = operand::OpenTrees::new(&flags);
    let outcome = run(session, &flags, &mut trees, &operands);
    match trees.close(session) {
        Err(words) => {
            complain!(session, "tarn fs {verb}: {words}");
            Err(Stop::Code(1))
        }
        Ok(()) => outcome,
    }
}
