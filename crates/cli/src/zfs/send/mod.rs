//! `zfs send`.
//!
//! # Theory
//! As in OpenZFS the command says which streams there are, in which order, and what is to be said of them; each stream is one request,
//! with the standard output as its descriptor, and does not go through the command. A package (`-R`, `-I`, `-p`, `-b`, `-h`) has records of its
//! own before and behind the streams: those the command writes.

mod one;
mod package;
mod said;
mod token;

use std::io::IsTerminal;
use std::os::fd::AsFd;

use tarnfs::control::{DatasetEntry, DatasetKinds, DatasetList, Failure, PropertyValue, Request, StreamSend, Value, Wanted};

use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::{Long, Options};

const LONG: &[Long] = &[
    ("replicate", 'R'),
    ("skip-missing", 's'),
    ("redact", 'd'),
    ("props", 'p'),
    ("parsable", 'P'),
    ("dedup", 'D'),
    ("proctitle", 'V'),
    ("verbose", 'v'),
    ("dryrun", 'n'),
    ("large-block", 'L'),
    ("embed", 'e'),
    ("resume", 't'),
    ("compressed", 'c'),
    ("raw", 'w'),
    ("backup", 'b'),
    ("holds", 'h'),
    ("saved", 'S'),
    ("exclude", 'X'),
    ("no-preserve-encryption", 'U'),
];

/// What is asked for.
#[derive(Debug, Clone, Default)]
struct Flags {
    replicate: bool,
    /// `-I`
    all: bool,
    skip_missing: bool,
    properties: bool,
    received: bool,
    holds: bool,
    parsable: bool,
    title: bool,
    verbosity: u32,
    progress: bool,
    dry: bool,
    large_blocks: bool,
    embedded: bool,
    compressed: bool,
    raw: bool,
    saved: bool,
    from: Option<String>,
    token: Option<String>,
    redact: Option<String>,
    exclude: Vec<String>,
}

impl Flags {
    /// A request for one snapshot.
    fn request(&self, snapshot: &str, from: Option<String>) -> StreamSend {
        StreamSend {
            snapshot: snapshot.to_owned(),
            from,
            large_blocks: self.large_blocks,
            embedded: self.embedded,
            compressed: self.compressed,
            raw: self.raw,
            ..StreamSend::default()
        }
    }

    /// A package has records around its streams.
    fn is_package(&self) -> bool {
        self.properties || self.holds || self.received
    }

    fn set(&mut self, session: &mut Session<'_>, option: (char, Option<String>)) -> Result<(), Stop> {
        let (letter, argument) = option;
        let argument = argument.unwrap_or_default();
        match letter {
            'X' => {
                for name in argument.split(',') {
                    if crate::text::names::check_dataset(name, DatasetKinds::HEADS, false).is_err() || !name.contains('/') {
                        return Err(session.misuse(format_args!("-X {name}: not a valid non-root dataset name.")));
                    }
                    self.exclude.push(name.to_owned());
                }
            }
            'i' | 'I' => {
                if self.from.is_some() {
                    return Err(Stop::Usage);
                }
                self.from = Some(argument);
                self.all = letter == 'I';
            }
            'R' => self.replicate = true,
            's' => self.skip_missing = true,
            'd' => self.redact = Some(argument),
            'p' => self.properties = true,
            'b' => self.received = true,
            'h' => self.holds = true,
            'P' => self.parsable = true,
            'V' => self.title = true,
            'v' => (self.verbosity, self.progress) = (self.verbosity + 1, true),
            'D' => {
                complain!(session, "WARNING: deduplicated send is no longer supported.  A regular,\nnon-deduplicated stream will be generated.\n");
            }
            'n' => self.dry = true,
            'L' => self.large_blocks = true,
            'e' => self.embedded = true,
            't' => self.token = Some(argument),
            'c' => self.compressed = true,
            'w' => (self.raw, self.compressed, self.embedded, self.large_blocks) = (true, true, true, true),
            'S' => self.saved = true,
            _ => {}
        }
        Ok(())
    }

    /// Refuses what does not go together, as OpenZFS does and in its order.
    fn check(&self, session: &mut Session<'_>, operands: &[String]) -> Result<(), Stop> {
        let refuse = |session: &mut Session<'_>, words: &str| {
            complain!(session, "{words}");
            Err(Stop::Code(1))
        };
        if !self.exclude.is_empty() && !self.replicate {
            return refuse(session, "Cannot specify dataset exclusion (-X) on a non-recursive send.");
        }
        if self.token.is_some() {
            let is_more = self.from.is_some() || self.replicate || self.is_package() || self.saved || self.redact.is_some();
            if is_more {
                return Err(session.misuse("invalid flags combined with -t"));
            }
        } else if operands.is_empty() {
            return Err(session.misuse("missing snapshot argument"));
        }
        if operands.len() > usize::from(self.token.is_none()) {
            return Err(session.misuse("too many arguments"));
        }
        if self.saved {
            let as_on_disk = self.large_blocks || self.embedded || self.compressed || self.raw;
            if self.from.is_some() || self.replicate || self.is_package() || self.all || as_on_disk || self.redact.is_some() {
                return Err(session.misuse("incompatible flags combined with saved send flag"));
            }
            if operands[0].contains('@') {
                return Err(session.misuse("saved send must specify the dataset with partially-received state"));
            }
        }
        if self.raw && self.redact.is_some() {
            return refuse(session, "Error: raw sends may not be redacted.");
        }
        if !self.dry && std::io::stdout().is_terminal() {
            return refuse(session, "Error: Stream can not be written to a terminal.\nYou must redirect standard output.");
        }
        if self.token.is_none() && !self.saved && self.skip_missing && !self.replicate {
            return Err(session.misuse("skip-missing flag can only be used in conjunction with replicate"));
        }
        Ok(())
    }
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut flags = Flags::default();
    let mut options = Options::new(words, ":i:I:RsDpVvnPLeht:cwbd:SX:U", LONG);
    for option in options.by_ref() {
        let option = option.map_err(|wrong| session.misuse(wrong))?;
        flags.set(session, option)?;
    }
    let operands = options.operands();
    if (flags.parsable || flags.title) && flags.verbosity == 0 {
        flags.verbosity = 1;
    }
    flags.check(session, &operands)?;
    if let Some(text) = flags.token.clone() {
        return token::resume(session, &flags, &text);
    }
    if flags.saved {
        return token::saved(session, &flags, &operands[0]);
    }
    if flags.replicate || flags.all {
        return package::series(session, flags, &operands[0]);
    }
    one::one(session, &mut flags, &operands[0])
}

/// A dataset by its name, with the numbers that tell snapshots apart; complains in the words of all commands.
fn open(session: &mut Session<'_>, name: &str) -> Result<DatasetEntry, Stop> {
    let found = look_up(session, name);
    found.map_err(|failure| session.failed(format_args!("cannot open '{name}'"), &failure))
}

fn look_up(session: &mut Session<'_>, name: &str) -> Result<DatasetEntry, Failure> {
    crate::text::names::check_dataset(name, DatasetKinds::ALL, false)?;
    let properties = Wanted::Only(["guid", "createtxg", "origin", "redact_snaps"].map(str::to_owned).to_vec());
    let list = DatasetList { root: Some(name.to_owned()), depth: Some(0), kinds: DatasetKinds::ALL, snapshots_where_listed: false, properties, received: false };
    let found = session.datasets(Request::DatasetList(list))?;
    let missing = || Failure::new(tarnfs::control::FailureKind::NoSuchDataset);
    found.entries.into_iter().find(|entry| entry.name == name).ok_or_else(missing)
}

/// A number among the properties of a dataset.
fn number(entry: &DatasetEntry, name: &str) -> u64 {
    entry.property(name).and_then(|property: &PropertyValue| property.value.number()).unwrap_or(0)
}

/// A text among the properties of a dataset.
fn text(entry: &DatasetEntry, name: &str) -> Option<String> {
    match &entry.property(name)?.value {
        Value::Text(text) => Some(text.clone()),
        Value::Number(_) => None,
    }
}

/// Sends one stream, and says how far it is.
fn stream(session: &mut Session<'_>, flags: &Flags, send: StreamSend, size: u64) -> Result<(), Failure> {
    let out = std::io::stdout();
    let mut saying = said::Progress::new(flags, &send.snapshot, size, session.zone.clone());
    saying.begin(&mut *session.err);
    let err = &mut *session.err;
    let reply = session.control.call_with(Request::StreamSend(send), out.as_fd(), &mut |progress| saying.say(err, progress));
    match reply {
        tarnfs::control::Reply::Done => Ok(()),
        tarnfs::control::Reply::Failed(failure) => Err(failure),
        _ => Err(Failure::with(tarnfs::control::FailureKind::Other, "the daemon's answer does not match the request")),
    }
}
