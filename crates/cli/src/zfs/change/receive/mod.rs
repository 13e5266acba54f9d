//! `zfs receive`
//!
//! # Theory
//! The command reads where streams begin, and decides what each becomes; the records behind that the daemon reads itself, from the same
//! descriptor, and not a byte more. So a package of streams is a loop here.

mod input;
mod local;
mod mounts;
mod moves;
mod names;
mod one;
mod overrides;
mod package;
mod replicate;
mod replies;

use std::collections::BTreeSet;
use std::io::IsTerminal;

use tarnfs::control::{DatasetKind, DatasetKinds, FailureKind, ReceiveAbort, Request};

use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::{Options, Wrong};
use crate::zfs::datasets;
use input::Input;

/// A file system or volume.
const HEADS: DatasetKinds = DatasetKinds { filesystem: true, volume: true, snapshot: false, bookmark: false };

#[derive(Default)]
struct Flags {
    /// `-d`, and `-e`, which is one of it.
    prefix: bool,
    tail: bool,
    skip_holds: bool,
    force_unmount: bool,
    dry_run: bool,
    no_mount: bool,
    verbose: bool,
    resumable: bool,
    force: bool,
    abort: bool,
    heal: bool,
    pairs: Vec<(String, String)>,
    inherited: Vec<String>,
    /// `-o origin=`
    origin: Option<String>,
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, ":o:x:dehMnuvFsAc", &[]);
    for option in options.by_ref() {
        let (letter, argument) = match option {
            Ok(option) => option,
            Err(Wrong::Missing(letter)) => return Err(session.misuse(format_args!("missing argument for '{letter}' option"))),
            Err(wrong) => return Err(session.misuse(wrong)),
        };
        let argument = argument.unwrap_or_default();
        match letter {
            'o' => super::create::add_pair(session, &mut flags.pairs, &argument).map_err(|_| Stop::Usage)?,
            'x' if argument.contains('=') => return Err(session.misuse("invalid character '=' in property argument")),
            'x' if flags.inherited.contains(&argument) || flags.pairs.iter().any(|(name, _)| *name == argument) => {
                return Err(session.misuse(format_args!("property '{argument}' specified multiple times")));
            }
            'x' => flags.inherited.push(argument),
            'd' | 'e' => {
                if flags.prefix && flags.tail != (letter == 'e') {
                    return Err(session.misuse("invalid option combination: -d and -e are mutually exclusive"));
                }
                (flags.prefix, flags.tail) = (true, letter == 'e');
            }
            'h' => flags.skip_holds = true,
            'M' => flags.force_unmount = true,
            'n' => flags.dry_run = true,
            'u' => flags.no_mount = true,
            'v' => flags.verbose = true,
            's' => flags.resumable = true,
            'F' => flags.force = true,
            'A' => flags.abort = true,
            _ => flags.heal = true,
        }
    }
    if let Some(at) = flags.pairs.iter().position(|(name, _)| name == "origin") {
        flags.origin = Some(flags.pairs.remove(at).1);
    }
    Ok((flags, options.operands()))
}

/// One run.
struct Run<'r, 's> {
    session: &'r mut Session<'s>,
    flags: Flags,
    input: Input,
    /// What the operand names.
    target: String,
    /// The first dataset that is received: all others are below it.
    top: Option<String>,
    /// Something is to be mounted at the end.
    has_new: bool,
    /// The guids of file systems that were mounted, and are not while they are on their way to another place.
    unmounted: BTreeSet<u64>,
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (flags, operands) = parse(session, words)?;
    let target = match operands.as_slice() {
        [target] => target.clone(),
        [] => return Err(session.misuse("missing snapshot argument")),
        _ => return Err(session.misuse("too many arguments")),
    };
    if flags.abort {
        if flags.prefix || flags.dry_run || flags.resumable || flags.no_mount {
            return Err(session.misuse("invalid option"));
        }
        return abort(session, target);
    }
    if std::io::stdin().is_terminal() {
        complain!(session, "Error: Backup stream can not be read from a terminal.\nYou must redirect standard input.");
        return Ok(1);
    }
    let input = Input::standard().map_err(|error| {
        complain!(session, "cannot receive: {error}");
        Stop::Code(1)
    })?;
    let mut run = Run { session, flags, input, target, top: None, has_new: false, unmounted: BTreeSet::new() };
    run.check_overrides()?;
    run.check_places()?;
    let code = run.receive_all()?;
    if code != 0 {
        return Ok(code);
    }
    run.mount_received()
}

fn abort(session: &mut Session<'_>, dataset: String) -> Outcome {
    let kind = datasets::open(session, &dataset, HEADS, &[])?.kind;
    debug_assert!(matches!(kind, DatasetKind::Filesystem | DatasetKind::Volume), "asked for");
    match session.perform(Request::ReceiveAbort(ReceiveAbort { dataset: dataset.clone() })) {
        Ok(()) => Ok(0),
        Err(failure) if failure.kind == FailureKind::Other => {
            complain!(session, "{failure}");
            Ok(1)
        }
        Err(failure) => Err(session.failed(format_args!("cannot destroy '{dataset}'"), &failure)),
    }
}

impl Run<'_, '_> {
    /// What was named must be there.
    fn check_places(&mut self) -> Result<(), Stop> {
        if self.flags.prefix && self.entry(&self.target.clone(), &[]).is_none() {
            return Err(self.refuse("cannot receive", &format!("specified fs ({}) does not exist", self.target)));
        }
        if let Some(origin) = self.flags.origin.clone()
            && self.entry(&origin, &[]).is_none()
        {
            return Err(self.refuse("cannot receive", &format!("specified origin fs ({origin}) does not exist")));
        }
        Ok(())
    }

    /// Says what cannot be.
    fn refuse(&mut self, action: &str, why: &str) -> Stop {
        complain!(self.session, "{action}: {why}");
        Stop::Code(1)
    }
}
