//! `zfs send` of one snapshot.

use tarnfs::control::{DatasetEntry, DatasetKind, Failure, FailureKind, PackageAsk, Request, StreamSend};

use super::{Flags, look_up, number, open, package, said, stream, text};
use crate::session::{Outcome, Session, Stop, complain};
use crate::text::units::nice_number;

pub(super) fn one(session: &mut Session<'_>, flags: &mut Flags, name: &str) -> Outcome {
    let from = flags.from.clone().map(|from| from_name(session, name, from));
    let to = open(session, name)?;
    let action = format!("warning: cannot send '{name}'");
    if let Some(from) = from.as_deref().filter(|from| from.contains('@')) {
        let from = open(session, from)?;
        if !is_before(session, &from, &to)? {
            return Err(session.failed(&action, &Failure::new(FailureKind::NotEarlier)));
        }
    }
    let mut send = flags.request(name, from);
    if let Some(book) = &flags.redact {
        send.redact = Some(redaction_bookmark(session, &action, name, book)?);
    }
    if flags.is_package() {
        package::begin(session, flags, &PackageAsk { dataset: head_of(name).to_owned(), ..package::ask(flags, name, None) }, true)?;
    }
    let mut size = 0;
    if flags.verbosity != 0 || flags.title {
        size = estimate(session, flags, &action, &send)?;
    }
    if flags.dry {
        return Ok(0);
    }
    let from = send.from.clone();
    stream(session, flags, send, size).map_err(|failure| refused(session, &action, name, from.as_deref(), &failure))?;
    if flags.is_package() {
        package::end(session)?;
    }
    Ok(0)
}

fn head_of(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// `@a` and `#b` are of the same dataset; a word alone is a snapshot.
fn from_name(session: &mut Session<'_>, to: &str, mut from: String) -> String {
    if !from.contains(['@', '#']) {
        complain!(session, "Warning: incremental source didn't specify type, assuming snapshot. Use '@' or '#' prefix to avoid ambiguity.");
        from.insert(0, '@');
    }
    if from.starts_with(['@', '#']) { format!("{}{from}", head_of(to)) } else { from }
}

/// Whether a snapshot lies on the way to another, through origins of clones too.
fn is_before(session: &mut Session<'_>, earlier: &DatasetEntry, later: &DatasetEntry) -> Result<bool, Stop> {
    let mut later = later.clone();
    loop {
        let later_txg = if later.kind == DatasetKind::Snapshot { number(&later, "createtxg") } else { u64::MAX };
        if number(earlier, "createtxg") >= later_txg {
            return Ok(false);
        }
        if head_of(&earlier.name) == head_of(&later.name) {
            return Ok(true);
        }
        let head = open(session, &head_of(&later.name).to_owned())?;
        let Some(origin) = text(&head, "origin").filter(|origin| origin.contains('@')) else { return Ok(false) };
        if origin == earlier.name {
            return Ok(true);
        }
        later = open(session, &origin)?;
    }
}

/// The name of a redaction bookmark of the dataset, without the dataset's.
fn redaction_bookmark(session: &mut Session<'_>, action: &str, name: &str, book: &str) -> Result<String, Stop> {
    let book = book.split_once('#').map_or(book, |(_, book)| book);
    let Some((head, _)) = name.split_once('@') else {
        return Err(session.failed(action, &Failure::with(FailureKind::BadType, "cannot do a redacted send to a filesystem")));
    };
    open(session, &format!("{head}#{book}"))?;
    Ok(book.to_owned())
}

/// Says about how large a stream is going to be.
pub(super) fn estimate(session: &mut Session<'_>, flags: &Flags, action: &str, send: &StreamSend) -> Result<u64, Stop> {
    let size = match session.stream_size(Request::StreamSize(send.clone())) {
        Ok(size) => size,
        Err(failure) if flags.progress || flags.parsable => return Err(session.failed(action, &failure)),
        Err(_) => return Err(Stop::Code(1)),
    };
    if flags.progress || flags.parsable {
        said::estimate(session, flags, &send.snapshot, send.from.as_deref(), size);
        said::total(session, flags, size, nice_number(size));
    }
    Ok(size)
}

/// Why a stream was not sent, in OpenZFS's words.
pub(super) fn refused(session: &mut Session<'_>, action: &str, name: &str, from: Option<&str>, failure: &Failure) -> Stop {
    let words = match (failure.kind, from) {
        (FailureKind::NoSuchDataset, Some(from)) if look_up(session, name).is_ok() => format!("incremental source ({from}) does not exist"),
        (FailureKind::Encryption, _) => "dataset key must be loaded".to_owned(),
        (FailureKind::DatasetBusy, _) => "target is busy; if a filesystem, it must not be mounted".to_owned(),
        _ => failure.message.clone(),
    };
    session.failed(action, &Failure::with(failure.kind, words))
}
