//! `tarn transaction`: several changes to the files of a mounted dataset, all or none of them.
//!
//! # Theory
//!
//! `begin` has the daemon mount a private view of the dataset and prints its directory; changes there are not seen by others, and no crash
//! keeps until `commit`. The transaction belongs to a process: when that ends first, it is forgotten. `run` puts it all
//! together around one command. As root it gives the command a mount namespace in which the view lies over the dataset's own
//! directory, so that a script need not know of it; `unshare` and `mount` do that, as they do for any program.
//!
//! The exit code of `run` is the command's if that failed; [`CONFLICT`] if another program changed what the command has seen, which is
//! a reason to try again.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitStatus};

use rustix::process::{getpid, getppid};
use tarnfs::control::{Failure, FailureKind, Request, TransactionBegin, TransactionEnd, TransactionFate, TransactionPlace};

use crate::command::{Action, Command, Program};
use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::Options;

/// "Temporary failure" among the exit codes of `sysexits.h`.
const CONFLICT: u8 = 75;
/// As a shell has it: the command cannot be run.
const CANNOT_RUN: u8 = 126;
/// Tells the command where the view is.
const VARIABLE: &str = "TARN_TRANSACTION";

/// In the new mount namespace: the view over the dataset, the working directory anew, since it may be in there.
const ENTER: &str = r#"mount --bind "$1" "$2" && cd "$3" && shift 3 && exec "$@""#;

/// The program.
pub(crate) static PROGRAM: Program =
    Program { name: "tarn transaction", commands: COMMANDS, aliases: &[], command_notes, notes: NOTES, is_openzfs: false };

const fn verb(name: &'static str, usage: &'static str, action: Action) -> Command {
    Command { name, usage, about: "", action }
}

static COMMANDS: &[Command] = &[
    verb("run", "\trun [-ds] <filesystem> [--] <command> [argument] ...\n", Action::RunRaw(run_command)),
    verb("begin", "\tbegin [-o pid] <filesystem>\n", Action::Run(begin)),
    verb("commit", "\tcommit [-s] <directory>\n", Action::Run(commit)),
    verb("abort", "\tabort <directory>\n", Action::Run(abort)),
];

const NOTES: &str = "
run       runs the command with a private view of the mounted file system. If it
          succeeds, all its changes are done at once and are on disk; else none.
          Exit code 75: somebody else changed the same; nothing has happened.
          -d: the view is in $TARN_TRANSACTION only, where the command starts, and
          not at the place of the file system (always so without being root).
          -s: the changes are on disk soon, without waiting for the disk.
begin     prints the directory of a new view. It is forgotten when the process
          -o ends, which is the caller otherwise.
commit    does all changes. -s: soon, without waiting for the disk.
abort     forgets them.
";

/// Of one command: its part of the notes.
fn command_notes(name: &str) -> String {
    let begins = |line: &str| line.starts_with(|first: char| !first.is_whitespace());
    let mut lines = NOTES.lines().skip_while(|line| !line.starts_with(name));
    let first = lines.next().into_iter();
    let part: Vec<&str> = first.chain(lines.take_while(|line| !begins(line))).collect();
    format!("\n{}\n", part.join("\n"))
}

/// The letters that were given, and the rest.
fn options(session: &mut Session<'_>, words: &[String], short: &'static str) -> Result<(Vec<(char, Option<String>)>, Vec<String>), Stop> {
    let mut options = Options::new(words, short, &[]);
    let mut given = Vec::new();
    for option in options.by_ref() {
        given.push(option.map_err(|wrong| session.misuse(wrong))?);
    }
    Ok((given, options.operands()))
}

fn one<'a>(session: &mut Session<'_>, operands: &'a [String], what: &str) -> Result<&'a String, Stop> {
    match operands {
        [one] => Ok(one),
        [] => Err(session.misuse(format_args!("missing {what} argument"))),
        _ => Err(session.misuse("too many arguments")),
    }
}

fn place(session: &mut Session<'_>, dataset: &str, owner: i32) -> Result<TransactionPlace, Stop> {
    let begin = TransactionBegin { dataset: dataset.to_owned(), owner };
    let begun = session.transaction(Request::TransactionBegin(begin));
    let place = begun.map_err(|failure| {
        let stop = session.failed(format_args!("cannot begin a transaction in '{dataset}'"), &failure);
        if failure.kind == FailureKind::NoSuchDataset {
            crate::zfs::datasets::hint(session, dataset);
        } else if failure.message == "not currently mounted" {
            session.hint(format!("to mount it: tarn zfs mount {dataset}"));
        }
        stop
    })?;
    seen(session, dataset, place)
}

/// The view that the daemon has mounted, if this process sees it: in a mount namespace of its own, as a command of `run` has one, it may
/// see the bare directory, and what it wrote there would be lost.
fn seen(session: &mut Session<'_>, dataset: &str, place: TransactionPlace) -> Result<TransactionPlace, Stop> {
    let device = |path: &Path| std::fs::symlink_metadata(path).map(|found| found.dev());
    let is_mount = match (device(&place.directory), place.directory.parent().map(device)) {
        (Ok(of_view), Some(Ok(of_parent))) => of_view != of_parent,
        (Err(error), _) => error.kind() != io::ErrorKind::NotFound,
        _ => true,
    };
    if is_mount {
        return Ok(place);
    }
    let _ = end(session, place.directory.clone(), TransactionFate::Abort);
    complain!(
        session,
        "cannot begin a transaction in '{dataset}': its view is mounted at {}, which cannot be seen from this mount namespace \
         (that of a transaction's command, perhaps: one of several datasets begins them all with 'tarn transaction begin')",
        place.directory.display()
    );
    Err(Stop::Code(1))
}

fn end(session: &mut Session<'_>, directory: PathBuf, fate: TransactionFate) -> Result<(), Failure> {
    session.perform(Request::TransactionEnd(TransactionEnd { directory, fate }))
}

/// A refused commit, and its exit code.
fn refused(session: &mut Session<'_>, what: &str, failure: &Failure) -> Stop {
    complain!(session, "cannot commit {what}: {failure}");
    Stop::Code(if failure.kind == FailureKind::Conflict { CONFLICT } else { 1 })
}

/// As the daemon knows it: without a slash at the end, or a way round.
fn directory(word: &str) -> PathBuf {
    std::path::absolute(word).map_or_else(|_| word.into(), |path| path.components().collect())
}

fn begin(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (given, operands) = options(session, words, "o:")?;
    let dataset = one(session, &operands, "filesystem")?;
    let owner = match given.last().and_then(|(_, pid)| pid.as_ref()) {
        Some(pid) => pid.parse().map_err(|_| session.misuse(format_args!("'{pid}' is no process")))?,
        None => getppid().map_or(0, |pid| pid.as_raw_nonzero().get()),
    };
    let place = place(session, dataset, owner)?;
    say!(session, "{}", place.directory.display());
    Ok(0)
}

fn commit(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (given, operands) = options(session, words, "s")?;
    let word = one(session, &operands, "directory")?;
    match end(session, directory(word), TransactionFate::Commit { durable: given.is_empty() }) {
        Ok(()) => Ok(0),
        Err(failure) => Err(refused(session, &format!("the transaction at '{word}'"), &failure)),
    }
}

fn abort(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (_, operands) = options(session, words, "")?;
    let word = one(session, &operands, "directory")?;
    match end(session, directory(word), TransactionFate::Abort) {
        Err(failure) if failure.kind != FailureKind::Conflict => Err(session.failed(format_args!("cannot abort the transaction at '{word}'"), &failure)),
        _ => Ok(0),
    }
}

/// What `run` is to do.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// The view is not laid over the dataset.
    beside: bool,
    soon: bool,
    dataset: String,
    /// As given; it need not be UTF-8.
    command: Vec<OsString>,
}

/// Reads the words of `run`. The command need not be UTF-8; what comes before it is.
fn wanted(words: &[OsString]) -> Result<Wanted, String> {
    let texts: Vec<String> = words.iter().map_while(|word| word.to_str().map(str::to_owned)).collect();
    let mut wanted = Wanted::default();
    let mut options = Options::leading(&texts, "ds");
    for option in options.by_ref() {
        match option.map_err(|wrong| wrong.to_string())? {
            ('d', _) => wanted.beside = true,
            _ => wanted.soon = true,
        }
    }
    let first = options.places().first().copied().ok_or("missing filesystem argument")?;
    texts[first].clone_into(&mut wanted.dataset);
    wanted.command = words[first + 1..].to_vec();
    if wanted.command.first().is_some_and(|word| word == "--") {
        wanted.command.remove(0);
    }
    if wanted.command.is_empty() { Err("missing command argument".to_owned()) } else { Ok(wanted) }
}

/// The command, with the view where it is to be.
fn process(wanted: &Wanted, place: &TransactionPlace) -> Process {
    let mut command = if wanted.beside || !rustix::process::geteuid().is_root() {
        let mut command = Process::new(&wanted.command[0]);
        command.args(&wanted.command[1..]).current_dir(&place.directory);
        command
    } else {
        let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
        let mut command = Process::new("unshare");
        command.args(["--mount", "--propagation", "slave", "--", "sh", "-c", ENTER, "sh"]);
        command.arg(&place.directory).arg(&place.mountpoint).arg(here).args(&wanted.command);
        command
    };
    command.env(VARIABLE, &place.directory);
    command
}

/// As a shell has it: that of the program, or of the signal that ended it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(1)
}

fn run_command(session: &mut Session<'_>, words: &[OsString]) -> Outcome {
    let wanted = wanted(words).map_err(|wrong| session.misuse(wrong))?;
    let called = wanted.command[0].display();
    let place = place(session, &wanted.dataset, getpid().as_raw_nonzero().get())?;
    let code = match process(&wanted, &place).status() {
        Ok(status) => exit_code(status),
        Err(error) => {
            complain!(session, "cannot run '{called}': {error}");
            CANNOT_RUN
        }
    };
    if code == 0 {
        let committed = end(session, place.directory.clone(), TransactionFate::Commit { durable: !wanted.soon });
        let Err(failure) = committed else { return Ok(0) };
        let stop = refused(session, &format!("what '{called}' did in '{}'", wanted.dataset), &failure);
        if failure.kind == FailureKind::DatasetBusy {
            // A process that the command left behind works on.
            let _ = end(session, place.directory, TransactionFate::Abort);
        }
        return Err(stop);
    }
    // The command has said why, but perhaps not that trying again may help.
    match end(session, place.directory, TransactionFate::Abort) {
        Err(failure) if failure.kind == FailureKind::Conflict => Err(refused(session, &format!("what '{called}' did in '{}'", wanted.dataset), &failure)),
        _ => Ok(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Result<Wanted, String> {
        wanted(&words.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_is_taken_as_it_is() {
        use std::os::unix::ffi::OsStringExt;
        let name = OsString::from_vec(b"a\xffb".to_vec());
        let words = ["tank".into(), "rm".into(), name.clone()];
        assert_eq!(wanted(&words).unwrap().command, ["rm".into(), name]);
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }

    #[test]
    fn options_after_the_dataset_are_the_commands() {
        let run = of("-s tank/etc sh -d x").unwrap();
        assert_eq!((run.beside, run.soon, run.dataset.as_str()), (false, true, "tank/etc"));
        assert_eq!(run.command, ["sh", "-d", "x"]);
        assert_eq!(of("-ds tank -- ls --").unwrap().command, ["ls", "--"]);
        assert_eq!(of("-d -- tank ls").unwrap().dataset, "tank");
        for (wrong, message) in [
            ("", "missing filesystem argument"), ("-d", "missing filesystem argument"), ("tank", "missing command argument"),
            ("tank --", "missing command argument"), ("-x tank ls", "invalid option 'x'"),
        ] {
            assert_eq!(of(wrong), Err(message.to_owned()), "{wrong}");
        }
    }
}
