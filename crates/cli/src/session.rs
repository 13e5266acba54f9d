//! The surroundings of one run of a command: a backend that answers requests, two streams, the time.
//!
//! # Theory
//!
//! A command is a function from arguments and a [`Session`] to an exit code. It prints only through the session and
//! asks only through it, so a test runs it against a fake and compares bytes.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::os::fd::BorrowedFd;

use jiff::tz::TimeZone;
use tarnfs::control::{CommandLine, Failure, FailureKind, PoolRecord, Received, Reply, Request, StreamProgress, StreamReceive, plain_words};

/// Answers requests: the daemon behind its socket, or a backend in this process.
pub(crate) trait Control {
    /// Sends `request` and waits for the answer.
    fn call(&mut self, request: Request) -> Reply;

    /// Sends a request about a stream, which goes through `descriptor`; `progress` hears how far it is, every second.
    fn call_with(&mut self, request: Request, descriptor: BorrowedFd<'_>, progress: &mut dyn FnMut(StreamProgress)) -> Reply {
        let _ = (request, descriptor, progress);
        Reply::Failed(Failure::new(FailureKind::PoolNotSupported))
    }
}

/// One run of a command.
pub(crate) struct Session<'a> {
    pub(crate) control: &'a mut dyn Control,
    pub(crate) out: &'a mut dyn Write,
    pub(crate) err: &'a mut dyn Write,
    /// Seconds since 1970.
    pub(crate) now: u64,
    pub(crate) zone: TimeZone,
    pub(crate) history: History,
    /// Hints, printed last: below a long usage text they are seen.
    pub(crate) hints: Vec<String>,
}

/// What a pool's history gets of this run: the command line, in each pool that it changed.
#[derive(Debug, Default)]
pub(crate) struct History {
    command: CommandLine,
    changed: BTreeSet<String>,
}

impl History {
    /// `zpool` or `zfs`, and the words after it.
    pub(crate) fn of_words(program: &str, words: &[String]) -> History {
        let words = std::iter::once(program).chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
        History { command: CommandLine { words, user: rustix::process::getuid().as_raw() }, changed: BTreeSet::new() }
    }

    /// For a request that makes a pool: it cannot be told later what the first record is.
    pub(crate) fn command(&self) -> CommandLine {
        self.command.clone()
    }

    /// The pool that a request changes.
    fn changed_by(request: &Request) -> Option<String> {
        let pool = |dataset: &str| Some(crate::text::names::pool_of(dataset).to_owned());
        match request {
            Request::PoolImport(import) => Some(import.name.clone()),
            Request::PoolSet(set) => Some(set.name.clone()),
            Request::PoolReguid(reguid) => Some(reguid.name.clone()),
            Request::PoolAdd(add) => Some(add.name.clone()),
            Request::PoolRemove(remove) => Some(remove.name.clone()),
            Request::PoolDevice(asked) => Some(asked.name.clone()),
            Request::PoolClear(clear) => Some(clear.name.clone()),
            Request::PoolScrub(scrub) => Some(scrub.name.clone()),
            Request::PoolUpgrade(upgrade) => Some(upgrade.name.clone()),
            Request::SnapshotsCreate(create) => create.names.first().and_then(|name| pool(name)),
            Request::SnapshotsDestroy(destroy) => destroy.names.first().and_then(|name| pool(name)),
            Request::SnapshotsHold(held) | Request::SnapshotsRelease(held) => held.names.first().and_then(|name| pool(name)),
            Request::BookmarksCreate(create) => create.pairs.first().and_then(|(name, _)| pool(name)),
            Request::SnapshotRedact(redact) => pool(&redact.snapshot),
            Request::DatasetCreate(create) => pool(&create.name),
            Request::DatasetDestroy(destroy) => destroy.names.first().and_then(|name| pool(name)),
            Request::DatasetRename(rename) => pool(&rename.from),
            Request::DatasetClone(clone) => pool(&clone.name),
            Request::DatasetPromote(promote) => pool(&promote.name),
            Request::DatasetRollback(rollback) => pool(&rollback.snapshot),
            Request::DatasetSet(set) => pool(&set.name),
            Request::ReceiveAbort(abort) => pool(&abort.dataset),
            Request::DatasetInherit(inherit) => pool(&inherit.name),
            Request::DatasetAllow(allow) => pool(&allow.name),
            _ => None,
        }
    }
}

/// Why a command ends early. Everything that is to be said about it has been said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The usage text is due, and exit code 2.
    Usage,
    /// This exit code.
    Code(u8),
}

/// An exit code, or an early end.
pub(crate) type Outcome = Result<u8, Stop>;

/// Prints a line on standard output.
macro_rules! say {
    ($session:expr, $($words:tt)*) => { $session.print(format_args!("{}\n", format_args!($($words)*))) };
}

/// Prints a line on standard error.
macro_rules! complain {
    ($session:expr, $($words:tt)*) => { $session.complain(format_args!($($words)*)) };
}

pub(crate) use {complain, say};

impl Session<'_> {
    /// Prints on standard output. A reader that has gone away is not our failure.
    pub(crate) fn print(&mut self, words: fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(words);
    }

    /// Hands over what was printed; `false`: the reader is gone, and a verb that prints again and again must end.
    pub(crate) fn hand_over(&mut self) -> bool {
        self.out.flush().is_ok()
    }

    /// Prints a line on standard error, after what was printed before.
    pub(crate) fn complain(&mut self, words: fmt::Arguments<'_>) {
        let _ = self.out.flush();
        let _ = writeln!(self.err, "{}", plain_words(words.to_string()));
    }

    /// A line for the end of what is said.
    pub(crate) fn hint(&mut self, words: impl Into<String>) {
        self.hints.push(words.into());
    }

    /// Complains, and asks for the usage text.
    pub(crate) fn misuse(&mut self, words: impl fmt::Display) -> Stop {
        complain!(self, "{words}");
        Stop::Usage
    }

    /// Complains that `action` failed: `cannot open 'tank': no such pool`.
    pub(crate) fn failed(&mut self, action: impl fmt::Display, failure: &Failure) -> Stop {
        // What is mounted stands in the way, or is not mounted any more although the rest is done: that says all.
        if ["cannot unmount '", "cannot mount '"].iter().any(|start| failure.message.starts_with(start)) {
            complain!(self, "{failure}");
        } else {
            complain!(self, "{action}: {failure}");
        }
        Stop::Code(1)
    }

    /// Sends a request whose answer is one of `pick`'s.
    fn ask<T>(&mut self, request: Request, pick: impl FnOnce(Reply) -> Option<T>) -> Result<T, Failure> {
        let changed = History::changed_by(&request);
        // What ends with the command must be told before.
        if let Request::PoolExport(tarnfs::control::PoolExport { name, .. }) | Request::PoolDestroy(tarnfs::control::PoolDestroy { name, .. }) = &request {
            self.record(name.clone());
        }
        let reply = self.control.call(request);
        let refused = matches!(&reply, Reply::Refused(refusals) if !refusals.is_empty());
        let failed = matches!(&reply, Reply::Failed(failure) if failure.kind != FailureKind::TakesEffectLater);
        if !failed && !refused {
            self.history.changed.extend(changed);
        }
        match reply {
            Reply::Failed(failure) => Err(failure),
            reply => pick(reply).ok_or_else(|| Failure::with(FailureKind::Other, "the daemon's answer does not match the request")),
        }
    }

    fn record(&mut self, pool: String) {
        let record = PoolRecord { pool, command: self.history.command() };
        // The command itself was carried out, or will say what is wrong.
        let _ = self.control.call(Request::PoolRecord(record));
    }

    /// The command has succeeded: the pools that it changed record it.
    pub(crate) fn record_history(&mut self) {
        for pool in std::mem::take(&mut self.history.changed) {
            self.record(pool);
        }
    }

    /// Sends a request that has no answer but success. What is done but takes effect later is said, and is no failure.
    pub(crate) fn perform(&mut self, request: Request) -> Result<(), Failure> {
        match self.ask(request, |reply| matches!(reply, Reply::Done).then_some(())) {
            Err(later) if later.kind == FailureKind::TakesEffectLater => {
                complain!(self, "warning: {later}");
                Ok(())
            }
            answer => answer,
        }
    }

    /// Sends a request to use a device again: how is it?
    pub(crate) fn device(&mut self, request: Request) -> Result<tarnfs::control::VdevState, Failure> {
        self.ask(request, |reply| if let Reply::Device(state) = reply { Some(state) } else { None })
    }

    /// Sends a request about several things, which is done if nothing is refused.
    pub(crate) fn refusals(&mut self, request: Request) -> Result<Vec<tarnfs::control::Refusal>, Failure> {
        self.ask(request, |reply| if let Reply::Refused(refusals) = reply { Some(refusals) } else { None })
    }

    /// Has a stream received, which comes through `descriptor`.
    pub(crate) fn receive(&mut self, request: StreamReceive, descriptor: BorrowedFd<'_>) -> Result<Received, Failure> {
        let pool = crate::text::names::pool_of(&request.dataset).to_owned();
        match self.control.call_with(Request::StreamReceive(request), descriptor, &mut |_| ()) {
            Reply::Received(received) => {
                self.history.changed.insert(pool);
                Ok(received)
            }
            Reply::Failed(failure) => Err(failure),
            _ => Err(Failure::with(FailureKind::Other, "the daemon's answer does not match the request")),
        }
    }

    /// Asks for a number of bytes.
    pub(crate) fn space(&mut self, request: Request) -> Result<u64, Failure> {
        self.ask(request, |reply| if let Reply::Space(bytes) = reply { Some(bytes) } else { None })
    }

    /// Asks how many there are of something.
    pub(crate) fn count(&mut self, request: Request) -> Result<u64, Failure> {
        self.ask(request, |reply| if let Reply::Count(count) = reply { Some(count) } else { None })
    }

    /// Sends a request for counters of pools.
    pub(crate) fn counters(&mut self, request: Request) -> Result<Vec<(String, Vec<(String, u64)>)>, Failure> {
        self.ask(request, |reply| if let Reply::Counters(counters) = reply { Some(counters) } else { None })
    }

    /// Sends a request for what users have set of vdevs.
    pub(crate) fn vdev_properties(&mut self, request: Request) -> Result<Vec<tarnfs::control::VdevProperties>, Failure> {
        self.ask(request, |reply| if let Reply::VdevProperties(vdevs) = reply { Some(vdevs) } else { None })
    }

    /// Sends a request about pools.
    pub(crate) fn pools(&mut self, request: Request) -> Result<Vec<tarnfs::control::PoolEntry>, Failure> {
        self.ask(request, |reply| if let Reply::Pools(pools) = reply { Some(pools) } else { None })
    }

    /// Sends a request for the health of pools.
    pub(crate) fn status(&mut self, request: Request) -> Result<Vec<tarnfs::control::PoolStatus>, Failure> {
        self.ask(request, |reply| if let Reply::Status(pools) = reply { Some(pools) } else { None })
    }

    /// Sends a request for pools that could be imported.
    pub(crate) fn found(&mut self, request: Request) -> Result<Vec<tarnfs::control::FoundPool>, Failure> {
        self.ask(request, |reply| if let Reply::Found(pools) = reply { Some(pools) } else { None })
    }

    /// Sends a request to import a pool: what had to be given up?
    pub(crate) fn imported(&mut self, request: Request) -> Result<Option<tarnfs::control::ImportRewound>, Failure> {
        self.ask(request, |reply| if let Reply::Imported(rewound) = reply { Some(rewound) } else { None })
    }

    /// Sends a request for the history of pools.
    pub(crate) fn histories(&mut self, request: Request) -> Result<Vec<tarnfs::control::PoolHistory>, Failure> {
        self.ask(request, |reply| if let Reply::History(pools) = reply { Some(pools) } else { None })
    }

    /// Sends a request for events.
    pub(crate) fn events(&mut self, request: Request) -> Result<Vec<tarnfs::control::PoolEvent>, Failure> {
        self.ask(request, |reply| if let Reply::Events(events) = reply { Some(events) } else { None })
    }

    /// Sends a request for what owners have.
    pub(crate) fn owners(&mut self, request: Request) -> Result<Vec<tarnfs::control::OwnerUse>, Failure> {
        self.ask(request, |reply| if let Reply::Owners(owners) = reply { Some(owners) } else { None })
    }

    /// Sends a request for the holds of a snapshot.
    pub(crate) fn holds(&mut self, request: Request) -> Result<Vec<tarnfs::control::Hold>, Failure> {
        self.ask(request, |reply| if let Reply::Holds(holds) = reply { Some(holds) } else { None })
    }

    /// Sends a request for what is granted.
    pub(crate) fn grants(&mut self, request: Request) -> Result<Vec<tarnfs::control::Grant>, Failure> {
        self.ask(request, |reply| if let Reply::Grants(grants) = reply { Some(grants) } else { None })
    }

    /// Sends a request about datasets.
    pub(crate) fn datasets(&mut self, request: Request) -> Result<tarnfs::control::Datasets, Failure> {
        self.ask(request, |reply| if let Reply::Datasets(datasets) = reply { Some(datasets) } else { None })
    }

    /// Sends a request for the size of a stream.
    pub(crate) fn stream_size(&mut self, request: Request) -> Result<u64, Failure> {
        self.ask(request, |reply| if let Reply::StreamSize(bytes) = reply { Some(bytes) } else { None })
    }

    /// Sends a request for what a package of streams says of its datasets.
    pub(crate) fn package(&mut self, request: Request) -> Result<tarnfs::control::Package, Failure> {
        self.ask(request, |reply| if let Reply::StreamPackage(package) = reply { Some(package) } else { None })
    }

    /// Begins a transaction.
    pub(crate) fn transaction(&mut self, request: Request) -> Result<tarnfs::control::TransactionPlace, Failure> {
        self.ask(request, |reply| if let Reply::Transaction(place) = reply { Some(place) } else { None })
    }

    /// Asks for mounts: for each, why it is not there.
    pub(crate) fn mounted(&mut self, request: Request) -> Result<Vec<Option<Failure>>, Failure> {
        self.ask(request, |reply| if let Reply::Mounted(failures) = reply { Some(failures) } else { None })
    }

    /// Asks for the end of mounts: for each, why it is still there.
    pub(crate) fn unmounted(&mut self, request: Request) -> Result<Vec<Option<Failure>>, Failure> {
        self.ask(request, |reply| if let Reply::Unmounted(failures) = reply { Some(failures) } else { None })
    }

    /// What is mounted?
    pub(crate) fn mounts(&mut self) -> Result<Vec<tarnfs::control::Mount>, Failure> {
        self.ask(Request::MountList, |reply| if let Reply::Mounts(mounts) = reply { Some(mounts) } else { None })
    }
}

/// Puts the exit codes of several steps together as OpenZFS does: any failure makes the whole fail.
pub(crate) fn worst(a: u8, b: u8) -> u8 {
    a | b
}
