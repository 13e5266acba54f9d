//! `zfs diff`
//!
//! # Path
//! `Request::DatasetDiff`, with a pipe → here: a line for each file that differs

use std::io::{BufRead, BufReader, PipeReader, Write};
use std::os::fd::AsFd;

use tarnfs::control::{DatasetDiff, DatasetKind, DatasetKinds, DiffLine, Failure, FailureKind, Reply, Request};

use crate::session::{Outcome, Session, Stop, complain};
use crate::text::difference::Style;
use crate::text::getopt::Options;
use crate::zfs::datasets;

const FILESYSTEM: DatasetKinds = DatasetKinds { filesystem: true, volume: false, snapshot: false, bookmark: false };
const WHICH: &str = "Unable to determine which snapshots to compare";
const NOT_EARLIER: &str = "Not an earlier snapshot from the same fs";

/// What is to be compared: both by full name, the newer one a head or a snapshot.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    old: String,
    new: String,
}

impl Wish {
    fn head(&self) -> &str {
        self.new.split('@').next().unwrap_or(&self.new)
    }
}

/// Takes the two words apart as OpenZFS does; the error is what it says.
fn wish(old: &str, new: Option<&str>) -> Result<Wish, (String, &'static str)> {
    let invalid = |words: &str| Err((words.to_owned(), "invalid name"));
    let (old_head, old_snapshot) = old.split_once('@').map_or((old, None), |(head, snapshot)| (head, Some(snapshot)));
    let Some(new) = new else {
        let words = format!("Badly formed snapshot name {old}");
        return match old_snapshot {
            Some(snapshot) if !snapshot.is_empty() && !old_head.is_empty() => Ok(Wish { old: old.to_owned(), new: old_head.to_owned() }),
            _ => invalid(&words),
        };
    };
    let (new_head, new_snapshot) = new.split_once('@').map_or((new, None), |(head, snapshot)| (head, Some(snapshot)));
    let Some(old_snapshot) = old_snapshot.filter(|name| !name.is_empty()) else { return invalid(WHICH) };
    if new_snapshot == Some("") || (old_head.is_empty() && new_head.is_empty()) {
        return invalid(WHICH);
    }
    let (old_head, new_head) = (if old_head.is_empty() { new_head } else { old_head }, if new_head.is_empty() { old_head } else { new_head });
    let new = new_snapshot.map_or_else(|| new_head.to_owned(), |snapshot| format!("{new_head}@{snapshot}"));
    Ok(Wish { old: format!("{old_head}@{old_snapshot}"), new })
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "FHth", &[]);
    let mut style = Style::default();
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'F' => style.classify = true,
            'H' => style.scripted = true,
            't' => style.timestamp = true,
            _ => style.plain = true,
        }
    }
    let operands = options.operands();
    let (old, new) = match operands.as_slice() {
        [] => return Err(session.misuse("must provide at least one snapshot name")),
        [old] if old.starts_with('@') => return Err(Stop::Usage),
        [old] => (old.as_str(), None),
        [old, new] => (old.as_str(), Some(new.as_str())),
        _ => return Err(session.misuse("too many arguments")),
    };
    let first = if old.starts_with('@') { new.unwrap_or(old) } else { old };
    datasets::open(session, first.split('@').next().unwrap_or(first), FILESYSTEM, &[])?;
    let wish = wish(old, new).map_err(|(action, words)| session.failed(action, &Failure::with(FailureKind::InvalidName, words)))?;
    check(session, &wish)?;
    style.prefix = mountpoint(session, wish.head())?;
    if !wish.old.starts_with(&format!("{}@", wish.head())) {
        mountpoint(session, wish.old.split('@').next().unwrap_or(&wish.old))?;
    }
    compare(session, &wish, &style)
}

/// Both must exist.
fn check(session: &mut Session<'_>, wish: &Wish) -> Result<(), Stop> {
    for name in [&wish.old, &wish.new] {
        let kind = if name.contains('@') { DatasetKind::Snapshot } else { DatasetKind::Filesystem };
        datasets::open(session, name, DatasetKinds::NONE.with(kind), &[])?;
    }
    Ok(())
}

/// Where a file system is mounted; the root is nothing.
fn mountpoint(session: &mut Session<'_>, name: &str) -> Result<Vec<u8>, Stop> {
    let mounts = session.mounts().unwrap_or_default();
    let Some(mount) = mounts.into_iter().find(|mount| mount.dataset == name) else {
        return Err(session.failed("Cannot diff an unmounted snapshot", &Failure::with(FailureKind::BadType, "operation not applicable to datasets of this type")));
    };
    Ok(if mount.mountpoint == "/" { Vec::new() } else { mount.mountpoint.into_bytes() })
}

/// Has the daemon compare. What it says is printed while it goes on; lines of a head may be taken back, and wait for the end.
fn compare(session: &mut Session<'_>, wish: &Wish, style: &Style) -> Outcome {
    let action = "Unable to obtain diffs";
    let (from, to) = std::io::pipe().map_err(|error| session.failed(action, &Failure::with(FailureKind::Other, error.to_string())))?;
    let request = Request::DatasetDiff(DatasetDiff { old: wish.old.clone(), new: wish.new.clone() });
    session.hand_over();
    let is_head = !wish.new.contains('@');
    let (reply, unclear) = std::thread::scope(|scope| {
        let printed = scope.spawn(move || print(from, style, is_head));
        let reply = session.control.call_with(request, to.as_fd(), &mut |_| ());
        // The end of what the daemon has written.
        drop(to);
        (reply, printed.join().unwrap_or_default())
    });
    for words in unclear {
        complain!(session, "{words}");
    }
    match reply {
        Reply::Done => Ok(0),
        Reply::Failed(failure) if failure.kind == FailureKind::NotEarlier => {
            complain!(session, "{action}: ");
            complain!(session, "   {NOT_EARLIER}");
            Ok(1)
        }
        Reply::Failed(failure) => Err(session.failed(action, &failure)),
        _ => Err(session.failed(action, &Failure::with(FailureKind::Other, "the daemon's answer does not match the request"))),
    }
}

/// Prints what comes until its end; returns what is unclear.
fn print(from: PipeReader, style: &Style, is_head: bool) -> Vec<String> {
    let (mut waiting, mut unclear) = (Vec::new(), Vec::new());
    let mut out = std::io::BufWriter::new(std::io::stdout());
    let lines = BufReader::new(from).lines().map_while(Result::ok);
    for line in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
        match line {
            DiffLine::Differs(difference) => {
                waiting.extend(style.line(&difference));
                // A reader that has gone ends the comparison, as this end of the pipe is closed.
                if !is_head && out.write_all(&std::mem::take(&mut waiting)).is_err() {
                    return unclear;
                }
            }
            DiffLine::Again => (waiting, unclear) = (Vec::new(), Vec::new()),
            DiffLine::Unclear(words) => unclear.push(words),
        }
    }
    let _ = out.write_all(&waiting).and_then(|()| out.flush());
    unclear
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_apart_as_openzfs_does() {
        let of = |old: &str, new: Option<&str>| wish(old, new).map(|wish| (wish.old, wish.new)).map_err(|(action, _)| action);
        let pair = |old: &str, new: &str| Ok((old.to_owned(), new.to_owned()));
        assert_eq!(of("t/a@1", None), pair("t/a@1", "t/a"));
        assert_eq!(of("t/a@1", Some("t/a@2")), pair("t/a@1", "t/a@2"));
        assert_eq!(of("t/a@1", Some("@2")), pair("t/a@1", "t/a@2"));
        assert_eq!(of("t/a@1", Some("t/a")), pair("t/a@1", "t/a"));
        assert_eq!(of("@1", Some("t/a@2")), pair("t/a@1", "t/a@2"));
        assert_eq!(of("t/a@1", Some("t/clone")), pair("t/a@1", "t/clone"));
        for (old, new) in [("t/a", Some("t/a@2")), ("t/a@", Some("t/a@2")), ("@1", Some("@2")), ("t/a@1", Some("t/a@"))] {
            assert_eq!(of(old, new), Err(WHICH.to_owned()), "{old} {new:?}");
        }
        assert_eq!(of("t/a", None), Err("Badly formed snapshot name t/a".to_owned()));
    }
}
