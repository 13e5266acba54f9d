//! `tarn fs diff`: `zfs diff` between any two moments, also of a pool that nobody has imported.

use std::ffi::OsString;
use std::ops::ControlFlow;

use tarnfs::past::{Change, Difference, Past, differences};

use super::moment::{WORDS, moment};
use super::{Flags, failed, open, parse, say_behind};
use crate::fs::tree::{Result, shown};
use crate::session::{Outcome, Session, complain};
use crate::text::difference::Style;
use crate::text::{json, names};

pub(in crate::fs) fn run(session: &mut Session<'_>, words: &[OsString]) -> Outcome {
    let (flags, operands) = parse(session, words, "d:FHjth")?;
    let [old, new] = operands.as_slice() else {
        return Err(session.misuse(format_args!("two states are needed, each POOL/FS@WHEN, where WHEN is {WORDS}")));
    };
    let (old, new) = (old.to_string_lossy().into_owned(), new.to_string_lossy().into_owned());
    match compare(session, &flags, &old, &new) {
        Ok(code) => Ok(code),
        Err(words) => Err(failed(session, "diff", &words)),
    }
}

fn compare(session: &mut Session<'_>, flags: &Flags, old: &str, new: &str) -> Result<u8> {
    let (dataset, old) = old.split_once('@').ok_or_else(|| format!("{old}: the older state is POOL/FS@WHEN, where WHEN is {WORDS}"))?;
    let (other, new) = new.split_once('@').unwrap_or((new, "now"));
    if !other.is_empty() && other != dataset {
        return Err(format!("{other} is not {dataset}: states of one file system are compared"));
    }
    let past: Past = open(session, names::pool_of(dataset), &flags.pool_paths)?;
    let said = |error: tarnfs::Error| error.message().to_owned();
    say_behind(session, "diff", &past);
    // A name is that of a snapshot, if there is one.
    let snapshots = past.newest().and_then(|pool| Past::snapshots(&pool, dataset)).map_err(said)?;
    let named = |session: &Session<'_>, text: &str| {
        let is_snapshot = snapshots.iter().any(|snapshot| snapshot.name == text);
        moment(session, &if is_snapshot { format!("@{text}") } else { text.to_owned() })
    };
    let (old_moment, new_moment) = (named(session, old), named(session, new));
    let (old_pool, old_name) = past.open_at(dataset, &old_moment).map_err(said)?;
    let (new_pool, new_name) = past.open_at(dataset, &new_moment).map_err(said)?;
    let (old, new) = (old_pool.file_system(&old_name).map_err(said)?, new_pool.file_system(&new_name).map_err(said)?);
    let style = Style { classify: flags.classify, scripted: flags.scripted, timestamp: flags.timestamp, plain: flags.plain, prefix: Vec::new() };
    let mut unclear = Vec::new();
    let mut listed = Vec::new();
    let mut each = |difference: Difference| {
        if flags.json {
            listed.push(json_of(&difference));
            return ControlFlow::Continue(());
        }
        if session.out.write_all(&style.line(&difference)).is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    differences(&old, &new, &mut each, &mut |words| unclear.push(words)).map_err(said)?;
    if flags.json {
        let mut object = json::envelope("tarn fs diff");
        object.insert("dataset".into(), dataset.into());
        object.insert("changes".into(), listed.into());
        json::print(session, object);
    }
    for words in &unclear {
        complain!(session, "{words}");
    }
    Ok(0)
}

fn json_of(difference: &Difference) -> serde_json::Value {
    let (kind, path, more) = match &difference.change {
        Change::Added { path } => ("added", path, None),
        Change::Removed { path } => ("removed", path, None),
        Change::Modified { path } => ("modified", path, None),
        Change::Links { path, delta } => ("links", path, Some(("delta", serde_json::Value::from(*delta)))),
        Change::Renamed { from, to } => ("renamed", from, Some(("to", shown(to).into()))),
    };
    let mut object = serde_json::json!({ "change": kind, "path": shown(path), "mode": difference.mode, "changed": difference.changed.0 });
    if let (Some((name, value)), Some(object)) = (more, object.as_object_mut()) {
        object.insert(name.to_owned(), value);
    }
    object
}
