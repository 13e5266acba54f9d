//! `zfs send -t`: going on where a receive broke off; and `zfs send -S`: sending on what is there of one.
//!
//! # Theory
//! A token says what was being received and how far it came. What is there of an interrupted receive has one too: it is sent from its beginning, or from
//! where another token says, and ends without an END record, as if it had broken off there.

use ondisk::nvlist::{NvList, Value};
use tarnfs::control::{DatasetEntry, DatasetKinds, DatasetList, Failure, FailureKind, Request, Wanted};

use super::one::{estimate, refused};
use super::{Flags, number, said, text};
use crate::session::{Outcome, Session, Stop, complain};
use crate::stream::{decode_token, print_list};

const ACTION: &str = "cannot resume send";

/// What a token says.
struct Point {
    list: NvList,
    /// What is sent, as it was called.
    to: String,
    object: u64,
    offset: u64,
    bytes: u64,
    guid: u64,
}

fn corrupt(words: impl Into<String>) -> Failure {
    Failure::with(FailureKind::Other, words.into())
}

impl Point {
    fn new(list: NvList) -> Option<Point> {
        let number = |name: &str| list.u64(name);
        let (to, object, offset, bytes, guid) = (list.str("toname")?.to_owned(), number("object")?, number("offset")?, number("bytes")?, number("toguid")?);
        Some(Point { list, to, object, offset, bytes, guid })
    }

    fn has(&self, name: &str) -> bool {
        matches!(self.list.get(name), Some(Value::Boolean))
    }
}

/// The status with which OpenZFS's command ends where a token is of no use: tools tell by it from other errors.
const USELESS: u8 = 255;

pub(super) fn resume(session: &mut Session<'_>, flags: &Flags, token: &str) -> Outcome {
    go_on(session, flags, token).map_err(|stop| if matches!(stop, Stop::Code(_)) { Stop::Code(USELESS) } else { stop })
}

fn go_on(session: &mut Session<'_>, flags: &Flags, token: &str) -> Outcome {
    let list = decode_token(token).map_err(|why| session.failed(ACTION, &corrupt(format!("resume token is corrupt ({why})"))))?;
    say_contents(session, flags, &list);
    let point = Point::new(list).ok_or_else(|| session.failed(ACTION, &corrupt("resume token is corrupt")))?;
    let Some(name) = with_guid(session, &point.to, point.guid, Sources::Sent, None)? else {
        let is_there = super::look_up(session, &point.to).is_ok();
        let why = if is_there { "is no longer the same snapshot used in the initial send" } else { "used in the initial send no longer exists" };
        return Err(session.failed(ACTION, &corrupt(format!("'{}' {why}", point.to))));
    };
    send(session, flags, &point, &name)
}

/// `--saved`
pub(super) fn saved(session: &mut Session<'_>, flags: &Flags, name: &str) -> Outcome {
    let entries = datasets(session, name, 0, DatasetKinds::HEADS, &["receive_resume_token"]);
    let Some(entry) = entries.into_iter().find(|entry| entry.name == name) else {
        complain!(session, "cannot open '{name}': dataset does not exist");
        return Ok(1);
    };
    let Some(token) = text(&entry, "receive_resume_token").filter(|token| token != "-") else {
        return Err(session.failed("saved send failed", &corrupt(format!("'{name}' has no partially-received state"))));
    };
    let mut list = decode_token(&token).map_err(|why| session.failed("saved send failed", &corrupt(why.to_string())))?;
    for (number, value) in [("object", 0_u64), ("offset", 0), ("bytes", 0)] {
        list.set(number, value);
    }
    list.set("toname", name);
    say_contents(session, flags, &list);
    let point = Point::new(list).ok_or_else(|| session.failed("saved send failed", &corrupt("resume token is corrupt")))?;
    send(session, flags, &point, name)
}

fn say_contents(session: &mut Session<'_>, flags: &Flags, list: &NvList) {
    if flags.verbosity != 0 {
        let mut words = Vec::new();
        let _ = print_list(&mut words, list, 0);
        said::print(session, flags, format_args!("resume token contents:\n{}", String::from_utf8_lossy(&words)));
    }
}

/// Sends `name` from the point on.
fn send(session: &mut Session<'_>, flags: &Flags, point: &Point, name: &str) -> Outcome {
    let from = match point.list.u64("fromguid").filter(|guid| *guid != 0) {
        None => None,
        Some(guid) => match with_guid(session, &point.to, guid, Sources::From, point.list.u64_array("book_redact_snaps"))? {
            Some(from) => Some(from),
            None => return Err(session.failed(ACTION, &corrupt(format!("incremental source {guid:#x} no longer exists")))),
        },
    };
    let redact = match point.list.u64_array("redact_snaps") {
        None => None,
        Some(guids) => Some(redaction_bookmark(session, &point.to, guids)?),
    };
    let mut flags = flags.clone();
    flags.large_blocks |= point.has("largeblockok");
    flags.embedded |= point.has("embedok");
    flags.compressed |= point.has("compressok");
    flags.raw |= point.has("rawok");
    let mut send = flags.request(name, from.clone());
    send.redact = redact;
    send.saved = flags.saved;
    send.resume = (!flags.saved).then_some((point.object, point.offset));
    let mut size = 0;
    if flags.verbosity != 0 || flags.title {
        send.resumed_bytes = point.bytes;
        size = estimate(session, &flags, ACTION, &send)?;
    }
    if flags.dry {
        return Ok(0);
    }
    let sending = format!("warning: cannot send '{name}'");
    super::stream(session, &flags, send, size).map_err(|failure| refused(session, &sending, name, from.as_deref(), &failure))?;
    Ok(0)
}

fn datasets(session: &mut Session<'_>, root: &str, depth: impl Into<Option<u64>>, kinds: DatasetKinds, properties: &[&str]) -> Vec<DatasetEntry> {
    let properties = Wanted::Only(properties.iter().map(|name| (*name).to_owned()).collect());
    let list = DatasetList { root: Some(root.to_owned()), depth: depth.into(), kinds, snapshots_where_listed: false, properties, received: false };
    session.datasets(Request::DatasetList(list)).map(|found| found.entries).unwrap_or_default()
}

/// Whether something was redacted for just these snapshots.
fn is_redacted_for(entry: &DatasetEntry, guids: &[u64]) -> bool {
    let theirs = text(entry, "redact_snaps").filter(|text| text != "-");
    let theirs: Option<Vec<u64>> = theirs.map(|text| text.split(',').filter_map(|guid| guid.parse().ok()).collect());
    theirs.is_some_and(|theirs| theirs.len() == guids.len() && guids.iter().all(|guid| theirs.contains(guid)))
}

/// What a token's guid may be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sources {
    /// What is sent: a snapshot, or a file system or volume itself.
    Sent,
    /// What it is incremental from: a snapshot or a bookmark.
    From,
}

/// The snapshot, head or bookmark with a guid: of the dataset that the token names, or of any in its pool. `redacted_for`: and it was redacted for these snapshots.
fn with_guid(session: &mut Session<'_>, name: &str, guid: u64, sources: Sources, redacted_for: Option<&[u64]>) -> Result<Option<String>, Stop> {
    let is_sent = sources == Sources::Sent;
    let kinds = DatasetKinds { filesystem: is_sent, volume: is_sent, snapshot: true, bookmark: !is_sent };
    let head = name.split('@').next().unwrap_or(name);
    let pool = head.split('/').next().unwrap_or(head);
    for (root, depth) in [(head, Some(1)), (pool, None)] {
        let found = datasets(session, root, depth, kinds, &["guid", "redact_snaps"]);
        let is_it = |entry: &&DatasetEntry| number(entry, "guid") == guid && redacted_for.is_none_or(|guids| is_redacted_for(entry, guids));
        if let Some(entry) = found.iter().find(is_it) {
            return Ok(Some(entry.name.clone()));
        }
    }
    Ok(None)
}

/// The bookmark of a dataset that says what is left out for just these snapshots.
fn redaction_bookmark(session: &mut Session<'_>, to: &str, guids: &[u64]) -> Result<String, Stop> {
    let head = to.split('@').next().unwrap_or(to);
    let kinds = DatasetKinds { filesystem: false, volume: false, snapshot: false, bookmark: true };
    let found = datasets(session, head, Some(1), kinds, &["redact_snaps"]);
    let is_it = |entry: &&DatasetEntry| entry.name.split('#').next() == Some(head) && is_redacted_for(entry, guids);
    match found.iter().find(is_it).and_then(|entry| entry.name.split_once('#')) {
        Some((_, book)) => Ok(book.to_owned()),
        None => Err(session.failed(ACTION, &corrupt("no appropriate redaction bookmark exists"))),
    }
}
