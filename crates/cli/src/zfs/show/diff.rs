//! `zfs diff`
//!
//! # Theory
//! The two states are read from the pool's devices, beside the daemon: a snapshot does not change. The head is its state in the newest group
//! on disk, after a group was written for that; where blocks of that state are written over before the comparison is done, it begins again.

use std::ops::ControlFlow;

use tarnfs::control::{DatasetKind, DatasetKinds, Failure, FailureKind, PoolSelect, Request, Wanted};
use tarnfs::past::{Moment, Past, differences};

use crate::session::{Outcome, Session, Stop, complain};
use crate::text::difference::Style;
use crate::text::getopt::Options;
use crate::text::names;
use crate::zfs::datasets;

const FILESYSTEM: DatasetKinds = DatasetKinds { filesystem: true, volume: false, snapshot: false, bookmark: false };
const WHICH: &str = "Unable to determine which snapshots to compare";
const NOT_EARLIER: &str = "Not an earlier snapshot from the same fs";
/// How often a head that is written over meanwhile is looked at.
const TRIES: usize = 3;

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
    if !wish.new.contains('@') {
        // What is in memory counts, too. A pool that cannot be written has nothing there.
        let select = PoolSelect { name: Some(names::pool_of(&wish.new).to_owned()), properties: Wanted::Only(Vec::new()) };
        let _ = session.perform(Request::PoolSync(select));
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

fn compare(session: &mut Session<'_>, wish: &Wish, style: &Style) -> Outcome {
    let unable = |session: &mut Session<'_>, words: &str| session.failed("Unable to obtain diffs", &Failure::with(FailureKind::Other, words));
    let past = crate::fs::past::open(session, names::pool_of(&wish.new), &[]).map_err(|words| unable(session, &words))?;
    let mut said = String::new();
    for _ in 0..TRIES {
        match try_compare(&past, wish, style) {
            Ok(Some((lines, unclear))) => {
                let _ = session.out.write_all(&lines);
                for words in unclear {
                    complain!(session, "{words}");
                }
                return Ok(0);
            }
            Ok(None) => {
                complain!(session, "Unable to obtain diffs: ");
                complain!(session, "   {NOT_EARLIER}");
                return Ok(1);
            }
            Err(error) => error.message().clone_into(&mut said),
        }
        if wish.new.contains('@') {
            break;
        }
    }
    Err(unable(session, &said))
}

type Lines = (Vec<u8>, Vec<String>);

/// `None`: the older one is not older, or of another file system.
fn try_compare(past: &Past, wish: &Wish, style: &Style) -> Result<Option<Lines>, tarnfs::Error> {
    let (pool, _) = past.open_at(wish.head(), &Moment::Now)?;
    if !tarnfs::past::is_earlier(&pool, &wish.old, &wish.new)? {
        return Ok(None);
    }
    let (old, new) = (pool.file_system(&wish.old)?, pool.file_system(&wish.new)?);
    let (mut lines, mut unclear) = (Vec::new(), Vec::new());
    let mut each = |difference| {
        lines.extend(style.line(&difference));
        ControlFlow::Continue(())
    };
    differences(&old, &new, &mut each, &mut |words| unclear.push(words))?;
    Ok(Some((lines, unclear)))
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
