//! `tarn fs`: files of a pool without a mount.
//!
//! # Theory
//!
//! A place is a path on this system, or `POOL/DATASET[@SNAPSHOT]:/PATH`. Both are a [`tree::Tree`], so that a copy goes from any to
//! any. A pool that nobody has imported is opened for the time of the command, read-only unless something is written to it; of
//! one that the daemon has, the files are reached through its mount.

mod copy;
mod host;
mod list;
mod place;
mod pool;
mod tree;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

use crate::getopt::{Long, Options};
use crate::session::{Session, Stop, complain};

const USAGE: &str = "usage: tarn fs command [-d dir|device] ... [-f] args ...
where 'command' is one of the following:

\tls [-alR] <place> ...
\tcat <place> ...
\tstat <place> ...
\tfind <place> ...
\tcp [-apr] <place> ... <place>
\tmkdir <place> ...

A place is a path on this system, or <pool/dataset>[@<snapshot>]:/<path> in a pool,
as in 'tarn fs cp -r -d /images tank/home:/joe /tmp'. The pool need not be imported:
-d (--pool-dir) says where its devices are; without it they are looked for in /dev.
-f opens a pool that another system used last.
";

const LONG: &[Long] = &[
    ("pool-dir", 'd'),
    ("force", 'f'),
    ("all", 'a'),
    ("recursive", 'r'),
    ("preserve", 'p'),
    ("archive", 'a'),
];

/// What may be asked for.
#[derive(Debug, Default)]
struct Flags {
    pool_paths: Vec<PathBuf>,
    force: bool,
    all: bool,
    long: bool,
    recursive: bool,
    preserve: bool,
    /// What has several names has them in the copy, too.
    links: bool,
    /// Names are shown to somebody: what is no text in them is escaped. A program gets them as they are.
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

/// Runs the command; the words are those after `fs`.
pub(crate) fn run(session: &mut Session<'_>, words: &[OsString]) -> u8 {
    let outcome = match words.split_first() {
        None => Err(Stop::Usage),
        Some((verb, words)) => match &*verb.to_string_lossy() {
            "help" | "--help" | "-h" | "-?" => {
                session.print(format_args!("{USAGE}"));
                Ok(0)
            }
            verb => run_verb(session, verb, words),
        },
    };
    match outcome {
        Ok(code) | Err(Stop::Code(code)) => code,
        Err(Stop::Usage) => {
            complain!(session, "{}", USAGE.trim_end());
            2
        }
    }
}

fn run_verb(session: &mut Session<'_>, verb: &str, words: &[OsString]) -> Result<u8, Stop> {
    let (flags, operands) = parse(session, verb, words)?;
    if operands.is_empty() {
        return Err(session.misuse("missing place"));
    }
    let mut places = place::Places::new(&flags);
    let outcome = match verb {
        "ls" => list::ls(session, &flags, &mut places, &operands),
        "cat" => list::cat(session, &mut places, &operands),
        "stat" => list::stat(session, &mut places, &operands),
        "find" => list::find(session, &flags, &mut places, &operands),
        "cp" => copy::run(session, &flags, &mut places, &operands),
        "mkdir" => copy::mkdir(session, &mut places, &operands),
        _ => Err(session.misuse(format_args!("unrecognized command '{verb}'"))),
    };
    match places.close(session) {
        Err(words) => {
            complain!(session, "tarn fs {verb}: {words}");
            Err(Stop::Code(1))
        }
        Ok(()) => outcome,
    }
}
