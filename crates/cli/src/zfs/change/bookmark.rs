//! `zfs bookmark`

use tarnfs::control::{BookmarksCreate, DatasetKind, DatasetKinds, Request};

use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::Options;
use crate::zfs::datasets;

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "", &[]);
    if let Some(option) = options.by_ref().next() {
        return Err(option.map_or_else(|wrong| session.misuse(wrong), |_| Stop::Usage));
    }
    let operands = options.operands();
    let (source, name) = match operands.as_slice() {
        [] => return Err(session.misuse("missing source argument")),
        [_] => return Err(session.misuse("missing bookmark argument")),
        [source, name, ..] => (source, name),
    };
    let (source, name) = full_names(session, source, name)?;
    let kind = if source.contains('@') { DatasetKind::Snapshot } else { DatasetKind::Bookmark };
    datasets::open(session, &source, DatasetKinds::NONE.with(kind), &[]).map_err(|_| Stop::Usage)?;
    let action = format!("cannot create bookmark '{name}'");
    match session.refusals(Request::BookmarksCreate(BookmarksCreate { pairs: vec![(name, source)] })) {
        Ok(refusals) if refusals.is_empty() => Ok(0),
        Ok(refusals) => {
            for refusal in refusals {
                session.failed(format_args!("cannot create bookmark '{}'", refusal.name), &refusal.failure);
            }
            Ok(1)
        }
        Err(failure) => Err(session.failed(action, &failure)),
    }
}

/// One of the two may be short: it is then of the other one's dataset.
fn full_names(session: &mut Session<'_>, source: &str, name: &str) -> Result<(String, String), Stop> {
    let (Some(in_source), true) = (source.find(['@', '#']), name.contains('#')) else {
        return Err(match source.contains(['@', '#']) {
            false => session.misuse(format_args!("invalid source name '{source}': must contain a '@' or '#'")),
            true => session.misuse(format_args!("invalid bookmark name '{name}': must contain a '#'")),
        });
    };
    let in_name = name.find('#').unwrap_or(0);
    match (in_source, in_name) {
        (0, 0) => {
            complain!(session, "either source or bookmark must be specified as full dataset paths");
            Err(Stop::Usage)
        }
        (0, _) => Ok((format!("{}{source}", &name[..in_name]), name.to_owned())),
        (_, 0) => Ok((source.to_owned(), format!("{}{name}", &source[..in_source]))),
        _ => Ok((source.to_owned(), name.to_owned())),
    }
}
